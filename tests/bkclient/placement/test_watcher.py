"""The watcher: what a client knows of bookies, which policy it asks, and what it believes."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from bkclient.errors import ArgumentError, NotEnoughBookies, UnexpectedCondition
from bkclient.metadata.base import BookieSets
from bkclient.observability.stats import NOT_ADHERING
from bkclient.placement import (
    Adherence,
    BookieWatcher,
    FixedLocations,
    LedgerShape,
    PlacementDefaults,
    RackAwarePlacement,
    RandomPlacement,
    RegionAwarePlacement,
)
from bkclient.placement.quarantine import Quarantine
from tests.bkclient.placement.cluster import NONE, sets, told
from tests.bkclient.placement.test_read_order import Health

SHAPE = LedgerShape(3, 2, 2, {"app": b"x"})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scripted(PlacementDefaults):
    """Offers what a test says; raises it if it is an error."""

    def __init__(self, offer: Any = None) -> None:
        self.offer = offer
        self.asked: list[tuple[LedgerShape, frozenset[str]]] = []

    def update(self, bookies: BookieSets) -> None:
        self._answer()

    def new_ensemble(self, shape: LedgerShape, excluded: frozenset[str]) -> Any:
        self.asked.append((shape, excluded))
        return self._answer()

    def replace(self, shape: LedgerShape, ensemble: tuple[str, ...], position: int, excluded: frozenset[str]) -> Any:
        self.asked.append((shape, excluded))
        return self._answer()

    def propose_repair(self, shape: LedgerShape, ensemble: tuple[str, ...], excluded: frozenset[str]) -> Any:
        return self._answer()

    def _answer(self) -> Any:
        if isinstance(self.offer, Exception):
            raise self.offer
        return self.offer


class Events:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def now(self) -> float:
        raise AssertionError

    def operation(self, name: str, seconds: float, code: int) -> None:
        raise AssertionError

    def event(self, name: str, amount: int = 1) -> None:
        self.seen.extend([name] * amount)

    def level(self, name: str, change: int) -> None:
        raise AssertionError


def watcher(policy: Any, writable: str = "abcdef", read_only: str = "", **options: Any) -> BookieWatcher:
    return told(BookieWatcher(policy, clock=options.pop("clock", Clock()), **options), writable, read_only)


def quarantine_of(bookies: str) -> Quarantine:
    quarantine = Quarantine(random.Random(1), duration_s=60)
    quarantine.put(tuple(bookies), Clock.now)
    return quarantine


# What is registered ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("PL-1")
@pytest.mark.behaviour("T-217")
def test_a_read_only_bookie_is_available_and_a_stopped_one_is_not() -> None:
    seen = watcher(RandomPlacement(random.Random(1)), "ab", "c")
    assert [seen.is_available(b) for b in "abcd"] == [True, True, True, False]
    seen.update(sets("a"))
    assert [seen.is_available(b) for b in "abcd"] == [True, False, False, False]


@pytest.mark.rule("PL-1")
def test_the_policy_hears_of_every_change_and_listeners_after_it() -> None:
    heard: list[BookieSets] = []
    policy = Scripted()
    policy.update = heard.append  # type: ignore[method-assign, assignment]
    seen = BookieWatcher(policy)
    seen.listeners.append(lambda: heard.append(seen.bookies))
    seen.update(sets("ab", "c"))
    seen.update(sets("a"))
    assert heard == [sets("ab", "c")] * 2 + [sets("a")] * 2


@pytest.mark.rule("PL-17")
@pytest.mark.rule("H-39")
@pytest.mark.parametrize("kind", [RackAwarePlacement, RegionAwarePlacement])
def test_the_read_only_bookies_are_forgotten_when_the_last_one_leaves(kind: Callable[..., RackAwarePlacement]) -> None:
    policy = told(kind(random.Random(1)), "ab", "r")
    assert policy.read_order(("r", "a"), Health()) == ("r", "a")
    told(policy, "ab")
    assert policy.read_order(("r", "a"), Health()) == ("a", "r")  # down, and asked last


def test_changes_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bkclient.placement")
    seen = watcher(Scripted(), "ab")
    seen.update(sets("ab"))
    seen.update(sets("a", "b"))
    seen.update(sets([f"b{n:02}" for n in range(30)]))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:3] == [
        "writable bookies: 2; new a, b; gone none",
        "writable bookies: 1; new none; gone b",
        "read-only bookies: 1; new b; gone none",
    ]
    assert "b19 and 10 more" in lines[3]
    assert len(lines) == 5


def test_a_policy_that_cannot_take_in_a_change_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    seen = watcher(Scripted(RuntimeError("broken")), "ab")
    assert seen.is_available("a")
    assert "could not take in a change" in caplog.text


# Choosing -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PL-2")
@pytest.mark.behaviour("T-219")
def test_a_new_ensemble_avoids_quarantined_bookies_if_it_can() -> None:
    seen = watcher(RandomPlacement(random.Random(1)), quarantine=quarantine_of("abc"))
    for _ in range(20):
        assert set(seen.new_ensemble(SHAPE) or ()) == set("def")
    assert set(seen.new_ensemble(LedgerShape(6, 2, 2)) or ()) == set("abcdef")
    assert seen.new_ensemble(LedgerShape(7, 2, 2)) is None


@pytest.mark.rule("PL-3")
@pytest.mark.rule("PL-4")
def test_a_replacement_avoids_quarantined_bookies_if_it_can_and_the_excluded_ones_always() -> None:
    seen = watcher(RandomPlacement(random.Random(1)), quarantine=quarantine_of("de"))
    assert {seen.replace(SHAPE, tuple("abc"), 0, NONE) for _ in range(20)} == {"f"}
    assert {seen.replace(SHAPE, tuple("abc"), 0, frozenset("f")) for _ in range(20)} == {"d", "e"}
    assert {seen.replace(SHAPE, tuple("abc"), 0, frozenset("fe")) for _ in range(20)} == {"d"}
    assert seen.replace(SHAPE, tuple("abc"), 0, frozenset("def")) is None


@pytest.mark.rule("H-43")
def test_a_repair_avoids_quarantined_bookies_if_it_can() -> None:
    places = {"a": "/r1", "b": "/r1", "c": "/r2", "d": "/r2"}
    policy = RackAwarePlacement(random.Random(1), FixedLocations(places))
    pair = LedgerShape(2, 2, 2)
    seen = watcher(policy, "abcd", quarantine=quarantine_of("c"))
    for _ in range(20):
        repaired = seen.propose_repair(pair, ("a", "b"))
        assert repaired in (("d", "b"), ("a", "d"))
    assert "c" in (seen.propose_repair(pair, ("a", "b"), frozenset("d")) or ())


@pytest.mark.rule("PL-16")
def test_a_policy_that_knows_no_repair_proposes_none() -> None:
    assert watcher(RandomPlacement(random.Random(1))).propose_repair(SHAPE, tuple("abc")) is None


@pytest.mark.rule("PL-9")
def test_quarantine_changes_no_ensemble_and_no_availability() -> None:
    seen = watcher(RackAwarePlacement(random.Random(1)), quarantine=quarantine_of("abc"))
    assert seen.is_available("a")
    assert seen.read_order(("a", "b"), Health()) == ("a", "b")


@pytest.mark.rule("PL-2")
def test_choices_that_do_not_adhere_are_counted_and_made() -> None:
    stats = Events()
    policy = RackAwarePlacement(random.Random(1), FixedLocations({"a": "/r1", "b": "/r1", "c": "/r1", "d": "/r2"}))
    seen = watcher(policy, "abcd", stats=stats)
    assert seen.new_ensemble(SHAPE) is not None
    assert stats.seen == [NOT_ADHERING]  # three write sets of two, and two racks
    stats.seen.clear()
    assert seen.new_ensemble(LedgerShape(2, 2, 2)) is not None
    assert stats.seen == []
    assert seen.replace(LedgerShape(2, 2, 2), ("a", "d"), 1, NONE) in ("b", "c")
    assert stats.seen == [NOT_ADHERING]


@pytest.mark.rule("PL-14")
def test_bookies_that_left_count_for_a_while_where_there_are_too_few_others() -> None:
    clock = Clock()
    policies = [RandomPlacement(random.Random(1)) for _ in range(2)]
    seen = watcher(policies[0], "abcd", fallback=policies[1], stabilize_s=30, clock=clock)
    seen.update(sets("ab", "c"))  # d left; c still is registered
    assert set(seen.new_ensemble(LedgerShape(2, 2, 2)) or ()) == set("ab")
    assert set(seen.new_ensemble(SHAPE) or ()) == set("abd")
    assert seen.replace(LedgerShape(2, 2, 2), ("a", "b"), 0, NONE) == "d"
    assert seen.new_ensemble(LedgerShape(4, 2, 2)) is None
    clock.now += 29
    seen.update(sets("a", "c"))
    assert set(seen.new_ensemble(SHAPE) or ()) == set("abd")
    clock.now += 2
    assert seen.new_ensemble(SHAPE) is None
    assert set(seen.new_ensemble(LedgerShape(2, 2, 2)) or ()) == set("ab")
    seen.update(sets("ad"))
    clock.now += 100
    assert set(seen.new_ensemble(LedgerShape(2, 2, 2)) or ()) == set("ad")
    assert seen.new_ensemble(SHAPE) is None


@pytest.mark.rule("PL-14")
def test_without_a_period_bookies_that_left_are_gone() -> None:
    seen = watcher(RandomPlacement(random.Random(1)), "abc")
    seen.update(sets("ab"))
    assert seen.new_ensemble(SHAPE) is None


# What plug-ins do wrong -----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("T-216")
def test_the_custom_metadata_of_a_ledger_reaches_the_policy() -> None:
    policy = Scripted(tuple("abc"))
    seen = watcher(policy)
    seen.new_ensemble(SHAPE)
    policy.offer = "d"
    seen.replace(SHAPE, tuple("abc"), 0, NONE)
    assert [shape.custom_metadata for shape, _ in policy.asked] == [{"app": b"x"}] * 2


@pytest.mark.behaviour("T-216")
def test_what_a_policy_raises_counts_as_too_few_bookies_and_names_it() -> None:
    broken = RuntimeError("out of order")
    seen = watcher(Scripted(broken))
    for ask in (
        lambda: seen.new_ensemble(SHAPE),
        lambda: seen.replace(SHAPE, tuple("abc"), 0, NONE),
        lambda: seen.propose_repair(SHAPE, tuple("abc")),
    ):
        with pytest.raises(NotEnoughBookies, match=r"Scripted failed: RuntimeError\('out of order'\)") as caught:
            ask()
        assert caught.value.__cause__ is broken


def test_a_wrong_argument_that_a_policy_finds_stays_one() -> None:
    with pytest.raises(ArgumentError, match="odd"):
        watcher(Scripted(ArgumentError("odd"))).new_ensemble(SHAPE)
    with pytest.raises(NotEnoughBookies):
        watcher(Scripted(ArgumentError("odd"))).replace(SHAPE, tuple("abc"), 0, NONE)


@pytest.mark.rule("PL-5")
@pytest.mark.parametrize(
    ("offer", "complaint"),
    [
        (("a", "b"), r"offered \('a', 'b'\), not 3 bookies"),
        ("abc", "offered 'abc', not 3 bookies"),
        (7, "offered 7, not 3 bookies"),
        (("a", "b", "a"), "offered 'a', which is a member already"),
        (("a", "b", "q"), "offered 'q', which was excluded"),
        (("a", "b", "r"), "offered 'r', which is not registered as writable"),
        (("a", "b", "x"), "offered 'x', which is not registered as writable"),
        (("a", "b", 3), "offered 3, which is no bookie id"),
    ],
)
def test_an_ensemble_that_no_policy_may_offer_is_refused(offer: Any, complaint: str) -> None:
    seen = watcher(Scripted(offer), "abcdefq", "r", quarantine=quarantine_of("q"))
    with pytest.raises(UnexpectedCondition, match=f"the placement policy Scripted {complaint}"):
        seen.new_ensemble(SHAPE)


@pytest.mark.rule("PL-4")
@pytest.mark.rule("PL-5")
@pytest.mark.parametrize(
    ("offer", "complaint"),
    [
        ("a", "a member already"),
        ("b", "a member already"),
        ("e", "was excluded"),
        ("q", "was excluded"),
        ("r", "not registered as writable"),
        ("x", "not registered as writable"),
        (("d",), "no bookie id"),
    ],
)
def test_a_replacement_that_no_policy_may_offer_is_refused(offer: Any, complaint: str) -> None:
    seen = watcher(Scripted(offer), "abcdefq", "r", quarantine=quarantine_of("q"))
    with pytest.raises(UnexpectedCondition, match=complaint) as caught:
        seen.replace(SHAPE, tuple("abc"), 0, frozenset("e"))
    assert caught.value.bookie_id == (offer if isinstance(offer, str) else None)


@pytest.mark.parametrize(
    ("offer", "complaint"),
    [
        (("a", "b"), "not 3 bookies"),
        (("b", "a", "c"), "a member already"),
        (("d", "d", "c"), "a member already"),
        (("a", "b", "x"), "not registered as writable"),
    ],
)
def test_a_repair_that_no_policy_may_propose_is_refused(offer: Any, complaint: str) -> None:
    with pytest.raises(UnexpectedCondition, match=complaint):
        watcher(Scripted(offer)).propose_repair(SHAPE, tuple("abc"))
    assert watcher(Scripted(("a", "b", "d"))).propose_repair(SHAPE, tuple("abc")) == ("a", "b", "d")


@pytest.mark.rule("RO-1")
def test_a_policy_that_does_more_than_reorder_replicas_fails_the_read_that_asked() -> None:
    policy = Scripted()
    seen = watcher(policy)
    answers: tuple[Any, ...] = ((), ("a",), ("a", "a"), ("a", "b", "c"), ("a", "x"), ("a", []), 7)
    for nonsense in answers:
        policy.read_order = lambda *_, order=nonsense: order  # type: ignore[method-assign]
        with pytest.raises(UnexpectedCondition, match="the placement policy Scripted"):
            seen.read_order(("b", "a"), Health())
    policy.read_order = lambda *_: 1 / 0  # type: ignore[method-assign, assignment]
    with pytest.raises(UnexpectedCondition, match="could not order") as caught:
        seen.read_order(("b", "a"), Health())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    policy.read_order = lambda *_: ("a", "b")  # type: ignore[method-assign]
    assert seen.read_order(("b", "a"), Health()) == ("a", "b")


def test_a_policy_that_cannot_judge_counts_as_one_that_says_no(caplog: pytest.LogCaptureFixture) -> None:
    policy = Scripted()
    seen = watcher(policy)
    assert seen.covers_fault_domains(SHAPE, ("a",))
    assert seen.adherence(SHAPE, tuple("abc")) is Adherence.MEETS_STRICT
    policy.covers_fault_domains = policy.adherence = lambda *_: 1 / 0  # type: ignore[method-assign, assignment]
    assert not seen.covers_fault_domains(SHAPE, ("a",))
    assert seen.adherence(SHAPE, tuple("abc")) is Adherence.FAIL
    assert len(caplog.records) == 2
