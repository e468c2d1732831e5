"""Answers to a run whose adds go to several write sets, counted where they arrive.

What :mod:`bkclient.transport.tally` says of writers holds here, too. A bookie acknowledges its own adds of the run in the order
in which they were sent, as a rule. So all that there is to know of it is its *mark*: the place in the run of the first of them
that it has not acknowledged. An add is stored if an ack quorum of its write set has marks behind its place; so of each write set
one number tells of all its adds.

A writer is told of its entries in order, so one that is stored may have to wait for one before it that other bookies store. Adds
that are told one after the other are a *line*. Each striped writer has one, which goes on in the next run that the writer has
entries in. The other writers have one line for each write set, because what goes to the same bookies is stored in order anyway. A
line waits for the write set of its next add; when that gets further, the line is told up to its first add that is not stored.
So an add that is stored waits for those before it in its line alone: not for a bookie that none of them needs, and not for the
entries of other writers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from bkclient._core import has_twins
from bkclient.transport.request_stream import report_failed
from bkclient.transport.tally import HeldBack, Part, RunTally

__all__ = ["StripedTally"]

#: In place of the next add of a line, for an add that was told of.
_TOLD: Final = -1


class StripedTally(RunTally):
    """See the module. The add at a place goes to the write set ``sets[stripes[place]]``.

    ``places`` are those of the adds of each bookie, in order.
    """

    __slots__ = (
        "_after",
        "_answered",
        "_dealt",
        "_first",
        "_following",
        "_left",
        "_marks",
        "_places",
        "_sets",
        "_sets_of",
        "_stored",
        "_stripes",
        "_waiting",
    )

    def __init__(
        self,
        held_back: HeldBack,
        quorum: int,
        sets: Sequence[tuple[str, ...]],
        stripes: bytes | bytearray,
        places: Mapping[str, tuple[int, ...]],
        entry_ids: list[int],
        parts: Sequence[Part],
    ) -> None:
        super().__init__(held_back, quorum, entry_ids, parts)
        self._sets: Final = sets
        self._stripes: Final = stripes
        self._places: Final = places
        #: How many of its adds each bookie acknowledged, and the mark that it reached by that.
        self._answered: Final = dict.fromkeys(places, 0)
        self._marks: Final = dict.fromkeys(places, 0)
        #: By bookie, the write sets that it is in.
        self._sets_of: Final[dict[str, list[int]]] = {bookie_id: [] for bookie_id in places}
        for stripe, bookies in enumerate(sets):
            assert 0 < quorum <= len(bookies), "an ack quorum is part of every write set"
            for bookie_id in bookies:
                self._sets_of[bookie_id].append(stripe)
        #: By write set, the mark that an ack quorum has reached, and in order the adds that are next in a line and wait for a
        #: greater one.
        self._stored: Final = [0] * len(sets)
        self._waiting: Final[list[list[int]]] = [[] for _ in sets]
        #: Of each add that was not told of, the next one of its line, or the number of all adds if it is the last.
        self._after: Final = self._lines_of(parts)
        #: By writer, where its line goes on: in which later run, with which add.
        self._following: Final[dict[Any, tuple[StripedTally, int]]] = {}
        #: How many adds were not told of.
        self._left = len(entry_ids)
        #: The places of what is told at present, and where among them that of the one who is told begins.
        self._dealt: Sequence[int] = ()
        self._first = 0

    def _lines_of(self, parts: Sequence[Part]) -> list[int]:
        """Of each add the next one of its line; the first of each line waits."""
        count, stripes = len(self._entry_ids), self._stripes
        after = list(range(1, count + 1))
        if len(parts) == 1 and parts[0][2]:
            self._begin(0, parts[0][1])
            return after
        last: dict[Any, int] = {}
        for (first, owner, is_striped), (end, _, _) in pairwise([*parts, (count, None, False)]):
            for place in range(first, end):
                line = owner if is_striped else stripes[place]
                before = last.get(line)
                if before is None:
                    self._begin(place, owner if is_striped else None)
                else:
                    after[before] = place
                last[line] = place
        for place in last.values():
            after[place] = count
        return after

    def _begin(self, place: int, writer: Any) -> None:
        """Have a line, that of the writer if it is one's, wait for its first add, or for those in an earlier run."""
        earlier: StripedTally | None = None
        if writer is not None:
            lines = self._held_back.lines
            earlier, lines[writer] = lines.get(writer), self
        if earlier is None:
            self._waiting[self._stripes[place]].append(place)
        else:
            earlier.followed_by(writer, self, place)

    def followed_by(self, writer: Any, tally: StripedTally, place: int) -> None:
        """The writer's line goes on there."""
        self._following[writer] = tally, place

    def on_adds_stored(self, bookie_id: str, places: Sequence[int]) -> None:
        """See :class:`~bkclient.transport.adds.AddReplies`."""
        own, first = self._places[bookie_id], self._answered[bookie_id]
        end = first + len(places)
        if not self.is_counting or own[first:end] != tuple(places):
            if self in self._held_back:
                self._held_back.tell()  # not of these adds alone, because lines go on in other runs
            self._pass_on(bookie_id, places)
            return
        self._answered[bookie_id] = end
        marks, stored, quorum = self._marks, self._stored, self._quorum
        marks[bookie_id] = own[end] if end < len(own) else len(self._entry_ids)
        ready: list[int] = []
        for stripe in self._sets_of[bookie_id]:
            mark = sorted(map(marks.__getitem__, self._sets[stripe]))[-quorum]
            if mark > stored[stripe]:
                stored[stripe] = mark
                waiting = self._waiting[stripe]
                if waiting and waiting[0] < mark:
                    count = bisect_left(waiting, mark)
                    ready += waiting[:count]
                    del waiting[:count]
        if ready:
            runs = [(self, ready)]
            for tally, begun in runs:  # which grows
                runs += tally.go_on(begun)

    def go_on(self, ready: list[int]) -> list[tuple[StripedTally, list[int]]]:
        """Tell of what is stored of the lines whose next adds these are; returns with what lines go on that end here by that."""
        if not self.is_counting:
            return []  # all of it was told while another run was
        after, stripes, stored = self._after, self._stripes, self._stored
        end = len(after)
        told: list[int] = []
        ended: list[int] = []
        for head in ready:
            place = following = head
            while following < end and stored[stripes[following]] > following:
                place = following
                told.append(place)
                following, after[place] = after[place], _TOLD
            if following == end:
                ended.append(place)
            else:
                insort(self._waiting[stripes[following]], following)
        self._left -= len(told)
        if told:
            self._deal(told)
        if self not in self._held_back:
            return []  # one who was told asked for the rest, of all runs
        if not self._left:
            del self._held_back[self]
        return self._lines_after(ended) if self._held_back.lines else []

    def _lines_after(self, ended: list[int]) -> list[tuple[StripedTally, list[int]]]:
        """Where lines go on that ended with these adds."""
        lines = self._held_back.lines
        runs: list[tuple[StripedTally, list[int]]] = []
        for place in ended:
            writer = self._owners[place] if self._owner is None else self._owner
            following = self._following.pop(writer, None)
            if following is not None:
                runs.append((following[0], [following[1]]))
            elif lines.get(writer) is self:
                del lines[writer]
        return runs

    def tell(self) -> None:
        """See :class:`RunTally`. It is asked for all runs at once, because lines go on from one to the other."""
        if not self.is_counting:
            return
        self.is_counting = False
        self._held_back.pop(self, None)
        after = self._after
        for bookie_id, places in self._places.items():
            stored = [place for place in places[: self._answered[bookie_id]] if after[place] != _TOLD]
            self._pass_on(bookie_id, stored)

    def bookies_of(self, place: int) -> tuple[str, ...]:
        """See :class:`RunTally`."""
        place = self._dealt[self._first + place]
        return tuple([bookie_id for bookie_id in self._sets[self._stripes[place]] if self._marks[bookie_id] > place])

    def _deal(self, places: list[int]) -> None:
        """Tell the writers of the adds at these places that an ack quorum stored them."""
        owners, owner = self._owners, self._owner
        entry_ids = list(map(self._entry_ids.__getitem__, places))
        first, count = 0, len(places)
        while first < count:
            after = count
            if self._owner is None:
                owner, after = owners[places[first]], first + 1
                while after < count and owners[places[after]] is owner:
                    after += 1
            self._dealt, self._first = places, first
            try:
                owner.on_adds_stored_by(self, entry_ids[first:after])
            except Exception as error:  # noqa: BLE001 - as in RunTally
                report_failed(owner, error)
            first = after


has_twins("tallying", StripedTally, "on_adds_stored", "go_on", "_deal", bind="bind_striped")
