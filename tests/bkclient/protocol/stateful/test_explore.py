"""Recoveries at the same time, and against a writer, in every order there is: exhaustive where the world is small enough.

The smallest search is part of every run; ``make stateful`` makes them all.
"""

from __future__ import annotations

import pytest

from bkclient.errors import Code
from scenarios.machines.explore import (
    EVERY_ORDER,
    EVERY_ORDER_AT_BOOKIES,
    SearchTooLargeError,
    explore_whole,
    fingerprint,
)
from scenarios.machines.world import Configuration, MachineWorld
from scenarios.machines.worlds import PREPARED


@pytest.mark.rule("REC-41")
@pytest.mark.behaviour("T-111")
def test_two_recoveries_in_every_order_at_the_bookies_end_where_the_stored_entry_is() -> None:
    explored = explore_whole(PREPARED["two-recoveries"].make, EVERY_ORDER_AT_BOOKIES, limit=500)

    assert set(explored.ends) == {0}
    assert explored.states > 50


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.rule("REC-41")
@pytest.mark.behaviour("T-111")
def test_two_recoveries_in_every_order_end_where_the_stored_entry_is() -> None:
    explored = explore_whole(PREPARED["two-recoveries"].make, EVERY_ORDER, limit=2000)

    assert set(explored.ends) == {0}
    assert explored.states > 1000


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.rule("REC-42")
@pytest.mark.rule("W-43")
def test_a_recovery_and_a_writer_that_closes_in_every_order_agree() -> None:
    explored = explore_whole(PREPARED["closing-writer"].make, EVERY_ORDER, limit=20_000)

    # The writer closes with nothing confirmed; a recovery that marks first and closes first keeps what is stored.
    assert {-1, 0} <= set(explored.ends) <= {-1, 0, 1}


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.rule("REC-41")
def test_three_recoveries_in_every_order_at_the_bookies() -> None:
    explored = explore_whole(PREPARED["three-recoveries"].make, EVERY_ORDER_AT_BOOKIES, limit=20_000)

    assert set(explored.ends) == {0}


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.rule("REC-5")
@pytest.mark.rule("REC-43")
def test_a_recovery_and_a_writer_that_changes_its_ensemble_in_every_order_at_the_bookies() -> None:
    explored = explore_whole(PREPARED["changing-writer"].make, EVERY_ORDER_AT_BOOKIES, limit=20_000)

    assert set(explored.ends) >= {-1, 0}


def test_a_search_that_is_not_exhaustive_says_so() -> None:
    with pytest.raises(SearchTooLargeError, match="more than 5 states"):
        explore_whole(PREPARED["two-recoveries"].make, limit=5)


def test_worlds_are_told_apart_by_anything_that_may_matter_later() -> None:
    def world() -> MachineWorld:
        world = MachineWorld(Configuration(2, 2, 2, bookies=2, entries=1, recoveries=2))
        for move in ("append", "request arrives", "request arrives", "recovery starts"):
            world.move(move, 0)
        return world

    first, second = world(), world()
    assert fingerprint(first) == fingerprint(second)
    first.move("answer arrives", 0)
    second.move("answer arrives", 1)
    assert fingerprint(first) != fingerprint(second)
    first.move("answer arrives", 0)
    second.move("answer arrives", 0)
    assert fingerprint(first) == fingerprint(second)
    first.bookies["a"].is_fenced = True
    assert fingerprint(first) != fingerprint(second)
    first.writer.wake()
    first.writer.machine.on_add_reply("b", 0, Code.TIMEOUT)
    second.bookies["a"].is_fenced = True
    assert fingerprint(first) != fingerprint(second)
