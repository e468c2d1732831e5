"""Every code has one class that says what it means, whether to retry, and what to do; errors survive copying."""

from __future__ import annotations

import copy
import pickle
from typing import Final

import pytest

from bkclient import errors
from bkclient.errors import ArgumentError, BookKeeperError, Code, code_of, error_for

RETRY: Final = "retry"
FATAL: Final = "fatal"
NEITHER: Final = ""

#: Number, our class, and what the caller of the operation can make of it.
TABLE: Final = [
    (-1, "ReadFailed", RETRY),
    (-2, "QuorumFailed", RETRY),
    (-3, "NoBookieAvailable", RETRY),
    (-4, "DigestNotInitialized", FATAL),
    (-5, "DigestMismatch", FATAL),
    (-6, "NotEnoughBookies", RETRY),
    (-7, "NoSuchLedgerOnBookie", NEITHER),
    (-8, "BookieNotAvailable", RETRY),
    (-9, "MetadataStoreError", RETRY),
    (-10, "LedgerRecoveryFailed", RETRY),
    (-11, "LedgerClosed", FATAL),
    (-12, "WriteFailed", FATAL),
    (-13, "NoSuchEntry", NEITHER),
    (-14, "ArgumentError", FATAL),
    (-15, "Interrupted", RETRY),
    (-16, "ProtocolVersionError", FATAL),
    (-17, "MetadataVersionConflict", NEITHER),
    (-18, "MetadataDriverError", RETRY),
    (-19, "ClientClosed", FATAL),
    (-20, "LedgerExists", NEITHER),
    (-21, "QuorumTimeout", FATAL),
    (-22, "DuplicateEntryId", NEITHER),
    (-23, "RequestTimeout", RETRY),
    (-24, "SecurityError", FATAL),
    (-25, "NoSuchLedger", FATAL),
    (-100, "IllegalOperation", FATAL),
    (-101, "LedgerFenced", FATAL),
    (-102, "UnauthorizedAccess", FATAL),
    (-103, "UnclosedFragment", NEITHER),
    (-104, "WriteOnReadOnlyBookie", RETRY),
    (-105, "TooManyRequests", RETRY),
    (-106, "LedgerIdOverflow", FATAL),
    (-107, "MetadataSerializationError", FATAL),
    (-108, "DataUnknown", RETRY),
    (-200, "ReplicationFailed", RETRY),
    (-999, "UnexpectedCondition", FATAL),
]
#: Answers of which the caller can make nothing but what they say.
WITHOUT_ADVICE: Final = {"NoSuchLedgerOnBookie", "NoSuchEntry"}


def all_classes() -> list[type[BookKeeperError]]:
    found = [getattr(errors, name) for name in errors.__all__]
    return [cls for cls in found if isinstance(cls, type) and issubclass(cls, BookKeeperError)]


@pytest.mark.rule("ERR-4")
@pytest.mark.parametrize(("number", "name", "verdict"), TABLE)
def test_each_code_has_its_class_its_verdict_and_its_advice(number: int, name: str, verdict: str) -> None:
    error = error_for(number)
    assert type(error).__name__ == name
    assert error.code == number
    assert (error.retriable, error.is_fatal) == (verdict == RETRY, verdict == FATAL)
    assert bool(error.advice) == (name not in WITHOUT_ADVICE)
    assert type(error).__doc__


def test_the_table_holds_every_code() -> None:
    assert sorted((number for number, _, _ in TABLE), reverse=True) == [code for code in Code if code != Code.OK]


def test_no_error_is_retriable_and_fatal() -> None:
    assert [cls for cls in all_classes() if cls.retriable and cls.is_fatal] == []


def test_an_unknown_outcome_of_a_metadata_write_is_neither_retriable_nor_fatal() -> None:
    assert (errors.MetadataOutcomeUnknown.retriable, errors.MetadataOutcomeUnknown.is_fatal) == (False, False)


@pytest.mark.parametrize("number", [1, -26, -99, -109, 12345])
def test_an_unknown_number_becomes_an_unexpected_condition_that_names_it(number: int) -> None:
    error = error_for(number, "said the bookie", ledger_id=7)
    assert type(error) is errors.UnexpectedCondition
    assert f"unknown result code {number}: said the bookie" in str(error)
    assert error.ledger_id == 7


def test_the_text_names_the_place_the_code_and_what_to_do() -> None:
    error = errors.NotEnoughBookies("two are left.", ledger_id=1, entry_id=2, bookie_id="b")
    assert str(error) == (
        "ledger 1, entry 2, bookie b: two are left [NOT_ENOUGH_BOOKIES -6]. "
        "Start more bookies or choose a smaller ensemble."
    )
    assert error.message == "two are left"


@pytest.mark.parametrize("cls", all_classes(), ids=lambda cls: cls.__name__)
def test_copies_and_pickles_keep_everything(cls: type[BookKeeperError]) -> None:
    error = cls("it broke", ledger_id=1, entry_id=2, bookie_id="b")
    error.add_note("and more")
    error.__cause__ = errors.RequestTimeout(bookie_id="c")
    for twin in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is cls
        assert str(twin) == str(error)
        assert (twin.message, twin.ledger_id, twin.entry_id, twin.bookie_id) == ("it broke", 1, 2, "b")
        assert twin.__notes__ == ["and more"]
        assert twin.args == error.args
        assert isinstance(twin.__cause__, errors.RequestTimeout)
        assert twin.__cause__.bookie_id == "c"


def test_a_cause_of_somebody_else_does_not_keep_an_error_from_being_pickled() -> None:
    error = errors.MetadataStoreError("lost")
    error.__cause__ = OSError(lambda: None)  # cannot be pickled
    assert pickle.loads(pickle.dumps(error)).__cause__ is None


@pytest.mark.rule("ERR-3")
def test_the_code_of_an_error_is_the_first_one_along_its_causes() -> None:
    inner = errors.RequestTimeout()
    outer = RuntimeError("while reading")
    outer.__cause__ = OSError("connection")
    outer.__cause__.__cause__ = inner
    inner.__cause__ = errors.LedgerFenced()
    assert code_of(outer) == Code.TIMEOUT
    assert code_of(inner) == Code.TIMEOUT


@pytest.mark.rule("ERR-3")
def test_without_an_error_the_code_is_ok_and_without_a_code_the_callers() -> None:
    assert code_of(None) == Code.OK
    assert code_of(OSError()) == Code.UNEXPECTED_CONDITION
    assert code_of(OSError(), Code.METADATA_STORE) == Code.METADATA_STORE


@pytest.mark.rule("ERR-3")
def test_an_error_raised_while_another_was_handled_has_it_as_its_cause_unless_that_was_suppressed() -> None:
    error = OSError()
    error.__context__ = errors.LedgerFenced()
    assert code_of(error) == Code.LEDGER_FENCED
    error.__suppress_context__ = True
    assert code_of(error) == Code.UNEXPECTED_CONDITION


def test_a_circle_of_causes_has_an_end() -> None:
    one, two = OSError(1), OSError(2)
    one.__cause__, two.__cause__ = two, one
    assert code_of(one) == Code.UNEXPECTED_CONDITION


def test_wrong_arguments_are_value_errors_too() -> None:
    with pytest.raises(ValueError, match="no range"):
        raise ArgumentError("no range")
