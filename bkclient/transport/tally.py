"""Answers to a run of adds, counted where they arrive: writers hear of an entry once, when an ack quorum has stored it.

Each bookie of a write set acknowledges the adds of a run in the order in which they were sent, as a rule. Then how far each of
them got is all that there is to know, and how far an ack quorum got is found among as many numbers as there are bookies. Each
writer with entries in the run hears of them once (:meth:`~bkclient.transport.adds.CountedReplies.on_adds_stored_by`), and not
from every bookie. A program that appends to a thousand ledgers in turn comes back to each of them once for an entry.

A :class:`Tally` is for a run that goes to one write set. One that goes to several has a
:class:`~bkclient.transport.striped_tally.StripedTally`, for which the same holds.

A writer asks for what was held back (:meth:`~bkclient.transport.adds.CountsQuorums.tell`) before it matters which bookies stored
what, in particular before it deals with a failure. It hears of every answer from then on. So it knows then what it would know
if nothing had been counted here:

* Of an entry that it was not told of it has heard from no bookie, and it hears now from each that stored it. That is an entry
  that no ack quorum has stored, or, with several write sets, one that waits for an entry before it of which this is true.
* Of an entry that it was told of, which an ack quorum has stored, it has heard from these bookies. If it could not complete the
  entry, it asked at once, before any other bookie's answer came, and hears of that answer. If it could, the answers of other
  bookies mean nothing to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from bkclient._core import has_twins
from bkclient.transport.adds import AddReplies
from bkclient.transport.request_stream import report_failed

__all__ = ["PLACES", "HeldBack", "Part", "RunTally", "Tally"]

#: The first places of a run, which are made once.
PLACES: Final = tuple(range(256))

Part = tuple[int, Any, bool]
"""``(first place, who is told, whether that writer's entries go to several write sets)``: adds of one sender."""


class HeldBack(dict["RunTally", None]):
    """The tallies that may hold something back, for all writers of one channel, in the order in which their runs were sent."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        super().__init__()
        #: By striped writer, the last run in which adds of it were not told of: see :mod:`bkclient.transport.striped_tally`.
        self.lines: Final[dict[Any, Any]] = {}

    def tell(self) -> None:
        """Tell of it, and count nothing in them any more."""
        self.lines.clear()
        for tally in list(self):
            tally.tell()


class RunTally(ABC):
    """What bookies answered to the adds of one run, which are known by their places in it: the ``AddReplies`` of all of them.

    ``entry_ids`` are those of the adds. ``parts`` say whose they are: from each of these places on, the first of which is 0,
    they belong to that writer.
    """

    __slots__ = ("_entry_ids", "_held_back", "_owner", "_owners", "_quorum", "is_counting")

    def __init__(self, held_back: HeldBack, quorum: int, entry_ids: list[int], parts: Sequence[Part]) -> None:
        self._held_back: Final = held_back
        self._quorum: Final = quorum
        self._entry_ids: Final = entry_ids
        is_of_one = len(parts) == 1
        self._owner: Final[Any] = parts[0][1] if is_of_one else None
        self._owners: Final[list[Any]] = [] if is_of_one else _spread(parts, len(entry_ids))
        #: Whether answers are counted here; if not, all that bookies said has been told, and what they say is told as it comes.
        self.is_counting = True
        held_back[self] = None

    @abstractmethod
    def on_adds_stored(self, bookie_id: str, places: Sequence[int]) -> None:
        """See :class:`~bkclient.transport.adds.AddReplies`."""

    def on_add_failed(self, bookie_id: str, place: int, code: int) -> None:
        """See :class:`~bkclient.transport.adds.AddReplies`. Who hears of it asks for what was held back."""
        owner = self._owners[place] if self._owner is None else self._owner
        owner.on_add_failed(bookie_id, self._entry_ids[place], code)

    @abstractmethod
    def tell(self) -> None:
        """Tell of what was held back, and count no more. Idempotent."""

    @abstractmethod
    def bookies_of(self, place: int) -> tuple[str, ...]:
        """See :class:`~bkclient.protocol.append_ports.Quorums`, for who is told."""

    def _pass_on(self, bookie_id: str, places: Sequence[int]) -> None:
        """Tell the writers of the adds at these places that this bookie stored them."""
        entry_ids, groups = self._entry_ids, list[tuple[AddReplies, list[int]]]()
        for place in places:
            owner = self._owners[place] if self._owner is None else self._owner
            if not groups or groups[-1][0] is not owner:
                groups.append((owner, []))
            groups[-1][1].append(entry_ids[place])
        for owner, stored in groups:
            try:
                owner.on_adds_stored(bookie_id, stored)
            except Exception as error:  # noqa: BLE001 - it belongs to callers, and costs the others nothing
                report_failed(owner, error)


class Tally(RunTally):
    """That of a run whose adds all go to these ``bookies``."""

    __slots__ = ("_dealt", "_reached", "_told")

    def __init__(
        self, held_back: HeldBack, quorum: int, bookies: Sequence[str], entry_ids: list[int], parts: Sequence[Part]
    ) -> None:
        super().__init__(held_back, quorum, entry_ids, parts)
        #: How many of the first adds each bookie stored.
        self._reached: Final = dict.fromkeys(bookies, 0)
        #: How many of the first adds an ack quorum stored, which their writers have been told.
        self._told = 0
        #: The first place of what is told at present.
        self._dealt = 0
        assert 0 < quorum <= len(self._reached), "an ack quorum is part of the write set"

    @property
    def places(self) -> Sequence[int]:
        """What the adds are known by."""
        count = len(self._entry_ids)
        return PLACES[:count] if count <= len(PLACES) else range(count)

    def on_adds_stored(self, bookie_id: str, places: Sequence[int]) -> None:
        """See :class:`~bkclient.transport.adds.AddReplies`."""
        reached = self._reached
        first = reached[bookie_id]
        end = first + len(places)
        if not self.is_counting or places[0] != first or list(places) != list(range(first, end)):
            self.tell()
            self._pass_on(bookie_id, places)
            return
        reached[bookie_id] = end
        if end > self._told:
            stored = sorted(reached.values())[-self._quorum]
            if stored > self._told:
                first, self._told = self._told, stored
                self._deal(first, stored)
                if stored == len(self._entry_ids):  # all of it was told, and what its writers asked for meanwhile
                    self._held_back.pop(self, None)

    def tell(self) -> None:
        """See :class:`RunTally`."""
        if not self.is_counting:
            return
        self.is_counting = False
        self._held_back.pop(self, None)
        for bookie_id, count in self._reached.items():
            if count > self._told:
                self._pass_on(bookie_id, range(self._told, count))

    def bookies_of(self, place: int) -> tuple[str, ...]:
        """See :class:`RunTally`."""
        place += self._dealt
        return tuple([bookie_id for bookie_id, count in self._reached.items() if count > place])

    def _deal(self, first: int, end: int) -> None:
        """Tell the writers of the adds at these places that an ack quorum stored them."""
        entry_ids, owners, owner = self._entry_ids, self._owners, self._owner
        place = first
        while place < end:
            after = end
            if self._owner is None:
                owner, after = owners[place], place + 1
                while after < end and owners[after] is owner:
                    after += 1
            self._dealt = place
            try:
                owner.on_adds_stored_by(self, entry_ids[place:after])
            except Exception as error:  # noqa: BLE001 - as in _pass_on()
                report_failed(owner, error)
            place = after


def _spread(parts: Sequence[Part], count: int) -> list[Any]:
    """Of each of ``count`` adds who is told of it."""
    if len(parts) == count:  # a ledger after the other
        return [owner for _, owner, _ in parts]
    spread: list[Any] = []
    for (first, owner, _), (end, _, _) in pairwise([*parts, (count, None, False)]):
        assert owner is not None, "adds have owners"
        spread += [owner] * (end - first)
    return spread


has_twins("tallying", Tally, "on_adds_stored", "_deal", knows=(report_failed,))
