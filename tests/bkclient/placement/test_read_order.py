"""In which order replicas are asked."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.placement import RackAwarePlacement
from tests.bkclient.placement.cluster import locations, regions, told


@dataclass
class Health:
    """What the client would know of its bookies."""

    pending: Mapping[str, int] = field(default_factory=dict)
    slow: str = ""
    failed: Mapping[str, int] = field(default_factory=dict)

    def pending_requests(self, bookie_id: str) -> int:
        return self.pending.get(bookie_id, 0)

    def is_slow(self, bookie_id: str) -> bool:
        return bookie_id in self.slow

    def last_failed_entry(self, bookie_id: str) -> int | None:
        return self.failed.get(bookie_id)


def order(
    write_set: Sequence[str],
    health: Health | None = None,
    *,
    writable: str = "abcde",
    read_only: str = "rs",
    **options: int,
) -> str:
    policy = RackAwarePlacement(random.Random(1), **options)  # type: ignore[arg-type]
    return "".join(told(policy, writable, read_only).read_order(tuple(write_set), health or Health()))


@pytest.mark.rule("RO-3")
@pytest.mark.behaviour("T-222")
@pytest.mark.parametrize(
    ("write_set", "health", "expected"),
    [
        ("cab", Health(), "cab"),
        ("rab", Health(), "rab"),
        ("cab", Health(failed={"c": 7}), "cab"),
        ("xab", Health(), "abx"),
        ("cab", Health(slow="c"), "abc"),
        ("xcrab", Health(slow="c"), "abrcx"),
        ("xca", Health(slow="ca", pending={"c": 5, "a": 2}), "acx"),
        ("xcab", Health(failed={"c": 9, "b": 3}), "abcx"),
        ("xsr", Health(slow="s"), "rsx"),
        ("xy", Health(), "xy"),
    ],
    ids=[
        "nothing speaks against the striped order",
        "a read-only one alone is not moved",
        "a failure alone moves nothing",
        "one that is down goes last",
        "slow after healthy",
        "slow after read-only and before down",
        "the least busy slow one first",
        "failed after healthy, the older failure first",
        "a slow read-only one is slow",
        "none is known",
    ],
)
def test_replicas_are_asked_by_class(write_set: str, health: Health, expected: str) -> None:
    assert order(write_set, health) == expected


@pytest.mark.rule("RO-3")
@pytest.mark.behaviour("T-223")
@pytest.mark.parametrize(
    ("pending", "expected"),
    [
        ({"a": 10, "b": 5, "c": 9}, "bac"),
        ({"a": 9, "b": 5, "c": 5}, "abc"),
        ({"a": 10, "b": 6, "c": 5}, "cab"),
        ({"a": 4, "b": 4, "c": 4}, "abc"),
        ({"a": 2**62, "b": 3, "c": 3}, "bac"),
    ],
)
def test_a_less_busy_replica_is_asked_first_if_the_difference_reaches_the_threshold(
    pending: dict[str, int], expected: str
) -> None:
    assert order("abc", Health(pending=pending), reorder_threshold=5) == expected
    assert order("abc", Health(pending=pending)) == "abc"
    assert order("", Health(), reorder_threshold=5) == ""


@pytest.mark.rule("RO-3")
def test_random_reordering_shuffles_within_a_class_only() -> None:
    policy = told(RackAwarePlacement(random.Random(1), reorder_randomly=True), "abcde", "rs")
    health = Health(slow="de", pending={"d": 1}, failed={"c": 4})
    seen = {"".join(policy.read_order(tuple("xderscaby"), health)) for _ in range(300)}
    assert {"".join(sorted(text[:3])) for text in seen} == {"abc"}
    assert {"".join(sorted(text[3:5])) for text in seen} == {"rs"}
    assert {text[5:7] for text in seen} == {"ed"}
    assert {"".join(sorted(text[7:])) for text in seen} == {"xy"}
    assert len({text[:3] for text in seen}) == 6
    assert len({text[3:5] for text in seen}) == len({text[7:] for text in seen}) == 2


PLACES = locations(eu="eu/r1 eu/r1 eu/r2 eu/r2", us="us/r1 us/r1")


def in_eu(write_set: str, health: Health | None = None, *, read_only: tuple[str, ...] = ()) -> str:
    policy = regions(PLACES, own_location="/eu/r1")
    told(policy, set(PLACES) - set(read_only), read_only)
    return " ".join(policy.read_order(tuple(write_set.split()), health or Health()))


@pytest.mark.rule("RO-4")
@pytest.mark.behaviour("T-231")
@pytest.mark.parametrize(
    ("write_set", "expected"),
    [
        ("us0 eu0", "eu0 us0"),
        ("us0 eu0 eu1", "eu0 eu1 us0"),
        ("us0 eu0 eu1 eu2 us1", "eu0 eu1 us0 eu2 us1"),
        ("us0 us1", "us0 us1"),
        ("eu0 eu1 eu2", "eu0 eu1 eu2"),
        ("gone us0 eu0", "eu0 us0 gone"),
    ],
)
def test_the_own_region_is_asked_first_and_another_one_third(write_set: str, expected: str) -> None:
    assert in_eu(write_set) == expected


@pytest.mark.rule("RO-4")
def test_slow_and_read_only_replicas_come_after_those_of_other_regions() -> None:
    slow = Health(failed={"eu1": 3})
    slow.is_slow = lambda bookie_id: bookie_id == "eu0"  # type: ignore[method-assign]
    assert in_eu("eu0 eu1 us0 eu2", slow) == "eu2 eu1 us0 eu0"
    assert in_eu("eu0 us0", read_only=("eu0",)) == "us0 eu0"
    assert in_eu("eu0 eu1 eu2 us0", read_only=("us0",)) == "eu0 eu1 eu2 us0"


@pytest.mark.rule("RO-4")
def test_without_a_region_of_its_own_the_client_orders_by_health_alone() -> None:
    policy = regions(PLACES)
    assert policy.read_order(("us0", "eu0"), Health()) == ("us0", "eu0")
    assert policy.read_order(("gone", "us0", "eu0"), Health()) == ("us0", "eu0", "gone")


@pytest.mark.rule("RO-4")
def test_the_own_region_may_matter_to_reading_only() -> None:
    policy = regions(PLACES, own_location="/us/r1", prefer_own=False)
    assert policy.read_order(("eu0", "us0"), Health()) == ("us0", "eu0")


@pytest.mark.rule("RO-8")
@given(st.permutations([f"b{n}" for n in range(24)]), st.sets(st.integers(0, 23)), st.sets(st.integers(0, 23)))
def test_the_order_within_a_class_stays_for_write_sets_of_any_size(
    write_set: list[str], down: set[int], read_only: set[int]
) -> None:
    gone = {f"b{n}" for n in down}
    kept = {f"b{n}" for n in read_only} - gone
    policy = told(RackAwarePlacement(random.Random(1)), set(write_set) - gone - kept, kept)
    ordered = policy.read_order(tuple(write_set), Health())
    if not gone:
        assert list(ordered) == write_set
        return
    healthy = [b for b in write_set if b not in gone | kept]
    assert list(ordered) == healthy + [b for b in write_set if b in kept] + [b for b in write_set if b in gone]


MANY = "abcdefghijklmnopqrst"
FAR = {f"u{number:02}": "/us/r1" for number in range(20)} | {f"e{number:02}": "/eu/r1" for number in range(20)}


@pytest.mark.rule("RO-1")
@pytest.mark.behaviour("T-144")
@given(
    write_set=st.permutations(MANY).flatmap(lambda members: st.integers(2, 20).map(lambda n: "".join(members[:n]))),
    data=st.data(),
)
def test_a_replica_that_is_moved_leaves_the_order_of_the_others(write_set: str, data: st.DataObject) -> None:
    moved = data.draw(st.sampled_from(write_set), label="the one that is moved")
    others = write_set.replace(moved, "")

    busy = Health(pending={bookie_id: 0 if bookie_id == moved else 9 for bookie_id in write_set})
    assert order(write_set, busy, writable=MANY, read_only="", reorder_threshold=5) == moved + others
    assert order(write_set, Health(slow=moved), writable=MANY, read_only="") == others + moved
    assert order(write_set, writable=MANY.replace(moved, ""), read_only="") == others + moved


@pytest.mark.rule("RO-4")
@pytest.mark.behaviour("T-144")
@given(st.integers(3, 20), st.integers(0, 20))
def test_the_remote_replica_that_is_asked_third_leaves_the_order_of_the_others(count: int, at: int) -> None:
    near = [f"e{number:02}" for number in range(count)]
    policy = regions(FAR, own_location="/eu/r1")
    told(policy, set(FAR), ())

    ordered = policy.read_order((*near[:at], "u00", *near[at:]), Health())
    assert ordered == (*near[:2], "u00", *near[2:])
