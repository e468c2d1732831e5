"""What a log can refuse or fail with, beside the errors of ledgers."""

from __future__ import annotations

from bkclient.errors import BookKeeperError, IllegalOperation, LedgerFenced, MetadataStoreError, MetadataVersionConflict

__all__ = ["ConsumerRefused", "LogDeposed", "LogExists", "LogTooLong", "LogTrimmed", "NoSuchLog", "may_pass", "naming"]


class LogExists(IllegalOperation):
    """A log with this name exists already."""

    advice = "Open it, or choose another name."


class NoSuchLog(IllegalOperation):
    """The metadata store has no log with this name."""

    advice = "Create it first; check the name and the metadata URI."


class ConsumerRefused(IllegalOperation):
    """The group of consumers is another's alone, or consumes in another mode."""

    advice = "Wait until the other consumer is gone or its session has ended, or use another group."


class LogDeposed(LedgerFenced):
    """Another owner has taken over the log; this writer may not publish to it any more."""

    advice = "What was not acknowledged may or may not be in the log: read its end before publishing it again."


class LogTrimmed(IllegalOperation):
    """The position was trimmed: its ledger was deleted."""

    advice = "Read from MessageId.EARLIEST, or keep more by retention or by a cursor."


class LogTooLong(MetadataStoreError):
    """The log has as many ledgers as a manifest can hold."""

    retriable = False
    is_fatal = True
    advice = "Trim the log, or make its ledgers larger."


def naming(name: str, error: BookKeeperError) -> BookKeeperError:
    """``error`` of a machine, which does not know the name of its log, for those who have several."""
    if not isinstance(error, LogDeposed | LogExists | LogTooLong | NoSuchLog):
        return error
    return type(error)(f"log {name!r}: {error.message}", ledger_id=error.ledger_id, advice=error.advice)


def may_pass(error: BookKeeperError) -> bool:
    """Whether what failed may succeed later, as it is: bookies or the metadata service were away, or somebody was faster."""
    is_of_metadata = isinstance(error, MetadataStoreError | MetadataVersionConflict)
    return error.retriable or (is_of_metadata and not error.is_fatal)
