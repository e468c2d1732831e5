"""What a writer's machine says when it refuses or ends: which ledger, entry and bookie, what happened, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    Code,
    DuplicateEntryId,
    IllegalOperation,
    LedgerFenced,
    MetadataStoreError,
    NotEnoughBookies,
    QuorumTimeout,
    Refusal,
    UnexpectedCondition,
)
from bkclient.ledger import LedgerMetadata, LedgerState
from bkclient.protocol.ensemble import error_because_of, replace_failed
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Writer

NEW_LEDGER = "Open the ledger to learn where it ends, and write on in a new ledger."
UNSURE = "The entry may or may not be part of the ledger: open it to learn, and write on in a new ledger."
SILENT = "A bookie did not answer within the request timeout"
READ_ONLY = "The bookie is read-only: it accepts no new entries at present"
PASSWORD = "Open the ledger with the password it was created with; authenticate if bookies demand it."
READ_ONLY_ADVICE = "Retry once the bookie has space again, or on another bookie."
CANNOT_STORE = "The entry could not be written to an ack quorum"
WRONG_HANDLE = "[ILLEGAL_OPERATION -100]. Use the handle or the wire protocol version that has the operation."


def told(writer: Writer) -> str:
    """The one thing that the application was told, which says the same to everybody who asks."""
    (error,) = {id(error): error for error in writer.errors}.values()
    assert writer.machine.fatal_error is error
    return says(error)


def says(error: BookKeeperError) -> str:
    """The whole of it, without what says where."""
    assert error.ledger_id == LEDGER_ID
    return str(error).removeprefix(f"ledger {LEDGER_ID}")


# Refused -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-17")
@pytest.mark.parametrize(
    ("code", "before", "after"),
    [
        (
            Code.LEDGER_FENCED,
            "another client has taken over the ledger; ",
            f"[LEDGER_FENCED -101]. {NEW_LEDGER}",
        ),
        (Code.UNAUTHORIZED, "", f"[UNAUTHORIZED -102]. {PASSWORD}"),
    ],
)
def test_a_bookie_that_refuses_is_named_with_the_entry(code: Code, before: str, after: str) -> None:
    writer = Writer()
    writer.append()
    writer.ok("0a 0b")
    writer.append()
    writer.answer("1b", code)

    assert told(writer) == f", bookie b: {before}the bookie refused entry 1 {after}"


def refused(call: Callable[[], object]) -> BookKeeperError:
    with pytest.raises(BookKeeperError) as caught:
        call()
    return caught.value


@pytest.mark.rule("API-14")
def test_a_writer_says_which_kind_of_id_it_takes() -> None:
    mine, theirs = Writer(), Writer(entry_ids_given=True)

    error = refused(lambda: mine.machine.append_at(0, b""))
    assert isinstance(error, IllegalOperation)
    assert says(error) == f": the writer of this ledger chooses the ids of entries itself {WRONG_HANDLE}"
    error = refused(lambda: theirs.machine.append(b""))
    assert isinstance(error, IllegalOperation)
    assert says(error) == f": the writer of this ledger takes entries with ids only {WRONG_HANDLE}"
    assert mine.sent() == theirs.sent() == ""


@pytest.mark.rule("W-5")
def test_an_id_that_cannot_be_given_is_named() -> None:
    writer = Writer(entry_ids_given=True)
    writer.append_at(3)

    error = refused(lambda: writer.machine.append_at(2**63, b""))
    assert isinstance(error, ArgumentError)
    assert says(error) == f", entry {2**63}: entry_id must be < 2**63 [{error.code.name} -14]. {error.advice}"
    error = refused(lambda: writer.machine.append_at(3, b""))
    assert isinstance(error, DuplicateEntryId)
    assert says(error).startswith(", entry 3: ")


def test_who_writes_to_a_writer_that_has_ended_learns_how() -> None:
    closed, overtaken = Writer(), Writer((2, 2, 2), "ab", spares="c")
    closed.close()
    assert (
        says(closed.machine.refusal())
        == ": the writer was closed [LEDGER_CLOSED -11]. Create a new ledger to go on writing."
    )

    overtaken.append()
    overtaken.timeout("0a")
    update = overtaken.updates[0]
    overtaken.store.edit(ended_at(4))
    overtaken.store.finish(update)  # the change has read it and is about to tell
    assert not overtaken.machine.is_writable
    error = overtaken.machine.refusal()
    assert (
        says(error) == ": another client closed the ledger [LEDGER_CLOSED -11]. Create a new ledger to go on writing."
    )


def test_entries_in_flight_at_a_close_say_so() -> None:
    writer = Writer()
    writer.append()
    writer.close()
    (error,) = writer.errors
    assert says(error) == (
        ": the ledger was closed with the entry in flight [LEDGER_CLOSED -11]. Create a new ledger to go on writing."
    )


def ended_at(last_entry_id: int) -> Callable[[LedgerMetadata], LedgerMetadata]:
    """The change by which another client closes the ledger there."""
    return lambda metadata: replace(metadata, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=0)


@pytest.mark.rule("W-29")
@pytest.mark.rule("W-33")
def test_an_append_that_ends_the_writer_is_told_of_whole() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d", max_ensemble_changes=0)
    writer.append(b"first")
    writer.ok("0a 0b")
    writer.timeout("0c")  # it is to be replaced before the next entry, and must not be

    entry = writer.machine.append(b"second")

    assert (entry.entry_id, entry.payload, entry.last_add_confirmed, entry.length) == (1, b"second", 0, 5)
    assert writer.failed == [(1, Code.WRITE)]
    given = Writer((3, 3, 2), "abc", spares="d", max_ensemble_changes=0, entry_ids_given=True)
    given.append_at(0)
    given.ok("0a 0b")
    given.timeout("0c")
    assert given.machine.append_at(7, b"second").payload == b"second"


# Ended by bookies ----------------------------------------------------------------------------------------------------


def test_a_writer_that_must_keep_its_ensemble_names_all_who_failed() -> None:
    writer = Writer((3, 3, 2), "abc", deferred_sync=True)
    writer.append()
    writer.ok("0b")
    writer.timeout("0a 0c")

    assert told(writer) == (
        f": the ensemble of a ledger with deferred sync must not change, and a failed; go on in a new ledger (a: {SILENT}) "
        f"[WRITE -12]. {UNSURE}"
    )


def test_and_when_several_failed_late() -> None:
    writer = Writer((4, 4, 2), "abcd", deferred_sync=True)
    writer.append(b"", b"")
    writer.ok("0a 0b")
    writer.timeout("0c 0d")
    writer.append()

    assert told(writer) == (
        ": the ensemble of a ledger with deferred sync must not change, and c, d failed; go on in a new ledger "
        f"(c: {SILENT}; d: {SILENT}) [WRITE -12]. {UNSURE}"
    )


def test_a_writer_that_has_changed_too_often_says_how_often() -> None:
    writer = Writer((2, 2, 2), "ab", spares="cd", max_ensemble_changes=1)
    writer.append()
    writer.timeout("0a")
    writer.metadata_arrives()
    writer.answer("0b", Code.WRITE_ON_READ_ONLY_BOOKIE)

    assert told(writer) == f": gave up after 1 ensemble changes (b: {READ_ONLY}) [WRITE -12]. {READ_ONLY_ADVICE}"


@pytest.mark.rule("W-26")
def test_a_writer_that_sent_again_in_vain_says_to_whom() -> None:
    writer = Writer((2, 2, 2), "ab", max_resends=1)
    writer.is_change_disabled = True
    writer.append()
    writer.timeout("0a 0b")
    writer.retry()
    writer.timeout("0a 0b")
    writer.retry()

    assert told(writer) == (
        ": ensemble changes are disabled, and entries were sent to a, b 1 times again without success; enable changes or "
        f"restart the bookies (a: {SILENT}; b: {SILENT}) [WRITE -12]. {UNSURE}"
    )


@pytest.mark.rule("W-19")
def test_bookies_that_span_too_few_domains_are_named_with_the_policy() -> None:
    writer = Writer((2, 2, 2), "ab", enforce_fault_domains=True, placement_policy="rack-aware")
    writer.domains = {"a": "one", "b": "one"}
    writer.append()
    writer.ok("0a 0b")

    assert told(writer) == (
        ": entry 0 is stored by all its bookies, a, b, and they span too few fault domains for rack-aware "
        "[NOT_ENOUGH_BOOKIES -6]. Start more bookies or choose a smaller ensemble."
    )


@pytest.mark.rule("W-46")
@pytest.mark.parametrize(
    ("stored", "by"), [("", "no bookie"), ("0a", "a"), ("0a 0c", "a, c")], ids=["nobody", "one", "two"]
)
def test_an_entry_without_quorum_tells_who_stored_it(stored: str, by: str) -> None:
    writer = Writer((3, 3, 3), "abc", quorum_timeout_s=10.0)
    writer.append()
    writer.ok(stored)
    writer.machine.check_quorum_timeout(0.0)
    writer.machine.check_quorum_timeout(10.0)

    assert isinstance(writer.errors[0], QuorumTimeout)
    assert (
        told(writer)
        == f": entry 0 has no ack quorum after 10.0 seconds; stored by {by} [QUORUM_TIMEOUT -21]. {NEW_LEDGER}"
    )


@pytest.mark.rule("W-46")
def test_and_what_held_the_answers_up() -> None:
    writer = Writer((3, 3, 3), "abc", quorum_timeout_s=10.0)
    writer.append()
    writer.machine.held_up_by = MetadataStoreError("it is away", ledger_id=LEDGER_ID)
    writer.machine.check_quorum_timeout(0.0)
    writer.machine.check_quorum_timeout(10.0)

    assert told(writer) == (
        ": entry 0 has no ack quorum after 10.0 seconds; stored by no bookie; answers over new connections do not count "
        f"while the ledger's metadata cannot be read [QUORUM_TIMEOUT -21]. {NEW_LEDGER}"
    )
    assert writer.errors[0].__cause__ is writer.machine.held_up_by


# Ended by other clients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda metadata: replace(metadata, state=LedgerState.IN_RECOVERY),
            f": another client has taken over the ledger and is recovering it [LEDGER_FENCED -101]. {NEW_LEDGER}",
        ),
        (
            ended_at(-1),
            ": another client recovered and closed the ledger [LEDGER_CLOSED -11]. Create a new ledger to go on writing.",
        ),
    ],
    ids=["recovering", "closed"],
)
def test_a_change_that_finds_the_ledger_taken_over_says_so(
    change: Callable[[LedgerMetadata], LedgerMetadata], expected: str
) -> None:
    writer = Writer((2, 2, 2), "ab", spares="c")
    writer.append()
    writer.timeout("0a")
    writer.store.edit(change)
    writer.metadata_arrives()

    assert told(writer) == expected


@pytest.mark.rule("W-60")
@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda metadata: replace(metadata, state=LedgerState.IN_RECOVERY), "is recovering it"),
        (ended_at(6), "closed it at entry 6"),
    ],
    ids=["recovering", "closed"],
)
def test_a_look_at_the_metadata_that_finds_it_says_so(
    change: Callable[[LedgerMetadata], LedgerMetadata], how: str
) -> None:
    writer = Writer()
    writer.append()
    writer.store.edit(change)
    writer.machine.on_taken_over(writer.store.value)

    assert told(writer) == f": another client has taken over the ledger and {how} [LEDGER_FENCED -101]. {NEW_LEDGER}"


# Why bookies were of no use ------------------------------------------------------------------------------------------


def because(codes: dict[str, int]) -> BookKeeperError:
    return error_because_of(codes, "cba", Code.WRITE, "it did not work", ledger_id=LEDGER_ID)


def cause_of(error: BookKeeperError) -> tuple[str | None, Code] | None:
    cause = error.__cause__
    if cause is None:
        return None
    assert isinstance(cause, BookKeeperError)
    assert cause.ledger_id == LEDGER_ID
    return cause.bookie_id, cause.code


def test_failures_that_nothing_is_known_of_are_not_told_of() -> None:
    error = because({"z": Code.TIMEOUT})
    assert says(error) == f": it did not work [WRITE -12]. {UNSURE}"
    assert cause_of(error) is None


def test_each_failure_is_told_and_the_first_is_the_cause() -> None:
    error = because({"c": Code.WRITE, "a": Code.TIMEOUT})
    assert says(error) == f": it did not work (a: {SILENT}; c: {CANNOT_STORE}) [WRITE -12]. {UNSURE}"
    assert cause_of(error) == ("a", Code.TIMEOUT)


def test_the_most_telling_failure_is_the_cause_and_gives_the_advice_where_there_is_no_other() -> None:
    codes: dict[str, int] = {
        "a": Code.WRITE_ON_READ_ONLY_BOOKIE,
        "b": Refusal(Code.SECURITY, "it is too old"),
        "c": Code.TIMEOUT,
    }
    error = because(codes)
    assert says(error) == f": it did not work (a: {READ_ONLY}; b: it is too old; c: {SILENT}) [WRITE -12]. {UNSURE}"
    assert cause_of(error) == ("b", Code.SECURITY)

    del codes["c"]
    error = because(codes)
    assert says(error) == (
        f": it did not work (a: {READ_ONLY}; b: it is too old) [WRITE -12]. "
        f"Check certificates and the security settings of client and bookie. {READ_ONLY_ADVICE}"
    )
    assert cause_of(error) == ("b", Code.SECURITY)


@pytest.mark.rule("W-17")
def test_a_fenced_bookie_says_more_than_all_others() -> None:
    error = because({"a": Code.TIMEOUT, "b": Code.LEDGER_FENCED, "c": Code.LEDGER_FENCED})
    assert isinstance(error, LedgerFenced)
    assert says(error) == (
        f", bookie b: another client has taken over the ledger; it did not work [LEDGER_FENCED -101]. {NEW_LEDGER}"
    )


@pytest.mark.rule("W-31")
def test_a_lack_of_bookies_names_those_that_failed_and_the_ensemble() -> None:
    with pytest.raises(NotEnoughBookies) as caught:
        replace_failed(LEDGER_ID, tuple("abc"), {2: "c", 0: "a"}, lambda *_: None)
    assert says(caught.value) == (
        ": no writable bookie is left to replace a, c in the ensemble a, b, c [NOT_ENOUGH_BOOKIES -6]. "
        "Start more bookies or choose a smaller ensemble."
    )


@pytest.mark.rule("PL-4")
@pytest.mark.parametrize(("offered", "what"), [("b", "a bookie that failed"), ("c", "a member of the ensemble")])
def test_a_policy_that_offers_what_it_must_not_is_named(offered: str, what: str) -> None:
    with pytest.raises(UnexpectedCondition) as caught:
        replace_failed(LEDGER_ID, tuple("abc"), {1: "b"}, lambda *_: offered)
    assert says(caught.value).startswith(
        f", bookie {offered}: placement policy offered {what} in place of b; correct the policy [UNEXPECTED_CONDITION "
    )
