"""Whatever goes wrong with a recovery, at whatever step: nothing is lost, and the next recovery with healthy bookies closes.

One recovery is played in a fixed order, and at each of its steps in turn one thing goes wrong. The promises of the reference
model are checked after every move; in the end a fresh recovery has to close the ledger where it should.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bkclient.errors import MetadataStoreError
from bkclient.ledger import LedgerMetadata
from bkclient.protocol.recovery import RecoveryPhase
from scenarios.machines.clients import RecoveryClient
from scenarios.machines.storage_world import StorageWorld
from scenarios.machines.world import Configuration

CONFIGURATION = Configuration(3, 3, 2, bookies=4, entries=5, recoveries=1)
#: Entries of 1, 2, 3 bytes are acknowledged, the fourth is on one bookie only, the fifth on none.
ACKNOWLEDGED = 2
STEPS = 90

Trouble = Callable[[StorageWorld], None]


def play_until(step: int) -> StorageWorld:
    """The writer is gone, and a recovery has made ``step`` moves, in the order in which things were sent."""
    world = StorageWorld(CONFIGURATION)
    for _ in range(CONFIGURATION.entries):
        world.move("append", 0)
    for index, message in reversed(list(enumerate(world.requests))):
        if message.entry_id == 4 or (message.entry_id == 3 and message.bookie_id != "a"):
            del world.requests[index]
    while world.requests or world.answers:
        advance(world)
    assert world.model.acknowledged == ACKNOWLEDGED
    world.writer.crash()
    world.move("recovery starts", 0)
    for _ in range(step):
        advance(world)
    return world


def advance(world: StorageWorld) -> bool:
    for move in ("answer arrives", "store acts", "request arrives"):
        if world.choices(move):
            world.move(move, 0)
            return True
    return False


def recovery_of(world: StorageWorld) -> RecoveryClient:
    return world.recoveries[0]


# What may go wrong --------------------------------------------------------------------------------------------------


def the_recovering_client_dies(world: StorageWorld) -> None:
    recovery_of(world).crash()


def everything_under_way_times_out(world: StorageWorld) -> None:
    while world._waiting():
        world.move("request times out", 0)


def everything_under_way_is_refused(world: StorageWorld) -> None:
    while world._unanswered():
        world.move("request is refused", 1)


def one_bookie_crashes(world: StorageWorld) -> None:
    world.move("bookie crashes", 0)


def two_bookies_crash(world: StorageWorld) -> None:
    world.move("bookie crashes", 0)
    world.move("bookie crashes", 0)


def all_bookies_crash(world: StorageWorld) -> None:
    while world.choices("bookie crashes"):
        world.move("bookie crashes", 0)


def a_disk_is_lost(world: StorageWorld) -> None:
    world.move("disk is lost", 0)


def the_store_fails(world: StorageWorld) -> None:
    for _, update in world.updates:
        update.on_error(MetadataStoreError("down"))


def the_answer_of_the_store_is_lost(world: StorageWorld) -> None:
    world.move("store acts and its answer is lost", 0)


def a_write_to_the_store_is_lost(world: StorageWorld) -> None:
    world.move("store does not act and nobody knows", 0)


def somebody_else_changes_the_metadata(world: StorageWorld) -> None:
    world.store.edit(lambda metadata: metadata)


def somebody_else_closes(world: StorageWorld) -> None:
    def closed(metadata: LedgerMetadata) -> LedgerMetadata:
        return metadata if metadata.is_closed else metadata.closed(ACKNOWLEDGED, 1 + 2 + 3)

    world.store.edit(closed)


TROUBLES: tuple[Trouble, ...] = (
    the_recovering_client_dies,
    everything_under_way_times_out,
    everything_under_way_is_refused,
    one_bookie_crashes,
    two_bookies_crash,
    all_bookies_crash,
    a_disk_is_lost,
    the_store_fails,
    the_answer_of_the_store_is_lost,
    a_write_to_the_store_is_lost,
    somebody_else_changes_the_metadata,
    somebody_else_closes,
)


@pytest.mark.rule("REC-39")
@pytest.mark.rule("L4")
@pytest.mark.behaviour("T-122")
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_whatever_goes_wrong_at_whatever_step_the_next_recovery_closes_where_it_should(trouble: Trouble) -> None:
    for step in range(STEPS):
        world = play_until(step)
        trouble(world)
        while advance(world):
            pass
        world.settle()

        metadata = world.store.metadata
        assert metadata.is_closed, step
        assert metadata.last_entry_id in (ACKNOWLEDGED, ACKNOWLEDGED + 1), step
        assert world.model.end is not None
        assert world.model.end[0] == metadata.last_entry_id, step


@pytest.mark.rule("REC-39")
@pytest.mark.parametrize(
    "trouble",
    [everything_under_way_times_out, two_bookies_crash, the_store_fails],
    ids=lambda trouble: trouble.__name__,
)
def test_these_troubles_do_fail_recoveries_and_such_a_recovery_changes_nothing_but_the_mark(trouble: Trouble) -> None:
    failed = 0
    for step in range(STEPS):
        world = play_until(step)
        fragments = world.store.metadata.fragments
        trouble(world)
        while advance(world):
            pass
        if recovery_of(world).machine.phase is RecoveryPhase.FAILED:
            failed += 1
            assert not world.store.metadata.is_closed, step
            assert world.store.metadata.fragments == fragments, step

    assert failed >= 2


def test_the_undisturbed_recovery_takes_fewer_steps_than_are_tried_and_keeps_the_entry_on_one_bookie() -> None:
    world = play_until(0)
    steps = 0
    while advance(world):
        steps += 1

    assert 30 < steps < STEPS
    assert world.store.metadata.last_entry_id == ACKNOWLEDGED + 1
    assert world.store.metadata.length == 1 + 2 + 3 + 4
