"""What Pulsar 3.0.7's own classes wrote to our bookies and to ZooKeeper: ``tests/interop/pulsar`` made it, entry by entry."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["ENTRIES", "NODES"]

_RECORDED: Final = dict(line.split() for line in Path(__file__).with_name("recorded.txt").read_text().splitlines())
#: By name, in the order in which they were written.
ENTRIES: Final = {name: bytes.fromhex(data) for name, data in _RECORDED.items() if not name.startswith("node-")}
#: By the way in which the list of ledgers is compressed.
NODES: Final = {
    name.removeprefix("node-").lower(): bytes.fromhex(data)
    for name, data in _RECORDED.items()
    if name.startswith("node-")
}
