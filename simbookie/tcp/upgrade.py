"""Starting TLS on a connection that has begun in clear."""

from __future__ import annotations

import asyncio
import ssl

__all__ = ["Upgraded", "upgrade"]

Upgraded = tuple[asyncio.Transport, bytes]
"""The transport inside TLS, and what has come inside so far. It still has a protocol that keeps what comes."""


async def upgrade(transport: asyncio.Transport, context: ssl.SSLContext, timeout_s: float) -> Upgraded | None:
    """Be the server of a TLS handshake on ``transport``; ``OSError`` if it fails, ``None`` if the client has gone since."""
    held = _Held()
    secured = await asyncio.get_running_loop().start_tls(
        transport, held, context, server_side=True, ssl_handshake_timeout=timeout_s
    )
    if secured is None or held.is_lost:
        return None
    return secured, bytes(held.data)


class _Held(asyncio.Protocol):
    """Takes what comes inside TLS before the connection knows that TLS stands, and would answer it in clear."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True
