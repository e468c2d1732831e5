"""Recording what one client sends to bookies and what they answer, around any transport.

Adds of a writer and ordinary reads are recorded one by one and forwarded as they came, many at a time, so that runs over bytes
take the ways that the shipped client takes.

Every request has a number, and its answer has the same. Answers to adds name bookie and entry only; therefore an add that is sent
while another one of the same entry awaits an answer of the same bookie goes by a sender of its own, which tells the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from bkclient.errors import Code
from bkclient.protocol.append_ports import Quorums
from bkclient.transport.adds import AddReplies, AddSender, CountsQuorums, counts_quorums, sends_adds
from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.transport.reads import ReadReplies, ReadSender, sends_reads
from bkclient.transport.wrapping import WatchedAdds, WatchedReads, WrappingTransport
from bkclient.wire.connection import FoundBody
from bkclient.wire.messages import AddRequest, AddTemplate, ReadRequest, ReadResponse, Request, Response
from scenarios.history import Kind
from scenarios.recording.messages import IdentifiedTransport, operation_of
from scenarios.recording.recorders import Recorder, fingerprint

__all__ = ["RecordingTransport"]

# Members of an enumeration take longer to find; these are asked for most.
_ADD_SEND: Final = Kind.ADD_SEND
_ADD_RESP: Final = Kind.ADD_RESP
_READ_SEND: Final = Kind.READ_SEND
_READ_RESP: Final = Kind.READ_RESP
_FENCE_SEND: Final = Kind.FENCE_SEND
_FENCE_RESP: Final = Kind.FENCE_RESP
_REC_READ_SEND: Final = Kind.REC_READ_SEND
_REC_READ_RESP: Final = Kind.REC_READ_RESP


class _SentEntry(NamedTuple):
    """What is recorded of an entry that is sent, the same for each bookie."""

    entry: int
    lac: int
    length: int
    content: int
    size: int


class RecordingTransport(WrappingTransport):
    """Records requests of one client and the answers of bookies."""

    def __init__(self, inner: BookieTransport, recorder: Recorder, actor: str, incarnation: int) -> None:
        self._recorder = recorder
        self._messages = recorder.messages
        self._next_number = recorder.messages.numbers(actor)
        self._actor = actor
        self._incarnation = incarnation
        self._identified = (
            None if sends_adds(inner) or sends_reads(inner) else IdentifiedTransport(inner, self._messages)
        )
        super().__init__(inner if self._identified is None else self._identified)

    def _number(self, bookie_id: str, operation: str, ledger_id: int, entry_id: int) -> int:
        """The number of a request that is about to be sent. Those of several are taken in the order in which they are sent."""
        number = self._next_number()
        if self._identified is not None:
            self._identified.numbers.append(number)
        else:
            self._messages.sent((self._actor, bookie_id, operation, ledger_id, entry_id), number)
        return number

    def _ended(self, bookie_id: str, operation: str, ledger_id: int, entry_id: int, number: int, code: int) -> None:
        if self._identified is None:
            self._messages.ended((self._actor, bookie_id, operation, ledger_id, entry_id), number, code)

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
        first = _NumberedAdds(self, template, replies)
        return (_RecordedCounts if first.counts else _RecordedAdds)(self, template, replies, first)

    def read_sender(self, ledger_id: int) -> ReadSender:
        """Record every read, and every answer before the caller gets it."""
        return _RecordedReads(self, ledger_id)

    def _record_add(self, bookie_id: str, request: AddRequest, reply_to: ReplyHandler) -> ReplyHandler:
        recovery = request.recovery
        sent = self.entry_sent(request.ledger_id, request.header, request.payload)
        number = self.on_add_sent(bookie_id, request.ledger_id, sent, is_recovery=recovery)

        def on_reply(bookie: str, answered: Request, code: int, response: Response | None) -> None:
            self.on_add_answered(bookie, request.ledger_id, request.entry_id, code, number, is_recovery=recovery)
            reply_to(bookie, answered, code, response)

        return on_reply

    def entry_sent(self, ledger_id: int, header: bytes, payload: bytes) -> _SentEntry:
        """What is recorded of an entry wherever it is sent to."""
        entry_id, lac, length, _ = self._recorder.parse(ledger_id, header)
        return _SentEntry(entry_id, lac, length, fingerprint(payload), len(payload))

    def on_add_sent(self, bookie_id: str, ledger_id: int, sent: _SentEntry, *, is_recovery: bool) -> int:
        """Record an add that is sent next; returns its number."""
        entry_id, lac, length, content, size = sent
        number = self._number(bookie_id, "write-back" if is_recovery else "add", ledger_id, entry_id)
        self._recorder.append(
            _ADD_SEND,
            self._actor,
            ledger_id,
            {
                "incarnation": self._incarnation,
                "entry": entry_id,
                "bookie": bookie_id,
                "recovery": is_recovery,
                "lac": lac,
                "length": length,
                "content": content,
                "size": size,
                "request": number,
            },
        )
        return number

    def on_add_answered(
        self, bookie_id: str, ledger_id: int, entry_id: int, code: int, number: int, *, is_recovery: bool
    ) -> None:
        """Record the outcome of the add with this number."""
        self._ended(bookie_id, "write-back" if is_recovery else "add", ledger_id, entry_id, number, code)
        self._recorder.append(
            _ADD_RESP,
            self._actor,
            ledger_id,
            {
                "incarnation": self._incarnation,
                "entry": entry_id,
                "bookie": bookie_id,
                "recovery": is_recovery,
                "code": int(code),
                "request": number,
            },
        )

    def on_read_sent(self, bookie_id: str, ledger_id: int, entry_id: int) -> int:
        """Record an ordinary read that is sent next; returns its number."""
        number = self._number(bookie_id, "read", ledger_id, entry_id)
        asked = {"entry": entry_id, "bookie": bookie_id, "request": number}
        self._recorder.append(_READ_SEND, self._actor, ledger_id, asked)
        return number

    def on_read_answered(
        self, bookie_id: str, ledger_id: int, entry_id: int, code: int, body: bytes | None, lac: int | None, number: int
    ) -> None:
        """Record the outcome of the ordinary read with this number, and the LAC that the bookie told in passing."""
        self._ended(bookie_id, "read", ledger_id, entry_id, number, code)
        content = None if body is None else fingerprint(self._recorder.parse(ledger_id, body)[3])
        self._recorder.append(
            _READ_RESP,
            self._actor,
            ledger_id,
            {
                "bookie": bookie_id,
                "code": int(code),
                "entry": entry_id,
                "content": content,
                "lac": lac,
                "request": number,
            },
        )

    def _record_read(self, bookie_id: str, request: ReadRequest, reply_to: ReplyHandler) -> ReplyHandler:
        operation = operation_of(request)
        if operation == "read":
            return self._record_ordinary_read(bookie_id, request, reply_to)
        append, actor, ledger_id, entry_id = self._recorder.append, self._actor, request.ledger_id, request.entry_id
        fence = request.fence_key is not None
        number = self._number(bookie_id, operation, ledger_id, entry_id)
        if operation == "fence":
            append(_FENCE_SEND, actor, ledger_id, {"bookie": bookie_id, "request": number})
        else:
            asked = {"entry": entry_id, "bookie": bookie_id, "fence": fence, "request": number}
            append(_REC_READ_SEND, actor, ledger_id, asked)

        def on_reply(bookie: str, answered: Request, code: int, response: Response | None) -> None:
            self._ended(bookie_id, operation, ledger_id, entry_id, number, code)
            content: int | None = None
            found_entry, lac = -1, -1
            body = response.body if isinstance(response, ReadResponse) else None
            if body is not None:
                found_entry, lac, _, payload = self._recorder.parse(ledger_id, body)
                content = fingerprint(payload)
            result: dict[str, Any] = {"bookie": bookie_id, "code": int(code), "request": number}
            if operation == "fence":
                result.update(lac=lac, entry=found_entry)
                append(_FENCE_RESP, actor, ledger_id, result)
            else:
                result.update(entry=entry_id, fence=fence, content=content)
                append(_REC_READ_RESP, actor, ledger_id, result)
            reply_to(bookie, answered, code, response)

        return on_reply

    def _record_ordinary_read(self, bookie_id: str, request: ReadRequest, reply_to: ReplyHandler) -> ReplyHandler:
        ledger_id, entry_id = request.ledger_id, request.entry_id
        number = self.on_read_sent(bookie_id, ledger_id, entry_id)

        def on_reply(bookie: str, answered: Request, code: int, response: Response | None) -> None:
            body, known = (response.body, response.max_lac) if isinstance(response, ReadResponse) else (None, None)
            self.on_read_answered(bookie_id, ledger_id, entry_id, code, body, known, number)
            reply_to(bookie, answered, code, response)

        return on_reply


class _RecordedAdds:
    """Records the adds of one writer and their outcomes."""

    def __init__(
        self, transport: RecordingTransport, template: AddTemplate, replies: AddReplies, first: _NumberedAdds
    ) -> None:
        self._transport = transport
        self._template = template
        self._replies = replies
        #: Each has at most one add of an entry to a bookie under way; nearly always there is one sender.
        self._senders = [first]

    def send(self, bookies: tuple[str, ...], entry_id: int, header: bytes, payload: bytes) -> None:
        """Record the add for each bookie, and forward it."""
        rest = list(bookies)
        for sender in self._senders:
            rest = self._send_some(sender, rest, entry_id, header, payload)
        while rest:
            self._senders.append(_NumberedAdds(self._transport, self._template, self._replies))
            rest = self._send_some(self._senders[-1], rest, entry_id, header, payload)

    def _send_some(
        self, sender: _NumberedAdds, bookies: list[str], entry_id: int, header: bytes, payload: bytes
    ) -> list[str]:
        """Send to those that owe the sender no answer about the entry; returns the others."""
        template, transport, numbers = self._template, self._transport, sender.numbers
        ledger_id, recovery = template.ledger_id, template.recovery
        sent = transport.entry_sent(ledger_id, header, payload)
        mine: list[str] = []
        others: list[str] = []
        for bookie_id in bookies:
            if (bookie_id, entry_id) in numbers:
                others.append(bookie_id)
                continue
            numbers[bookie_id, entry_id] = transport.on_add_sent(bookie_id, ledger_id, sent, is_recovery=recovery)
            mine.append(bookie_id)
        if mine:
            sender.send(tuple(mine), entry_id, header, payload)
        return others


class _RecordedCounts(_RecordedAdds):
    """The same of a sender that counts answers: an outcome is recorded when the writer hears of it, if it does.

    What is sent beside an add that has no outcome yet goes by a sender that does not count.
    """

    def count(self, ack_quorum_size: int, connection: int, *, is_striped: bool) -> None:
        """See :class:`~bkclient.transport.adds.CountsQuorums`, as for the methods that follow."""
        self._senders[0].counting.count(ack_quorum_size, connection, is_striped=is_striped)

    def tell(self) -> None:
        """See there."""
        self._senders[0].counting.tell()

    def count_no_more(self) -> None:
        """See there."""
        self._senders[0].counting.count_no_more()


class _NumberedAdds(WatchedAdds):
    """Adds of different entries or to different bookies, with their numbers."""

    def __init__(self, transport: RecordingTransport, template: AddTemplate, replies: AddReplies) -> None:
        super().__init__(transport.inner, template, replies)
        self._transport = transport
        #: Writers that have answers counted take what was counted.
        self._counted: Any = replies
        self.numbers: dict[tuple[str, int], int] = {}

    @property
    def counts(self) -> bool:
        """Whether the sender below counts answers if it is told to."""
        return counts_quorums(self._inner)

    @property
    def counting(self) -> CountsQuorums:
        """That sender, which counts."""
        assert counts_quorums(self._inner), "nobody else is told to"
        return self._inner

    def on_adds_stored_by(self, quorums: Quorums, entry_ids: Sequence[int]) -> None:
        """See :class:`~bkclient.transport.adds.CountedReplies`."""
        for place, entry_id in enumerate(entry_ids):
            for bookie_id in quorums.bookies_of(place):
                self.on_outcome(bookie_id, entry_id, Code.OK)
        self._counted.on_adds_stored_by(quorums, entry_ids)

    def on_outcome(self, bookie_id: str, entry_id: int, code: int) -> None:
        """Record the outcome."""
        template, number = self.template, self.numbers.pop((bookie_id, entry_id))
        is_recovery = template.recovery
        self._transport.on_add_answered(bookie_id, template.ledger_id, entry_id, code, number, is_recovery=is_recovery)


class _RecordedReads(WatchedReads):
    """Records the ordinary reads of one ledger and their outcomes."""

    def __init__(self, transport: RecordingTransport, ledger_id: int) -> None:
        super().__init__(transport.inner, ledger_id)
        self.transport = transport

    def _watched(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> ReadReplies:
        """Record that each is sent."""
        numbers: dict[int, list[int]] = {}
        for entry_id in entry_ids:
            numbers.setdefault(entry_id, []).append(self.transport.on_read_sent(bookie_id, self.ledger_id, entry_id))
        return _RecordedReplies(self, numbers, replies)


class _RecordedReplies:
    """The handler of reads that were sent together: records, then hands on."""

    def __init__(self, reads: _RecordedReads, numbers: dict[int, list[int]], replies: ReadReplies) -> None:
        self._transport = reads.transport
        self._ledger_id = reads.ledger_id
        self._numbers = numbers
        self._replies = replies

    def on_found(self, bookie_id: str, found: Sequence[FoundBody]) -> None:
        """One by one, so that what the client does about one entry is recorded before the answer about the next."""
        for body in found:
            entry_id, content, lac = body
            self._record(bookie_id, entry_id, Code.OK, content, lac)
            self._replies.on_found(bookie_id, (body,))

    def __call__(self, bookie_id: str, request: Request, code: int, response: Response | None) -> None:
        """See :class:`~bkclient.transport.reads.ReadReplies`."""
        assert isinstance(request, ReadRequest), "nothing else is sent here"
        body, lac = (response.body, response.max_lac) if isinstance(response, ReadResponse) else (None, None)
        self._record(bookie_id, request.entry_id, code, body, lac)
        self._replies(bookie_id, request, code, response)

    def _record(self, bookie_id: str, entry_id: int, code: int, body: bytes | None, lac: int | None) -> None:
        number = self._numbers[entry_id].pop(0)
        self._transport.on_read_answered(bookie_id, self._ledger_id, entry_id, code, body, lac, number)
