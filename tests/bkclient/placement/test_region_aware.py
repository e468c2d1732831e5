"""Region-aware placement: ensembles dealt to regions, durable over several if that is asked for."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import ArgumentError
from bkclient.placement import Adherence, FixedLocations, LedgerShape, RegionAwarePlacement
from tests.bkclient.placement.cluster import NONE, assert_sound, is_durable, locations, regions, told

THREE = locations(eu="eu/r1 eu/r1 eu/r2 eu/r2", us="us/r1 us/r2 us/r3", ap="ap/r1 ap/r1 ap/r2")
LISTED = ("eu", "us", "ap")


def region(bookie_id: str) -> str:
    return bookie_id.rstrip("0123456789")


def shares(ensemble: tuple[str, ...] | None) -> Counter[str]:
    assert ensemble is not None
    return Counter(region(bookie_id) for bookie_id in ensemble)


@pytest.mark.rule("PL-18")
@pytest.mark.rule("PL-20")
@pytest.mark.behaviour("T-231")
@pytest.mark.parametrize("size", range(1, 11))
def test_an_ensemble_is_dealt_evenly_to_the_regions_the_own_one_first(size: int) -> None:
    policy = regions(THREE, own_location="/us/r1")
    for _ in range(10):
        ensemble = policy.new_ensemble(LedgerShape(size, min(2, size), 1), NONE)
        counts = shares(ensemble)
        assert ensemble is not None
        assert region(ensemble[0]) == "us"
        assert_sound(ensemble, LedgerShape(size, 1, 1), THREE, ())
        capacity = Counter(region(b) for b in THREE)
        for one, other in itertools.permutations(capacity, 2):
            assert counts[one] - counts[other] <= 1 or counts[other] == capacity[other]


@pytest.mark.rule("PL-20")
def test_regions_take_turns_along_the_ensemble() -> None:
    ensemble = regions(THREE, own_location="/us/r1").new_ensemble(LedgerShape(6, 3, 2), NONE)
    assert ensemble is not None
    dealt = [region(bookie_id) for bookie_id in ensemble]
    assert dealt[:3] == dealt[3:]
    assert set(dealt[:3]) == {"eu", "us", "ap"}


@pytest.mark.rule("PL-20")
def test_a_region_that_has_no_more_bookies_is_passed_over() -> None:
    places = locations(eu="eu/r1", us="us/r1 us/r1 us/r1", ap="ap/r1 ap/r1 ap/r1")
    assert shares(regions(places).new_ensemble(LedgerShape(7, 2, 1), NONE)) == {"eu": 1, "us": 3, "ap": 3}
    assert regions(places).new_ensemble(LedgerShape(8, 2, 1), NONE) is None


@pytest.mark.rule("PL-20")
def test_copies_in_one_region_are_in_different_racks_if_there_are_any() -> None:
    places = locations(eu="eu/r1 eu/r1 eu/r1 eu/r2", us="us/r1 us/r1 us/r2 us/r2")
    for seed in range(20):
        ensemble = regions(places, seed=seed).new_ensemble(LedgerShape(4, 4, 2), NONE)
        assert ensemble is not None
        assert len({places[bookie_id] for bookie_id in ensemble}) == 4


@pytest.mark.rule("PL-20")
@pytest.mark.behaviour("T-231")
@pytest.mark.parametrize(
    ("count", "sizes", "least"),
    [(3, (3, 3, 3), 2), (3, (6, 3, 3), 3), (5, (5, 5, 5), 3), (5, (10, 5, 4), 2), (3, (4, 2, 2), 2)],
)
def test_durable_ensembles_survive_the_loss_of_regions(count: int, sizes: tuple[int, int, int], least: int) -> None:
    names = ("eu", "us", "ap", "sa", "af")[:count]
    places = locations(**{name: f"{name}/r1 {name}/r2 {name}/r3" for name in names})
    policy, shape = regions(places, regions=names, min_regions=least), LedgerShape(*sizes)
    for _ in range(20):
        ensemble = policy.new_ensemble(shape, NONE)
        assert ensemble is not None
        assert is_durable(ensemble, places, shape, least)
        assert policy.adherence(shape, ensemble) is Adherence.MEETS_STRICT


@pytest.mark.rule("PL-18")
@pytest.mark.behaviour("T-231")
def test_regions_that_are_not_listed_or_switched_off_are_avoided() -> None:
    listed = regions(THREE, regions=("eu", "us"))
    assert set(shares(listed.new_ensemble(LedgerShape(4, 2, 2), NONE))) == {"eu", "us"}
    assert (
        region(listed.replace(LedgerShape(2, 2, 2), ("eu0", "us0"), 0, frozenset({"eu1", "eu2", "eu3"})) or "") != "ap"
    )
    off = {"ap.disallow_bookie_placement"}
    switched = regions(THREE, features=off.__contains__)
    assert set(shares(switched.new_ensemble(LedgerShape(6, 2, 2), NONE))) == {"eu", "us"}
    off.clear()
    assert set(shares(switched.new_ensemble(LedgerShape(6, 2, 2), NONE))) == {"eu", "us", "ap"}


@pytest.mark.rule("PL-20")
@pytest.mark.behaviour("T-231")
def test_with_one_region_left_placement_is_rack_aware_and_with_none_it_is_random() -> None:
    shape, gone = LedgerShape(3, 3, 2), frozenset(b for b in THREE if region(b) != "eu")
    policy = regions(THREE)
    for _ in range(10):
        ensemble = policy.new_ensemble(shape, gone)
        assert ensemble is not None
        assert {THREE[bookie_id] for bookie_id in ensemble} == {"/eu/r1", "/eu/r2"}
        assert policy.adherence(shape, ensemble) is Adherence.FAIL  # there are other regions
    everywhere = regions(THREE, features=lambda name: name.endswith(".disallow_bookie_placement"))
    assert_sound(everywhere.new_ensemble(shape, NONE) or (), shape, THREE, ())
    assert everywhere.replace(shape, ("eu0", "eu1", "us0"), 0, NONE) in set(THREE) - {"eu0", "eu1", "us0"}
    unlocated = told(RegionAwarePlacement(random.Random(1)), "abc")
    assert_sound(unlocated.new_ensemble(shape, NONE) or (), shape, "abc", ())


@pytest.mark.rule("PL-19")
@pytest.mark.parametrize(
    ("sizes", "least", "complaint"),
    [
        ((3, 3, 1), 2, "ack_quorum_size must be >= 2 to span as many regions, got 1"),
        ((6, 6, 3), 2, "ack_quorum_size must be > 3"),
        ((4, 5, 4), 2, "must hold, got"),
        ((5, 3, 4), 2, "must hold, got"),
        ((6, 6, 4), 3, "ack_quorum_size must be > 4"),
    ],
)
def test_sizes_that_regions_cannot_satisfy_are_wrong_arguments(
    sizes: tuple[int, int, int], least: int, complaint: str
) -> None:
    shape = LedgerShape(*sizes)
    policy = regions(THREE, regions=LISTED, min_regions=least)
    with pytest.raises(ArgumentError, match=complaint):
        policy.new_ensemble(shape, NONE)
    unchecked = regions(THREE, regions=LISTED, min_regions=least, validate=False)
    with pytest.raises(ArgumentError, match=complaint):
        unchecked.check(shape)
    if shape.ack_quorum_size <= shape.write_quorum_size <= shape.ensemble_size:
        unchecked.new_ensemble(shape, NONE)
        regions(THREE).new_ensemble(shape, NONE)  # without a list of regions there is no minimum


@pytest.mark.rule("PL-19")
def test_fewer_regions_than_the_minimum_are_a_wrong_argument() -> None:
    with pytest.raises(
        ArgumentError, match=r"regions_to_write must name at least min_regions_for_durability \(3\) regions, got 2"
    ):
        RegionAwarePlacement(random.Random(1), regions=("eu", "us"), min_regions=3)
    RegionAwarePlacement(random.Random(1), regions=("eu", "us"), min_regions=3, validate=False)
    RegionAwarePlacement(random.Random(1), min_regions=3)


@pytest.mark.rule("PL-21")
def test_a_replacement_comes_from_the_same_rack_then_the_same_region_then_another() -> None:
    policy, shape = regions(THREE), LedgerShape(3, 3, 2)
    ensemble = ("eu0", "us0", "ap0")
    assert policy.replace(shape, ensemble, 0, NONE) == "eu1"
    assert {policy.replace(shape, ensemble, 0, frozenset({"eu1"})) for _ in range(20)} == {"eu2", "eu3"}
    elsewhere = policy.replace(shape, ensemble, 0, frozenset({"eu1", "eu2", "eu3"}))
    assert region(elsewhere or "") in {"us", "ap"}
    assert policy.replace(shape, ensemble, 0, frozenset(THREE)) is None


@pytest.mark.rule("PL-21")
def test_a_replacement_keeps_the_ensemble_durable_unless_it_was_not_or_that_is_switched_off() -> None:
    shape = LedgerShape(2, 2, 2)
    gone = frozenset(b for b in THREE if region(b) != "us")
    bound = regions(THREE, regions=LISTED)
    assert bound.replace(shape, ("eu0", "us0"), 0, gone) is None
    assert region(bound.replace(shape, ("us1", "us0"), 0, gone) or "") == "us"
    assert (
        region(regions(THREE, regions=LISTED, enforce_in_replace=False).replace(shape, ("eu0", "us0"), 0, gone) or "")
        == "us"
    )
    relaxed = regions(THREE, regions=LISTED, features=lambda name: name == "repp_disable_durability_enforcement")
    assert region(relaxed.replace(shape, ("eu0", "us0"), 0, gone) or "") == "us"


@pytest.mark.rule("H-39")
def test_an_ensemble_that_is_not_durable_or_in_one_region_or_unknown_does_not_adhere() -> None:
    pair = LedgerShape(2, 2, 2)
    listed, free = regions(THREE, regions=("eu", "us")), regions(THREE)
    assert listed.adherence(pair, ("eu0", "us0")) is Adherence.MEETS_STRICT
    assert listed.adherence(pair, ("eu0", "eu1")) is Adherence.FAIL
    assert listed.adherence(pair, ("eu0", "ap0")) is Adherence.FAIL
    assert free.adherence(pair, ("eu0", "ap0")) is Adherence.MEETS_STRICT
    assert free.adherence(pair, ("eu0", "eu1")) is Adherence.FAIL
    assert free.adherence(pair, ("eu0", "nobody")) is Adherence.FAIL
    alone = regions(locations(eu="eu/r1 eu/r2"))
    assert alone.adherence(pair, ("eu0", "eu1")) is Adherence.MEETS_STRICT


@pytest.mark.rule("PL-18")
def test_acknowledgements_have_to_span_the_minimum_of_regions() -> None:
    shape = LedgerShape(3, 3, 2)
    listed = regions(THREE, regions=LISTED)
    assert listed.covers_fault_domains(shape, ("eu0", "us0"))
    assert not listed.covers_fault_domains(shape, ("eu0", "eu1"))
    assert not listed.covers_fault_domains(shape, ("eu0", "nobody"))
    assert regions(THREE).covers_fault_domains(shape, ("eu0", "eu1"))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, str], LedgerShape, int, frozenset[str], int]:
    places = {
        f"b{n}": f"/{draw(st.sampled_from(LISTED))}/r{draw(st.integers(1, 2))}" for n in range(draw(st.integers(1, 7)))
    }
    size = draw(st.integers(1, 5))
    quorum = draw(st.integers(1, size))
    excluded = frozenset(draw(st.sets(st.sampled_from(sorted(places)), max_size=2)))
    shape = LedgerShape(size, quorum, draw(st.integers(1, quorum)))
    return places, shape, draw(st.integers(1, 3)), excluded, draw(st.integers(0, 2**32))


@pytest.mark.rule("PL-20")
@settings(max_examples=200, deadline=None)
@given(clusters())
def test_with_several_regions_there_is_an_ensemble_exactly_if_a_durable_one_can_be(
    cluster: tuple[dict[str, str], LedgerShape, int, frozenset[str], int],
) -> None:
    places, shape, least, excluded, seed = cluster
    policy = regions(places, seed=seed, regions=LISTED, min_regions=least, validate=False)
    ensemble = policy.new_ensemble(shape, excluded)
    allowed = sorted(set(places) - excluded)
    if ensemble is None:
        assert not any(
            is_durable(candidate, places, shape, least)
            for candidate in itertools.permutations(allowed, shape.ensemble_size)
        )
        return
    assert_sound(ensemble, shape, places, excluded)
    if len({places[b].split("/")[1] for b in allowed}) > 1:
        assert is_durable(ensemble, places, shape, least)


def test_the_region_of_a_bookie_is_learned_when_it_changes() -> None:
    where = FixedLocations({"a": "/eu/r1", "b": "/eu/r1"})
    policy = told(RegionAwarePlacement(random.Random(1), where), "ab")
    assert policy.adherence(LedgerShape(2, 2, 2), ("a", "b")) is Adherence.MEETS_STRICT  # the only region
    where.replace({"a": "/eu/r1", "b": "/us/r1"})
    assert policy.adherence(LedgerShape(2, 2, 2), ("a", "a")) is Adherence.FAIL
