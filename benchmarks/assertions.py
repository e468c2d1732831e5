"""What assertions cost an append: CPU time of the client with them, and without them under Python's ``-O``.

Machines, codecs and transports assert their invariants at every step. The two clients take turns, each in a process of its
own, on the same bookies; the first tenth of a client's entries is not measured. ``-O`` removes the assertions of libraries
and of asyncio as well, so the difference is the most that ours can cost.

    python -m benchmarks.assertions --bookies ours --no-java
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

from benchmarks.append import append_many
from benchmarks.cluster import Bench, command
from benchmarks.measuring import LOOPS, Contender, Result, Values, compared, in_turn, run_on

#: Payload, entries of a round, entries in flight.
LOADS = ((100, 30_000, 1000), (1024, 30_000, 1000))
_KEPT, _REMOVED = "ours-with-assertions", "without-assertions"


@dataclass(frozen=True, slots=True)
class _Named:
    """Bookies of another process, as far as a client needs to know."""

    uri: str


def append_in_child(uri: str, protocol: int, size: int, entries: int, window: int) -> None:
    """What a client's process does; prints its values."""
    bookies = _Named(uri)

    async def appends() -> Values:
        await append_many(bookies, protocol, size, entries // 10, window)
        return await append_many(bookies, protocol, size, entries, window)

    print(json.dumps(run_on(LOOPS[0], appends())))


def _values(uri: str, load: tuple[int, int, int, int], *options: str) -> Values:
    child = [sys.executable, *options, "-m", "benchmarks.assertions", "child", uri, *map(str, load)]
    values: Values = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE).stdout)
    return values


def measure(bench: Bench) -> list[Result]:
    """All of it."""
    results = []
    for kind in bench.kinds:
        for protocol in bench.protocols:
            with bench.bookies(kind) as bookies:
                for size, most, window in LOADS:
                    load = (protocol, size, bench.scaled(most, window), window)
                    contenders: dict[str, Contender] = {
                        _KEPT: partial(_values, bookies.uri, load),
                        _REMOVED: partial(_values, bookies.uri, load, "-O"),
                    }
                    params = {"bookies": kind, "protocol": protocol, "payload_bytes": size, "entries": load[2]}
                    results += compared("append-assertions", params, in_turn(contenders, bench.rounds))
    return results


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        append_in_child(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        command(measure, "What assertions cost an append.")
