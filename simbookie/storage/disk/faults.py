"""What goes wrong on a simulated disk: faults that wait for the operation they strike.

A :class:`DiskFault` names an operation, the files it may meet and how often; :class:`DiskFaults` holds those that are planted,
and the disk asks it before every operation. The first one that fits strikes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import fnmatchcase

__all__ = ["DiskFault", "DiskFaultKind", "DiskFaults", "DiskOperation"]


class DiskOperation(Enum):
    """What a disk is asked for."""

    CREATE = auto()
    OPEN = auto()
    WRITE = auto()
    READ = auto()
    SYNC = auto()
    TRUNCATE = auto()
    RENAME = auto()
    LINK = auto()
    REMOVE = auto()
    SYNC_FOLDER = auto()


class DiskFaultKind(Enum):
    """What becomes of it."""

    #: It fails, and nothing happens. A sync that fails leaves its pages neither durable nor dirty.
    ERROR = auto()
    #: A write fails for lack of space.
    FULL = auto()
    #: A write fails after ``amount`` bytes of it.
    PARTIAL = auto()
    #: Only the first ``amount`` bytes of a write arrive, and nothing tells.
    TORN = auto()
    #: One bit of what is written is wrong, that of byte ``amount``, counted round and round. Of what is read: the medium's.
    FLIP = auto()
    #: A write lands ``amount`` bytes further on.
    MISDIRECTED = auto()
    #: A read or a sync takes ``amount`` seconds more, and so does what waits behind it.
    STALL = auto()
    #: A sync says it is done, and nothing is durable.
    LIE = auto()


_ANYWHERE = (DiskFaultKind.ERROR,)
_POSSIBLE = {
    DiskOperation.WRITE: (
        DiskFaultKind.ERROR,
        DiskFaultKind.FULL,
        DiskFaultKind.PARTIAL,
        DiskFaultKind.TORN,
        DiskFaultKind.FLIP,
        DiskFaultKind.MISDIRECTED,
    ),
    DiskOperation.READ: (DiskFaultKind.ERROR, DiskFaultKind.FLIP, DiskFaultKind.STALL),
    DiskOperation.SYNC: (DiskFaultKind.ERROR, DiskFaultKind.STALL, DiskFaultKind.LIE),
    DiskOperation.SYNC_FOLDER: (DiskFaultKind.ERROR, DiskFaultKind.STALL),
    DiskOperation.CREATE: (DiskFaultKind.ERROR, DiskFaultKind.FULL),
}


@dataclass(frozen=True, slots=True)
class DiskFault:
    """One fault. ``path`` is a pattern of the shell, in which ``*`` stands for any part of a path, ``/`` included."""

    operation: DiskOperation
    kind: DiskFaultKind = DiskFaultKind.ERROR
    path: str = "*"
    #: How many operations that fit are let pass first.
    skip: int = 0
    #: How many are struck then; ``None``: all.
    times: int | None = 1
    #: See :class:`DiskFaultKind`: bytes, or seconds.
    amount: float = 0

    def __post_init__(self) -> None:
        if self.kind not in _POSSIBLE.get(self.operation, _ANYWHERE):
            raise ValueError(f"disk fault: {self.operation.name} cannot end in {self.kind.name}")
        if self.skip < 0 or self.amount < 0 or (self.times is not None and self.times < 1):
            raise ValueError(f"disk fault: skip and amount must be >= 0 and times >= 1, got {self}")


class DiskFaults:
    """The faults planted in one disk, in the order planted."""

    def __init__(self) -> None:
        self._planted: list[tuple[DiskFault, list[int]]] = []

    def plant(self, fault: DiskFault) -> None:
        """Have ``fault`` strike from now on."""
        self._planted.append((fault, [0]))

    def heal(self) -> None:
        """Remove all of them."""
        self._planted.clear()

    def strike(self, operation: DiskOperation, path: str) -> DiskFault | None:
        """The fault that strikes this operation, if one does."""
        for fault, seen in self._planted:
            if fault.operation is operation and fnmatchcase(path, fault.path):
                seen[0] += 1
                count = seen[0] - fault.skip
                if count > 0 and (fault.times is None or count <= fault.times):
                    return fault
        return None
