"""A cluster whose processes are values, for tests of what controls one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from bkclient.metadata.base import BookieAddress
from simbookie.development.control import ClusterControl
from simbookie.development.relay import Relay
from simbookie.processes import BookieStartError, ProcessCluster

__all__ = ["FakeProcess", "FakeProcesses", "controlled"]


class FakeProcess:
    """A bookie process that only notes what is done to it."""

    def __init__(self, index: int) -> None:
        self.name = self.bookie_id = f"bookie-{index}"
        self.address = BookieAddress("127.0.0.1", 9)
        self.admin_port: int | None = 1
        self.log_path = Path("log")
        self.is_running = True
        self.done: list[str] = []
        self.fails = False

    @property
    def pid(self) -> int | None:
        return 1 if self.is_running else None

    def kill(self) -> None:
        self.done.append("kill")
        self.is_running = False

    def restart(self) -> None:
        self.done.append("restart")
        if self.fails:
            raise BookieStartError("it did not serve")
        self.is_running = True

    def pause(self) -> None:
        self.done.append("pause")

    def resume(self) -> None:
        self.done.append("resume")


class FakeProcesses:
    """A cluster of them."""

    metadata_uri = "zk://nowhere/ledgers"

    def __init__(self, count: int, relays: dict[int, Relay]) -> None:
        self.bookies = [FakeProcess(index) for index in range(count)]
        self.relays = relays
        self.fails = False

    @property
    def bookie_ids(self) -> tuple[str, ...]:
        return tuple(bookie.bookie_id for bookie in self.bookies)

    def add(self) -> FakeProcess:
        if self.fails:
            raise BookieStartError("no memory")
        index = len(self.bookies)
        self.relays[index] = Relay()
        self.bookies.append(FakeProcess(index))
        return self.bookies[-1]


def controlled(count: int = 2) -> tuple[ClusterControl, FakeProcesses]:
    """A control of ``count`` of them; its relays have to be closed."""
    relays = {index: Relay() for index in range(count)}
    processes = FakeProcesses(count, relays)
    return ClusterControl(cast("ProcessCluster", cast("Any", processes)), relays), processes
