"""Filling the open positions of an ensemble so that every write set obeys a rule.

Policies care about *groups* (racks, regions, upgrade domains), and bookies of one group are interchangeable to a rule, so the
search assigns groups to positions first. It backtracks, so if it ends without a result, no ensemble exists. (The Java client
does not backtrack, and may report too few bookies where an ensemble exists.) The worst case is exponential and would block the
event loop, so :data:`STEPS_MAX` bounds the search, and one that reaches the bound counts as one without a result. The first half
of the steps follows the preferences of the policy, the second half takes the largest groups first. With that, hardly any
ensemble of up to twenty bookies in tight clusters is missed.

A write set is a window of ``Qw`` consecutive positions of the ensemble, taken as a ring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from bkclient.ledger import BookieId

__all__ = ["NOWHERE", "STEPS_MAX", "Admits", "Kin", "Preference", "Slots", "any_kin", "fill", "hand_out", "windows_of"]

STEPS_MAX: Final = 2000
"""Assignments tried per search."""

NOWHERE: Final = ""
"""The group of a bookie whose place is not known; belongs to no rack, region or zone."""

Kin = Callable[[str], object]
"""Groups with the same kin differ, where no write set has one of them yet, in their capacity only."""


def any_kin(group: str) -> str:  # noqa: ARG001
    """All groups are alike."""
    return NOWHERE


Slots = Sequence[str | None]
"""The group at each position of an ensemble; None where there is none yet."""

Admits = Callable[[Slots], bool]
"""Tells of the groups of one write set whether it obeys the rule, or can still do so once its open positions are filled."""

Preference = Callable[[int, str, Slots], object]
"""``(position, group, slots)``: how much a group is wanted there; less is better. Values of one search are comparable."""


def windows_of(ensemble_size: int, write_quorum_size: int) -> tuple[tuple[int, ...], ...]:
    """The positions of each different write set."""
    count = 1 if write_quorum_size >= ensemble_size else ensemble_size
    return tuple(tuple((first + w) % ensemble_size for w in range(write_quorum_size)) for first in range(count))


def fill(
    slots: Slots,
    capacity: Mapping[str, int],
    write_quorum_size: int,
    admits: Admits,
    preference: Preference,
    *,
    kin: Kin,
    settled: bool = True,
    steps: int = STEPS_MAX,
) -> tuple[str, ...] | None:
    """Groups for all positions, keeping those that are filled; None if there is no way, or none was found in time.

    ``capacity`` tells how many positions each group may get, in the order in which groups of equal preference are tried.
    ``kin`` tells which groups may stand for each other, so that failures are found fast. With ``settled`` write sets without open
    positions have to obey too; else they are taken as they are.
    """
    windows = windows_of(len(slots), write_quorum_size)
    if not settled:
        windows = tuple(window for window in windows if any(slots[position] is None for position in window))
    search = _Search(slots, capacity, windows, admits, preference, kin)
    found = search.run(steps // 2)
    if found is None and search.is_cut_short:
        # What is preferred led astray. Taking first what there is most of keeps the most ways open.
        plenty = _Search(slots, capacity, windows, admits, lambda _position, group, _slots: -plenty.left[group], kin)
        found = plenty.run(steps // 2)
    return found


_State = tuple[int, Slots, Slots, tuple[tuple[str, int], ...], frozenset[tuple[tuple[object, int], int]]]


class _Search:
    def __init__(
        self,
        slots: Slots,
        capacity: Mapping[str, int],
        windows: Sequence[Sequence[int]],
        admits: Admits,
        preference: Preference,
        kin: Kin,
    ) -> None:
        self.slots = list(slots)
        self.left = {group: count for group, count in capacity.items() if count > 0}
        self.fixed = frozenset(group for group in slots if group is not None)
        self.windows = windows
        self.reach = len(windows[0]) - 1 if windows else 0
        self.windows_at = tuple(tuple(w for w in windows if position in w) for position in range(len(slots)))
        self.open = [position for position, group in enumerate(slots) if group is None]
        self.admits = admits
        self.preference = preference
        self.kin = kin
        #: Whether the last run ended by its limit.
        self.is_cut_short = False

    def run(self, steps: int) -> tuple[str, ...] | None:
        if not all(self._admits(window) for window in self.windows):
            return None
        if not self.open:
            return tuple(group for group in self.slots if group is not None)
        if sum(self.left.values()) < len(self.open):
            return None
        hopeless: set[_State] = set()  # membership only
        stack = [(self._state(0), self._choices(self.open[0]))]
        while stack:
            position = self.open[len(stack) - 1]
            self._take_back(position)
            state, choices = stack[-1]
            group = next(choices, None)
            if group is None:
                hopeless.add(state)
                stack.pop()
                continue
            steps -= 1
            if steps < 0:
                self.is_cut_short = True
                return None
            self._assign(position, group)
            if not all(self._admits(window) for window in self.windows_at[position]):
                continue
            if len(stack) == len(self.open):
                return tuple(group for group in self.slots if group is not None)
            state = self._state(len(stack))
            if state not in hopeless:
                stack.append((state, self._choices(self.open[len(stack)])))
        return None

    def _state(self, depth: int) -> _State:
        """Everything that decides whether the positions from the ``depth``-th open one on can be filled.

        Which groups they are matters only for those that share a write set with such a position; of the others it is enough
        how many there are of each kind.
        """
        position = self.open[depth]
        recent, first = self._in_reach(position)
        named = self.fixed.union(recent, first)
        kinds: dict[tuple[object, int], int] = {}
        known: list[tuple[str, int]] = []
        for group, left in self.left.items():
            usable = min(left, len(self.open) - depth)
            if group in named:
                known.append((group, usable))
            else:
                kind = self.kin(group), usable
                kinds[kind] = kinds.get(kind, 0) + 1
        return depth, recent, first, tuple(known), frozenset(kinds.items())

    def _in_reach(self, position: int) -> tuple[Slots, Slots]:
        """What is before ``position`` within a write set, and what comes after the end, where the ring begins again."""
        return tuple(self.slots[max(0, position - self.reach) : position]), tuple(self.slots[: self.reach])

    def _choices(self, position: int) -> Iterator[str]:
        groups = [group for group, left in self.left.items() if left > 0]
        groups.sort(key=lambda group: self.preference(position, group, self.slots))  # type: ignore[arg-type,return-value]
        recent, first = self._in_reach(position)
        named = self.fixed.union(recent, first)
        tried: set[tuple[object, int]] = set()  # membership only
        for group in groups:
            if group not in named:
                alike = self.kin(group), min(self.left[group], len(self.open))
                if alike in tried:
                    continue
                tried.add(alike)
            yield group

    def _assign(self, position: int, group: str) -> None:
        self.slots[position] = group
        self.left[group] -= 1

    def _take_back(self, position: int) -> None:
        group = self.slots[position]
        if group is not None:
            self.slots[position] = None
            self.left[group] += 1

    def _admits(self, window: Sequence[int]) -> bool:
        return self.admits([self.slots[position] for position in window])


def hand_out(
    groups: Sequence[str], slots: Slots, members: Mapping[str, Sequence[BookieId]]
) -> tuple[BookieId | None, ...]:
    """Bookies for the positions of ``groups`` that are open in ``slots``, each group's in order; None at the others."""
    supply = {group: iter(bookies) for group, bookies in members.items()}
    return tuple(next(supply[group]) if slot is None else None for group, slot in zip(groups, slots, strict=True))
