"""What ends the start of a process, apart from what starts it: command lines catch both, and most start neither."""

from __future__ import annotations

__all__ = ["BookieStartError", "PortTakenError", "ZooKeeperStartError"]


class BookieStartError(RuntimeError):
    """A bookie process did not come to serve; the message ends with the last lines of its log."""


class ZooKeeperStartError(RuntimeError):
    """ZooKeeper itself did not come up; the message ends with the last lines of its log."""


class PortTakenError(ZooKeeperStartError):
    """Another program listens on the port that ZooKeeper was to have."""
