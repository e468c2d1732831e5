"""Setting up: from nothing to the first acknowledged entry. A new client, a session with ZooKeeper, a ledger, three connections.

python -m benchmarks.connecting
"""

from __future__ import annotations

from functools import partial

from benchmarks.cluster import Bench, Bookies, a_writer, command, connected
from benchmarks.java_client import values_of
from benchmarks.measuring import OURS, Contender, Meter, Result, Values, compared, in_turn, run_on

ROUNDS_MIN = 5


async def connect(bookies: Bookies) -> Values:
    """By our client."""
    with Meter() as meter:
        client = await connected(bookies, 3)
        writer = await a_writer(client)
        await writer.append(bytes(100))
    await writer.close()
    await client.aclose()
    return meter.whole()


def measure(bench: Bench) -> list[Result]:
    """For both kinds of bookies."""
    results = []
    for kind in bench.kinds:
        with bench.bookies(kind) as bookies:

            def ours(way: str, bookies: Bookies = bookies) -> Values:
                return run_on(way, connect(bookies))

            def java(bookies: Bookies = bookies) -> Values:
                return values_of(bench.java_call("connect", bookies, 3))

            contenders: dict[str, Contender] = {f"ours-{way}": partial(ours, way) for way in OURS}
            if bench.java is not None:
                contenders["java-client"] = java
            samples = in_turn(contenders, max(ROUNDS_MIN, bench.rounds))
            results += compared("connect", {"bookies": kind, "protocol": 3}, samples)
    return results


if __name__ == "__main__":
    command(measure, "Setting up a client beside the Java client.")
