"""The compiled core against the definitions: what is counted of entries under way, in every order, state by state."""

from __future__ import annotations

import copy
import pickle
from itertools import takewhile
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from bkclient._core import using_core
from bkclient.errors import Code
from bkclient.protocol.adds import NewEntry, PendingAdds
from bkclient.protocol.quorum import QuorumSizes
from tests.bkclient.core.both_cores import needs_compiled_core, same_in_both

pytestmark = needs_compiled_core

SIZES = st.sampled_from([(1, 1, 1), (3, 3, 2), (3, 2, 2), (4, 2, 1), (5, 3, 2), (62, 62, 2)])
#: Few, so that answers meet entries; bookies and entries that nobody knows among them.
IDS = st.integers(0, 4)
BOOKIES = st.integers(0, 4) | st.just(61)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 30)),
        st.tuples(st.just("push_at"), IDS),
        st.tuples(st.just("acknowledge_all"), BOOKIES, st.lists(IDS, min_size=1, max_size=9)),
        st.tuples(st.just("acknowledge"), BOOKIES, IDS),
        st.tuples(st.just("fail"), BOOKIES, IDS),
        st.tuples(st.just("complete")),
        st.tuples(st.just("take_stored"), st.integers(1, 4)),
        st.tuples(st.just("switch"), BOOKIES),
        st.tuples(st.just("copy")),
    ),
    max_size=30,
)


class Counting:
    """Entries under way, played step by step, with what each returned and left behind."""

    def __init__(self, sizes: tuple[int, int, int], *, names_one_twice: bool, defers_lac: bool) -> None:
        ensemble = tuple(f"b{place}" for place in range(sizes[0]))
        if names_one_twice:
            ensemble = (*ensemble[:-1], ensemble[0])
        self.adds = PendingAdds(QuorumSizes(*sizes), ensemble, defers_lac=defers_lac)
        self.seen: list[Any] = []

    def play(self, steps: list[tuple[Any, ...]]) -> list[Any]:
        for name, *arguments in steps:
            self.seen.append((getattr(self, name)(*arguments), self.adds.snapshot()))
        return self.seen

    def push(self, size: int) -> NewEntry:
        return self.adds.push(bytes(size), self.adds.last_add_confirmed)

    def push_at(self, entry_id: int) -> NewEntry | None:
        if entry_id <= self.adds.last_add_acknowledged or entry_id in self.adds.pending:
            return None
        return self.adds.push_at(entry_id, b"at", self.adds.last_add_confirmed)

    def acknowledge_all(self, bookie: int, entry_ids: list[int]) -> bool:
        return self.adds.acknowledge_all(f"b{bookie}", entry_ids)

    def acknowledge(self, bookie: int, entry_id: int) -> bool:
        add = self.adds.acknowledge(f"b{bookie}", entry_id)
        if add is not None:
            add.has_quorum = True
        return add is not None

    def fail(self, bookie: int, entry_id: int) -> Any:
        return self.adds.fail(f"b{bookie}", entry_id, Code.TIMEOUT)[:2]

    def complete(self) -> list[NewEntry]:
        return self.adds.complete()

    def take_stored(self, count: int) -> list[NewEntry] | None:
        """The next entries, or those behind a gap."""
        first = self.adds.last_add_acknowledged + 1
        while first not in self.adds.pending and first < 6:
            first += 1
        known = takewhile(self.adds.pending.__contains__, range(first, first + count))
        return self.adds.take_stored(list(known) or [first])

    def switch(self, place: int) -> Any:
        place %= len(self.adds.ensemble)
        ensemble = tuple("new" if p == place else b for p, b in enumerate(self.adds.ensemble))
        return self.adds.switch(ensemble, [place])

    def copy(self) -> bool:
        before = self.adds
        self.adds = pickle.loads(pickle.dumps(copy.copy(before)))
        return self.adds == before


PUSHED = [("push", 1), ("push", 1), ("push", 1)]


@given(SIZES, st.booleans(), st.booleans(), STEPS)
@example((3, 3, 2), False, False, [*PUSHED, *[("acknowledge_all", bookie, [0, 1]) for bookie in range(3)]])
@example((3, 2, 2), False, False, [*PUSHED, *[("acknowledge_all", bookie, [0, 1, 2]) for bookie in range(3)]])
@example(
    (3, 3, 2), False, False, [*PUSHED, *[("acknowledge_all", bookie, [1]) for bookie in range(2)], ("take_stored", 1)]
)
@example((3, 3, 2), False, True, [*PUSHED, ("take_stored", 2), ("fail", 0, 2), ("take_stored", 1)])
def test_steps(
    sizes: tuple[int, int, int], names_one_twice: bool, defers_lac: bool, steps: list[tuple[Any, ...]]
) -> None:
    same_in_both(lambda: Counting(sizes, names_one_twice=names_one_twice, defers_lac=defers_lac).play(steps))


@given(SIZES, STEPS, STEPS)
def test_what_one_core_began_the_other_goes_on_with(
    sizes: tuple[int, int, int], before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]
) -> None:
    def run(first: str, second: str) -> list[Any]:
        counting = Counting(sizes, names_one_twice=False, defers_lac=False)
        with using_core(first):
            counting.play(before)
        with using_core(second):
            return counting.play(after)

    assert run("python", "cython") == run("cython", "python")


def test_what_is_no_set_of_entries_is_refused_not_read() -> None:
    """Slots are read where they lie, so an object of another class has to be noticed before."""

    class Other:
        __slots__ = ()

    other: Any = Other()
    function: Any
    for function in (PendingAdds.push, PendingAdds.acknowledge_all):
        assert same_in_both(lambda: function(other, b"", ()))[0] is AttributeError  # noqa: B023 - called at once
    assert same_in_both(lambda: PendingAdds.complete(other))[0] is AttributeError
    adds = PendingAdds(QuorumSizes(1, 1, 1), ("b0",))
    del adds.pending
    takes = (lambda: adds.acknowledge_all("b0", [0]), lambda: adds.take_stored([0]))
    for run in (lambda: adds.push(b"", -1), *takes, adds.complete):
        assert same_in_both(lambda: raised_by(run)) is AttributeError  # noqa: B023 - called at once


def raised_by(run: Any) -> type[Exception] | None:
    try:
        run()
    except Exception as error:  # noqa: BLE001 - the messages of both cores differ here
        return type(error)
    return None
