"""Standard input and output without blocking the event loop, and without hanging the program at its end.

A pipe may stand still for as long as the program at its other end likes. Reading or writing it in the event loop would stop
everything else meanwhile, and requests to bookies would time out for no fault of theirs. So each stream has a thread that
does one call at a time. It is a *daemon* thread and uses the bare file descriptor: a program that is interrupted ends at
once, although a call may still be stuck in the kernel, and no lock of a Python stream object is held while it is.

Streams without a file descriptor (those of tests) are used through their methods, in the same way.
"""

from __future__ import annotations

import asyncio
import io
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, BinaryIO, Final, TypeVar

__all__ = ["ByteSink", "ByteSource"]

CHUNK_BYTES: Final = 256 * 1024
"""How much is read at a time, and how much may wait to be written before the writer has to wait."""

T = TypeVar("T")

_Call = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]
_Calls = queue.SimpleQueue[_Call | None]


class _Caller:
    """Does blocking calls in a thread of its own, one at a time. The thread ends once this is forgotten."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: _Calls | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """The outcome of ``function``. A caller that is cancelled leaves the call to itself."""
        if self._calls is None:
            self._calls = queue.SimpleQueue()
            weakref.finalize(self, self._calls.put, None)
            threading.Thread(target=_work, args=(self._calls,), name=self._name, daemon=True).start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put((function, future, loop))
        return await future


def _work(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        function, future, loop = call
        try:
            result, error = function(), None
        except BaseException as raised:  # noqa: BLE001  it is raised at the waiter
            result, error = None, raised
        try:
            loop.call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:
            return  # the loop is closed: the program ends


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _descriptor(stream: BinaryIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, io.UnsupportedOperation):
        return None


class ByteSource:
    """Bytes from a stream, as they come."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._descriptor = _descriptor(stream)
        self._caller = _Caller("bk standard input")

    @property
    def size_bytes(self) -> int | None:
        """How much there is in all, where that is known: of a file, not of a pipe or a terminal."""
        if self._descriptor is None:
            return None
        status = os.fstat(self._descriptor)
        return status.st_size if status.st_size > 0 else None

    @property
    def is_terminal(self) -> bool:
        """Whether a person types it."""
        return self._descriptor is not None and os.isatty(self._descriptor)

    async def read(self) -> bytes:
        """The next bytes, at most :data:`CHUNK_BYTES`; none at the end."""
        descriptor = self._descriptor
        if descriptor is None:
            return await self._caller.call(lambda: self._stream.read(CHUNK_BYTES))
        return await self._caller.call(lambda: os.read(descriptor, CHUNK_BYTES))


class ByteSink:
    """Bytes to a stream, in order. :meth:`write` keeps them, :meth:`drain` passes them on."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._descriptor = _descriptor(stream)
        self._caller = _Caller("bk standard output")
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def write(self, data: bytes) -> None:
        """Keep ``data`` until the next :meth:`drain`."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    @property
    def is_waiting(self) -> bool:
        """Whether anything waits to be passed on."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether so much waits that it should be passed on before more is written."""
        return self._waiting_bytes >= CHUNK_BYTES

    async def drain(self) -> None:
        """Pass everything on; returns when the stream took it. Raises ``BrokenPipeError`` when its reader has gone."""
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            await self._caller.call(lambda: self._put(data))

    def _put(self, data: bytes) -> None:
        if self._descriptor is None:
            self._stream.write(data)
            self._stream.flush()
            return
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
