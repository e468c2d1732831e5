"""What a recovery makes of every outcome of every request it sends, and of every error of the metadata store.

A bookie that says that it does not have an entry is believed. Nothing else is evidence: a timeout, a refused connection or a
code that nobody has heard of neither ends a ledger, nor stores an entry, nor fences a bookie.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from bkclient._client.recover import recover_ledger
from bkclient._client.writing.writer import LedgerWriter
from bkclient.errors import (
    BookKeeperError,
    ClientClosed,
    Code,
    LedgerRecoveryFailed,
    MetadataOutcomeUnknown,
    MetadataVersionConflict,
    RequestTimeout,
    UnauthorizedAccess,
    error_for,
)
from bkclient.ledger import BookieId, LedgerState
from bkclient.observability import stats as names
from bkclient.observability.memory_stats import MemoryStats
from bkclient.placement import BookieWatcher, LedgerShape
from bkclient.repair.admin import core_of
from bkclient.wire.messages import AddRequest, ReadResponse, Status
from tests.bkclient._client.reading.ledgers import written
from tests.bkclient.fakes import FakeCluster, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.outcomes import DENIALS, FAILURES, UNKNOWN, Kind, is_answer, name_of, script, well_stored
from tests.settling import settled

ENDS_AT_ONCE = [Code.CLIENT_CLOSED, Code.UNAUTHORIZED]
"""Answers to a fence that end a recovery although others might fence enough bookies."""
ENDS_A_WRITE_BACK = [Code.CLIENT_CLOSED, Code.ILLEGAL_OPERATION, Code.LEDGER_FENCED, Code.UNAUTHORIZED]

SILENCES = [code for code in FAILURES if code not in DENIALS]


async def ledger(
    where: FakeCluster, sizes: tuple[int, int, int] = (3, 3, 2)
) -> tuple[LedgerWriter, tuple[BookieId, ...]]:
    """Entries 0 to 2, all acknowledged and on all their bookies, of which the headers tell a LAC of 1; and the ensemble."""
    writer = await written(where, 3, sizes)
    return writer, writer.metadata.last_fragment.ensemble


async def it_ends_at(where: FakeCluster, writer: LedgerWriter, last_entry_id: int, length: int | None = None) -> None:
    reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
    metadata = where.metadata(writer.ledger_id)
    assert metadata.state is LedgerState.CLOSED
    assert (metadata.last_entry_id, metadata.length) == (last_entry_id, last_entry_id + 1 if length is None else length)
    assert reader.metadata == metadata
    assert well_stored(where, metadata)


async def it_fails(where: FakeCluster, writer: LedgerWriter, code: int) -> BookKeeperError:
    """The recovery tells of ``code``, and leaves nothing but its mark."""
    with pytest.raises(BookKeeperError) as caught:
        await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
    error = caught.value
    as_such = {Code.TIMEOUT: RequestTimeout, Code.UNAUTHORIZED: UnauthorizedAccess, Code.CLIENT_CLOSED: ClientClosed}
    assert type(error) is as_such.get(Code(code) if code != UNKNOWN else Code.OK, LedgerRecoveryFailed)
    if isinstance(error, LedgerRecoveryFailed):
        assert isinstance(error.__cause__, BookKeeperError)
        assert error.__cause__.code == (Code.UNEXPECTED_CONDITION if code == UNKNOWN else code)
    assert error.ledger_id == writer.ledger_id
    assert where.metadata(writer.ledger_id).state is LedgerState.IN_RECOVERY
    return error


# Fencing -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-8")
@pytest.mark.rule("REC-9")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_one_bookie_need_not_be_fenced_unless_it_says_that_nobody_may(
    code: int, health: list[tuple[BookieId, int]]
) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        script(where, Kind.FENCE, code, ensemble[0])
        if is_answer(code, ENDS_AT_ONCE):
            assert (await it_fails(where, writer, code)).bookie_id == ensemble[0]
        else:
            await it_ends_at(where, writer, 2)
        assert health[0] == (ensemble[0], code)


@pytest.mark.rule("REC-9")
@pytest.mark.rule("REC-10")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_two_bookies_of_which_nothing_is_known_may_hold_an_ack_quorum_that_nobody_fenced(code: int) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        script(where, Kind.FENCE, code, ensemble[:2])
        if code in DENIALS:
            await it_ends_at(where, writer, 2)
        else:
            assert (await it_fails(where, writer, code)).bookie_id in ensemble[:2]


@pytest.mark.rule("REC-13")
@pytest.mark.parametrize("code", DENIALS, ids=name_of)
async def test_bookies_without_any_entry_are_fenced_and_recovery_begins_at_the_first(code: int) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        script(where, Kind.FENCE, code, ensemble)
        await it_ends_at(where, writer, 2)


@pytest.mark.rule("REC-7")
async def test_an_answer_to_a_fence_whose_digest_is_wrong_fences_nobody(health: list[tuple[BookieId, int]]) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        for bookie_id in ensemble[:2]:
            entries = where.transport.bookies[bookie_id].entries
            entries[writer.ledger_id, 2] = entries[writer.ledger_id, 2][:-1] + b"?"
        assert (await it_fails(where, writer, Code.DIGEST_MATCH)).bookie_id in ensemble[:2]
        assert health == [(bookie_id, Code.DIGEST_MATCH) for bookie_id in ensemble[:2]]


# Reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-18")
@pytest.mark.rule("REC-19")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_one_outcome_of_a_read_neither_denies_an_entry_nor_holds_up_the_end(
    code: int, health: list[tuple[BookieId, int]]
) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        first = ensemble[2]  # of the write set of entry 2
        script(where, Kind.RECOVERY_READ, code, first)
        if is_answer(code, [Code.CLIENT_CLOSED]):
            await it_fails(where, writer, code)
        else:
            await it_ends_at(where, writer, 2)
        assert (first, code) in health


@pytest.mark.rule("REC-18")
@pytest.mark.rule("REC-20")
@pytest.mark.parametrize("missing", [2, 3])
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_only_denials_end_a_ledger(code: int, missing: int) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        failing = (ensemble[2], ensemble[0], ensemble[1])[:missing]  # in the order of the write set of entry 2
        script(where, Kind.RECOVERY_READ, code, failing)
        if code in DENIALS:
            await it_ends_at(where, writer, 1, length=2)
        else:
            assert (await it_fails(where, writer, code)).bookie_id in failing


@pytest.mark.rule("REC-18")
@pytest.mark.rule("REC-20")
@pytest.mark.parametrize("code", [code for code in SILENCES if not is_answer(code, [Code.CLIENT_CLOSED])], ids=name_of)
async def test_one_denial_and_two_silences_deny_nothing(code: int) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        script(where, Kind.RECOVERY_READ, Code.NO_SUCH_ENTRY, ensemble[2])
        script(where, Kind.RECOVERY_READ, code, ensemble[:2])
        await it_fails(where, writer, code)


@pytest.mark.rule("REC-21")
@pytest.mark.parametrize("code", [code for code in FAILURES if not is_answer(code, [Code.CLIENT_CLOSED])], ids=name_of)
async def test_with_equal_quorums_one_denial_ends_a_ledger_and_one_silence_does_not(code: int) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where, (3, 3, 3))
        script(where, Kind.RECOVERY_READ, code, ensemble[2])
        await it_ends_at(where, writer, 1 if code in DENIALS else 2, length=2 if code in DENIALS else 3)


@pytest.mark.rule("REC-14")
@pytest.mark.parametrize("code", [code for code in FAILURES if not is_answer(code, [Code.CLIENT_CLOSED])], ids=name_of)
async def test_a_length_that_one_bookie_tells_is_taken_and_else_that_before_the_entry_that_told_the_lac(
    code: int, health: list[tuple[BookieId, int]], caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        script(where, Kind.RECOVERY_READ, Code.NO_SUCH_ENTRY, ensemble)
        script(where, Kind.READ, code, ensemble[:2])
        await it_ends_at(where, writer, 1, length=2)
        assert health.count((ensemble[1], code)) >= 1
    assert not caplog.records
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        script(where, Kind.RECOVERY_READ, Code.NO_SUCH_ENTRY, ensemble)
        script(where, Kind.READ, code, ensemble)
        await it_ends_at(where, writer, 1, length=2)
    (told,) = [record.getMessage() for record in caplog.records if record.name == "bkclient.recovery"]
    assert told.startswith(f"the length of ledger {writer.ledger_id}, 2 bytes, may be wrong: entry 1, where it ends,")


# Writing back ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-25")
@pytest.mark.rule("REC-27")
@pytest.mark.rule("REC-28")
@pytest.mark.parametrize("bookies", ["abc", "abcd"])
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_one_write_back_may_fail_unless_the_answer_is_about_the_ledger(
    code: int, bookies: str, health: list[tuple[BookieId, int]]
) -> None:
    async with fake_cluster(bookies) as where:
        writer, ensemble = await ledger(where)
        script(where, Kind.WRITE_BACK, code, ensemble[2])  # the first of the write set of entry 2
        if is_answer(code, ENDS_A_WRITE_BACK):
            await it_fails(where, writer, code)
        else:
            await it_ends_at(where, writer, 2)
            last = where.metadata(writer.ledger_id).last_fragment
            replaced = set(ensemble) - set(last.ensemble)
            assert replaced == (set() if bookies == "abc" else {ensemble[2]})
        assert (ensemble[2], code) in health


@pytest.mark.rule("REC-25")
@pytest.mark.rule("REC-28")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_a_write_back_that_failed_is_not_taken_for_stored(code: int) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        script(where, Kind.WRITE_BACK, code, ensemble[:2])
        await it_fails(where, writer, code if is_answer(code, ENDS_A_WRITE_BACK) else Code.NOT_ENOUGH_BOOKIES)


@pytest.mark.rule("REC-25")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_with_equal_quorums_every_write_back_counts(code: int) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where, (3, 3, 3))
        script(where, Kind.WRITE_BACK, code, ensemble[1])
        await it_fails(where, writer, code if is_answer(code, ENDS_A_WRITE_BACK) else Code.NOT_ENOUGH_BOOKIES)


# Answers that are not what they pass for ---------------------------------------------------------------------------


@pytest.mark.rule("REC-7")
@pytest.mark.rule("R-3")
async def test_another_entry_is_not_the_one_that_was_asked_for(health: list[tuple[BookieId, int]]) -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        for bookie_id in ensemble:
            other = where.transport.bookies[bookie_id].entries[writer.ledger_id, 1]
            answer = ReadResponse(Status.OK, writer.ledger_id, 2, other)
            script(where, Kind.RECOVERY_READ, Code.OK, bookie_id, answer)
        await it_fails(where, writer, Code.DIGEST_MATCH)
        assert {code for _, code in health} == {Code.DIGEST_MATCH}


@pytest.mark.rule("R-3")
async def test_an_answer_without_a_body_is_no_entry() -> None:
    async with fake_cluster() as where:
        writer, ensemble = await ledger(where)
        script(where, Kind.RECOVERY_READ, Code.OK, ensemble, ReadResponse(Status.OK, writer.ledger_id, 2, None))
        await it_fails(where, writer, Code.DIGEST_MATCH)


# What is sent and told ---------------------------------------------------------------------------------------------


async def crowded(where: FakeCluster) -> LedgerWriter:
    """Entries 0 to 4, appended without waiting, so that none tells of a LAC and all are written back."""
    writer = await writer_of(where)
    for entry_id in range(5):
        writer.append_nowait(b"%d" % entry_id)
    await writer.flush()
    await settled()
    where.sent.clear()
    return writer


@pytest.mark.rule("W-11")
async def test_a_write_back_is_encoded_once_for_all_its_bookies() -> None:
    async with fake_cluster() as where:
        await it_ends_at(where, await crowded(where), 4)
        adds = [request for _, request in where.sent if isinstance(request, AddRequest)]
        assert [add.entry_id for add in adds] == [entry_id for entry_id in range(5) for _ in range(3)]
        assert len({id(add) for add in adds}) == 5


async def test_a_replacement_is_asked_for_with_the_shape_of_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LedgerShape] = []
    replace = BookieWatcher.replace

    def note(self: BookieWatcher, shape: LedgerShape, *arguments: Any) -> BookieId | None:
        asked.append(shape)
        return replace(self, shape, *arguments)

    monkeypatch.setattr(BookieWatcher, "replace", note)
    async with fake_cluster("abcd") as where:
        writer, ensemble = await ledger(where)
        script(where, Kind.WRITE_BACK, Code.TIMEOUT, ensemble[2])
        await it_ends_at(where, writer, 2)
        assert asked
        assert all(shape == LedgerShape.of(where.metadata(writer.ledger_id)) for shape in asked)


def test_log_and_statistics_tell_what_was_found_and_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bkclient.recovery")
    ours = MemoryStats()

    @in_virtual_time
    async def play() -> None:
        async with fake_cluster(stats=ours) as where:
            await asyncio.sleep(100)
            writer = await crowded(where)
            where.transport.hold("abc")
            opening = asyncio.ensure_future(it_ends_at(where, writer, 4))
            await asyncio.sleep(2)
            where.transport.release("abc")
            await opening

            script(where, Kind.FENCE, Code.TIMEOUT, "abc")
            second = await crowded(where)
            with pytest.raises(RequestTimeout) as caught:
                await where.bk.open_ledger(second.ledger_id, password=b"secret", recover=True)

            told = [(record.__dict__["event"], record.__dict__["ledger_id"]) for record in caplog.records]
            assert told == [
                ("recovery_started", writer.ledger_id),
                ("recovery_finished", writer.ledger_id),
                ("recovery_started", second.ledger_id),
                ("recovery_failed", second.ledger_id),
            ]
            _, finished, _, failed = (record.__dict__ for record in caplog.records)
            assert finished["entry_id"] == 4
            assert finished["details"] == {"found": 5, "written": 5, "seconds": 2}
            assert failed["code"] == Code.TIMEOUT
            assert failed["details"] == {"reason": caught.value.message, "seconds": 0}

    play()
    assert ours.total_of(names.RECOVERY_READS) == 5
    assert ours.total_of(names.RECOVERED_ENTRIES) == 5


async def test_a_recovery_takes_its_keys_from_the_metadata_unless_it_is_given_others() -> None:
    async with fake_cluster() as where:
        writer = await crowded(where)
        core = core_of(where.bk)
        closed = await recover_ledger(core, where.service.read(writer.ledger_id))
        assert (closed.metadata.last_entry_id, closed.metadata.is_closed) == (4, True)


# Metadata ----------------------------------------------------------------------------------------------------------

STORE_ERRORS = [error_for(code) for code in Code if code is not Code.OK]
DECIDED = [error for error in STORE_ERRORS if error.code is not Code.METADATA_VERSION]


@pytest.mark.rule("REC-40")
@pytest.mark.parametrize("error", DECIDED, ids=lambda error: error.code.name)
async def test_a_mark_that_cannot_be_stored_fails_the_recovery_before_any_fence(error: BookKeeperError) -> None:
    async with fake_cluster() as where:
        writer, _ = await ledger(where)
        where.sent.clear()
        where.store.write_errors = [error]
        with pytest.raises(BookKeeperError) as caught:
            await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        as_such = error.code in {Code.TIMEOUT, Code.UNAUTHORIZED, Code.CLIENT_CLOSED}
        assert caught.value.code == (error.code if as_such else Code.LEDGER_RECOVERY)
        assert caught.value.__cause__ is error
        assert where.metadata(writer.ledger_id).state is LedgerState.OPEN
        assert where.sent == []


@pytest.mark.rule("REC-39")
@pytest.mark.rule("REC-40")
@pytest.mark.parametrize("error", DECIDED, ids=lambda error: error.code.name)
async def test_a_close_that_cannot_be_stored_leaves_the_mark_and_can_be_repeated(error: BookKeeperError) -> None:
    async with fake_cluster() as where:
        writer, _ = await ledger(where)
        where.edit(writer.ledger_id, lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
        where.store.write_errors = [error]
        assert (await it_fails(where, writer, error.code)).__cause__ is error
        await it_ends_at(where, writer, 2)


@pytest.mark.rule("W-48")
@pytest.mark.parametrize("write", [0, 1], ids=["mark", "close"])
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("kind", [MetadataVersionConflict, MetadataOutcomeUnknown])
async def test_a_conflict_or_an_unknown_outcome_is_looked_up(
    kind: type[BookKeeperError], *, applied: bool, write: int
) -> None:
    async with fake_cluster() as where:
        writer, _ = await ledger(where)
        if write == 1:
            where.edit(writer.ledger_id, lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
        applies = applied and kind is MetadataOutcomeUnknown
        where.store.write_errors = [kind("applied" if applies else "lost")]
        await it_ends_at(where, writer, 2)
        assert where.store.write_errors == []


@pytest.mark.rule("REC-40")
@pytest.mark.parametrize("error", STORE_ERRORS, ids=lambda error: error.code.name)
async def test_metadata_that_cannot_be_read_is_the_error_of_opening(error: BookKeeperError) -> None:
    async with fake_cluster() as where:
        writer, _ = await ledger(where)
        where.sent.clear()
        where.store.read_errors = [error]
        with pytest.raises(type(error)) as caught:
            await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        assert caught.value is error
        assert where.sent == []
