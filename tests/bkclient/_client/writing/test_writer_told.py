"""What a writer tells applications and the log: every error names its ledger and says what happened."""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import Any

import pytest

from bkclient._client.writing.base import BaseWriter
from bkclient._fresh import fresh
from bkclient.config import ClientConfig, ConnectionSettings, LimitSettings
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    Code,
    IllegalOperation,
    LedgerFenced,
    MetadataStoreError,
    NoSuchEntry,
    RequestTimeout,
    TooManyRequests,
    UnexpectedCondition,
)
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.wire.messages import ForceLedgerRequest
from tests.bkclient.fakes import FakeCluster, advanced_writer_of, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.inside import machine_of
from tests.settling import settled

WORDS = ClientConfig(limits=LimitSettings(max_frame_size_bytes=1024 * 1024))
MAX_PAYLOAD = 1024 * 1024 - 192


def says(caught: pytest.ExceptionInfo[BookKeeperError], writer: BaseWriter, message: str) -> None:
    assert (caught.value.message, caught.value.ledger_id) == (message, writer.ledger_id)


# Limits --------------------------------------------------------------------------------------------------------------


async def test_a_payload_may_fill_a_frame_and_one_byte_more_is_refused() -> None:
    async with fake_cluster(config=WORDS) as where, await writer_of(where) as writer:
        assert await writer.append(bytes(MAX_PAYLOAD)) == 0
        for append in (writer.append, writer.submit):
            with pytest.raises(ArgumentError) as caught:
                await append(bytes(MAX_PAYLOAD + 1))
            says(caught, writer, f"payload must be <= {MAX_PAYLOAD} bytes to fit a frame, got {MAX_PAYLOAD + 1} bytes")
        with pytest.raises(ArgumentError) as caught:
            writer.append_nowait(bytes(MAX_PAYLOAD + 1))
        says(caught, writer, f"payload must be <= {MAX_PAYLOAD} bytes to fit a frame, got {MAX_PAYLOAD + 1} bytes")
        assert await writer.append(b"it goes on") == 1


async def test_with_given_ids_too() -> None:
    async with fake_cluster(config=WORDS) as where, await advanced_writer_of(where) as writer:
        assert await writer.append(0, bytes(MAX_PAYLOAD)) == 0
        with pytest.raises(ArgumentError) as caught:
            writer.append_nowait(1, bytes(MAX_PAYLOAD + 1))
        says(caught, writer, f"payload must be <= {MAX_PAYLOAD} bytes to fit a frame, got {MAX_PAYLOAD + 1} bytes")
        assert await writer.append(1, bytearray(b"it goes on")) == 1
        assert (await writer.reader.read(1)).payload == b"it goes on"


@pytest.mark.parametrize("given", [False, True], ids=["counted", "given"])
async def test_a_payload_that_is_not_bytes_is_refused_and_nothing_is_sent(*, given: bool) -> None:
    async with fake_cluster() as where:
        writer: Any = await (advanced_writer_of(where) if given else writer_of(where))
        with pytest.raises(ArgumentError) as caught:
            writer.append_nowait(*([0] if given else []), "text")
        says(caught, writer, "payload must be bytes-like, got str")
        assert (writer.last_add_pushed, writer.in_flight_entries) == (-1, 0)
        await writer.close()


async def test_a_buffer_may_be_changed_while_its_entry_is_in_flight() -> None:
    async with fake_cluster() as where, await advanced_writer_of(where) as writer:
        where.transport.hold("abc")
        buffer = bytearray(b"before")
        acknowledged = writer.append_nowait(0, memoryview(buffer))
        buffer[:] = b"after!"
        where.transport.release("abc")
        await acknowledged
        assert (await writer.reader.read(0)).payload == b"before"


@pytest.mark.parametrize("given", [False, True], ids=["counted", "given"])
async def test_a_full_window_refuses_who_does_not_wait(*, given: bool) -> None:
    config = ClientConfig(limits=LimitSettings(max_in_flight_entries=2))
    async with fake_cluster(config=config) as where:
        writer: Any = await (advanced_writer_of(where) if given else writer_of(where))
        where.transport.hold("abc")
        pending = [writer.append_nowait(*([number] if given else []), b"x") for number in range(2)]
        with pytest.raises(TooManyRequests) as caught:
            writer.append_nowait(*([2] if given else []), b"x")
        assert caught.value.ledger_id == writer.ledger_id
        assert "2 entries" in caught.value.message
        assert "are in flight" in caught.value.message
        where.transport.release("abc")
        assert await asyncio.gather(*pending) == [0, 1]
        await writer.close()


