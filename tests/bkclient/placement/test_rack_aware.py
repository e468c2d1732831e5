"""Rack-aware placement: write sets span racks, as a wish or as a promise."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.placement import Adherence, FixedLocations, LedgerShape, RackAwarePlacement, RandomPlacement
from tests.bkclient.placement.cluster import (
    NONE,
    assert_fair,
    assert_sound,
    locations,
    racks,
    spans_racks,
    told,
)

NINE = locations(a="r1 r1 r1", b="r2 r2 r2", c="r3 r3 r3")
SHAPE = LedgerShape(3, 3, 2)


@pytest.mark.rule("PL-11")
@pytest.mark.behaviour("T-227")
@pytest.mark.parametrize("sizes", [(e, q) for e in range(1, 8) for q in range(1, e + 1)])
@pytest.mark.parametrize("min_racks", [1, 2, 3])
def test_every_write_set_of_a_new_ensemble_spans_the_minimum(sizes: tuple[int, int], min_racks: int) -> None:
    places = locations(a="r1 r1 r1", b="r2 r2 r2", c="r3 r3 r3", d="r4", e="r5")  # five: a ring of five needs them
    policy = racks(places, min_racks=min_racks)
    shape = LedgerShape(*sizes, 1)
    for _ in range(20):
        ensemble = policy.new_ensemble(shape, NONE)
        assert ensemble is not None
        assert_sound(ensemble, shape, places, ())
        assert spans_racks(ensemble, places, shape.write_quorum_size, min(shape.write_quorum_size, min_racks))
        assert policy.adherence(shape, ensemble) is Adherence.MEETS_STRICT


@pytest.mark.rule("PL-11")
def test_the_first_bookie_is_of_the_clients_rack_if_there_is_one() -> None:
    near = racks(NINE, own_location="/r2")
    assert {NINE[near.new_ensemble(SHAPE, NONE)[0]] for _ in range(30)} == {"/r2"}  # type: ignore[index]
    assert {NINE[near.new_ensemble(SHAPE, frozenset(("b0", "b1", "b2")))[0]] for _ in range(30)} == {"/r1", "/r3"}  # type: ignore[index]
    far = racks(NINE, own_location="/r9")
    assert {NINE[far.new_ensemble(SHAPE, NONE)[0]] for _ in range(30)} == {"/r1", "/r2", "/r3"}  # type: ignore[index]


@pytest.mark.rule("PL-11")
def test_bookies_of_small_racks_are_not_chosen_more_often_than_the_spread_demands() -> None:
    places = locations(a="r1 r1 r1 r1 r1", b="r2 r2 r2 r2 r2", c="r3")
    policy, counts = racks(places), Counter[str]()
    for _ in range(2000):
        counts.update(policy.new_ensemble(SHAPE, NONE) or ())
    assert counts["c0"] < 2 * counts["a0"]


@pytest.mark.rule("PL-11")
def test_bookies_of_equal_racks_are_chosen_equally_often_at_every_position() -> None:
    policy = racks(NINE)
    at_position: list[Counter[str]] = [Counter(), Counter(), Counter()]
    for _ in range(3000):
        for counter, bookie_id in zip(at_position, policy.new_ensemble(SHAPE, NONE) or (), strict=True):
            counter[bookie_id] += 1
    for counter in at_position:
        assert_fair(counter, dict.fromkeys(NINE, 1 / 9))


@pytest.mark.rule("PL-11")
@pytest.mark.rule("PL-12")
@pytest.mark.behaviour("T-225")
def test_one_single_rack_is_allowed_and_reported_or_refused_if_racks_are_enforced() -> None:
    places = locations(a="r1 r1 r1 r1")
    wished, enforced = racks(places), racks(places, enforce=True)
    ensemble = wished.new_ensemble(SHAPE, NONE)
    assert ensemble is not None
    assert_sound(ensemble, SHAPE, places, ())
    assert wished.adherence(SHAPE, ensemble) is Adherence.FAIL
    assert enforced.new_ensemble(SHAPE, NONE) is None
    assert enforced.replace(SHAPE, ("a0", "a1", "a2"), 0, NONE) is None
    assert racks(places, enforce=True, min_racks=1).new_ensemble(SHAPE, NONE) is not None


@pytest.mark.rule("PL-12")
def test_a_minimum_that_cannot_be_met_is_met_as_far_as_it_can() -> None:
    places = locations(a="r1 r1 r1", b="r2 r2 r2")
    policy = racks(places, min_racks=3)
    ensemble = policy.new_ensemble(LedgerShape(6, 3, 2), NONE)
    assert ensemble is not None
    assert spans_racks(ensemble, places, 3, 2)
    assert policy.adherence(LedgerShape(6, 3, 2), ensemble) is Adherence.FAIL
    assert racks(places, min_racks=3, enforce=True).new_ensemble(LedgerShape(6, 3, 2), NONE) is None


@pytest.mark.rule("PL-12")
@pytest.mark.behaviour("T-226")
def test_enforced_racks_leave_out_bookies_without_one() -> None:
    places = locations(a="r1 r1", b="r2 r2")
    everyone = (*places, "x0", "x1", "x2")
    enforced = told(racks(places, enforce=True), everyone)
    for _ in range(30):
        ensemble = enforced.new_ensemble(SHAPE, NONE)
        assert ensemble is not None
        assert set(ensemble) <= set(places)
        assert enforced.replace(SHAPE, ("a0", "b0", "a1"), 0, frozenset({"b1"})) is None
    assert enforced.adherence(SHAPE, ("a0", "b0", "x0")) is Adherence.FAIL
    assert enforced.new_ensemble(LedgerShape(5, 2, 2), NONE) is None
    wished = told(racks(places), everyone)
    assert wished.adherence(SHAPE, ("a0", "b0", "x0")) is Adherence.MEETS_STRICT
    assert any(set(wished.new_ensemble(SHAPE, NONE) or ()) - set(places) for _ in range(30))


@pytest.mark.rule("PL-13")
@pytest.mark.behaviour("T-224")
def test_a_replacement_comes_from_the_same_rack_else_from_an_unused_one_else_from_any_else_there_is_none() -> None:
    policy = racks(NINE)
    ensemble, shape = ("a0", "b0", "a1"), SHAPE
    assert {policy.replace(shape, ensemble, 1, NONE) for _ in range(30)} == {"b1", "b2"}
    without_rack = frozenset({"b1", "b2"})
    assert {policy.replace(shape, ensemble, 1, without_rack) for _ in range(30)} == {"c0", "c1", "c2"}
    unused_too = without_rack | {"c0", "c1", "c2"}
    assert policy.replace(shape, ensemble, 1, unused_too) == "a2"
    assert racks(NINE, enforce=True).replace(shape, ensemble, 1, unused_too) is None
    assert policy.replace(shape, ensemble, 1, unused_too | {"a2"}) is None


@pytest.mark.rule("PL-13")
def test_a_used_rack_that_keeps_the_minimum_is_taken_before_the_minimum_is_given_up() -> None:
    places = locations(a="r1 r1 r1", b="r2 r2")
    # the write sets of position 0 are (0, 1) and (3, 0), so a rack of position 2 will do
    ensemble = ("b0", "a0", "b1", "a1")
    enforced = racks({**places, "d0": "/r2"}, enforce=True)
    assert enforced.replace(LedgerShape(4, 2, 2), ensemble, 0, NONE) == "d0"
    assert enforced.replace(LedgerShape(4, 2, 2), ensemble, 0, frozenset({"d0"})) is None


@pytest.mark.rule("PL-15")
@pytest.mark.behaviour("T-229")
def test_acknowledgements_suffice_exactly_if_they_span_the_racks() -> None:
    policy = racks(NINE)
    for bookies in itertools.chain.from_iterable(itertools.combinations(NINE, n) for n in range(4)):
        spanned = len({NINE[b] for b in bookies})
        assert policy.covers_fault_domains(SHAPE, bookies) == (spanned >= 2)
        assert policy.covers_fault_domains(LedgerShape(3, 1, 1), bookies) == (spanned >= 1)
    assert not policy.covers_fault_domains(SHAPE, ("a0", "never seen"))


@pytest.mark.rule("PL-10")
@pytest.mark.behaviour("T-233")
def test_a_bookie_that_moves_is_placed_by_its_new_rack_at_once() -> None:
    where = FixedLocations({"a": "/r1", "b": "/r1", "c": "/r2"})
    policy = told(RackAwarePlacement(random.Random(1), where, enforce=True), "abc")
    pair = LedgerShape(2, 2, 2)
    assert policy.adherence(pair, ("a", "b")) is Adherence.FAIL
    where.replace({"a": "/r1", "b": "/r2", "c": "/r2"})
    assert policy.adherence(pair, ("a", "b")) is Adherence.MEETS_STRICT
    assert policy.adherence(pair, ("b", "c")) is Adherence.FAIL
    assert {frozenset(policy.new_ensemble(pair, NONE) or ()) for _ in range(40)} == {frozenset("ab"), frozenset("ac")}


def test_without_locations_it_draws_what_choice_by_chance_draws() -> None:
    aware = told(RackAwarePlacement(random.Random(9)), "abcdef")
    chance = told(RandomPlacement(random.Random(9)), "abcdef")
    for size in (1, 3, 5, 6, 7):
        shape = LedgerShape(size, 1, 1)
        assert aware.new_ensemble(shape, frozenset("f")) == chance.new_ensemble(shape, frozenset("f"))
    assert aware.replace(SHAPE, ("a", "b", "c"), 1, NONE) == chance.replace(SHAPE, ("a", "b", "c"), 1, NONE)
    assert aware.adherence(SHAPE, ("a", "b", "c")) is chance.adherence(SHAPE, ("a", "b", "c"))
    enforced = told(RackAwarePlacement(random.Random(9), enforce=True), "abcdef")
    assert enforced.new_ensemble(SHAPE, NONE) is None
    assert enforced.adherence(SHAPE, ("a", "b", "c")) is Adherence.FAIL


# Repair ---------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PL-16")
@pytest.mark.behaviour("T-230")
def test_a_repair_moves_as_few_positions_as_can_be() -> None:
    policy = racks(NINE)
    assert policy.propose_repair(SHAPE, ("a0", "b0", "a1"), NONE) == ("a0", "b0", "a1")
    repaired = policy.propose_repair(SHAPE, ("a0", "a1", "a2"), NONE)
    assert repaired is not None
    assert sum(old != new for old, new in zip(("a0", "a1", "a2"), repaired, strict=True)) == 1
    assert policy.adherence(SHAPE, repaired) is Adherence.MEETS_STRICT


@pytest.mark.rule("PL-16")
@pytest.mark.behaviour("T-230")
def test_there_is_no_repair_without_another_rack() -> None:
    places = locations(a="r1 r1 r1 r1", b="r2")
    policy = racks(places)
    assert policy.propose_repair(SHAPE, ("a0", "a1", "a2"), NONE) is not None
    assert policy.propose_repair(SHAPE, ("a0", "a1", "a2"), frozenset({"b0"})) is None
    assert racks(places, min_racks=3).propose_repair(SHAPE, ("a0", "a1", "a2"), NONE) is None


@pytest.mark.rule("PL-16")
def test_where_racks_are_enforced_a_repair_moves_bookies_without_one() -> None:
    policy = told(racks(NINE, enforce=True), (*NINE, "x0"))
    repaired = policy.propose_repair(SHAPE, ("a0", "b0", "x0"), NONE)
    assert repaired is not None
    assert repaired[:2] == ("a0", "b0")
    assert repaired[2] in NINE


# Arbitrary clusters ---------------------------------------------------------------------------------------------------


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, str], LedgerShape, int, frozenset[str], int]:
    """Places, sizes, the minimum, exclusions and a seed."""
    count = draw(st.integers(1, 7))
    places = {f"b{n}": f"/r{draw(st.integers(1, 4))}" for n in range(count)}
    size = draw(st.integers(1, 5))
    quorum = draw(st.integers(1, size))
    excluded = frozenset(draw(st.sets(st.sampled_from(sorted(places)), max_size=2)))
    shape = LedgerShape(size, quorum, draw(st.integers(1, quorum)))
    return places, shape, draw(st.integers(1, 3)), excluded, draw(st.integers(0, 2**32))


Cluster = tuple[dict[str, str], LedgerShape, int, frozenset[str], int]


@pytest.mark.rule("PL-11")
@pytest.mark.rule("PL-12")
@settings(max_examples=200, deadline=None)
@given(clusters())
def test_enforced_there_is_an_ensemble_exactly_if_one_can_be_and_it_obeys(cluster: Cluster) -> None:
    places, shape, min_racks, excluded, seed = cluster
    policy = racks(places, seed=seed, min_racks=min_racks, enforce=True)
    least, quorum = min(min_racks, shape.write_quorum_size), shape.write_quorum_size
    ensemble = policy.new_ensemble(shape, excluded)
    if ensemble is None:
        allowed = sorted(set(places) - excluded)
        assert not any(
            spans_racks(candidate, places, quorum, least)
            for candidate in itertools.permutations(allowed, shape.ensemble_size)
        )
    else:
        assert_sound(ensemble, shape, places, excluded)
        assert spans_racks(ensemble, places, quorum, least)
        assert policy.adherence(shape, ensemble) is Adherence.MEETS_STRICT


@pytest.mark.rule("PL-12")
@settings(max_examples=200, deadline=None)
@given(clusters())
def test_wished_for_there_is_an_ensemble_exactly_if_there_are_enough_bookies(cluster: Cluster) -> None:
    places, shape, min_racks, excluded, seed = cluster
    wished = racks(places, seed=seed, min_racks=min_racks)
    ensemble = wished.new_ensemble(shape, excluded)
    assert (ensemble is not None) == (len(set(places) - excluded) >= shape.ensemble_size)
    if ensemble is not None:
        assert_sound(ensemble, shape, places, excluded)
        possible = racks(places, seed=seed, min_racks=min_racks, enforce=True).new_ensemble(shape, excluded)
        expected = Adherence.FAIL if possible is None else Adherence.MEETS_STRICT
        assert wished.adherence(shape, ensemble) is expected


@pytest.mark.rule("PL-4")
@pytest.mark.rule("PL-13")
@settings(max_examples=200, deadline=None)
@given(clusters(), st.integers(0, 4))
def test_a_replacement_is_allowed_and_obeys_if_one_can_be(cluster: Cluster, at: int) -> None:
    places, shape, min_racks, excluded, seed = cluster
    members = sorted(places)[: shape.ensemble_size]
    ensemble = tuple(members) + tuple(f"gone{n}" for n in range(shape.ensemble_size - len(members)))
    position, quorum = at % shape.ensemble_size, shape.write_quorum_size
    least = min(min_racks, quorum)
    # what is gone has no place, and counts for no rack
    everywhere = {**dict.fromkeys(ensemble, ""), **places}

    def obeys(candidate: str) -> bool:
        changed = [candidate if p == position else b for p, b in enumerate(ensemble)]
        at_position = [w for w in _write_sets(changed, quorum) if candidate in w]
        return all(len({everywhere[b] for b in w} - {""}) >= least for w in at_position)

    allowed = sorted(set(places) - excluded - set(ensemble))
    obedient = [candidate for candidate in allowed if obeys(candidate)]
    enforced = racks(places, seed=seed, min_racks=min_racks, enforce=True).replace(shape, ensemble, position, excluded)
    assert enforced in obedient if obedient else enforced is None
    wished = racks(places, seed=seed, min_racks=min_racks).replace(shape, ensemble, position, excluded)
    assert wished in allowed if allowed else wished is None


def _write_sets(ensemble: list[str], quorum: int) -> list[list[str]]:
    return [[ensemble[(e + w) % len(ensemble)] for w in range(quorum)] for e in range(len(ensemble))]


@pytest.mark.rule("PL-16")
@settings(max_examples=100, deadline=None)
@given(clusters())
def test_a_repair_is_the_smallest_there_is(cluster: Cluster) -> None:
    places, shape, min_racks, excluded, seed = cluster
    ensemble = tuple(sorted(places)[: shape.ensemble_size])
    if len(ensemble) < shape.ensemble_size:
        return
    policy = racks(places, seed=seed, min_racks=min_racks)
    least, quorum = min(min_racks, shape.write_quorum_size), shape.write_quorum_size
    newcomers = sorted(set(places) - excluded - set(ensemble))
    fewest = min(
        (
            sum(old != new for old, new in zip(ensemble, candidate, strict=True))
            for candidate in itertools.permutations((*ensemble, *newcomers), shape.ensemble_size)
            if all(new == old or new in newcomers for old, new in zip(ensemble, candidate, strict=True))
            and spans_racks(candidate, places, quorum, least)
        ),
        default=None,
    )
    repaired = policy.propose_repair(shape, ensemble, excluded)
    if repaired is None:
        assert fewest is None
    else:
        assert spans_racks(repaired, places, quorum, least)
        assert sum(old != new for old, new in zip(ensemble, repaired, strict=True)) == fewest
