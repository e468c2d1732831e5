"""Defects of what is sent: the fields of headers and requests, between correct machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bkclient._client.reading.followed import FollowedLedger
from bkclient.protocol.adds import NewEntry, PendingAdds
from bkclient.transport.base import ReplyHandler
from bkclient.transport.wrapping import WrappingTransport
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest, Request, Response
from scenarios.mutants.base import Function, Mutant, Replacement, always

__all__ = ["WIRE_MUTANTS"]


class WithoutRecoveryFlag(WrappingTransport):
    """Forwards everything, but takes the flag off recovery adds."""

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Forward, falsified where it is a recovery add."""
        if not (isinstance(request, AddRequest) and request.recovery):
            self.inner.submit(bookie_id, request, reply_to)
            return

        def answer(bookie: str, _falsified: Request, code: int, response: Response | None) -> None:
            reply_to(bookie, request, code, response)

        self.inner.submit(bookie_id, replace(request, recovery=False), answer)


def _lac_of_what_was_pushed(push: Function) -> Function:
    def mutated(self: PendingAdds, payload: bytes, _header_lac: int) -> NewEntry:
        entry: NewEntry = push(self, payload, self.last_add_pushed)
        return entry

    return mutated


def _length_without_the_entry(encode_header: Function) -> Function:
    def mutated(self: EntryCodec, entry_id: int, last_add_confirmed: int, length: int, payload: bytes) -> bytes:
        head: bytes = encode_header(self, entry_id, last_add_confirmed, length - len(payload), payload)
        return head

    return mutated


def _lac_of_the_entry_itself(encode_header: Function) -> Function:
    def mutated(self: EntryCodec, entry_id: int, _last_add_confirmed: int, length: int, payload: bytes) -> bytes:
        head: bytes = encode_header(self, entry_id, entry_id, length, payload)
        return head

    return mutated


WIRE_MUTANTS: Final = (
    Mutant(
        name="recovery-flag-is-lost",
        summary="recovery adds arrive without their flag, so that fenced bookies refuse them",
        clauses=("G1", "L1"),
        in_runs=True,
        past="M49",
        wrap_transport=WithoutRecoveryFlag,
    ),
    Mutant(
        name="adds-tell-the-lac-of-what-was-pushed",
        summary="entries carry the id before their own as LAC, confirmed or not",
        clauses=("D6",),
        in_runs=True,
        past="M34",
        replaces=(Replacement(PendingAdds, "push", _lac_of_what_was_pushed),),
    ),
    Mutant(
        name="entries-confirm-themselves",
        summary="the header of an entry carries its own id as LAC",
        clauses=("D6", "G2"),
        in_runs=True,
        past="M34",
        replaces=(Replacement(EntryCodec, "encode_header", _lac_of_the_entry_itself),),
    ),
    Mutant(
        name="length-leaves-the-entry-out",
        summary="the length in an entry's header does not count its own payload",
        clauses=("B6",),
        in_runs=True,
        replaces=(Replacement(EntryCodec, "encode_header", _length_without_the_entry),),
    ),
    Mutant(
        name="reader-follows-nothing",
        summary="a reader keeps the metadata that it opened the ledger with",
        clauses=("L1",),
        in_runs=True,
        past="M38",
        replaces=(Replacement(FollowedLedger, "_on_metadata", always(lambda _self, _value: False)),),
    ),
)