# The end -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [False, True], ids=["counted", "given"])
async def test_after_the_end_of_its_client_every_call_of_a_writer_says_so(*, given: bool) -> None:
    async with fake_cluster() as where:
        writer: Any = await (advanced_writer_of(where) if given else writer_of(where))
        await writer.append(*([0] if given else []), b"x")
        await where.bk.aclose()
        for call in (writer.force, writer.write_explicit_lac):
            with pytest.raises(ClientClosed) as caught:
                await call()
            assert caught.value.ledger_id == writer.ledger_id
        with pytest.raises(ClientClosed) as caught:
            writer.append_nowait(*([1] if given else []), b"x")
        assert caught.value.ledger_id == writer.ledger_id
        with pytest.raises(ClientClosed) as caught:
            await writer.close()
        says(caught, writer, "the client was closed before the writer; the ledger is still open")


async def test_what_is_in_flight_at_the_end_of_the_client_fails_with_its_ledger_and_entry() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        pending = [writer.append_nowait(b"x") for _ in range(2)]
        await where.bk.aclose()
        for entry_id, add in enumerate(pending):
            with pytest.raises(ClientClosed) as caught:
                await add
            assert (caught.value.ledger_id, caught.value.entry_id) == (writer.ledger_id, entry_id)
        with pytest.raises(ClientClosed) as caught:
            await writer.flush()
        assert caught.value.ledger_id == writer.ledger_id


async def test_a_flush_that_is_cancelled_leaves_the_others_waiting() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        where.transport.hold("abc")
        first = writer.append_nowait(b"0")
        flushes = [asyncio.create_task(writer.flush()) for _ in range(3)]
        await settled()
        second = writer.append_nowait(b"1")
        later = asyncio.create_task(writer.flush())
        await settled()
        flushes[1].cancel()
        await settled()
        where.transport.answer_first(3)
        await settled()
        assert first.done()
        assert not second.done()
        assert [flush.done() for flush in flushes] == [True] * 3
        assert flushes[1].cancelled()
        assert not later.done(), "it waits for the second entry too"
        where.transport.release("abc")
        await later


@in_virtual_time
async def test_closing_after_an_error_takes_five_seconds_at_most() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.store.gate.clear()
        began = asyncio.get_running_loop().time()
        with pytest.raises(ValueError, match="of the application"):
            async with writer:
                raise ValueError("of the application")
        assert asyncio.get_running_loop().time() - began == pytest.approx(5.0)
        where.store.gate.set()


async def test_leaving_the_block_forces_what_is_acknowledged_and_not_forced_and_nothing_else() -> None:
    def forced(where: FakeCluster) -> int:
        return sum(isinstance(request, ForceLedgerRequest) for _, request in where.sent)

    async with fake_cluster() as where:
        async with await advanced_writer_of(where, deferred_sync=True) as writer:
            await writer.append(0, b"x")
        assert forced(where) == 3
    async with fake_cluster() as where:
        async with await advanced_writer_of(where, deferred_sync=True) as writer:
            await writer.append(0, b"x")
            await writer.force()
        assert forced(where) == 3, "once, and not again"
    async with fake_cluster() as where:
        async with await advanced_writer_of(where, deferred_sync=True) as writer:
            pass
        assert forced(where) == 0
    async with fake_cluster() as where:
        async with await writer_of(where) as plain:
            await plain.append(b"x")
        assert forced(where) == 0


# What needs something that is not there ------------------------------------------------------------------------------


async def test_forcing_over_version_2_says_what_it_needs() -> None:
    async with fake_cluster(config=ClientConfig(connections=ConnectionSettings(protocol_version=2))) as where:
        writer = await writer_of(where)
        with pytest.raises(IllegalOperation) as caught:
            await writer.force()
        says(caught, writer, "force needs wire protocol version 3")
        await writer.close()


async def test_reading_the_last_entry_of_an_empty_ledger_says_that_there_is_none() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        with pytest.raises(NoSuchEntry) as caught:
            await writer.reader.read_last_entry()
        says(caught, writer, "the ledger has no confirmed entry")


