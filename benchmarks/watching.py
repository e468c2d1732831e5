"""What it costs to watch a client: CPU time for an append without and with statistics, counts by bookie, and spans.

There is no network: bookies answer at the next turn of the loop, so that the differences are those of this process alone. Kinds
take turns, round by round, because machines drift; the least of the rounds is the one that was disturbed the least.

    python -m benchmarks.watching
    python -m benchmarks.watching --entries 2000 --rounds 3
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import defaultdict
from typing import Annotated

import typer

from bkclient import BookKeeper, ClientConfig, PlacementSettings
from bkclient.errors import Code
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.observability.memory_stats import MemoryStats
from bkclient.observability.tracer import Tracer
from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.transport.measured import MeasuredTransport
from bkclient.wire.messages import Request

KINDS = ("nothing", "operations", "operations and requests", "a span for every append")


class InstantTransport:
    """Every bookie stores everything, at the next turn of the loop."""

    def __init__(self) -> None:
        self._requests: list[tuple[str, Request, ReplyHandler]] = []
        #: There is one to every bookie, before anything else happens.
        self.connections: dict[str, int] = defaultdict(int)

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """See :class:`~bkclient.transport.base.BookieTransport`."""
        if not self._requests:
            asyncio.get_running_loop().call_soon(self._answer)
        self._requests.append((bookie_id, request, reply_to))

    def _answer(self) -> None:
        requests, self._requests = self._requests, []
        for bookie_id, request, reply_to in requests:
            reply_to(bookie_id, request, Code.OK, None)

    def pending_requests(self, bookie_id: str) -> int:  # noqa: ARG002
        """See :class:`~bkclient.transport.base.BookieTransport`."""
        return len(self._requests)

    def is_writable(self, bookie_id: str) -> bool:  # noqa: ARG002
        """See :class:`~bkclient.transport.base.BookieTransport`."""
        return True

    async def aclose(self) -> None:
        """See :class:`~bkclient.transport.base.BookieTransport`."""
        self._answer()


def tracer_of_everything() -> Tracer:
    """A tracer with the SDK, whose spans nobody exports."""
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an optional package

    from bkclient.observability.tracing import OpenTelemetryTracer  # noqa: PLC0415

    return OpenTelemetryTracer(TracerProvider(), appends=True)


async def cpu_us_per_append(kind: str, entries: int) -> float:
    """Append ``entries`` entries to three bookies, pipelined."""
    rng = random.Random(1)
    stats = MemoryStats() if kind.startswith("operations") else None
    transport: BookieTransport = InstantTransport()
    if stats is not None and kind.endswith("requests"):
        transport = MeasuredTransport(transport, stats)
    tracer = tracer_of_everything() if kind.startswith("a span") else None
    config = ClientConfig(placement=PlacementSettings(policy="random"))
    async with MemoryMetadataService().session(rng=rng) as store:
        for index in range(3):
            await store.register_bookie(f"bookie-{index}", BookieAddress("localhost", 3181 + index))
        async with BookKeeper(store, transport, config=config, rng=rng, stats=stats, tracer=tracer) as client:
            writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            payload = bytes(100)
            began = time.process_time()
            for _ in range(entries):
                await writer.submit(payload)
            await writer.flush()
            seconds = time.process_time() - began
            await writer.close()
    return seconds / entries * 1e6


def main(
    entries: Annotated[int, typer.Option(help="entries per round")] = 4000,
    rounds: Annotated[int, typer.Option(help="rounds counted, after one that is not")] = 8,
) -> None:
    """CPU microseconds for an append, by what is watched."""
    costs: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for round_number in range(rounds + 1):
        for kind in KINDS:
            cost = asyncio.run(cpu_us_per_append(kind, entries))
            if round_number > 0:
                costs[kind].append(cost)
    for kind, values in costs.items():
        print(f"{kind:26} least {min(values):6.2f} us, median {statistics.median(values):6.2f} us")


if __name__ == "__main__":
    typer.run(main)
