"""Synchronous use: a script whose threads write lines of files into one ledger, and read it back.

python examples/threads.py zk://127.0.0.1:2181/ledgers README.md CHANGELOG.md
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bkclient.sync
from bkclient.sync import SyncLedgerWriter


def store(writer: SyncLedgerWriter, file: Path) -> int:
    """Append each line of a file; the number of lines."""
    with file.open("rb") as lines:
        return len(writer.append_all(lines))


def main(uri: str, files: list[Path]) -> None:
    """One client, one writer, a thread for each file."""
    with bkclient.sync.connect(uri) as bk:
        with (
            bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2) as writer,
            ThreadPoolExecutor() as threads,
        ):
            counts = list(threads.map(lambda file: store(writer, file), files))
        for file, count in zip(files, counts, strict=True):
            print(f"{file.name}: {count} lines")
        with bk.open_ledger(writer.ledger_id) as reader:
            print(f"ledger {reader.ledger_id}: {sum(1 for _ in reader)} entries")


if __name__ == "__main__":
    main(sys.argv[1], [Path(name) for name in sys.argv[2:]])
