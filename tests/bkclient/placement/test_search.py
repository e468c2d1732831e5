"""The search for groups is exact within its steps, and bounded."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.placement.locations import region_of
from bkclient.placement.racks import spans
from bkclient.placement.region_aware import survives_loss_of
from bkclient.placement.search import STEPS_MAX, Admits, Kin, Slots, any_kin, fill, windows_of
from bkclient.placement.zone_aware import zones_and_domains

FLAT = ("/a", "/b", "/c", "/d")
NESTED = ("/a/1", "/a/2", "/b/1", "/b/2", "/c/1")


def no_preference(_position: int, _group: str, _slots: Slots) -> int:
    return 0


def exists(slots: Slots, capacity: dict[str, int], quorum: int, admits: Admits) -> bool:
    """Whether any assignment obeys, by trying them all."""
    open_positions = [p for p, group in enumerate(slots) if group is None]
    for groups in itertools.product(capacity, repeat=len(open_positions)):
        if any(count > capacity[group] for group, count in Counter(groups).items()):
            continue
        full = list(slots)
        for position, group in zip(open_positions, groups, strict=True):
            full[position] = group
        if all(admits([full[p] for p in window]) for window in windows_of(len(full), quorum)):
            return True
    return False


@st.composite
def problems(draw: st.DrawFn) -> tuple[Slots, dict[str, int], int, Admits, Kin]:
    kind = draw(st.sampled_from(("racks", "regions", "zones")))
    groups = NESTED if kind == "zones" else FLAT
    size = draw(st.integers(1, 5))
    quorum = draw(st.integers(1, size))
    slots = draw(st.lists(st.one_of(st.none(), st.none(), st.sampled_from(groups)), min_size=size, max_size=size))
    capacity = {group: draw(st.integers(0, 3)) for group in groups}
    number = draw(st.integers(1, 3))
    if kind == "racks":
        return slots, capacity, quorum, spans(number), any_kin
    if kind == "regions":
        return slots, capacity, quorum, survives_loss_of(number - 1, draw(st.integers(1, quorum))), any_kin
    return slots, capacity, quorum, zones_and_domains(number), region_of


@pytest.mark.rule("PL-11")
@settings(max_examples=300, deadline=None)
@given(problems())
def test_it_finds_something_exactly_if_there_is_something(
    problem: tuple[Slots, dict[str, int], int, Admits, Kin],
) -> None:
    slots, capacity, quorum, admits, kin = problem
    found = fill(slots, capacity, quorum, admits, no_preference, kin=kin)
    assert (found is not None) == exists(slots, capacity, quorum, admits)
    if found is None:
        return
    assert all(kept in (None, group) for kept, group in zip(slots, found, strict=True))
    used = Counter(group for kept, group in zip(slots, found, strict=True) if kept is None)
    assert all(count <= capacity[group] for group, count in used.items())
    assert all(admits([found[p] for p in window]) for window in windows_of(len(found), quorum))


def test_preferences_decide_where_the_rule_leaves_a_choice() -> None:
    def backwards(position: int, group: str, _slots: Slots) -> int:
        return -ord(group[1])

    found = fill((None,) * 4, dict.fromkeys(FLAT, 4), 2, spans(2), backwards, kin=any_kin)
    assert found == ("/d", "/c", "/d", "/c")


def test_write_sets_that_are_settled_may_be_taken_as_they_are() -> None:
    slots = ("/a", "/a", None, "/b")
    assert fill(slots, {"/b": 1, "/c": 1}, 2, spans(2), no_preference, kin=any_kin) is None
    taken = fill(slots, {"/b": 1, "/c": 1}, 2, spans(2), no_preference, kin=any_kin, settled=False)
    assert taken == ("/a", "/a", "/c", "/b")


def test_a_hopeless_search_ends_at_its_limit_of_steps() -> None:
    asked = 0

    def never_quite(slots: Slots) -> bool:
        nonlocal asked
        asked += 1
        return None in slots

    capacity = {f"/r{number}": 1 + number for number in range(12)}
    assert fill((None,) * 12, capacity, 12, never_quite, no_preference, kin=lambda group: group) is None
    assert STEPS_MAX < asked <= STEPS_MAX + 2
    assert fill((None,) * 3, capacity, 3, lambda _: True, no_preference, kin=any_kin, steps=5) is None
    assert fill((None,) * 3, capacity, 3, lambda _: True, no_preference, kin=any_kin, steps=6) is not None


def test_preferences_that_lead_astray_do_not_hide_an_ensemble() -> None:
    capacity = {"/big": 8, **{f"/r{number}": 1 for number in range(8)}}

    def small_ones_first(_position: int, group: str, _slots: Slots) -> bool:
        return group == "/big"

    found = fill((None,) * 16, capacity, 2, spans(2), small_ones_first, kin=lambda group: group)
    assert found is not None
    assert Counter(found)["/big"] == 8
