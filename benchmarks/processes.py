"""What processes have taken, as ``/proc`` of Linux tells; on other systems there is none, and a benchmark says less."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

__all__ = ["CpuOf", "ForeignLoad", "ProcessCost", "busy_s", "family", "family_cpu_s", "taken_by"]

_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """What a process has taken so far: seconds of CPU, those of children that ended, and bytes that are resident."""

    parent: int
    cpu_s: float
    children_cpu_s: float
    resident_bytes: int


def taken_by(pid: int) -> ProcessCost:
    """Of one process. Raises :class:`OSError` if there is none."""
    words = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    user, system, children_user, children_system = map(int, words[11:15])
    return ProcessCost(
        int(words[1]), (user + system) / _TICKS, (children_user + children_system) / _TICKS, int(words[21]) * _PAGE
    )


def family() -> dict[int, ProcessCost]:
    """By process id: of this process and of all that descend from it."""
    known: dict[int, ProcessCost] = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            known[int(folder.name)] = taken_by(int(folder.name))
        except OSError:
            continue  # it has ended
    ours = {os.getpid()} & known.keys()
    while more := {pid for pid, process in known.items() if process.parent in ours} - ours:
        ours |= more
    return {pid: known[pid] for pid in ours}


def family_cpu_s() -> float:
    """Seconds of CPU of this process and of all that descended from it. Children that ended count with who waited for them."""
    return sum(process.cpu_s + process.children_cpu_s for process in family().values())


def busy_s() -> float | None:
    """Seconds of CPU of everything since the system started; None where the system does not tell."""
    try:
        numbers = [int(word) for word in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return None
    return float(sum(numbers) - numbers[3] - numbers[4]) / _TICKS


class CpuOf:
    """Of a block: ``cpu_s``, the CPU time of other processes, whatever their threads; exact to 10 ms for each of them."""

    cpu_s: float

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)

    def _so_far(self) -> float:
        return sum(taken_by(pid).cpu_s for pid in self._pids)

    def __enter__(self) -> Self:
        self._began = self._so_far()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_s = self._so_far() - self._began


class ForeignLoad:
    """Of a block: ``part``, what other programs took of all processors meanwhile, None where the system does not tell.

    Beside it how long the block took, and what this process and its descendants took of the CPU, in seconds.
    """

    part: float | None
    wall_s: float
    cpu_s: float

    def __enter__(self) -> Self:
        self._began, self._busy, self._own = time.perf_counter(), busy_s(), family_cpu_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._began
        busy = busy_s()
        self.cpu_s = family_cpu_s() - self._own
        self.part = None
        if busy is not None and self._busy is not None:
            foreign = busy - self._busy - self.cpu_s
            self.part = min(1.0, max(0.0, foreign / (self.wall_s * (os.cpu_count() or 1))))
