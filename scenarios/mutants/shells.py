"""Defects of the shells, between a correct machine and its transport and callers.

Most are planted between transport and client: the shell gets an answer that no bookie sent, as if it had translated an outcome
wrongly. The recorder is below, so histories have the real messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bkclient import AppendFuture
from bkclient._client.reading.reads import LedgerReads
from bkclient._client.writing.shell import WriterShell
from bkclient.entry import Entry
from bkclient.errors import DigestMismatch
from bkclient.wire.entry import EntryCodec
from scenarios.mutants.base import Mutant, Replacement
from scenarios.mutants.transports import SilenceIsAcknowledged, SilenceIsFenced, SilenceIsStored

__all__ = ["SHELL_MUTANTS"]


Append = Callable[..., AppendFuture]


def _dropped_when_cancelled(append: Append) -> Append:
    """The entry is dropped from the pending ones, so no entry above it ever completes."""

    def mutated(self: WriterShell, *args: Any) -> AppendFuture:
        future = append(self, *args)
        pending = self.machine.adds.pending

        def on_done(done: AppendFuture) -> None:
            if done.cancelled():
                pending.pop(done.entry_id, None)

        future.add_done_callback(on_done)
        return future

    return mutated


def _done_when_cancelled(append: Append) -> Append:
    """The entry is passed over: what is above it counts as if it were there."""

    def mutated(self: WriterShell, *args: Any) -> AppendFuture:
        future = append(self, *args)

        def on_done(done: AppendFuture) -> None:
            if done.cancelled() and done.entry_id in self.machine.adds.pending:
                self.machine.adds.pending[done.entry_id].has_quorum = True

        future.add_done_callback(on_done)
        return future

    return mutated


Decode = Callable[..., Entry]


def _unverified(decode: Decode) -> Decode:
    """Take the entry as it is, if it is as long as one."""

    def mutated(self: EntryCodec, body: bytes, entry_id: int | None = None) -> Entry:
        try:
            return decode(self, body, entry_id)
        except DigestMismatch:
            overhead = len(self.encode_header(0, -1, 0, b""))
            if entry_id is None or len(body) < overhead:
                raise
            rewritten = self.encode_header(entry_id, -1, 0, body[overhead:])
            return decode(self, rewritten + body[overhead:], entry_id)

    return mutated


def _of_any_entry(check_range: Callable[..., None]) -> Callable[..., None]:
    def mutated(self: LedgerReads, first: int, last: int, **_unconfirmed: bool) -> None:
        check_range(self, first, last, unconfirmed=True)

    return mutated


SHELL_MUTANTS: Final = (
    Mutant(
        name="reads-go-beyond-the-lac",
        summary="an ordinary read returns entries that are not known to be confirmed",
        clauses=("F1",),
        in_runs=True,
        past="M37",
        replaces=(Replacement(LedgerReads, "_check_range", _of_any_entry),),
    ),
    Mutant(
        name="recovery-takes-silence-for-fenced",
        summary="a fencing read without an answer counts as if the bookie were fenced",
        clauses=("D4",),
        in_runs=True,
        wrap_transport=SilenceIsFenced,
    ),
    Mutant(
        name="write-back-takes-silence-for-stored",
        summary="what a recovery writes back counts as stored when the bookie does not answer",
        clauses=("E6",),
        in_runs=True,
        wrap_transport=SilenceIsStored,
    ),
    Mutant(
        name="writer-takes-silence-for-stored",
        summary="an add without an answer counts as stored",
        clauses=("A2", "A4", "A5", "A9", "B4", "D6"),
        in_runs=True,
        wrap_transport=SilenceIsAcknowledged,
    ),
    Mutant(
        name="cancelled-append-takes-its-entry-out",
        summary="the entry of a cancelled append is forgotten, and everything above it waits for ever",
        clauses=("L2",),
        in_runs=True,
        replaces=(
            Replacement(WriterShell, "append", _dropped_when_cancelled),
            Replacement(WriterShell, "append_at", _dropped_when_cancelled),
        ),
    ),
    Mutant(
        name="cancelled-append-counts-as-stored",
        summary="the entry of a cancelled append is passed over, and what is above it is acknowledged",
        clauses=("A3", "B4"),
        in_runs=True,
        replaces=(
            Replacement(WriterShell, "append", _done_when_cancelled),
            Replacement(WriterShell, "append_at", _done_when_cancelled),
        ),
    ),
    Mutant(
        name="digests-are-not-verified",
        summary="an entry whose digest does not match is taken as it is, and written back by recovery",
        clauses=("A8", "B6", "D9", "D14", "F4"),
        in_runs=True,
        past="M41",
        replaces=(
            Replacement(EntryCodec, "decode", _unverified),
            Replacement(EntryCodec, "decode_several", lambda _: EntryCodec.decode_each),
        ),
    ),
)
