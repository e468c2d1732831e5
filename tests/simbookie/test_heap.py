"""Memory that was needed for a while goes back to the system."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from simbookie.heap import HeapTrimmer, find_malloc_trim

#: Large buffers that came from the heap, because one was freed before, and something small above each that stays.
BUFFERS = """
import json, os
from pathlib import Path
from simbookie.heap import find_malloc_trim
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
trim = find_malloc_trim()
bytes(4_000_000)
kept, buffers = [], []
before = resident()
for _ in range(50):
    buffers.append(bytearray(b"x") * 1_000_000)
    kept.append(bytearray(b"x") * 2_000)
full = resident()
del buffers
freed = resident()
trim()
print(json.dumps([each - before for each in (full, freed, resident())]))
"""


@pytest.mark.skipif(find_malloc_trim() is None or not Path("/proc/self/statm").exists(), reason="needs glibc and /proc")
def test_what_is_free_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", BUFFERS], check=True, capture_output=True, text=True, timeout=60)
    full, freed, trimmed = json.loads(done.stdout)
    assert full > 45_000_000
    assert freed > 0.9 * full, "which is what trimming is there for"
    assert trimmed < 0.1 * full


class Ends(Exception):
    pass


async def pauses(activity: list[int], cost_s: float = 0.0) -> list[str]:
    """What happens, with ``activity`` at the beginning and after each pause: pauses in seconds, and trims."""
    log: list[str] = []
    now = 0.0

    def trim() -> None:
        nonlocal now
        now += cost_s
        log.append("trim")

    async def sleep(seconds: float) -> None:
        if not activity:
            raise Ends
        log.append(f"{seconds:g}")

    with suppress(Ends):
        await HeapTrimmer(trim, lambda: activity.pop(0), lambda: now, sleep=sleep).run()
    return log


async def test_a_process_is_trimmed_after_it_did_something() -> None:
    assert await pauses([5, 5, 5]) == ["10", "10"]
    assert await pauses([5, 6, 6, 7]) == ["10", "trim", "10", "10", "trim"]


async def test_the_next_trim_waits_a_thousand_times_as_long_as_the_last_took() -> None:
    assert await pauses([1, 2, 3], 0.3) == ["10", "trim", "300", "trim"]
    assert await pauses([1, 2, 3], 0.001) == ["10", "trim", "10", "trim"]
