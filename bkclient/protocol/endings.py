"""Why a writer ends, in words: the errors that its machine reports, each made from what it knows then."""

from __future__ import annotations

from collections.abc import Iterable

from bkclient.errors import BookKeeperError, Code, LedgerTruncated, error_for
from bkclient.ledger import BookieId
from bkclient.protocol.adds import PendingAdd
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.ensemble import error_because_of
from bkclient.protocol.machine import LedgerMachine

__all__ = [
    "changes_used_up",
    "closed",
    "ensemble_must_stay",
    "refused",
    "resent_in_vain",
    "taken_over",
    "too_few_domains",
    "truncated",
    "without_quorum",
]


def refused(writer: LedgerMachine, entry_id: int, bookie_id: BookieId, code: int) -> BookKeeperError:
    """A bookie gave an answer that makes going on impossible (W-17)."""
    why = f"the bookie refused entry {entry_id}"
    if code == Code.LEDGER_FENCED:
        why = f"another client has taken over the ledger; {why}"
    return error_for(code, why, ledger_id=writer.metadata.ledger_id, bookie_id=bookie_id)


def closed(writer: LedgerMachine, why: str) -> BookKeeperError:
    """The ledger is closed, or being closed."""
    return error_for(Code.LEDGER_CLOSED, why, ledger_id=writer.metadata.ledger_id)


def taken_over(writer: LedgerMachine) -> BookKeeperError:
    """The metadata says that the ledger is another client's."""
    metadata = writer.metadata
    how = f"closed it at entry {metadata.last_entry_id}" if metadata.is_closed else "is recovering it"
    why = f"another client has taken over the ledger and {how}"
    return error_for(Code.LEDGER_FENCED, why, ledger_id=metadata.ledger_id)


def truncated(writer: LedgerMachine, cause: BookKeeperError | None) -> LedgerTruncated:
    """The loss of entries that the writer had confirmed, with both ends."""
    metadata, confirmed = writer.metadata, writer.last_add_confirmed
    error = LedgerTruncated(
        f"another client closed the ledger at entry {metadata.last_entry_id}, although this writer had acknowledged "
        f"entries up to {confirmed}: entries were lost",
        ledger_id=metadata.ledger_id,
    )
    error.last_add_confirmed, error.last_entry_id = confirmed, metadata.last_entry_id
    error.__cause__ = cause
    return error


def too_few_domains(writer: LedgerMachine, add: PendingAdd, options: AppendOptions) -> BookKeeperError:
    """All bookies of the entry stored it, and that is not enough (W-19)."""
    why = (
        f"entry {add.entry.entry_id} is stored by all its bookies, {', '.join(writer.ensemble)}, "
        f"and they span too few fault domains for {options.placement_policy}"
    )
    return error_for(Code.NOT_ENOUGH_BOOKIES, why, ledger_id=writer.metadata.ledger_id)


def without_quorum(
    writer: LedgerMachine, add: PendingAdd, options: AppendOptions, held_up_by: BookKeeperError | None
) -> BookKeeperError:
    """The entry has waited for its ack quorum for too long (W-46)."""
    acknowledged = [b for p, b in enumerate(writer.ensemble) if add.acknowledged >> p & 1]
    why = (
        f"entry {add.entry.entry_id} has no ack quorum after {options.quorum_timeout_s} seconds; "
        f"stored by {', '.join(acknowledged) or 'no bookie'}"
    )
    if held_up_by is not None:
        why += "; answers over new connections do not count while the ledger's metadata cannot be read"
    error = error_for(Code.QUORUM_TIMEOUT, why, ledger_id=writer.metadata.ledger_id)
    error.__cause__ = held_up_by
    return error


def ensemble_must_stay(writer: LedgerMachine, bookies: Iterable[BookieId]) -> BookKeeperError:
    """Bookies failed, and with deferred sync they may not be replaced (W-27)."""
    names = list(bookies)
    failed = f"{', '.join(names)} failed"
    why = f"the ensemble of a ledger with deferred sync must not change, and {failed}; go on in a new ledger"
    return _because_of(writer, names, why)


def changes_used_up(writer: LedgerMachine, bookies: Iterable[BookieId], limit: int) -> BookKeeperError:
    """There were as many changes as the writer may make (W-29)."""
    return _because_of(writer, bookies, f"gave up after {limit} ensemble changes")


def resent_in_vain(writer: LedgerMachine, bookies: Iterable[BookieId], options: AppendOptions) -> BookKeeperError:
    """Changes are disabled, and sending again did not help (W-26)."""
    names = sorted(set(bookies))
    why = (
        f"ensemble changes are disabled, and entries were sent to {', '.join(names)} "
        f"{options.max_resends} times again without success; enable changes or restart the bookies"
    )
    return _because_of(writer, names, why)


def _because_of(writer: LedgerMachine, bookies: Iterable[BookieId], why: str) -> BookKeeperError:
    codes = writer.adds.failure_codes
    return error_because_of(codes, bookies, Code.WRITE, why, ledger_id=writer.metadata.ledger_id)
