"""The client's end of a connection, without the connection: requests in, bytes out; bytes in, answers out.

A :class:`ClientConnection` serves one connection of one protocol version. It encodes requests, remembers the outstanding ones
under their match bytes, and recognises their answers. It is told the time as plain numbers, and holds no clock, socket or
task.

Guarantees:

* Every request that :meth:`ClientConnection.send` accepted comes back once: from :meth:`~ClientConnection.receive` with its
  answer, from :meth:`~ClientConnection.expire` after its deadline, or from :meth:`~ClientConnection.abandon`.
* Transaction ids ascend on a connection, so a late answer to a request that has expired never passes for the answer to a
  later one. Version 2 identifies most requests by ledger and entry only, and cannot promise that; there such an answer
  is about the same entry of the same bookie.
* After a :class:`~bkclient.wire.errors.WireError` the connection is unusable: receiving raises it again.

An add is encoded once and sent to its whole write set: the encoding stays with the request and is used by every connection
that shares the same source of transaction ids, unless its id is no longer above the last one sent here.

The number and size of outstanding requests is bounded by the caller, who sees both.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar, cast

from bkclient.wire import v2, v3
from bkclient.wire.envelope import EncodedRequest
from bkclient.wire.errors import FrameTooLarge, WireError
from bkclient.wire.framing import DEFAULT_MAX_FRAME_SIZE, FrameBuffer
from bkclient.wire.messages import AddRequest, Request, Response, Status

__all__ = ["Answer", "ClientConnection"]

Token = TypeVar("Token")

Answer = tuple[Request, Token, Status, Response | None]
"""``(request, token, status, response)``; the response is ``None`` for adds, whose answer is the status alone."""

# (request, token, deadline, bytes of the frame, acknowledgement)
_Outstanding = tuple[Request, Token, float, int, bytes | None]

_FOREVER: Final = float("inf")


class _Dialect(Protocol):
    """What the modules of both protocol versions offer a client."""

    def encode_request(self, request: Request, txn_id: int) -> EncodedRequest: ...

    def split_answer(self, content: bytes) -> tuple[bytes, bytes]: ...

    def decode_response(self, content: bytes) -> tuple[bytes, Response]: ...


_DIALECTS: Final[dict[int, _Dialect]] = {2: v2, 3: v3}


class ClientConnection(Generic[Token]):
    """One connection to a bookie; see the module's text for what it guarantees.

    ``txn_ids`` yields ascending transaction ids and is shared by connections that shall share encoded adds.
    """

    def __init__(
        self,
        protocol_version: int = 3,
        max_frame_size: int = DEFAULT_MAX_FRAME_SIZE,
        txn_ids: Iterator[int] | None = None,
    ) -> None:
        if protocol_version not in _DIALECTS:
            raise ValueError(f"protocol version {protocol_version}: only 2 and 3 exist")
        self.protocol_version = protocol_version
        #: How many requests await their answer, and the bytes of their frames.
        self.outstanding_requests = 0
        self.outstanding_bytes = 0
        #: Answers that belong to no outstanding request: late ones, as a rule.
        self.unmatched_answers = 0
        self._dialect = _DIALECTS[protocol_version]
        self._txn_ids = itertools.count(1) if txn_ids is None else txn_ids
        self._encoding_source = (protocol_version, self._txn_ids)
        self._last_txn_id = 0
        self._frames = FrameBuffer(max_frame_size)
        self._error: WireError | None = None
        self._outstanding: dict[bytes, _Outstanding[Token]] = {}
        # Requests with the match bytes of one that is outstanding, in order; possible in version 2 only.
        self._twins: dict[bytes, deque[_Outstanding[Token]]] = {}

    def send(self, request: Request, token: Token, deadline: float = _FOREVER) -> tuple[bytes, ...]:
        """Register ``request`` as outstanding until ``deadline`` and return the buffers to send, in order.

        Raises, and registers nothing, :class:`~bkclient.errors.IllegalOperation` for what the protocol version cannot
        express and :class:`~bkclient.wire.errors.FrameTooLarge` for what the bookie would close the connection over.
        """
        encoded = self._encode(request)
        if encoded.size > self._frames.max_frame_size:
            raise FrameTooLarge(encoded.size, self._frames.max_frame_size)
        self._last_txn_id = encoded.txn_id
        match = encoded.match
        entry = (request, token, deadline, encoded.size, encoded.acknowledgement)
        if match in self._outstanding:
            self._twins.setdefault(match, deque()).append(entry)
        else:
            self._outstanding[match] = entry
        self.outstanding_requests += 1
        self.outstanding_bytes += encoded.size
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
        due: list[tuple[Request, Token]] = []
        for match in [match for match, entry in self._outstanding.items() if entry[2] <= now or match in self._twins]:
            kept: deque[_Outstanding[Token]] = deque()
            for entry in (self._outstanding.pop(match), *self._twins.pop(match, ())):
                if entry[2] <= now:
                    due.append((entry[0], entry[1]))
                    self.outstanding_requests -= 1
                    self.outstanding_bytes -= entry[3]
                else:
                    kept.append(entry)
            if kept:
                self._outstanding[match] = kept.popleft()
            if kept:
                self._twins[match] = kept
        return due

    def abandon(self) -> list[tuple[Request, Token]]:
        """Give up all outstanding requests."""
        return self.expire(_FOREVER)

    def _encode(self, request: Request) -> EncodedRequest:
        if not isinstance(request, AddRequest):
            return self._dialect.encode_request(request, next(self._txn_ids))
        encoded = cast("EncodedRequest | None", request.frame)
        if encoded is None or encoded.source != self._encoding_source or encoded.txn_id <= self._last_txn_id:
            encoded = self._dialect.encode_request(request, next(self._txn_ids))
            encoded.source = self._encoding_source
            request.frame = encoded
        return encoded

    def _answers(self, frames: Iterator[bytes]) -> Iterator[Answer[Token]]:
        if self._error is not None:
            raise self._error
        split, outstanding = self._dialect.split_answer, self._outstanding
        try:
            for content in frames:
                match, rest = split(content)
                entry = outstanding.get(match)
                status, response = Status.OK, None
                if entry is None or entry[4] != rest:
                    match, response = self._dialect.decode_response(content)
                    entry = outstanding.get(match)
                    if entry is None:
                        self.unmatched_answers += 1
                        continue
                    status = response.status
                    if entry[4] is not None:
                        response = None
                self._settle(match, entry[3])
                yield entry[0], entry[1], status, response
        except WireError as error:
            self._error = error
            raise

    def _settle(self, match: bytes, size: int) -> None:
        del self._outstanding[match]
        self.outstanding_requests -= 1
        self.outstanding_bytes -= size
        if self._twins and match in self._twins:
            twins = self._twins[match]
            self._outstanding[match] = twins.popleft()
            if not twins:
                del self._twins[match]
