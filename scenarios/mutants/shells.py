"""Defects of the shells: what happens between a machine, which is right, and the messages and callers around it.

Most are put between the transport and the client: the shell then acts on an answer that never came, just as one does
that translates an outcome wrongly. The recorder sits below, so histories show what really happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from bkclient._client.writing.shell import WriterShell
from bkclient.errors import Code, DigestMismatch
from bkclient.transport.base import ReplyHandler
from bkclient.transport.wrapping import WrappingTransport
from bkclient.wire.entry import DecodedEntry, EntryCodec
from bkclient.wire.messages import AddRequest, ReadRequest, Request, Response
from scenarios.mutants.base import Mutant, Replacement

__all__ = ["SHELL_MUTANTS"]

_NO_ANSWER: Final = frozenset({int(Code.TIMEOUT), int(Code.BOOKIE_NOT_AVAILABLE)})


class _WithoutFenceOnReads(WrappingTransport):
    """Forwards everything, but takes the fence flag off reads of particular entries."""

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Forward, falsified where it is a recovery read."""
        if not (isinstance(request, ReadRequest) and request.fence_key is not None and request.entry_id >= 0):
            self.inner.submit(bookie_id, request, reply_to)
            return

        def answer(bookie: str, _falsified: Request, code: int, response: Response | None) -> None:
            reply_to(bookie, request, code, response)

        self.inner.submit(bookie_id, replace(request, fence_key=None), answer)


class _Translating(WrappingTransport):
    """Forwards everything, and takes missing answers for another one."""

    taken_for: Code

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Forward, with the outcome falsified where it is meant."""
        if not self.is_meant(request):
            self.inner.submit(bookie_id, request, reply_to)
            return

        def answer(bookie: str, answered: Request, code: int, response: Response | None) -> None:
            reply_to(bookie, answered, int(self.taken_for) if code in _NO_ANSWER else code, response)

        self.inner.submit(bookie_id, request, answer)

    def is_meant(self, request: Request) -> bool:
        """Whether answers to ``request`` are mistaken."""
        raise NotImplementedError


class _SilenceIsDenial(_Translating):
    taken_for = Code.NO_SUCH_ENTRY

    def is_meant(self, request: Request) -> bool:
        return isinstance(request, ReadRequest) and request.fence_key is not None and request.entry_id >= 0


class _SilenceIsFenced(_Translating):
    taken_for = Code.NO_SUCH_ENTRY

    def is_meant(self, request: Request) -> bool:
        return isinstance(request, ReadRequest) and request.fence_key is not None and request.entry_id < 0


class _SilenceIsStored(_Translating):
    taken_for = Code.OK

    def is_meant(self, request: Request) -> bool:
        return isinstance(request, AddRequest) and request.recovery


class _SilenceIsAcknowledged(_Translating):
    taken_for = Code.OK

    def is_meant(self, request: Request) -> bool:
        return isinstance(request, AddRequest) and not request.recovery


Append = Callable[..., "asyncio.Future[int]"]


def _dropped_when_cancelled(append: Append) -> Append:
    """The entry is forgotten: nobody waits for it, and nothing above it is ever done."""

    def mutated(self: WriterShell, *args: Any) -> asyncio.Future[int]:
        future = append(self, *args)
        pending = self.machine.adds.pending
        mine = next((entry_id for entry_id, each in self.futures.items() if each is future), None)

        def on_done(done: asyncio.Future[int]) -> None:
            if done.cancelled() and mine is not None:
                pending.pop(mine, None)

        future.add_done_callback(on_done)
        return future

    return mutated


def _done_when_cancelled(append: Append) -> Append:
    """The entry is passed over: what is above it counts as if it were there."""

    def mutated(self: WriterShell, *args: Any) -> asyncio.Future[int]:
        future = append(self, *args)
        mine = next((entry_id for entry_id, each in self.futures.items() if each is future), None)

        def on_done(done: asyncio.Future[int]) -> None:
            if done.cancelled() and mine in self.machine.adds.pending:
                self.machine.adds.pending[mine].has_quorum = True

        future.add_done_callback(on_done)
        return future

    return mutated


Decode = Callable[..., DecodedEntry]


def _unverified(decode: Decode) -> Decode:
    """Take the entry as it is, if it is as long as one."""

    def mutated(self: EntryCodec, body: bytes, entry_id: int | None = None) -> DecodedEntry:
        try:
            return decode(self, body, entry_id)
        except DigestMismatch:
            overhead = len(self.encode_header(0, -1, 0, b""))
            if entry_id is None or len(body) < overhead:
                raise
            rewritten = self.encode_header(entry_id, -1, 0, body[overhead:])
            return decode(self, rewritten + body[overhead:], entry_id)

    return mutated


SHELL_MUTANTS: Final = (
    Mutant(
        name="recovery-reads-do-not-fence",
        summary="only the LAC phase of recovery fences; a bookie that denies an entry may store it afterwards (issue 2614)",
        clauses=("A1", "D3", "E5", "F5"),
        wrap_transport=_WithoutFenceOnReads,
    ),
    Mutant(
        name="recovery-takes-silence-for-denial",
        summary="a recovery read without an answer counts as a denial of the entry",
        clauses=("A1", "E3"),
        wrap_transport=_SilenceIsDenial,
    ),
    Mutant(
        name="recovery-takes-silence-for-fenced",
        summary="a fencing read without an answer counts as if the bookie were fenced",
        clauses=("D4",),
        wrap_transport=_SilenceIsFenced,
    ),
    Mutant(
        name="write-back-takes-silence-for-stored",
        summary="what a recovery writes back counts as stored when the bookie does not answer",
        clauses=("E6",),
        wrap_transport=_SilenceIsStored,
    ),
    Mutant(
        name="writer-takes-silence-for-stored",
        summary="an add without an answer counts as stored",
        clauses=("A2", "A4", "A5", "A9", "B4", "D6"),
        wrap_transport=_SilenceIsAcknowledged,
    ),
    Mutant(
        name="cancelled-append-takes-its-entry-out",
        summary="the entry of a cancelled append is forgotten, and everything above it waits for ever",
        clauses=("L2",),
        replaces=(
            Replacement(WriterShell, "append", _dropped_when_cancelled),
            Replacement(WriterShell, "append_at", _dropped_when_cancelled),
        ),
    ),
    Mutant(
        name="cancelled-append-counts-as-stored",
        summary="the entry of a cancelled append is passed over, and what is above it is acknowledged",
        clauses=("A3", "B4"),
        replaces=(
            Replacement(WriterShell, "append", _done_when_cancelled),
            Replacement(WriterShell, "append_at", _done_when_cancelled),
        ),
    ),
    Mutant(
        name="digests-are-not-verified",
        summary="an entry whose digest does not match is taken as it is, and written back by recovery",
        clauses=("A8", "B6", "D9"),
        replaces=(Replacement(EntryCodec, "decode", _unverified),),
    ),
)
