"""Recovery: how long it takes to close a ledger whose writer is gone, by the length of the tail it left.

Tails are written by our client, all entries at once, and left without a close. So no entry says that any other is confirmed,
and a recovery has to read all of them and write them again. Every contender recovers ledgers of its own.

    python -m benchmarks.recovery
"""

from __future__ import annotations

from functools import partial

from benchmarks.cluster import Bench, Bookies, a_writer, command, connected
from benchmarks.java_client import values_of
from benchmarks.measuring import LOOPS, OURS, Contender, Meter, Result, Values, compared, in_turn, run_on

LENGTHS = (10, 1000, 5000)


async def leave_tail(bookies: Bookies, entries: int) -> int:
    """A ledger that was not closed."""
    async with connected(bookies, 3, entries, writing={"explicit_lac_interval_s": 0}) as client:
        writer = await a_writer(client)
        for future in [writer.append_nowait(bytes(100)) for _ in range(entries)]:
            await future
    return writer.ledger_id


async def recover(bookies: Bookies, ledger_id: int, entries: int) -> Values:
    """By our client, whose connections stand."""
    async with connected(bookies, 3) as client:
        writer = await a_writer(client)
        await writer.append(b"")
        with Meter() as meter:
            reader = await client.open_ledger(ledger_id, recover=True)
        assert reader.last_add_confirmed == entries - 1
        await writer.close()
    return meter.whole()


def measure(bench: Bench) -> list[Result]:
    """By length of the tail."""
    results = []
    for kind in bench.kinds:
        with bench.bookies(kind) as bookies:
            bench.warm(bookies, 3)
            for length in LENGTHS if bench.scale >= 1 else LENGTHS[:2]:

                def ours(way: str, bookies: Bookies = bookies, length: int = length) -> Values:
                    ledger_id = run_on(way, leave_tail(bookies, length))
                    return run_on(way, recover(bookies, ledger_id, length))

                def java(bookies: Bookies = bookies, length: int = length) -> Values:
                    ledger_id = run_on(LOOPS[0], leave_tail(bookies, length))
                    answer = bench.java_call("recover", bookies, 3, ledger=ledger_id)
                    assert answer["last"] == length - 1
                    return values_of(answer)

                contenders: dict[str, Contender] = {f"ours-{way}": partial(ours, way) for way in OURS}
                if bench.java is not None:
                    contenders["java-client"] = java
                params = {"bookies": kind, "protocol": 3, "payload_bytes": 100, "tail": length}
                results += compared("recovery", params, in_turn(contenders, bench.rounds))
    return results


if __name__ == "__main__":
    command(measure, "Recoveries beside the Java client.")
