"""The bookie's end of a connection, without the connection: bytes in, requests out; responses in, bytes out.

Nothing in the protocol says which version a client speaks. A connection starts in version 3; the first frame that is no
request of version 3 turns it to version 2 for good, so that version 3 frames may precede version 2 ones (START_TLS does)
and never follow them. Answers have the version of their request, whatever came in between.
"""

from __future__ import annotations

from collections.abc import Iterator

from bkclient.wire import v2, v3
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.errors import MalformedMessage, WireError
from bkclient.wire.framing import DEFAULT_MAX_FRAME_SIZE, FrameBuffer
from bkclient.wire.messages import Response, Status
from bkclient.wire.received_add import received_add_v2, received_add_v3

__all__ = ["ServerConnection"]


class ServerConnection:
    """One connection of a client. After a :class:`~bkclient.wire.errors.WireError` only closing it is left.

    A bookie has to check each request's :attr:`~bkclient.wire.envelope.ReceivedRequest.is_version_supported`, and to
    :meth:`refuse` with ``BAD_REQUEST`` one whose ``request`` is ``None``.
    """

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        self._frames = FrameBuffer(max_frame_size)
        self._version = 3
        self._error: WireError | None = None

    @property
    def protocol_version(self) -> int:
        """The version in which the next frame is tried first: 3, or 2 once a frame was not of version 3."""
        return self._version

    @property
    def has_more(self) -> bool:
        """Whether bytes have come beyond the requests taken so far."""
        return len(self._frames) > 0

    def release(self) -> None:
        """Give memory back that is not needed while nothing comes."""
        self._frames.release()

    def get_buffer(self) -> memoryview:
        """Where the next received bytes belong; see :meth:`buffer_updated`."""
        return self._frames.get_buffer()

    def buffer_updated(self, size: int) -> Iterator[ReceivedRequest]:
        """The requests in what was received: ``size`` bytes at the start of :meth:`get_buffer`.

        Raises :class:`~bkclient.wire.errors.WireError`, now and on every later call, where the bytes stop making sense.
        """
        self._frames.commit(size)
        return self._requests(self._frames.frames())

    def receive(self, data: bytes) -> Iterator[ReceivedRequest]:
        """The requests in ``data``, for callers that receive chunks; otherwise like :meth:`buffer_updated`."""
        return self._requests(self._frames.feed(data))

    def encode_response(self, received: ReceivedRequest, response: Response) -> bytes:
        """The frame that answers ``received``.

        Raises :class:`~bkclient.errors.IllegalOperation` for an answer that version 2 does not have; the bookie closes the
        connection instead.
        """
        if received.protocol_version == 3:
            return v3.encode_response(received, response)
        return v2.encode_response(received, response)

    def refuse(self, received: ReceivedRequest, status: Status) -> bytes:
        """The frame that answers ``received`` with ``status`` alone.

        In version 3 it has no message of the operation, except for ``BAD_VERSION``.
        """
        if received.protocol_version == 3:
            return v3.encode_refusal(received, status)
        return v2.encode_refusal(received, status)

    def _requests(self, frames: Iterator[bytes]) -> Iterator[ReceivedRequest]:
        if self._error is not None:
            raise self._error
        try:
            for content in frames:
                yield (received_add_v3 if self._version == 3 else received_add_v2)(content) or self._decode(content)
        except WireError as error:
            self._error = error
            raise

    def _decode(self, content: bytes) -> ReceivedRequest:
        if self._version == 3:
            try:
                return v3.decode_request(content)
            except MalformedMessage:
                self._version = 2
        return v2.decode_request(content)
