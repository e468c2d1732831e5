"""Every row of the crash matrix: where a bookie may be killed, and what there is afterwards, for both kinds of crash."""

from __future__ import annotations

import pytest

from simbookie.crashes.kinds import StoreLimits
from simbookie.storage.base import CrashMode
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.folders import Folder
from simbookie.storage.journal.mark import LogMark, read_mark
from simbookie.storage.journal.replay import JournalReplay
from simbookie.storage.quirks import REPAIRED, Quirk
from tests.simbookie.crashes.stories import (
    BOTH_CRASHES,
    COLLECT,
    EVERY_STORE,
    FULL,
    INDEX_FILES,
    LITTER,
    ROW_STEPS,
    Story,
    adds,
    has_step,
    where,
)


def mark_of(disk: SimulatedDisk) -> tuple[int, int]:
    mark = read_mark([Folder(disk, "ledgers/current")], "lastMark")
    return mark.file_id, mark.offset


@EVERY_STORE
def test_rows_are_tested_over_every_store_that_has_their_steps(kind: str) -> None:
    seen = Story(kind).steps_of(*LITTER, *COLLECT, *FULL)
    if "per-ledger" not in kind:
        seen |= Story(kind, in_transactions=True).steps_of(*LITTER, *COLLECT)
    assert {"log.sync", "flush.locations", "transaction.finish"} <= ROW_STEPS
    assert {step for step in ROW_STEPS if has_step(kind, step)} == ROW_STEPS & seen


@pytest.mark.rule("CR-1")
@EVERY_STORE
@BOTH_CRASHES
def test_before_the_store_has_it_nothing_is_there(kind: str, mode: CrashMode) -> None:
    story = Story(kind, mode)
    story.live()
    assert story.entries(0) == []
    story.end()


@pytest.mark.rule("CR-2")
@EVERY_STORE
@BOTH_CRASHES
def test_what_waits_for_the_journal_is_gone_and_was_not_acknowledged(kind: str, mode: CrashMode) -> None:
    story = Story(kind, mode)
    story.die("journal.flush", ("wait", 0.01), ("add", 0, 100, "ordinary"), ("wait", 0.05))
    assert story.entries(0) == []
    assert story.subject.promises.entries == {}
    story.end()


@pytest.mark.rule("CR-3")
@EVERY_STORE
@BOTH_CRASHES
def test_what_was_written_and_not_synced_survives_the_process_and_may_survive_the_power(
    kind: str, mode: CrashMode
) -> None:
    story = Story(kind, mode)
    story.die("journal.sync", ("wait", 0.01), ("add", 0, 100, "ordinary"), ("wait", 0.05))
    assert story.entries(0) in ([[0]] if mode is CrashMode.PROCESS else [[], [0]])
    assert story.subject.promises.entries == {}
    story.end()


@pytest.mark.rule("CR-4")
@EVERY_STORE
@BOTH_CRASHES
@pytest.mark.parametrize("step", ["journal.synced", "journal.acknowledge"])
def test_what_was_synced_is_there_without_an_answer_and_may_be_sent_again(
    kind: str, mode: CrashMode, step: str
) -> None:
    story = Story(kind, mode)
    story.die(step, ("wait", 0.01), ("add", 0, 100, "ordinary"), ("wait", 0.05))
    assert story.entries(0) == [0]
    assert story.subject.promises.entries == {}
    story.live(("add_again", 0, 0.0), ("wait", 0.05))
    assert list(story.subject.promises.entries) == [(0, 0)]
    story.end()


@pytest.mark.rule("CR-5")
@EVERY_STORE
@BOTH_CRASHES
def test_what_was_acknowledged_and_is_in_no_checkpoint_is_replayed(kind: str, mode: CrashMode) -> None:
    story = Story(kind, mode)
    story.live(*adds(0, 1, 100))
    assert mark_of(story.subject.disk) < (2, 0)
    assert story.entries(0) == [0]
    story.end()


@pytest.mark.rule("CR-6")
@where("memtable.write", "flush.entries", "log.write", "flush.logs", "log.sync")
@BOTH_CRASHES
def test_a_log_that_was_not_synced_is_made_up_for_by_the_journal(kind: str, mode: CrashMode, step: str) -> None:
    story = Story(kind, mode)
    story.die(step, *FULL)
    assert story.keeps(0)
    story.end()


@pytest.mark.rule("CR-7")
@where("index.create", "flush.locations")
@BOTH_CRASHES
def test_index_and_logs_need_not_be_durable_together(kind: str, mode: CrashMode, step: str) -> None:
    story = Story(kind, mode)
    story.die(step, *FULL)
    assert story.keeps(0)
    story.end()


