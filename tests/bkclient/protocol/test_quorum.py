"""Quorum arithmetic against a twin that is written from the definitions alone, with sets and subsets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import ArgumentError, Code
from bkclient.ledger import LedgerMetadata
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES, CoverageSet, QuorumSizes
from scenarios.machines.store import ledger

Sizes = tuple[int, int, int]
Positions = frozenset[int]

SMALL = [(e, w, a) for e in range(1, 7) for w in range(1, e + 1) for a in range(1, w + 1)]

#: Fewest bookies that can cover, count that always covers, explicit negatives that deny an entry; by E, Qw, Qa.
THRESHOLDS: dict[Sizes, tuple[int, int, int]] = {
    (1, 1, 1): (1, 1, 1),
    (2, 1, 1): (2, 2, 1),
    (2, 2, 1): (2, 2, 2),
    (2, 2, 2): (1, 1, 1),
    (3, 1, 1): (3, 3, 1),
    (3, 2, 1): (3, 3, 2),
    (3, 2, 2): (2, 2, 1),
    (3, 3, 1): (3, 3, 3),
    (3, 3, 2): (2, 2, 2),
    (3, 3, 3): (1, 1, 1),
    (4, 1, 1): (4, 4, 1),
    (4, 2, 1): (4, 4, 2),
    (4, 2, 2): (2, 3, 1),
    (4, 3, 1): (4, 4, 3),
    (4, 3, 2): (3, 3, 2),
    (4, 3, 3): (2, 2, 1),
    (4, 4, 1): (4, 4, 4),
    (4, 4, 2): (3, 3, 3),
    (4, 4, 3): (2, 2, 2),
    (4, 4, 4): (1, 1, 1),
    (5, 1, 1): (5, 5, 1),
    (5, 2, 1): (5, 5, 2),
    (5, 2, 2): (3, 4, 1),
    (5, 3, 1): (5, 5, 3),
    (5, 3, 2): (4, 4, 2),
    (5, 3, 3): (2, 3, 1),
    (5, 4, 1): (5, 5, 4),
    (5, 4, 2): (4, 4, 3),
    (5, 4, 3): (3, 3, 2),
    (5, 4, 4): (2, 2, 1),
    (5, 5, 1): (5, 5, 5),
    (5, 5, 2): (4, 4, 4),
    (5, 5, 3): (3, 3, 3),
    (5, 5, 4): (2, 2, 2),
    (5, 5, 5): (1, 1, 1),
}


class Twin:
    """The definitions, spelled out: a write set is a walk around the ensemble, an ack quorum any Qa of a write set."""

    def __init__(self, sizes: Sizes) -> None:
        self.ensemble_size, self.write_quorum, self.ack_quorum = sizes

    def write_set(self, entry_id: int) -> list[int]:
        walk = []
        position = entry_id - entry_id // self.ensemble_size * self.ensemble_size
        for _ in range(self.write_quorum):
            walk.append(position)
            position = 0 if position == self.ensemble_size - 1 else position + 1
        return walk

    def ack_quorums(self) -> list[Positions]:
        return [
            frozenset(quorum)
            for entry_id in range(self.ensemble_size)
            for quorum in combinations(self.write_set(entry_id), self.ack_quorum)
        ]

    def is_covered(self, known: Positions) -> bool:
        silent = frozenset(range(self.ensemble_size)) - known
        return not any(quorum <= silent for quorum in self.ack_quorums())

    def subsets(self) -> Iterator[Positions]:
        for size in range(self.ensemble_size + 1):
            yield from (frozenset(chosen) for chosen in combinations(range(self.ensemble_size), size))


def mask(positions: Positions) -> int:
    return sum(1 << position for position in positions)


@st.composite
def any_sizes(draw: st.DrawFn) -> Sizes:
    ensemble_size = draw(st.integers(1, 12))
    write_quorum = draw(st.integers(1, ensemble_size))
    return ensemble_size, write_quorum, draw(st.integers(1, write_quorum))


@pytest.mark.rule("API-3")
@pytest.mark.parametrize(
    "sizes", [(0, 0, 0), (1, 0, 0), (1, 1, 0), (2, 3, 1), (3, 2, 3), (3, -1, -1), (-1, -1, -1), (3, 3, -1)]
)
def test_sizes_that_are_not_ensemble_ge_write_quorum_ge_ack_quorum_ge_one_are_refused(sizes: Sizes) -> None:
    with pytest.raises(ArgumentError, match=">= 1 must hold, got"):
        QuorumSizes(*sizes)


@pytest.mark.rule("DS-1")
@pytest.mark.rule("DS-2")
@pytest.mark.parametrize("sizes", SMALL)
def test_the_write_set_walks_around_the_ensemble_from_the_entry_id(sizes: Sizes) -> None:
    twin, quorum = Twin(sizes), QuorumSizes(*sizes)

    for entry_id in range(3 * sizes[0]):
        assert list(quorum.write_set(entry_id)) == twin.write_set(entry_id)
        for position in range(sizes[0]):
            assert quorum.stores(position, entry_id) == (position in twin.write_set(entry_id))
    assert quorum.is_striped == (len(set(map(frozenset, quorum.write_sets))) > 1)


@pytest.mark.rule("DS-5")
@pytest.mark.parametrize("entry_id", [2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**32 + 5, 2**63 - 1])
@pytest.mark.parametrize("sizes", [(3, 2, 2), (5, 3, 2), (6, 3, 2), (7, 7, 4)])
def test_entry_ids_above_31_bits_are_placed_with_full_arithmetic(sizes: Sizes, entry_id: int) -> None:
    twin, quorum = Twin(sizes), QuorumSizes(*sizes)

    assert list(quorum.write_set(entry_id)) == twin.write_set(entry_id)
    assert all(quorum.stores(position, entry_id) for position in twin.write_set(entry_id))


@pytest.mark.rule("DS-5")
def test_write_and_read_side_agree_on_the_first_entry_id_that_needs_32_bits() -> None:
    quorum = QuorumSizes(3, 2, 2)

    assert quorum.write_set(2**31) == (2, 0)
    assert [position for position in range(3) if quorum.stores(position, 2**31)] == [0, 2]


@pytest.mark.rule("DS-6")
@pytest.mark.parametrize("sizes", SMALL)
def test_an_entry_is_acknowledged_by_any_ack_quorum_and_by_nothing_less(sizes: Sizes) -> None:
    quorum = QuorumSizes(*sizes)

    for size in range(sizes[1] + 1):
        for chosen in combinations(quorum.write_set(0), size):
            assert quorum.is_ack_quorum(mask(frozenset(chosen))) == (size >= sizes[2])


@pytest.mark.rule("DS-11")
@pytest.mark.rule("DS-14")
@pytest.mark.behaviour("T-143")
@pytest.mark.parametrize("sizes", SMALL)
def test_responders_cover_exactly_when_no_ack_quorum_fits_into_the_others(sizes: Sizes) -> None:
    twin, quorum = Twin(sizes), QuorumSizes(*sizes)

    for known in twin.subsets():
        assert quorum.is_covered(mask(known)) == twin.is_covered(known), known


@pytest.mark.rule("DS-14")
@given(any_sizes(), st.data())
def test_the_same_holds_for_random_larger_ensembles(sizes: Sizes, data: st.DataObject) -> None:
    twin, quorum = Twin(sizes), QuorumSizes(*sizes)
    known = frozenset(data.draw(st.sets(st.integers(0, sizes[0] - 1))))

    assert quorum.is_covered(mask(known)) == twin.is_covered(known)


@pytest.mark.rule("DS-11")
@given(any_sizes(), st.data())
def test_more_knowledge_never_uncovers(sizes: Sizes, data: st.DataObject) -> None:
    quorum = QuorumSizes(*sizes)
    some = mask(frozenset(data.draw(st.sets(st.integers(0, sizes[0] - 1)))))
    more = some | mask(frozenset(data.draw(st.sets(st.integers(0, sizes[0] - 1)))))

    assert quorum.is_covered(more) >= quorum.is_covered(some)


@pytest.mark.rule("REC-18")
@pytest.mark.parametrize("sizes", SMALL)
def test_so_many_negatives_deny_an_entry_as_leave_no_room_for_an_ack_quorum(sizes: Sizes) -> None:
    _, write_quorum, ack_quorum = sizes
    enough = QuorumSizes(*sizes).negatives_to_deny

    assert write_quorum - enough < ack_quorum <= write_quorum - (enough - 1)


@pytest.mark.rule("DS-11")
@pytest.mark.rule("DS-12")
@pytest.mark.rule("REC-18")
@pytest.mark.parametrize(("sizes", "thresholds"), THRESHOLDS.items())
def test_the_table_of_thresholds_is_reproduced(sizes: Sizes, thresholds: tuple[int, int, int]) -> None:
    quorum = QuorumSizes(*sizes)
    covering = [known for known in Twin(sizes).subsets() if quorum.is_covered(mask(known))]
    by_size = {n: [k for k in covering if len(k) == n] for n in range(sizes[0] + 1)}
    fewest = min(len(known) for known in covering)
    always = min(n for n, known in by_size.items() if len(known) == len(list(combinations(range(sizes[0]), n))))

    assert (fewest, always, quorum.negatives_to_deny) == thresholds
    assert always == sizes[0] - sizes[2] + 1


@pytest.mark.rule("DS-13")
@pytest.mark.parametrize(
    ("sizes", "fewest"),
    [
        ((3, 3, 2), 2),
        ((3, 3, 3), 1),
        ((3, 3, 1), 3),
        ((3, 2, 2), 2),
        ((2, 2, 2), 1),
        ((5, 3, 2), 4),
        ((5, 2, 2), 3),
        ((6, 3, 2), 4),
    ],
)
def test_fewest_bookies_that_can_cover(sizes: Sizes, fewest: int) -> None:
    quorum = QuorumSizes(*sizes)

    assert min(len(known) for known in Twin(sizes).subsets() if quorum.is_covered(mask(known))) == fewest


@pytest.mark.rule("DS-13")
def test_silent_neighbours_in_a_striped_ensemble_leave_an_ack_quorum_but_distant_ones_do_not() -> None:
    quorum = QuorumSizes(6, 3, 2)

    assert quorum.is_covered(mask(frozenset({1, 2, 4, 5})))  # 0 and 3 are silent: no write set holds both
    assert not quorum.is_covered(mask(frozenset({1, 3, 4, 5})))  # 0 and 2 are: entry 0 could have been acknowledged


@pytest.mark.rule("DS-10")
@pytest.mark.rule("DS-15")
@pytest.mark.parametrize("code", [code for code in Code if code != Code.OK and code not in EXPLICIT_NEGATIVES])
def test_no_answer_and_every_error_but_an_explicit_negative_leaves_a_position_unknown(code: Code) -> None:
    coverage = CoverageSet(QuorumSizes(2, 2, 2))
    assert not coverage.is_covered

    coverage.add(0, code)
    assert not coverage.is_covered
    assert not coverage.is_exhausted

    coverage.add(1, code)
    assert not coverage.is_covered
    assert coverage.is_exhausted


@pytest.mark.rule("DS-10")
@pytest.mark.parametrize("code", [Code.OK, Code.NO_SUCH_ENTRY, Code.NO_SUCH_LEDGER_ON_BOOKIE])
def test_ok_and_explicit_negatives_make_a_position_known(code: Code) -> None:
    coverage = CoverageSet(QuorumSizes(2, 2, 2))

    coverage.add(1, code)

    assert coverage.is_covered
    assert not coverage.is_exhausted


@pytest.mark.rule("DS-10")
def test_codes_outside_the_enumeration_leave_a_position_unknown() -> None:
    coverage = CoverageSet(QuorumSizes(1, 1, 1))

    coverage.add(0, -4711)

    assert not coverage.is_covered
    assert coverage.is_exhausted


@pytest.mark.rule("DS-10")
def test_a_later_answer_of_a_position_replaces_the_earlier_one() -> None:
    coverage = CoverageSet(QuorumSizes(1, 1, 1))

    coverage.add(0, Code.TIMEOUT)
    coverage.add(0, Code.OK)
    assert coverage.is_covered

    coverage.add(0, Code.TIMEOUT)
    assert not coverage.is_covered


@pytest.mark.rule("DS-11")
@pytest.mark.rule("DS-15")
@pytest.mark.parametrize("sizes", [sizes for sizes in SMALL if sizes[0] <= 4])
def test_coverage_does_not_depend_on_the_order_of_answers(sizes: Sizes) -> None:
    twin = Twin(sizes)

    for order in permutations(range(sizes[0])):
        coverage = CoverageSet(QuorumSizes(*sizes))
        for count, position in enumerate(order, start=1):
            coverage.add(position, Code.NO_SUCH_ENTRY if position % 2 else Code.OK)
            assert coverage.is_covered == twin.is_covered(frozenset(order[:count]))


def test_sizes_come_from_metadata() -> None:
    metadata: LedgerMetadata = ledger((5, 3, 2), "abcde").metadata

    assert QuorumSizes.of(metadata) == QuorumSizes(5, 3, 2)
