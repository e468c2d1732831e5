"""Recording what one client sends to bookies and what they answer, around any transport.

Adds of a writer and ordinary reads are recorded one by one and forwarded as they came, many at a time, so that runs over bytes
take the ways that the shipped client takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from bkclient.errors import Code
from bkclient.transport.adds import AddReplies, AddSender
from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.transport.reads import ReadReplies, ReadSender
from bkclient.transport.wrapping import WatchedAdds, WatchedReads, WrappingTransport
from bkclient.wire.connection import FoundBody
from bkclient.wire.messages import LAST_ENTRY, AddRequest, AddTemplate, ReadRequest, ReadResponse, Request, Response
from scenarios.history import Kind
from scenarios.recording import Recorder, fingerprint

__all__ = ["RecordingTransport"]


class RecordingTransport(WrappingTransport):
    """Records requests of one client and the answers of bookies."""

    def __init__(self, inner: BookieTransport, recorder: Recorder, actor: str, incarnation: int) -> None:
        super().__init__(inner)
        self._recorder = recorder
        self._actor = actor
        self._incarnation = incarnation

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Record the request, and its answer before ``reply_to`` gets it."""
        if isinstance(request, AddRequest):
            self.inner.submit(bookie_id, request, self._record_add(bookie_id, request, reply_to))
        elif isinstance(request, ReadRequest):
            self.inner.submit(bookie_id, request, self._record_read(bookie_id, request, reply_to))
        else:
            self.inner.submit(bookie_id, request, reply_to)

    def add_sender(self, template: AddTemplate, replies: AddReplies) -> AddSender:
        """Record every add, and every answer before ``replies`` gets it."""
        return _RecordedAdds(self, template, replies)

    def read_sender(self, ledger_id: int) -> ReadSender:
        """Record every read, and every answer before whoever asked gets it."""
        return _RecordedReads(self, ledger_id)

    def _record_add(self, bookie_id: str, request: AddRequest, reply_to: ReplyHandler) -> ReplyHandler:
        recovery = request.recovery
        self.on_add_sent(bookie_id, request.ledger_id, request.header, request.payload, is_recovery=recovery)

        def on_reply(bookie: str, answered: Request, code: int, response: Response | None) -> None:
            self.on_add_answered(bookie, request.ledger_id, request.entry_id, code, is_recovery=recovery)
            reply_to(bookie, answered, code, response)

        return on_reply

    def on_add_sent(self, bookie_id: str, ledger_id: int, header: bytes, payload: bytes, *, is_recovery: bool) -> None:
        """Record an add that is sent."""
        entry_id, lac, length, _ = self._recorder.parse(ledger_id, header)
        self._recorder.record(
            Kind.ADD_SEND,
            self._actor,
            ledger_id,
            incarnation=self._incarnation,
            entry=entry_id,
            bookie=bookie_id,
            recovery=is_recovery,
            lac=lac,
            length=length,
            content=fingerprint(payload),
            size=len(payload),
        )

    def on_add_answered(self, bookie_id: str, ledger_id: int, entry_id: int, code: int, *, is_recovery: bool) -> None:
        """Record the outcome of an add."""
        self._recorder.record(
            Kind.ADD_RESP,
            self._actor,
            ledger_id,
            incarnation=self._incarnation,
            entry=entry_id,
            bookie=bookie_id,
            recovery=is_recovery,
            code=int(code),
        )

    def on_read_sent(self, bookie_id: str, ledger_id: int, entry_id: int) -> None:
        """Record an ordinary read that is sent."""
        self._recorder.record(Kind.READ_SEND, self._actor, ledger_id, entry=entry_id, bookie=bookie_id)

    def on_read_answered(
        self, bookie_id: str, ledger_id: int, entry_id: int, code: int, body: bytes | None, lac: int | None
    ) -> None:
        """Record the outcome of an ordinary read, and the LAC that the bookie told in passing."""
        content = None if body is None else fingerprint(self._recorder.parse(ledger_id, body)[3])
        self._recorder.record(
            Kind.READ_RESP,
            self._actor,
            ledger_id,
            bookie=bookie_id,
            code=int(code),
            entry=entry_id,
            content=content,
            lac=lac,
        )

    def _record_read(self, bookie_id: str, request: ReadRequest, reply_to: ReplyHandler) -> ReplyHandler:
        record, actor, ledger_id, entry_id = self._recorder.record, self._actor, request.ledger_id, request.entry_id
        fence = request.fence_key is not None
        is_fencing_lac_read = entry_id == LAST_ENTRY and fence
        is_recovery_read = request.high_priority and not is_fencing_lac_read
        if is_fencing_lac_read:
            record(Kind.FENCE_SEND, actor, ledger_id, bookie=bookie_id)
        elif is_recovery_read:
            record(Kind.REC_READ_SEND, actor, ledger_id, entry=entry_id, bookie=bookie_id, fence=fence)
        else:
            self.on_read_sent(bookie_id, ledger_id, entry_id)

        def on_reply(bookie: str, answered: Request, code: int, response: Response | None) -> None:
            body = response.body if isinstance(response, ReadResponse) else None
            if not is_fencing_lac_read and not is_recovery_read:
                known = response.max_lac if isinstance(response, ReadResponse) else None
                self.on_read_answered(bookie_id, ledger_id, entry_id, code, body, known)
                reply_to(bookie, answered, code, response)
                return
            content: int | None = None
            found_entry, lac = -1, -1
            if body is not None:
                found_entry, lac, _, payload = self._recorder.parse(ledger_id, body)
                content = fingerprint(payload)
            result = {"bookie": bookie_id, "code": int(code)}
            if is_fencing_lac_read:
                record(Kind.FENCE_RESP, actor, ledger_id, **result, lac=lac, entry=found_entry)
            else:
                record(Kind.REC_READ_RESP, actor, ledger_id, **result, entry=entry_id, fence=fence, content=content)
            reply_to(bookie, answered, code, response)

        return on_reply


