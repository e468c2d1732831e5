"""Faults of bookies: their disks, what they keep, and what they do in the background."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scenarios.plan.errors import PlanError
from scenarios.plan.fault import Budget, OfHost, OfLedger

__all__ = ["Alter", "Collect", "Compact", "DiskFull", "DiskSlow", "ForeignCookie", "Limbo", "Lose", "ReadOnly", "Wipe"]


@dataclass(frozen=True, slots=True)
class ReadOnly(OfHost):
    """A bookie takes no adds but those of recoveries."""

    verb: ClassVar[str] = "read-only"
    is_lasting: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class DiskSlow(OfHost):
    """Every sync of the bookie's disk takes ``by_s`` more, and so does every read that is not of the page cache."""

    verb: ClassVar[str] = "disk-slow"
    is_lasting: ClassVar[bool] = True
    by_s: float = 0.5

    def __post_init__(self) -> None:
        OfHost.__post_init__(self)
        if not self.by_s >= 0:
            raise PlanError(f"expected by >= 0, found {self.by_s}")


@dataclass(frozen=True, slots=True)
class DiskFull(OfHost):
    """Other data fill the bookie's disk up to ``left`` bytes.

    When the bookie notices, it turns read-only. One whose journal finds no room before that dies, until the fault ends.
    """

    verb: ClassVar[str] = "disk-full"
    is_lasting: ClassVar[bool] = True
    left: int = 0

    def __post_init__(self) -> None:
        OfHost.__post_init__(self)
        if self.left < 0:
            raise PlanError(f"expected left >= 0, found {self.left}")


@dataclass(frozen=True, slots=True)
class Wipe(OfHost):
    """A bookie dies and its disk is replaced by an empty one. Ended by a restart."""

    verb: ClassVar[str] = "wipe"
    is_lasting: ClassVar[bool] = True
    budget: ClassVar[Budget] = Budget.BOOKIE


@dataclass(frozen=True, slots=True)
class ForeignCookie(OfHost):
    """The disk of the bookie, which checks its cookie when it starts, says that it is another bookie's."""

    verb: ClassVar[str] = "foreign-cookie"
    budget: ClassVar[Budget] = Budget.BOOKIE


@dataclass(frozen=True, slots=True)
class _OfCopies(OfLedger):
    """Something about a bookie's copies of a ledger's entries; of all of them where none are named."""

    entries: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Alter(_OfCopies):
    """A bit flips in byte ``byte`` of each copy, counted round and round; the bookie does not notice.

    One that keeps files finds entries by the first 16 bytes, and notices there.
    """

    verb: ClassVar[str] = "alter"
    budget: ClassVar[Budget] = Budget.COPIES
    byte: int = 40

    def __post_init__(self) -> None:
        _OfCopies.__post_init__(self)
        if self.byte < 0:
            raise PlanError(f"expected byte >= 0, found {self.byte}")


@dataclass(frozen=True, slots=True)
class Lose(_OfCopies):
    """The copies are gone; the bookie does not notice. What its journal has comes back with a restart."""

    verb: ClassVar[str] = "lose"
    budget: ClassVar[Budget] = Budget.COPIES


@dataclass(frozen=True, slots=True)
class Limbo(OfLedger):
    """The bookie stops vouching for what it does not have of a ledger."""

    verb: ClassVar[str] = "limbo"
    is_lasting: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Collect(OfHost):
    """The bookie collects its garbage: ledgers that the metadata service does not know.

    Or those that are ``overreplicated``: closed, and no fragment of theirs is kept here any more.
    """

    verb: ClassVar[str] = "collect-garbage"
    overreplicated: bool = False


@dataclass(frozen=True, slots=True)
class Compact(OfHost):
    """The bookie, which keeps files, copies what is alive out of entry logs that are mostly dead, and removes those."""

    verb: ClassVar[str] = "compact"
