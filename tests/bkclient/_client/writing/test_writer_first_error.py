"""Every way a writer can end, and every call afterwards: each raises the error that ended the writer, as an object of its own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from bkclient._client.writing.advanced import AdvancedLedgerWriter
from bkclient._client.writing.writer import LedgerWriter
from bkclient.config import ClientConfig, WritingSettings
from bkclient.errors import (
    BookKeeperError,
    ClientClosed,
    Code,
    IllegalOperation,
    LedgerClosed,
    LedgerFenced,
    LedgerTruncated,
    MetadataStoreError,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    QuorumTimeout,
    ReadFailed,
    Refusal,
    SecurityError,
    UnauthorizedAccess,
    WriteFailed,
    WriteOnReadOnlyBookie,
)
from bkclient.ledger import LedgerState
from tests.bkclient.fakes import FakeCluster, advanced_writer_of, fake_cluster, in_virtual_time, writer_of
from tests.settling import settled

AnyWriter = LedgerWriter | AdvancedLedgerWriter
#: How many entries are confirmed before anything happens; so the next is entry 3.
CONFIRMED = 3


def next_id(writer: AnyWriter) -> int:
    return writer.last_add_pushed + 1


async def append(writer: AnyWriter) -> None:
    if isinstance(writer, AdvancedLedgerWriter):
        await writer.append(next_id(writer), b"x")
    else:
        await writer.append(b"x")


async def append_as_in_the_readme(writer: AnyWriter) -> None:
    if isinstance(writer, AdvancedLedgerWriter):
        await writer.wait_for_room(next_id(writer))
        await writer.append_nowait(next_id(writer), b"x")
    else:
        await writer.wait_for_room()
        await writer.append_nowait(b"x")


async def flush(writer: AnyWriter) -> None:
    await writer.flush()


async def force(writer: AnyWriter) -> None:
    await writer.force()


async def write_explicit_lac(writer: AnyWriter) -> None:
    await writer.write_explicit_lac()


async def close(writer: AnyWriter) -> None:
    await writer.close()


Call = Callable[[AnyWriter], Awaitable[None]]
CALLS: tuple[Call, ...] = (append, append_as_in_the_readme, flush, force, write_explicit_lac)

# Ways to end ---------------------------------------------------------------------------------------------------------


def all_bookies_answer(code: int) -> Callable[[FakeCluster, AnyWriter], Awaitable[None]]:
    async def end(where: FakeCluster, writer: AnyWriter) -> None:
        for bookie in where.transport.bookies.values():
            bookie.code = code
        await one_append_fails(writer)

    return end


async def one_append_fails(writer: AnyWriter) -> None:
    with suppress(BookKeeperError):
        await append(writer)
        raise AssertionError("it was to fail")
    await settled()


async def a_bookie_is_silent(where: FakeCluster, writer: AnyWriter) -> None:
    where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT


async def two_bookies_hang(where: FakeCluster, writer: AnyWriter) -> None:
    where.transport.hold("ab")
    with suppress(QuorumTimeout):
        await append(writer)
    where.transport.release("ab", Code.TIMEOUT)
    await settled()


async def the_store_fails(where: FakeCluster, writer: AnyWriter) -> None:
    await a_bookie_is_silent(where, writer)
    where.store.write_errors = [MetadataStoreError("out of service")]
    await one_append_fails(writer)


async def the_ledger_is_marked(where: FakeCluster, writer: AnyWriter) -> None:
    await a_bookie_is_silent(where, writer)
    where.edit(writer.ledger_id, lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
    await one_append_fails(writer)


def the_ledger_is_closed_at(last_entry_id: int) -> Callable[[FakeCluster, AnyWriter], Awaitable[None]]:
    async def end(where: FakeCluster, writer: AnyWriter) -> None:
        await a_bookie_is_silent(where, writer)
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(last_entry_id, last_entry_id + 1))
        await one_append_fails(writer)

    return end


async def fenced_and_cut_off(where: FakeCluster, writer: AnyWriter) -> None:
    where.edit(writer.ledger_id, lambda metadata: metadata.closed(0, 1))
    await all_bookies_answer(Code.LEDGER_FENCED)(where, writer)


async def the_ledger_is_deleted(where: FakeCluster, writer: AnyWriter) -> None:
    await a_bookie_is_silent(where, writer)
    await where.bk.delete_ledger(writer.ledger_id)
    await one_append_fails(writer)


async def sent_again_in_vain(where: FakeCluster, writer: AnyWriter) -> None:
    await a_bookie_is_silent(where, writer)
    where.transport.bookies[writer.metadata.last_fragment.ensemble[1]].code = Code.TIMEOUT
    await one_append_fails(writer)


async def the_application_closes(where: FakeCluster, writer: AnyWriter) -> None:
    await writer.close()


NO_CHANGES = ClientConfig(writing=WritingSettings(max_ensemble_changes=0))
FEW_RESENDS = ClientConfig(writing=WritingSettings(max_resends=2))

#: Name: the end, the class of error that every call raises, and what the client is configured with.
WAYS: dict[str, tuple[Callable[[FakeCluster, AnyWriter], Awaitable[None]], type[BookKeeperError], dict[str, Any]]] = {
    "fenced": (all_bookies_answer(Code.LEDGER_FENCED), LedgerFenced, {}),
    "wrong password": (all_bookies_answer(Code.UNAUTHORIZED), UnauthorizedAccess, {}),
    "refused operation": (all_bookies_answer(Code.ILLEGAL_OPERATION), IllegalOperation, {}),
    "too few bookies": (all_bookies_answer(Code.TIMEOUT), NotEnoughBookies, {}),
    "read-only bookies": (all_bookies_answer(Code.WRITE_ON_READ_ONLY_BOOKIE), NotEnoughBookies, {}),
    "untrusted bookies": (all_bookies_answer(Refusal(Code.SECURITY, "a bad certificate")), NotEnoughBookies, {}),
    "quorum timeout": (two_bookies_hang, QuorumTimeout, {}),
    "store fails": (the_store_fails, MetadataStoreError, {"bookies": "abcd"}),
    "taken over": (the_ledger_is_marked, LedgerFenced, {"bookies": "abcd"}),
    "closed by another client": (the_ledger_is_closed_at(CONFIRMED - 1), LedgerClosed, {"bookies": "abcd"}),
    "cut off": (the_ledger_is_closed_at(0), LedgerTruncated, {"bookies": "abcd"}),
    "fenced and cut off": (fenced_and_cut_off, LedgerTruncated, {}),
    "deleted": (the_ledger_is_deleted, NoSuchLedger, {"bookies": "abcd"}),
    "too many changes": (all_bookies_answer(Code.TIMEOUT), WriteFailed, {"config": NO_CHANGES}),
    "sent again in vain": (sent_again_in_vain, WriteFailed, {"config": FEW_RESENDS, "features": lambda _: True}),
    "closed by the application": (the_application_closes, LedgerClosed, {}),
}


@asynccontextmanager
async def a_writer_that_ended(way: str, *, is_advanced: bool) -> AsyncIterator[tuple[FakeCluster, AnyWriter]]:
    end, _, options = WAYS[way]
    async with fake_cluster(**{"bookies": "abc", **options}) as where:
        writer = await (advanced_writer_of(where) if is_advanced else writer_of(where))
        for _ in range(CONFIRMED):
            await append(writer)
        await settled()
        await end(where, writer)
        await settled()
        yield where, writer


async def error_of(call: Call, writer: AnyWriter) -> BookKeeperError:
    with pytest.raises(BookKeeperError) as caught:
        await call(writer)
    return caught.value


@pytest.mark.rule("W-42")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_advanced", [False, True], ids=["normal", "advanced"])
@in_virtual_time
async def test_every_call_after_the_end_of_a_writer_raises_the_error_that_ended_it(
    way: str, call: Call, *, is_advanced: bool
) -> None:
    expected = WAYS[way][1]
    async with a_writer_that_ended(way, is_advanced=is_advanced) as (_, writer):
        if call is flush and way == "closed by the application":
            await flush(writer)  # nothing failed
            return
        errors = [await error_of(call, writer) for _ in range(2)]
        with suppress(BookKeeperError):
            await writer.close()
        errors.append(await error_of(call, writer))

    for error in errors:
        assert type(error) is expected
        assert (error.code, error.retriable, error.is_fatal) == (expected.code, expected.retriable, expected.is_fatal)
        assert (error.message, error.advice) == (errors[0].message, errors[0].advice)
        assert error.ledger_id == writer.ledger_id
    assert len({id(error) for error in errors}) == len(errors)


@pytest.mark.rule("W-42")
@pytest.mark.parametrize("way", WAYS)
@in_virtual_time
async def test_a_writer_that_ended_goes_on_to_raise_its_error_when_the_client_is_closed(way: str) -> None:
    async with a_writer_that_ended(way, is_advanced=False) as (_, writer):
        pass
    expected = ClientClosed if way == "closed by the application" else WAYS[way][1]
    for call in (append, append_as_in_the_readme, force, write_explicit_lac):
        assert type(await error_of(call, writer)) is expected


@in_virtual_time
async def test_a_writer_whose_client_is_closed_first_raises_that() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await append(writer)
    for call in (append, append_as_in_the_readme, force, write_explicit_lac):
        assert type(await error_of(call, writer)) is ClientClosed


@pytest.mark.rule("W-42")
@pytest.mark.rule("W-27")
@in_virtual_time
async def test_with_deferred_sync_too() -> None:
    async with fake_cluster("abcd") as where:
        writer = await advanced_writer_of(where, deferred_sync=True)
        await append(writer)
        await all_bookies_answer(Code.TIMEOUT)(where, writer)
        for call in CALLS:
            error = await error_of(call, writer)
            assert type(error) is WriteFailed
            assert "must not change" in str(error)


# What it says --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-42")
@pytest.mark.parametrize(
    ("code", "cause", "words"),
    [
        (Code.WRITE_ON_READ_ONLY_BOOKIE, WriteOnReadOnlyBookie, "The bookie is read-only"),
        (Refusal(Code.SECURITY, "the certificate has expired"), SecurityError, "the certificate has expired"),
        (Refusal(Code.UNAUTHORIZED, "the secret is wrong"), UnauthorizedAccess, "the secret is wrong"),
    ],
)
async def test_a_shortage_says_by_what_bookies_failed_and_advises_what_helps(
    code: int, cause: type[BookKeeperError], words: str
) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await all_bookies_answer(code)(where, writer)
        for call in CALLS:
            error = await error_of(call, writer)
            assert type(error) is NotEnoughBookies
            assert type(error.__cause__) is cause
            assert f"a: {words}" in str(error) or f"b: {words}" in str(error) or f"c: {words}" in str(error)
            assert error.advice == cause.advice
            assert str(error).endswith(cause.advice)
            assert "Start more bookies" not in str(error)


@pytest.mark.rule("W-42")
async def test_a_shortage_of_mixed_causes_names_all_and_advises_more_bookies() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where, (3, 3, 3))
        where.transport.bookies["a"].code = Code.TIMEOUT
        where.transport.bookies["b"].code = Refusal(Code.SECURITY, "a bad certificate")
        where.transport.hold("abc")
        where.store.gate.clear()
        future = writer.append_nowait(b"x")
        where.transport.release("ab")
        where.store.gate.set()
        await settled()
        error = future.exception()

    assert isinstance(error, NotEnoughBookies)
    assert isinstance(error.__cause__, SecurityError) or "TIMEOUT" in str(error.__cause__)
    assert "a: A bookie did not answer" in str(error)
    assert error.advice == NotEnoughBookies.advice


# Acknowledged entries that were cut off ------------------------------------------------------------------------------


@pytest.mark.rule("W-50")
@pytest.mark.parametrize("way", ["cut off", "fenced and cut off"])
@in_virtual_time
async def test_a_writer_whose_entries_were_cut_off_says_so_everywhere_and_takes_nothing_back(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_writer_that_ended(way, is_advanced=False) as (where, writer):
        for call in (*CALLS, close):
            error = await error_of(call, writer)
            assert isinstance(error, LedgerTruncated)
            assert (error.last_add_confirmed, error.last_entry_id) == (CONFIRMED - 1, 0)
            assert "at entry 0" in str(error)
            assert f"acknowledged entries up to {CONFIRMED - 1}" in str(error)
        assert writer.last_add_confirmed == CONFIRMED - 1
        assert writer.is_closed
        # The end is the same for everybody, for this writer's own reads too.
        for bookie in where.transport.bookies.values():
            bookie.code = None
        assert (await writer.reader.read_last_entry()).entry_id == 0
        assert await writer.reader.read_last_add_confirmed() == 0
        for entry_id in (1, CONFIRMED - 1):
            with pytest.raises(ReadFailed):
                await writer.reader.read(entry_id)
        assert [entry.entry_id for entry in await writer.reader.read_batch(0)] == [0]

    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (told.name, vars(told)["event"]) == ("bkclient.writer", "acknowledged_lost")
    assert (vars(told)["ledger_id"], vars(told)["entry_id"]) == (writer.ledger_id, 0)
    assert vars(told)["details"] == {"confirmed": CONFIRMED - 1}


@pytest.mark.rule("W-50")
async def test_a_writer_that_lost_everything_reads_nothing() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await append(writer)
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(-1, 0))
        with pytest.raises(LedgerTruncated):
            await writer.close()
        with pytest.raises(NoSuchEntry):
            await writer.reader.read_last_entry()


@pytest.mark.rule("W-50")
async def test_leaving_the_block_of_a_writer_whose_entries_were_cut_off_raises() -> None:
    async with fake_cluster() as where:
        with pytest.raises(LedgerTruncated):  # noqa: PT012 - the block is what is tested
            async with await writer_of(where) as writer:
                await append(writer)
                await append(writer)
                where.edit(writer.ledger_id, lambda metadata: metadata.closed(0, 1))
