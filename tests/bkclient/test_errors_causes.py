"""An error raised because of another one carries it as its cause, wherever the other one came from."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable

import pytest

from bkclient._fresh import fresh
from bkclient.errors import (
    BookKeeperError,
    Code,
    LedgerExists,
    LedgerTruncated,
    MetadataStoreError,
    RequestTimeout,
    UnexpectedCondition,
)
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.protocol.update import LocalMetadata
from bkclient.repair.concurrency import for_each
from bkclient.wire.errors import MalformedMessage
from bkclient.wire.v3 import decode_request
from scenarios.machines.store import ledger
from tests.bkclient.fakes import fake_cluster, writer_of
from tests.bkclient.protocol.harness import Wanted, Writer, begin


@pytest.mark.parametrize("code", [Code.LEDGER_FENCED, Code.UNAUTHORIZED])
def test_a_writer_that_was_ended_by_an_error_refuses_appends_with_it(code: Code) -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append()
    writer.answer("0a", code)
    refusal = writer.machine.refusal()
    assert refusal.code == code
    assert refusal is writer.errors[0]


def test_a_writer_that_was_closed_refuses_appends_without_another_cause() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.machine.close()
    assert writer.machine.refusal().code == Code.LEDGER_CLOSED
    assert writer.machine.refusal().__cause__ is None


def test_metadata_that_cannot_be_made_has_what_is_wrong_with_it_as_its_cause() -> None:
    def transform(metadata: LedgerMetadata) -> LedgerMetadata:
        raise ValueError("two bookies are one")

    update = begin(LocalMetadata(ledger((3, 2, 2), "abc")), Wanted(lambda _: True, transform))
    assert isinstance(update.error, UnexpectedCondition)
    assert isinstance(update.error.__cause__, ValueError)


async def test_ids_that_are_taken_again_and_again_name_the_last_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_cluster() as where:

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


@pytest.mark.parametrize("again", [fresh, lambda error: fresh(error, ledger_id=9, entry_id=8)])
def test_a_failure_for_several_callers_is_an_object_for_each(
    again: Callable[[RequestTimeout], BookKeeperError],
) -> None:
    error = RequestTimeout("bookie b is silent", ledger_id=7, entry_id=8)
    error.__cause__ = OSError("no route")  # not of this package, and part of what happened
    error.add_note("seen first")
    twin = again(error)
    assert twin is not error
    assert twin.__cause__ is error.__cause__
    assert str(twin) == str(error)
    assert (twin.code, twin.ledger_id, twin.entry_id) == (error.code, 7, 8)
    twin.add_note("seen later")
    assert error.__notes__ == ["seen first"]


def test_a_failure_told_of_an_entry_keeps_its_class_its_advice_and_what_else_it_knows() -> None:
    error = LedgerTruncated("entries were lost", ledger_id=7, advice="Look at the log.")
    error.last_add_confirmed, error.last_entry_id = 9, 3
    twin = fresh(error, entry_id=10)
    assert isinstance(twin, LedgerTruncated)
    assert (twin.last_add_confirmed, twin.last_entry_id, twin.entry_id, error.entry_id) == (9, 3, 10, None)
    assert str(twin) == "ledger 7, entry 10: entries were lost [LEDGER_CLOSED -11]. Look at the log."


def test_a_copy_has_notes_of_its_own() -> None:
    error = RequestTimeout()
    error.add_note("one")
    twin = copy.copy(error)
    twin.add_note("two")
    assert (error.__notes__, twin.__notes__) == (["one"], ["one", "two"])
    assert twin.message == error.message


@pytest.mark.parametrize(
    ("named", "ledger_id", "entry_id", "expected"),
    [
        ({}, None, None, (None, None)),
        ({}, 7, 3, (7, 3)),
        ({"ledger_id": 5, "entry_id": 1}, None, None, (5, 1)),
        ({"ledger_id": 5, "entry_id": 1}, 7, 3, (5, 3)),
    ],
)
def test_a_fresh_error_says_what_the_first_one_said(
    named: dict[str, int], ledger_id: int | None, entry_id: int | None, expected: tuple[int | None, int | None]
) -> None:
    error = RequestTimeout("too late", bookie_id="b:3181", advice="Wait.", **named)
    again = fresh(error, ledger_id=ledger_id, entry_id=entry_id)
    assert again is not error
    assert type(again) is RequestTimeout
    assert (again.message, again.bookie_id, again.advice) == ("too late", "b:3181", "Wait.")
    assert (again.ledger_id, again.entry_id) == expected
