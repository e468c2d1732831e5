"""What the examples show is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def output_of(example: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_quickstart_writes_a_ledger_takes_it_over_and_reads_it() -> None:
    lines = output_of("quickstart.py")
    assert lines[0] == "ledger 0: entries 0 to 999, 8932 bytes"
    assert lines[1].startswith("the writer is refused: ledger 0, entry 1000, bookie 127.0.0.1:")
    assert "another client has taken over the ledger; the bookie refused entry 1000" in lines[1]
    assert lines[-1] == "the last of 1000: entry 999"


def test_deferred_sync_is_many_times_faster_than_a_sync_for_each_entry() -> None:
    durable, deferred = (float(line.split()[-3]) for line in output_of("deferred_sync.py"))
    assert durable > 5  # milliseconds, which is what a sync takes
    assert durable > 2 * deferred