@pytest.mark.rule("CR-8")
@INDEX_FILES
@BOTH_CRASHES
def test_an_index_of_which_a_part_was_written_is_made_up_for(kind: str, mode: CrashMode) -> None:
    parts = ("index.pages", "index.sync", "index.create")
    ended_in_parts = 0
    for at in range(30, 120, 3):
        story = Story(kind, mode, seed=at)
        if story.live(*FULL, *FULL, at=at) in parts:
            ended_in_parts += 1
            story.end()
    assert ended_in_parts


@pytest.mark.rule("CR-8")
@where("database.write", "database.sync")
@BOTH_CRASHES
@pytest.mark.parametrize("quirks", [REPAIRED, frozenset({Quirk.LOCATIONS_BEFORE_LOG})], ids=["after-log", "before-log"])
def test_a_batch_of_locations_of_which_a_part_was_written_is_made_up_for(
    kind: str, mode: CrashMode, step: str, quirks: frozenset[Quirk]
) -> None:
    """Where a part is durable before the log, the journal still has the entries."""
    for skips in (1, 2, 4):  # of six parts
        story = Story(kind, mode, quirks=quirks, limits=StoreLimits(batch_rows=2))
        assert story.live(("arm", step, skips), *adds(0, 12, 60), ("wait", 0.06)) == step
        assert len(story.subject.promises.entries) == 12
        assert story.keeps(0)
        story.end()


@pytest.mark.rule("CR-9")
@where("index.header", "index.pages", "flush.locations", "flush.ledgers")
@BOTH_CRASHES
def test_keys_fences_and_lacs_of_headers_that_were_not_written_are_in_the_journal(
    kind: str, mode: CrashMode, step: str
) -> None:
    story = Story(kind, mode)
    story.die(step, ("add", 2, 8, "ordinary"), ("lac", 2, 0.0), ("fence", 2, 0.0), ("wait", 0.05), *FULL, *FULL)
    assert story.is_fenced(2)
    key, _, lac, _ = story.state[2]
    assert key is not None
    assert lac is not None
    story.end()


@pytest.mark.rule("CR-10")
@EVERY_STORE
@BOTH_CRASHES
def test_a_checkpoint_without_its_mark_is_replayed_over(kind: str, mode: CrashMode) -> None:
    story = Story(kind, mode)
    story.live()
    before = mark_of(story.subject.disk)
    story.die("checkpoint.marks", *FULL)
    assert mark_of(story.subject.disk) >= before
    story.end()


IN_PLACE = frozenset({Quirk.MARKS_IN_PLACE})
MARK_STEPS = [
    *((f"mark.{step}", REPAIRED) for step in ("open", "truncate", "write", "sync", "rename")),
    *((f"mark.{step}", IN_PLACE) for step in ("open", "truncate", "write", "sync")),  # and it is not renamed
]


@pytest.mark.rule("CR-11")
@EVERY_STORE
@BOTH_CRASHES
@pytest.mark.parametrize(("step", "quirks"), MARK_STEPS)
def test_a_mark_that_is_cut_short_does_not_count(
    kind: str, mode: CrashMode, step: str, quirks: frozenset[Quirk]
) -> None:
    story = Story(kind, mode, quirks=quirks)
    story.live(*FULL, ("wait", 0.05))
    mark = mark_of(story.subject.disk)
    story.die(step, *FULL)
    if quirks:
        assert mark_of(story.subject.disk) >= mark or mark_of(story.subject.disk) == (0, 0)
        story.subject.persisted = []  # it may go back, which is the quirk
    else:
        assert mark_of(story.subject.disk) >= mark
    assert story.entries(0)[:4] == [0, 1, 2, 3]
    story.end()


@pytest.mark.rule("CR-12")
@EVERY_STORE
@BOTH_CRASHES
def test_journals_that_were_not_removed_go_with_a_later_checkpoint(kind: str, mode: CrashMode) -> None:
    story = Story(kind, mode)
    story.die("journal.remove", *FULL, *FULL)
    before = len(story.subject.disk.names("journal0/current"))
    story.live(*FULL, *FULL, *FULL)
    assert len(story.subject.disk.names("journal0/current")) <= before + 6  # as many as these wrote would be more
    story.end()


@pytest.mark.rule("CR-13")
@EVERY_STORE
@BOTH_CRASHES
def test_a_fence_that_was_not_journalled_is_gone_and_was_not_acknowledged(kind: str, mode: CrashMode) -> None:
    story = Story(kind, mode)
    story.live(*adds(0, 1))
    story.die("journal.flush", ("wait", 0.01), ("fence", 0, 0.0), ("wait", 0.05))
    assert not story.is_fenced(0)
    assert story.subject.promises.fences == {}
    story.end()


