"""A bookie's HTTP interface, all of it: which path is answered by what."""

from __future__ import annotations

from typing import Final

from simbookie.admin.bookie_endpoints import BOOKIE_ANSWERS
from simbookie.admin.cluster_endpoints import CLUSTER_ANSWERS
from simbookie.admin.endpoints import Administered, Answer, Endpoints, heartbeat, metrics, server_config
from simbookie.admin.gc_endpoints import GC_ANSWERS
from simbookie.admin.http_server import HttpConfig, HttpServer
from simbookie.admin.ledger_endpoints import LEDGER_ANSWERS

__all__ = ["ANSWERS", "AdminServer"]

#: By path.
ANSWERS: Final[dict[str, Answer]] = {
    "/heartbeat": heartbeat,
    "/metrics": metrics,
    "/api/v1/config/server_config": server_config,
    **LEDGER_ANSWERS,
    **BOOKIE_ANSWERS,
    **GC_ANSWERS,
    **CLUSTER_ANSWERS,
}


class AdminServer(HttpServer):
    """Serves the endpoints about ``subject`` on ``host:port``."""

    def __init__(self, subject: Administered, host: str, port: int = 0, config: HttpConfig | None = None) -> None:
        super().__init__(Endpoints(subject, ANSWERS), host, port, config)
        self._jobs = subject.jobs

    async def aclose(self) -> None:
        """Stop listening, break every connection, end what requests began. Idempotent."""
        await super().aclose()
        await self._jobs.aclose()
