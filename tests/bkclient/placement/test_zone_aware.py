"""Zone-aware placement: zones for every write set, upgrade domains within a zone."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import ArgumentError
from bkclient.placement import Adherence, LedgerShape, ZoneAwarePlacement
from tests.bkclient.placement.cluster import NONE, assert_sound, keeps_zones, locations, told, zones

THREE = locations(x="x/1 x/2 x/3", y="y/1 y/2 y/3", z="z/1 z/2 z/3")
TWO = locations(x="x/1 x/2 x/3", y="y/1 y/2 y/3")
SHAPE = LedgerShape(3, 3, 2)


@pytest.mark.rule("PL-22")
@pytest.mark.parametrize("sizes", [(4, 3, 2), (2, 2, 2), (3, 2, 2), (4, 2, 2)])
def test_sizes_that_strict_zones_cannot_satisfy_are_wrong_arguments(sizes: tuple[int, int, int]) -> None:
    shape = LedgerShape(*sizes)
    with pytest.raises(ArgumentError, match="for strict zone-aware placement"):
        zones(THREE).new_ensemble(shape, NONE)
    assert zones(THREE).adherence(shape, tuple(THREE)[: sizes[0]]) is Adherence.FAIL
    assert zones(THREE, strict=False).new_ensemble(shape, NONE) is not None


@pytest.mark.rule("PL-22")
def test_a_minimum_above_the_number_wished_for_is_a_wrong_argument() -> None:
    with pytest.raises(ArgumentError, match="min_zones must be <= desired_zones, got 4 and 3"):
        ZoneAwarePlacement(random.Random(1), min_zones=4, desired_zones=3)


@pytest.mark.rule("PL-23")
@pytest.mark.behaviour("T-232")
@pytest.mark.parametrize("sizes", [(3, 3, 2), (6, 3, 2), (9, 3, 2), (4, 4, 3), (8, 4, 3)])
def test_every_write_set_has_the_zones_wished_for_if_they_are_there(sizes: tuple[int, int, int]) -> None:
    policy, shape = zones(THREE), LedgerShape(*sizes)
    for _ in range(20):
        ensemble = policy.new_ensemble(shape, NONE)
        assert ensemble is not None
        assert_sound(ensemble, shape, THREE, ())
        assert keeps_zones(ensemble, THREE, shape.write_quorum_size, 3)
        assert policy.adherence(shape, ensemble) is Adherence.MEETS_STRICT


@pytest.mark.rule("PL-23")
@pytest.mark.rule("PL-24")
@pytest.mark.behaviour("T-232")
def test_fewer_zones_will_do_down_to_the_minimum_in_different_domains_then() -> None:
    policy = zones(TWO)
    ensemble = policy.new_ensemble(SHAPE, NONE)
    assert ensemble is not None
    assert keeps_zones(ensemble, TWO, 3, 2)
    assert policy.adherence(SHAPE, ensemble) is Adherence.MEETS_SOFT
    assert policy.new_ensemble(SHAPE, frozenset(b for b in TWO if b.startswith("y"))) is None
    one_domain = locations(x="x/1 x/1 x/1", y="y/1 y/1 y/1")
    assert zones(one_domain).new_ensemble(SHAPE, NONE) is None


@pytest.mark.rule("PL-23")
def test_copies_in_one_zone_go_to_upgrade_domains_that_no_neighbour_is_in() -> None:
    places = locations(x="x/1 x/1 x/2 x/3", y="y/1 y/1 y/2 y/3")
    for seed in range(20):
        ensemble = zones(places, seed=seed).new_ensemble(LedgerShape(4, 4, 3), NONE)
        assert ensemble is not None
        assert len({places[bookie_id] for bookie_id in ensemble}) == 4


@pytest.mark.rule("PL-23")
def test_bookies_that_are_not_located_are_left_out_of_strict_placement_only() -> None:
    everyone = (*TWO, "n0", "n1", "n2")
    strict = told(zones(TWO), everyone)
    for _ in range(20):
        assert set(strict.new_ensemble(SHAPE, NONE) or ()) <= set(TWO)
    assert strict.new_ensemble(LedgerShape(9, 3, 2), NONE) is None
    assert strict.adherence(SHAPE, ("x0", "y0", "n0")) is Adherence.FAIL
    loose = told(zones(TWO, strict=False), everyone)
    assert loose.new_ensemble(LedgerShape(9, 3, 2), NONE) is not None
    assert loose.replace(SHAPE, ("x0", "y0", "n0"), 0, frozenset(TWO)) in ("n1", "n2")


@pytest.mark.rule("PL-22")
def test_a_location_that_is_not_a_zone_and_a_domain_counts_as_none() -> None:
    odd = {**TWO, "a": "/x", "b": "/x/1/more"}
    policy = zones(odd)
    assert policy.adherence(SHAPE, ("x0", "y0", "a")) is Adherence.FAIL
    assert policy.adherence(SHAPE, ("x0", "y0", "b")) is Adherence.FAIL
    assert policy.adherence(SHAPE, ("x0", "y0", "x1")) is Adherence.MEETS_SOFT


@pytest.mark.rule("PL-24")
@pytest.mark.behaviour("T-232")
@pytest.mark.parametrize(
    ("ensemble", "level"),
    [
        (("x0", "y0", "z0"), Adherence.MEETS_STRICT),
        (("x0", "x1", "z0"), Adherence.MEETS_SOFT),
        (("x0", "x3", "z0"), Adherence.FAIL),
        (("x0", "x1", "x2"), Adherence.FAIL),
        (("x0", "y0", "unheard of"), Adherence.FAIL),
        (("x0", "y0", "z0", "x1", "y1", "z1"), Adherence.MEETS_STRICT),
        (("x0", "y0", "z0", "z1", "y1", "x1"), Adherence.MEETS_SOFT),
    ],
)
def test_the_level_reached_is_told(ensemble: tuple[str, ...], level: Adherence) -> None:
    policy = zones({**THREE, "x3": "/x/1"})
    assert policy.adherence(LedgerShape(len(ensemble), 3, 2), ensemble) is level


@pytest.mark.rule("PL-25")
@pytest.mark.behaviour("T-229")
def test_acknowledgements_suffice_if_they_are_a_quorum_and_span_the_zones() -> None:
    policy = zones(THREE)
    for bookies in itertools.chain.from_iterable(itertools.combinations(THREE, n) for n in range(4)):
        spanned = len({b[0] for b in bookies})
        assert policy.covers_fault_domains(SHAPE, bookies) == (spanned >= 2)
        assert policy.covers_fault_domains(LedgerShape(3, 3, 3), bookies) == (spanned >= 2 and len(bookies) == 3)
    assert not policy.covers_fault_domains(SHAPE, ("x0", "unheard of"))


@pytest.mark.rule("PL-23")
def test_a_replacement_keeps_as_many_zones_as_can_be_or_there_is_none() -> None:
    policy = zones(THREE)
    ensemble = ("x0", "y0", "z0")
    assert {policy.replace(SHAPE, ensemble, 0, NONE) for _ in range(30)} == {"x1", "x2"}
    # only two zones then, and in a zone of two copies another domain
    assert {policy.replace(SHAPE, ensemble, 0, frozenset({"x1", "x2"})) for _ in range(30)} == {"y1", "y2", "z1", "z2"}
    assert policy.replace(SHAPE, ("x0", "y0", "y1"), 0, frozenset({"x1", "x2", "z0", "z1", "z2"})) is None


@pytest.mark.rule("RO-5")
def test_reads_are_not_reordered() -> None:
    policy = told(zones(THREE), ("x0", "y0"), ("z0",))
    assert policy.read_order(("z0", "gone", "y0", "x0"), None) == ("z0", "gone", "y0", "x0")  # type: ignore[arg-type]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, str], LedgerShape, frozenset[str], int]:
    count = draw(st.integers(3, 7))
    places = {f"b{n}": f"/{draw(st.sampled_from('xyz'))}/{draw(st.integers(1, 2))}" for n in range(count)}
    sizes = draw(st.sampled_from(((3, 3, 2), (4, 4, 2), (6, 3, 2), (5, 5, 3))))
    excluded = frozenset(draw(st.sets(st.sampled_from(sorted(places)), max_size=2)))
    return places, LedgerShape(*sizes), excluded, draw(st.integers(0, 2**32))


@pytest.mark.rule("PL-23")
@settings(max_examples=150, deadline=None)
@given(clusters())
def test_there_is_an_ensemble_exactly_if_one_can_be_and_of_the_best_level(
    cluster: tuple[dict[str, str], LedgerShape, frozenset[str], int],
) -> None:
    places, shape, excluded, seed = cluster
    policy = zones(places, seed=seed)
    ensemble = policy.new_ensemble(shape, excluded)
    allowed, quorum = sorted(set(places) - excluded), shape.write_quorum_size
    candidates = list(itertools.permutations(allowed, shape.ensemble_size))
    best = next(
        (least for least in (3, 2) if any(keeps_zones(c, places, quorum, least) for c in candidates)),
        None,
    )
    if ensemble is None:
        assert best is None
    else:
        assert best is not None
        assert_sound(ensemble, shape, places, excluded)
        assert keeps_zones(ensemble, places, quorum, best)