@pytest.mark.rule("CR-14")
@EVERY_STORE
@BOTH_CRASHES
def test_a_fence_that_was_journalled_is_replayed(kind: str, mode: CrashMode) -> None:
    story = Story(kind, mode)
    story.live(("fence", 0, 0.0), ("wait", 0.05))
    assert list(story.subject.promises.fences) == [0]
    assert story.is_fenced(0)
    story.end()


@pytest.mark.rule("CR-15")
@EVERY_STORE
@BOTH_CRASHES
@pytest.mark.parametrize("is_faithful", [False, True])
def test_a_checkpoint_with_nothing_else_to_write_keeps_fences(kind: str, mode: CrashMode, *, is_faithful: bool) -> None:
    quirk = Quirk.IDLE_CHECKPOINT_SKIPPED if kind.startswith("db") else Quirk.IDLE_FLUSH_SKIPPED
    story = Story(kind, mode, quirks=frozenset({quirk}) if is_faithful else REPAIRED)
    story.live(("fence", 0, 0.0), ("wait", 0.02))
    story.live()  # replays the fence, and its mark passes it
    assert story.is_fenced(0) is not is_faithful
    if not is_faithful:
        story.end()


@pytest.mark.rule("CR-16")
@where("compaction.flush")
@BOTH_CRASHES
def test_copies_of_a_compaction_that_were_not_synced_are_left_behind(kind: str, mode: CrashMode, step: str) -> None:
    story = Story(kind, mode)
    story.live(*LITTER)
    story.die(step, *COLLECT)
    story.end()


@pytest.mark.rule("CR-17")
@where("move.locations", "move.index")
@BOTH_CRASHES
def test_copies_that_no_durable_location_leads_to_are_left_behind(kind: str, mode: CrashMode, step: str) -> None:
    story = Story(kind, mode)
    story.live(*LITTER)
    story.die(step, *COLLECT)
    story.end()


@pytest.mark.rule("CR-18")
@where("compaction.remove")
@BOTH_CRASHES
def test_a_log_that_was_compacted_and_not_removed_is_compacted_again(kind: str, mode: CrashMode, step: str) -> None:
    story = Story(kind, mode)
    story.live(*LITTER)
    story.die(step, *COLLECT)
    files = story.files
    story.live(*COLLECT)
    assert any(name.endswith(".log") for _, name in files - story.files)
    story.end()


@pytest.mark.rule("CR-19")
@where("log.remove")
@BOTH_CRASHES
def test_a_log_that_was_removed_is_not_missed(kind: str, mode: CrashMode, step: str) -> None:
    story = Story(kind, mode)
    story.live(*LITTER)
    story.die(step, *COLLECT)
    story.live(*COLLECT)
    story.end()


@pytest.mark.rule("CR-20")
@where(
    "transaction.flush",
    "transaction.compacted",
    "transaction.available",
    "move.locations",
    "move.index",
    "transaction.finish",
)
@BOTH_CRASHES
def test_a_compaction_in_transactions_goes_on_where_it_was_or_begins_anew(
    kind: str, mode: CrashMode, step: str
) -> None:
    story = Story(kind, mode, in_transactions=True)
    story.live(*LITTER)
    story.die(step, *COLLECT)
    story.mode = CrashMode.PROCESS  # or names that are gone come back
    story.live(*COLLECT)
    assert [name for _, name in story.files if name.endswith((".compacting", ".compacted"))] == []
    story.end()


@pytest.mark.rule("CR-21")
@where("index.remove", "flush.locations", "flush.cleanup")
@BOTH_CRASHES
def test_a_ledger_whose_removal_was_not_durable_is_removed_again(kind: str, mode: CrashMode, step: str) -> None:
    story = Story(kind, mode)
    story.live(*LITTER)
    story.die(step, *COLLECT)
    assert {1, 2} & story.state.keys()
    story.live(*COLLECT)
    story.live(*COLLECT)
    assert not {1, 2} & story.state.keys()
    story.end()


@pytest.mark.rule("CR-22")
@where("log.roll", "log.map")
@BOTH_CRASHES
def test_a_log_without_a_map_of_its_ledgers_is_scanned(kind: str, mode: CrashMode, step: str) -> None:
    story = Story(kind, mode)
    story.die(step, *LITTER)
    story.live(*LITTER, *COLLECT)
    story.end()


@pytest.mark.rule("CR-23")
@EVERY_STORE
@BOTH_CRASHES
def test_after_an_orderly_end_nothing_is_replayed(kind: str, mode: CrashMode) -> None:
    story = Story(kind, mode)
    story.live(*FULL, ("fence", 1, 0.0), ("lac", 0, 0.0), ("wait", 0.05), in_order=True)
    mark = LogMark(*mark_of(story.subject.disk))
    assert list(JournalReplay(Folder(story.subject.disk, "journal0/current"), mark)) == []
    assert story.entries(0) == [0, 1, 2, 3]
    assert story.is_fenced(1)
    story.end()
