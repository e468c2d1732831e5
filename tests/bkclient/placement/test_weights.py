"""Random placement, and chances that follow free disk space."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.placement import BookieWeights, LedgerShape, RackAwarePlacement, RandomPlacement
from bkclient.placement.weights import capped_weights, draw
from tests.bkclient.placement.cluster import NONE, assert_fair, assert_sound, racks, told

ONE = LedgerShape(1, 1, 1)
DRAWS = 6000


def known(weights: dict[str, int], max_multiple: float = 0.0) -> BookieWeights:
    table = BookieWeights(max_multiple)
    table.retain(weights)
    for bookie_id, free in weights.items():
        table.learn(bookie_id, free)
    return table


def firsts(weights: dict[str, int], max_multiple: float = 0.0) -> Counter[str]:
    table, rng = known(weights, max_multiple), random.Random(7)
    return Counter(draw(rng, sorted(weights), table)[0] for _ in range(DRAWS))


@pytest.mark.rule("PL-27")
@pytest.mark.behaviour("T-228")
@pytest.mark.parametrize(
    ("weights", "max_multiple", "expected"),
    [
        ({"a": 100, "b": 100, "c": 100}, 0.0, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
        ({"a": 0, "b": 0, "c": 0}, 0.0, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
        ({"a": 100, "b": 200, "c": 300}, 0.0, {"a": 1 / 6, "b": 2 / 6, "c": 3 / 6}),
        ({"a": 0, "b": 200, "c": 300}, 0.0, {"a": 2 / 7, "b": 2 / 7, "c": 3 / 7}),
        ({"a": 100, "b": 100, "c": 800}, 0.0, {"a": 0.1, "b": 0.1, "c": 0.8}),
        ({"a": 100, "b": 100, "c": 800}, 3.0, {"a": 0.2, "b": 0.2, "c": 0.6}),
        ({"a": 0, "b": 0, "c": 800}, 3.0, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
    ],
    ids=["equal", "none has space", "mixed", "a full one counts as the least", "hot", "hot but capped", "no median"],
)
def test_chances_follow_the_weights(weights: dict[str, int], max_multiple: float, expected: dict[str, float]) -> None:
    assert_fair(firsts(weights, max_multiple), expected)


@pytest.mark.rule("PL-27")
def test_a_bookie_that_has_not_told_counts_as_the_fullest() -> None:
    table = BookieWeights(0.0)
    table.retain(["a", "b", "c"])
    table.learn("a", 500)
    table.learn("b", 100)
    assert table.unknown() == ("c",)
    assert table.chances(["a", "b", "c"]) == [500.0, 100.0, 100.0]


@pytest.mark.rule("PL-27")
@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 10**15), min_size=1),
    st.floats(0, 10, allow_nan=False),
)
def test_every_chance_is_above_zero_and_none_above_the_cap(weights: dict[str, int], multiple: float) -> None:
    chances = capped_weights(weights, multiple)
    assert set(chances) == set(weights)
    assert all(chance > 0 for chance in chances.values())
    ordered = sorted(weights.values())
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    if multiple * middle > 0:
        assert max(chances.values()) <= multiple * middle * (1 + 1e-9)


def test_what_a_bookie_told_is_forgotten_when_it_leaves() -> None:
    table = known({"a": 100, "b": 900})
    table.retain(["b", "c"])
    table.learn("a", 100)
    assert table.bookies() == ("b", "c")
    assert table.unknown() == ("c",)


@pytest.mark.rule("PL-5")
def test_choice_by_chance_is_fair_distinct_and_keeps_to_the_exclusions() -> None:
    policy = told(RandomPlacement(random.Random(3)), "abcdef", "xy")
    shape, counts = LedgerShape(3, 2, 2), Counter[str]()
    for _ in range(3000):
        ensemble = policy.new_ensemble(shape, frozenset("f"))
        assert ensemble is not None
        assert_sound(ensemble, shape, "abcdef", "f")
        counts.update(ensemble)
    assert_fair(counts, dict.fromkeys("abcde", 0.2))


def test_a_replacement_by_chance_is_any_that_is_allowed() -> None:
    policy = told(RandomPlacement(random.Random(3)), "abcdef")
    chosen = Counter(policy.replace(LedgerShape(2, 2, 2), ("a", "b"), 1, frozenset("f")) or "" for _ in range(1500))
    assert_fair(chosen, dict.fromkeys("cde", 1 / 3))
    assert policy.replace(LedgerShape(2, 2, 2), ("a", "b"), 1, frozenset("cdef")) is None


@pytest.mark.rule("PL-27")
@pytest.mark.behaviour("T-228")
@pytest.mark.parametrize("kind", ["random", "rack-aware"])
def test_policies_choose_new_ensembles_and_replacements_by_weight(kind: str) -> None:
    weights, rng = known({"a": 100, "b": 100, "c": 800}), random.Random(5)
    policy = (RandomPlacement if kind == "random" else RackAwarePlacement)(rng, weights=weights)
    told(policy, "abc")
    assert_fair(
        Counter((policy.new_ensemble(ONE, NONE) or ("",))[0] for _ in range(3000)), {"a": 0.1, "b": 0.1, "c": 0.8}
    )
    replaced = Counter(policy.replace(ONE, ("a",), 0, NONE) or "" for _ in range(3000))
    assert_fair(replaced, {"b": 1 / 9, "c": 8 / 9})


@pytest.mark.rule("PL-27")
def test_weights_count_within_the_racks_that_are_asked_for() -> None:
    places = {"a": "/r1", "b": "/r1", "c": "/r2", "d": "/r2"}
    policy = racks(places, weights=known({"a": 100, "b": 300, "c": 100, "d": 300}))
    counts: Counter[str] = Counter()
    for _ in range(3000):
        counts.update(policy.new_ensemble(LedgerShape(2, 2, 2), NONE) or ())
    assert_fair(counts, {"a": 1 / 8, "b": 3 / 8, "c": 1 / 8, "d": 3 / 8})


@pytest.mark.rule("RO-2")
def test_random_placement_reads_as_striped() -> None:
    policy = told(RandomPlacement(random.Random(1)), "a", "b")
    assert policy.read_order(("c", "b", "a"), None) == ("c", "b", "a")  # type: ignore[arg-type]
