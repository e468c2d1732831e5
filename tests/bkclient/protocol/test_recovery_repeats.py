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
from tests.bkclient.protocol.stateful.play import Play
from tests.bkclient.protocol.world import Configuration, RecoveryClient

CONFIGURATION = Configuration(3, 3, 2, bookies=4, entries=5, recoveries=1)
#: Entries of 1, 2, 3 bytes are acknowledged, the fourth is on one bookie only, the fifth on none.
ACKNOWLEDGED = 2
STEPS = 90

Trouble = Callable[[Play], None]


def play_until(step: int) -> Play:
    """The writer is gone, and a recovery has made ``step`` moves, in the order in which things were sent."""
    play = Play(CONFIGURATION)
    for _ in range(CONFIGURATION.entries):
        play.move("append", 0)
    for index, message in reversed(list(enumerate(play.requests))):
        if message.entry_id == 4 or (message.entry_id == 3 and message.bookie_id != "a"):
            del play.requests[index]
    while play.requests or play.answers:
        advance(play)
    assert play.model.acknowledged == ACKNOWLEDGED
    play.writer.crash()
    play.move("recovery starts", 0)
    for _ in range(step):
        advance(play)
    return play


def advance(play: Play) -> bool:
    for move in ("answer arrives", "store acts", "request arrives"):
        if play.choices(move):
            play.move(move, 0)
            return True
    return False


def recovery_of(play: Play) -> RecoveryClient:
    return play.recoveries[0]


# What may go wrong --------------------------------------------------------------------------------------------------


def the_recovering_client_dies(play: Play) -> None:
    recovery_of(play).crash()


def everything_under_way_times_out(play: Play) -> None:
    while play._waiting():
        play.move("request times out", 0)


def everything_under_way_is_refused(play: Play) -> None:
    while play._unanswered():
        play.move("request is refused", 1)


def one_bookie_crashes(play: Play) -> None:
    play.move("bookie crashes", 0)


def two_bookies_crash(play: Play) -> None:
    play.move("bookie crashes", 0)
    play.move("bookie crashes", 0)


def all_bookies_crash(play: Play) -> None:
    while play.choices("bookie crashes"):
        play.move("bookie crashes", 0)


def a_disk_is_lost(play: Play) -> None:
    play.move("disk is lost", 0)


def the_store_fails(play: Play) -> None:
    for _, update in play.updates:
        update.on_error(MetadataStoreError("down"))


def the_answer_of_the_store_is_lost(play: Play) -> None:
    play.move("store acts and its answer is lost", 0)


def a_write_to_the_store_is_lost(play: Play) -> None:
    play.move("store does not act and nobody knows", 0)


def somebody_else_changes_the_metadata(play: Play) -> None:
    play.store.edit(lambda metadata: metadata)


def somebody_else_closes(play: Play) -> None:
    def closed(metadata: LedgerMetadata) -> LedgerMetadata:
        return metadata if metadata.is_closed else metadata.closed(ACKNOWLEDGED, 1 + 2 + 3)

    play.store.edit(closed)


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
        play = play_until(step)
        trouble(play)
        while advance(play):
            pass
        play.settle()

        metadata = play.store.metadata
        assert metadata.is_closed, step
        assert metadata.last_entry_id in (ACKNOWLEDGED, ACKNOWLEDGED + 1), step
        assert play.model.end is not None
        assert play.model.end[0] == metadata.last_entry_id, step


@pytest.mark.rule("REC-39")
@pytest.mark.parametrize(
    "trouble",
    [everything_under_way_times_out, two_bookies_crash, the_store_fails],
    ids=lambda trouble: trouble.__name__,
)
def test_these_troubles_do_fail_recoveries_and_such_a_recovery_changes_nothing_but_the_mark(trouble: Trouble) -> None:
    failed = 0
    for step in range(STEPS):
        play = play_until(step)
        fragments = play.store.metadata.fragments
        trouble(play)
        while advance(play):
            pass
        if recovery_of(play).machine.phase is RecoveryPhase.FAILED:
            failed += 1
            assert not play.store.metadata.is_closed, step
            assert play.store.metadata.fragments == fragments, step

    assert failed >= 2


def test_the_undisturbed_recovery_takes_fewer_steps_than_are_tried_and_keeps_the_entry_on_one_bookie() -> None:
    play = play_until(0)
    steps = 0
    while advance(play):
        steps += 1

    assert 30 < steps < STEPS
    assert play.store.metadata.last_entry_id == ACKNOWLEDGED + 1
    assert play.store.metadata.length == 1 + 2 + 3 + 4