async def test_a_metadata_store_with_a_defect_is_named_with_what_it_raised() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        where.transport.reconnect("abc")
        read = where.store.read_ledger
        failures: list[Exception] = [ValueError("a defect")]

        async def fragile(ledger_id: int) -> Versioned:
            if failures:
                raise failures.pop()
            return await read(ledger_id)

        where.store.read_ledger = fragile  # type: ignore[method-assign]
        future = writer.append_nowait(b"x")
        await settled()
        held_up_by = machine_of(writer).held_up_by
        assert isinstance(held_up_by, UnexpectedCondition)
        assert held_up_by.message == "the metadata store failed as it must not, with ValueError('a defect')"
        assert held_up_by.ledger_id == writer.ledger_id
        assert isinstance(held_up_by.__cause__, ValueError)
        assert await future == 1
        await writer.close()


# The log -------------------------------------------------------------------------------------------------------------


def records(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    return [
        (r.event, r.ledger_id, getattr(r, "entry_id", None), r.details)  # type: ignore[attr-defined]
        for r in caplog.records
        if r.name == "bkclient.writer"
    ]


async def test_what_ends_a_writer_is_logged_with_its_entry_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bkclient.writer")
    for code, event in ((Code.LEDGER_FENCED, "fenced"), (Code.UNAUTHORIZED, "failed")):
        caplog.clear()
        async with fake_cluster() as where:
            writer = await writer_of(where)
            await writer.append(b"0")
            for bookie in where.transport.bookies.values():
                bookie.code = code
            with pytest.raises(BookKeeperError) as caught:
                await writer.append(b"1")
            assert [record[:3] for record in records(caplog)] == [(event, writer.ledger_id, 1)]
            if event == "failed":
                assert f"ends at entry 1: {caught.value.message} [{int(code)}]" in caplog.messages[0]
            with pytest.raises(BookKeeperError):
                await writer.append(b"2")
            assert len(records(caplog)) == 1, "once, however many entries fail"


async def test_closing_and_the_end_of_the_client_are_no_failures_to_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bkclient.writer")
    async with fake_cluster() as where:
        first, second = await writer_of(where), await writer_of(where)
        where.transport.hold("abc")
        pending = [first.append_nowait(b"0"), second.append_nowait(b"0")]
        await first.close()
        await where.bk.aclose()
        assert [type(result).__name__ for result in await asyncio.gather(*pending, return_exceptions=True)] == [
            "LedgerClosed",
            "ClientClosed",
        ]
    assert records(caplog) == []


async def test_a_change_of_the_ensemble_is_logged_with_the_bookies_from_then_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="bkclient.writer")
    async with fake_cluster("abcd") as where, await writer_of(where) as writer:
        await writer.append(b"0")
        where.transport.bookies[writer.metadata.last_fragment.ensemble[1]].code = Code.WRITE
        await writer.append(b"1")
        await settled()
        last: LedgerMetadata = writer.metadata
        ensemble = ", ".join(last.last_fragment.ensemble)
        assert records(caplog) == [("ensemble_changed", writer.ledger_id, 1, {"ensemble": ensemble})]
        await writer.append(b"2")
    assert len(records(caplog)) == 1, "closing changes the metadata, not the ensemble"


async def test_a_change_of_the_ensemble_that_failed_is_not_logged_as_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bkclient.writer")
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where, (3, 3, 3))
        where.transport.bookies[writer.metadata.last_fragment.ensemble[1]].code = Code.WRITE
        where.store.write_errors = [MetadataStoreError("no")] * 20
        with pytest.raises(BookKeeperError):
            await writer.append(b"0")
        await settled()
    assert "ensemble_changed" not in {event for event, *_ in records(caplog)}


# One failure for several callers -------------------------------------------------------------------------------------


def test_a_fresh_failure_says_the_same_and_names_what_was_not_named() -> None:
    cause = RequestTimeout("late", bookie_id="b")
    error = LedgerFenced("taken over", entry_id=4, bookie_id="b", advice="Stop.")
    error.__cause__ = cause
    twin = fresh(error, ledger_id=7, entry_id=9)
    assert twin is not error
    assert type(twin) is LedgerFenced
    assert (twin.message, twin.ledger_id, twin.entry_id, twin.bookie_id, twin.advice) == (
        "taken over",
        7,
        9,
        "b",
        "Stop.",
    )
    assert twin.__cause__ is cause
    assert str(twin).startswith("ledger 7, entry 9, bookie b: taken over")

    named = LedgerFenced("taken over", ledger_id=3, entry_id=4)
    assert (fresh(named, ledger_id=7).ledger_id, fresh(named, ledger_id=7).entry_id) == (3, 4)
    assert str(fresh(named)) == str(named) == str(copy.copy(named))
