"""What is searched: sizes, and how much may go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final

from scenarios.machines.world import Configuration

__all__ = ["CONFIGURATIONS", "Reductions", "SmallCluster"]

_RECOVERIES_MAX: Final = 3
_BOOKIES_MAX: Final = 7
_ENTRIES_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class SmallCluster:
    """A small cluster, its clients, and the faults that may happen, each at any time.

    The writer appends ``entries`` and, with ``closes``, closes the ledger. Each of ``recoveries`` recovers it once. The writer
    gives up on at most ``writer_timeouts`` requests, each recovery on ``recovery_timeouts``; such a request may still arrive.
    At most ``crashes`` bookies crash for good. ``lost_answers`` is how many answers of the metadata store to conditional
    writes each client misses.

    Raises ``ValueError`` for sizes that do not fit together, or are too large for any search.
    """

    ensemble_size: int = 2
    write_quorum: int = 2
    ack_quorum: int = 2
    bookies: int = 2
    entries: int = 1
    recoveries: int = 1
    writer_timeouts: int = 0
    recovery_timeouts: int = 0
    crashes: int = 0
    lost_answers: int = 0
    closes: bool = False
    read_ahead: int = 1

    def __post_init__(self) -> None:
        """Check that the sizes fit together."""
        e, qw, qa = self.sizes
        if not 1 <= qa <= qw <= e <= self.bookies:
            raise ValueError("needed: 1 <= ack quorum <= write quorum <= ensemble size <= bookies")
        limits = {
            "bookies": (self.bookies, 1, _BOOKIES_MAX),
            "entries": (self.entries, 0, _ENTRIES_MAX),
            "recoveries": (self.recoveries, 0, _RECOVERIES_MAX),
            "crashes": (self.crashes, 0, self.bookies),
            "writer timeouts": (self.writer_timeouts, 0, _BOOKIES_MAX),
            "recovery timeouts": (self.recovery_timeouts, 0, _BOOKIES_MAX),
            "lost answers": (self.lost_answers, 0, _BOOKIES_MAX),
            "read ahead": (self.read_ahead, 1, _ENTRIES_MAX),
        }
        for what, (value, least, most) in limits.items():
            if not least <= value <= most:
                raise ValueError(f"{what}: {value} is not between {least} and {most}")

    @property
    def sizes(self) -> tuple[int, int, int]:
        """E, Qw and Qa."""
        return self.ensemble_size, self.write_quorum, self.ack_quorum

    @property
    def names(self) -> tuple[str, ...]:
        """The bookies."""
        return tuple(chr(ord("a") + i) for i in range(self.bookies))

    @property
    def has_faults(self) -> bool:
        """Whether anything may go wrong, but for a writer that is taken over."""
        return bool(self.writer_timeouts or self.recovery_timeouts or self.crashes or self.lost_answers)

    def world(self) -> Configuration:
        """The same sizes for a world of machines."""
        return Configuration(
            *self.sizes,
            bookies=self.bookies,
            entries=self.entries,
            recoveries=self.recoveries,
            read_ahead=self.read_ahead,
        )

    def as_json(self) -> dict[str, Any]:
        """All sizes by name."""
        return asdict(self)

    def __str__(self) -> str:
        """In words."""
        parts = ["/".join(map(str, self.sizes)), _count(self.bookies, "bookie")]
        parts += [_count(self.entries, "entry"), _count(self.recoveries, "recovery")]
        budgets = (
            (self.writer_timeouts, "timeout of the writer"),
            (self.recovery_timeouts, "timeout of each recovery"),
            (self.crashes, "crash"),
            (self.lost_answers, "lost answer of the store"),
        )
        parts += [_count(number, what) for number, what in budgets if number]
        return ", ".join(parts + ["a close"] * self.closes)


def _count(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    first, *rest = what.split(" ", 1)
    plural = {"entry": "entries", "recovery": "recoveries", "crash": "crashes"}.get(first, f"{first}s")
    return " ".join([str(number), plural, *rest])


@dataclass(frozen=True, slots=True)
class Reductions:
    """Which reductions a search uses; each leaves the final states and the broken clauses as they are.

    * ``ended``: clients that have ended, and take notice of nothing, are one state. A state with ended clients only is final.
    * ``dead``: answers that change nothing are not delivered.
    * ``alone``: what nobody else can reach or notice happens first: the moves of a client with no request under way, requests
      to bookies whose order does not matter any more, requests to the store while nobody else will ask it.
    * ``rivals``: recoveries that exchange their roles are one state.
    """

    ended: bool = True
    dead: bool = True
    alone: bool = True
    rivals: bool = True

    @property
    def used(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(name for name, is_used in asdict(self).items() if is_used)

    @classmethod
    def none(cls) -> Reductions:
        """Every state on its own."""
        return cls(ended=False, dead=False, alone=False, rivals=False)


CONFIGURATIONS: Final[Mapping[str, SmallCluster]] = MappingProxyType(
    {
        "one-copy": SmallCluster(1, 1, 1, bookies=1, entries=1),
        "one-copy-change": SmallCluster(1, 1, 1, bookies=2, entries=2, writer_timeouts=1, recovery_timeouts=1),
        "both-copies": SmallCluster(),
        "both-copies-2": SmallCluster(entries=2),
        "both-copies-change": SmallCluster(bookies=3, writer_timeouts=1),
        "both-copies-change-2": SmallCluster(bookies=3, entries=2, writer_timeouts=1),
        "both-copies-close": SmallCluster(entries=2, closes=True),
        "both-copies-rivals": SmallCluster(recoveries=2),
        "both-copies-rivals-2": SmallCluster(entries=2, recoveries=2),
        "either-copy": SmallCluster(2, 2, 1, bookies=2, entries=1, recovery_timeouts=1),
        "two-of-three": SmallCluster(3, 3, 2, bookies=3, entries=1),
        "two-of-three-crash": SmallCluster(3, 3, 2, bookies=3, entries=1, crashes=1),
        "striped": SmallCluster(3, 2, 2, bookies=3, entries=1),
    }
)
"""Configurations by name."""
