"""An error raised because of another one carries it as its cause, wherever the other one came from."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable

import pytest

from bkclient.errors import (
    BookKeeperError,
    Code,
    LedgerExists,
    MetadataStoreError,
    RequestTimeout,
    UnexpectedCondition,
)
from bkclient.metadata.model import LedgerMetadata, Versioned
from bkclient.protocol.update import LocalMetadata, MetadataUpdate
from bkclient.repair.concurrency import for_each
from bkclient.wire.errors import MalformedMessage
from bkclient.wire.v3 import decode_request
from bkclient.writing.failures import fresh, fresh_for_entry
from tests.bkclient.fakes import town, writer_of
from tests.bkclient.protocol.harness import Writer, ledger


@pytest.mark.parametrize("code", [Code.LEDGER_FENCED, Code.UNAUTHORIZED])
def test_a_writer_that_was_ended_by_an_error_refuses_appends_because_of_it(code: Code) -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append()
    writer.answer("0a", code)
    refusal = writer.machine.refusal()
    assert refusal.code == Code.LEDGER_CLOSED
    assert refusal.__cause__ is writer.machine.fatal_error
    assert refusal.__cause__ is not None


def test_a_writer_that_was_closed_refuses_appends_without_another_cause() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.machine.close()
    assert writer.machine.refusal().code == Code.LEDGER_CLOSED
    assert writer.machine.refusal().__cause__ is None


def test_metadata_that_cannot_be_made_has_what_is_wrong_with_it_as_its_cause() -> None:
    def transform(metadata: LedgerMetadata) -> LedgerMetadata:
        raise ValueError("two bookies are one")

    update = MetadataUpdate(
        LocalMetadata(ledger((3, 2, 2), "abc")), "ensemble", needs_update=lambda _: True, transform=transform
    )
    assert isinstance(update.error, UnexpectedCondition)
    assert isinstance(update.error.__cause__, ValueError)


async def test_ids_that_are_taken_again_and_again_name_the_last_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town() as where:

        async def refuse(metadata: LedgerMetadata) -> Versioned:
            raise LedgerExists(ledger_id=metadata.ledger_id)

        monkeypatch.setattr(where.store, "create_ledger", refuse)
        with pytest.raises(LedgerExists) as caught:
            await writer_of(where)
    assert isinstance(caught.value.__cause__, LedgerExists)
    assert caught.value.__cause__.ledger_id is not None


async def test_what_leaves_a_group_of_tasks_keeps_its_own_cause() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1

    async def work(_: int) -> None:
        raise MetadataStoreError("it is away") from OSError("no route")

    with pytest.raises(MetadataStoreError) as caught:
        await for_each(items(), 1, work)
    assert isinstance(caught.value.__cause__, OSError)


def test_bytes_that_are_no_message_have_the_parsers_complaint_as_their_cause() -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode_request(b"\xff\xff\xff")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("again", [fresh, lambda error: fresh_for_entry(error, 7, 8)])
def test_a_failure_for_several_callers_is_an_object_for_each(
    again: Callable[[RequestTimeout], BookKeeperError],
) -> None:
    error = RequestTimeout("bookie b is silent", ledger_id=7, entry_id=8)
    error.add_note("seen first")
    twin = again(error)
    assert twin is not error
    assert twin.__cause__ is error
    assert (twin.code, twin.ledger_id, twin.entry_id) == (error.code, 7, 8)
    twin.add_note("seen later")
    assert error.__notes__ == ["seen first"]


def test_a_copy_has_notes_of_its_own() -> None:
    error = RequestTimeout()
    error.add_note("one")
    twin = copy.copy(error)
    twin.add_note("two")
    assert (error.__notes__, twin.__notes__) == (["one"], ["one", "two"])
    assert twin.message == error.message
