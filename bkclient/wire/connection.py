"""The client's end of a connection, without the connection: requests in, bytes out; bytes in, answers out.

A :class:`ClientConnection` serves one connection of one protocol version. It encodes requests, remembers the outstanding ones
under their match bytes, and recognises their answers. It is told the time as plain numbers, and holds no clock, socket or
task.

Guarantees:

* Every request that :meth:`ClientConnection.send` accepted comes back once: from :meth:`~ClientConnection.receive` with its
  answer, from :meth:`~ClientConnection.expire` after its deadline, or from :meth:`~ClientConnection.abandon`.
* No answer passes for the answer to another request. In version 3 transaction ids ascend on a connection. Version 2
  identifies most requests by operation, ledger and entry only; there :meth:`~ClientConnection.send` refuses a request with
  :class:`~bkclient.wire.outstanding.KeyInUse` while an answer to another one with these ids may come, also if that one has
  expired.
* After a :class:`~bkclient.wire.errors.WireError` the connection is unusable: receiving raises it again.

An add is encoded once and sent to its whole write set: the encoding stays with the request and is used by every connection
that shares the same source of transaction ids, unless its id is no longer above the last one sent here.

The number and size of outstanding requests is bounded by the caller, who sees both.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Final, Generic, Protocol, TypeVar

from bkclient.wire import v2, v3
from bkclient.wire.answers import check_answer
from bkclient.wire.envelope import EncodedRequest
from bkclient.wire.errors import FrameTooLarge, WireError
from bkclient.wire.framing import DEFAULT_MAX_FRAME_SIZE, FrameBuffer
from bkclient.wire.messages import AddRequest, Request, Response, Status
from bkclient.wire.outstanding import Load, Outstanding

__all__ = ["Answer", "ClientConnection"]

Token = TypeVar("Token")

Answer = tuple[Request, Token, Status, Response | None]
"""``(request, token, status, response)``; the response is ``None`` for adds, whose answer is the status alone."""

# (request, token, deadline, bytes of the frame, acknowledgement)
_Entry = tuple[Request, Token, float, int, bytes | None]

_FOREVER: Final = float("inf")


class _Dialect(Protocol):
    """What the modules of both protocol versions offer a client."""

    def encode_request(self, request: Request, txn_id: int) -> EncodedRequest: ...

    def split_answer(self, content: bytes) -> tuple[bytes, bytes]: ...

    def decode_response(self, content: bytes) -> tuple[bytes, Response]: ...


_DIALECTS: Final[dict[int, _Dialect]] = {2: v2, 3: v3}


class ClientConnection(Generic[Token]):
    """One connection to a bookie; see the module's text for what it guarantees.

    ``txn_ids`` yields ascending transaction ids and is shared by connections that shall share encoded adds. ``load`` counts
    outstanding requests and is shared by connections that share a limit. ``wanted`` holds the keys that somebody waits for:
    those of them whose request here is answered or given up are added to :attr:`changed`.
    """

    def __init__(
        self,
        protocol_version: int = 3,
        max_frame_size: int = DEFAULT_MAX_FRAME_SIZE,
        txn_ids: Iterator[int] | None = None,
        load: Load | None = None,
        wanted: Collection[bytes] = (),
    ) -> None:
        if protocol_version not in _DIALECTS:
            raise ValueError(f"protocol_version must be 2 or 3, got {protocol_version}")
        self.protocol_version = protocol_version
        #: How many requests await their answer, and the bytes of their frames; on all connections that share it.
        self.load = Load() if load is None else load
        #: Which requests await their answer here, and which were given up.
        self.outstanding: Outstanding[_Entry[Token]] = Outstanding(keys_recur=protocol_version == 2)
        #: Keys that were wanted when their request was answered or given up, until the owner takes them out.
        self.changed: list[bytes] = []
        #: Answers that belong to no outstanding request: late ones, as a rule.
        self.unmatched_answers = 0
        self._dialect = _DIALECTS[protocol_version]
        self._txn_ids = itertools.count(1) if txn_ids is None else txn_ids
        self._encoding_source = (protocol_version, self._txn_ids)
        self._last_txn_id = 0
        self._frames = FrameBuffer(max_frame_size)
        self._error: WireError | None = None
        self._wanted = wanted

    @property
    def outstanding_requests(self) -> int:
        """How many requests await their answer here."""
        return len(self.outstanding)

    @property
    def outstanding_bytes(self) -> int:
        """The bytes of the frames of outstanding requests, of all connections that share the load."""
        return self.load.bytes

    def send(self, request: Request, token: Token, deadline: float = _FOREVER) -> tuple[bytes, ...]:
        """Register ``request`` as outstanding until ``deadline`` and return the buffers to send, in order.

        Raises, and registers nothing, :class:`~bkclient.errors.IllegalOperation` for what the protocol version cannot
        express, :class:`~bkclient.wire.errors.FrameTooLarge` for what the bookie would close the connection over, and in
        version 2 :class:`~bkclient.wire.outstanding.KeyInUse`.
        """
        encoded = self._encode(request)
        if encoded.size > self._frames.max_frame_size:
            raise FrameTooLarge(encoded.size, self._frames.max_frame_size)
        size = encoded.size
        self.outstanding.add(encoded.match, (request, token, deadline, size, encoded.acknowledgement))
        assert encoded.txn_id > self._last_txn_id, "transaction ids ascend"
        self._last_txn_id = encoded.txn_id
        load = self.load
        load.requests += 1
        load.bytes += size
        return encoded.buffers

    def get_buffer(self) -> memoryview:
        """Where the next received bytes belong; see :meth:`buffer_updated`."""
        return self._frames.get_buffer()

    def buffer_updated(self, size: int) -> Iterator[Answer[Token]]:
        """The answers in what was received: ``size`` bytes at the start of :meth:`get_buffer`.

        Answers are matched one by one as the caller takes them, who may send meanwhile. Raises
        :class:`~bkclient.wire.errors.WireError` where the bytes stop making sense.
        """
        self._frames.commit(size)
        return self._answers(self._frames.frames())

    def receive(self, data: bytes) -> Iterator[Answer[Token]]:
        """The answers in ``data``, for callers that receive chunks; otherwise like :meth:`buffer_updated`."""
        return self._answers(self._frames.feed(data))

    def expire(self, now: float) -> list[tuple[Request, Token]]:
        """Give up the outstanding requests whose deadline is not after ``now``; takes time linear in all outstanding."""
        outstanding, load = self.outstanding, self.load
        due = [(key, entry) for key, entry in outstanding.entries.items() if entry is not None and entry[2] <= now]
        for key, entry in due:
            outstanding.give_up(key)
            if key in self._wanted:
                self.changed.append(key)
            load.take_off(entry[3])
        return [(entry[0], entry[1]) for _, entry in due]

    def abandon(self) -> list[tuple[Request, Token]]:
        """Give up all outstanding requests."""
        abandoned = self.expire(_FOREVER)
        assert not self.outstanding, "nothing is outstanding on a connection that was abandoned"
        self.check()
        return abandoned

    def check(self) -> tuple[int, int]:
        """Assert that what is counted is what is there; returns how many requests are outstanding here, and their bytes.

        Takes time linear in all outstanding.
        """
        outstanding, load = self.outstanding, self.load
        sizes = [entry[3] for entry in outstanding.entries.values() if entry is not None]
        size = sum(sizes)
        assert len(sizes) == len(outstanding), "a request that was given up is counted"
        assert load.requests >= len(sizes), "what is outstanding here is part of the load"
        assert load.bytes >= size, "what is outstanding here is part of the load"
        return len(sizes), size

    def _encode(self, request: Request) -> EncodedRequest:
        if not isinstance(request, AddRequest):
            return self._dialect.encode_request(request, next(self._txn_ids))
        encoded = request.frame
        if (
            not isinstance(encoded, EncodedRequest)
            or encoded.source != self._encoding_source
            or encoded.txn_id <= self._last_txn_id
        ):
            encoded = self._dialect.encode_request(request, next(self._txn_ids))
            assert encoded.size == sum(map(len, encoded.buffers)), "the size of a frame is that of its buffers"
            encoded.source = self._encoding_source
            request.frame = encoded
        return encoded

    def _answers(self, frames: Iterator[bytes]) -> Iterator[Answer[Token]]:
        if self._error is not None:
            raise self._error
        outstanding, load, wanted = self.outstanding, self.load, self._wanted
        split, entries = self._dialect.split_answer, outstanding.entries
        try:
            for content in frames:
                match, rest = split(content)
                entry = entries.get(match)
                status, response = Status.OK, None
                if entry is None or entry[4] != rest:
                    match, response = self._dialect.decode_response(content)
                    entry = entries.get(match)
                    status = response.status
                    if entry is not None:
                        check_answer(entry[0], response)
                        if entry[4] is not None:
                            response = None
                settled = outstanding.answered(match)
                assert settled is entry, "an answer settles the request it was matched with"
                if wanted and match in wanted:
                    self.changed.append(match)
                if entry is None:
                    self.unmatched_answers += 1
                    continue
                requests = load.requests = load.requests - 1
                size = load.bytes = load.bytes - entry[3]
                assert (requests > 0 and size >= 0) or requests == size == 0, "what is outstanding is counted once"
                yield entry[0], entry[1], status, response
        except WireError as error:
            self._error = error
            raise
