"""Schedules that lost data in BookKeeper's own client once, played move by move in the small world."""

from __future__ import annotations

import pytest

from scenarios.machines.broken import BrokenClause
from scenarios.machines.world import Configuration, MachineWorld
from scenarios.mutants import MUTANTS


def arrives(world: MachineWorld, kind: str, bookie_id: str, *, sent_by_writer: bool = False) -> None:
    """The oldest such request reaches its bookie, and the answer its client."""
    message = next(
        message
        for message in world.requests
        if (message.kind, message.bookie_id, message.client is world.writer) == (kind, bookie_id, sent_by_writer)
    )
    world.move("request arrives", world.requests.index(message))
    world.move("answer arrives", world.answers.index(message))


def play_the_delayed_add(world: MachineWorld) -> None:
    """Both copies are needed. One add is delayed until a recovery, which reached one bookie only, denied the entry."""
    world.move("append", 0)
    arrives(world, "add", "b", sent_by_writer=True)
    world.move("recovery starts", 0)
    world.move("store acts", 0)
    arrives(world, "fence", "b")  # covers the ensemble; the fence to a is still under way
    arrives(world, "read", "a")
    arrives(world, "add", "a", sent_by_writer=True)  # the delayed add
    world.move("store acts", 0)


@pytest.mark.rule("REC-17")
@pytest.mark.behaviour("T-133")
@pytest.mark.rule("M01")
def test_an_add_that_was_delayed_past_a_denial_is_refused_because_the_read_fenced() -> None:
    world = MachineWorld(Configuration(2, 2, 2, bookies=2, entries=1, recoveries=1))

    play_the_delayed_add(world)

    assert world.store.metadata.is_closed
    assert world.store.metadata.last_entry_id == -1
    assert world.guarantees.acknowledged == -1
    assert world.recoveries[0].machine.last_add_confirmed == -1
    assert world.bookies["a"].is_fenced


@pytest.mark.rule("M01")
def test_without_the_fence_on_reads_the_same_schedule_breaks_the_guarantees() -> None:
    world = MachineWorld(Configuration(2, 2, 2, bookies=2, entries=1, recoveries=1))
    told = r"NegativeStays \(E5\): a stored entry 0 after denying it"

    with MUTANTS["recovery-reads-do-not-fence"].applied(), pytest.raises(BrokenClause, match=told):
        play_the_delayed_add(world)


@pytest.mark.rule("REC-11")
def test_coverage_alone_does_not_stop_an_add_that_is_already_under_way_but_the_read_then_finds_it() -> None:
    world = MachineWorld(Configuration(3, 3, 2, bookies=3, entries=1, recoveries=1))
    world.move("append", 0)
    world.move("writer crashes", 0)
    world.move("recovery starts", 0)
    world.move("store acts", 0)
    arrives(world, "fence", "a")
    arrives(world, "fence", "b")
    assert world.recoveries[0].heard.has_read

    world.move("request arrives", 2)  # the add reaches c, which nobody has fenced
    assert 0 in world.bookies["c"].entries
    arrives(world, "read", "c")
    world.settle()

    assert world.store.metadata.last_entry_id == 0