class _RecordedAdds(WatchedAdds):
    """Records the adds of one writer and their outcomes."""

    def __init__(self, transport: RecordingTransport, template: AddTemplate, replies: AddReplies) -> None:
        super().__init__(transport.inner, template, replies)
        self._transport = transport

    def send(self, bookies: tuple[str, ...], entry_id: int, header: bytes, payload: bytes) -> None:
        """Record the add for each bookie, and forward it."""
        template = self.template
        for bookie_id in bookies:
            self._transport.on_add_sent(bookie_id, template.ledger_id, header, payload, is_recovery=template.recovery)
        super().send(bookies, entry_id, header, payload)

    def on_outcome(self, bookie_id: str, entry_id: int, code: int) -> None:
        """Record the outcome."""
        template = self.template
        self._transport.on_add_answered(bookie_id, template.ledger_id, entry_id, code, is_recovery=template.recovery)


class _RecordedReads(WatchedReads):
    """Records the ordinary reads of one ledger and their outcomes."""

    def __init__(self, transport: RecordingTransport, ledger_id: int) -> None:
        super().__init__(transport.inner, ledger_id)
        self.transport = transport

    def _watched(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> ReadReplies:
        """Record that each is sent."""
        for entry_id in entry_ids:
            self.transport.on_read_sent(bookie_id, self.ledger_id, entry_id)
        return _RecordedReplies(self, replies)


class _RecordedReplies:
    """The handler of reads that were sent together: records, then hands on."""

    def __init__(self, reads: _RecordedReads, replies: ReadReplies) -> None:
        self._transport = reads.transport
        self._ledger_id = reads.ledger_id
        self._replies = replies

    def on_found(self, bookie_id: str, found: Sequence[FoundBody]) -> None:
        """One by one, so that what the client does about one entry is recorded before the answer about the next."""
        for body in found:
            entry_id, content, lac = body
            self._transport.on_read_answered(bookie_id, self._ledger_id, entry_id, Code.OK, content, lac)
            self._replies.on_found(bookie_id, (body,))

    def __call__(self, bookie_id: str, request: Request, code: int, response: Response | None) -> None:
        """See :class:`~bkclient.transport.reads.ReadReplies`."""
        assert isinstance(request, ReadRequest), "nothing else is sent here"
        body, lac = (response.body, response.max_lac) if isinstance(response, ReadResponse) else (None, None)
        self._transport.on_read_answered(bookie_id, self._ledger_id, request.entry_id, code, body, lac)
        self._replies(bookie_id, request, code, response)
