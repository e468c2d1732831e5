"""A faithful proxy before one bookie that keeps every byte it forwards, for tests of what an eavesdropper can see."""

from __future__ import annotations

import asyncio
from typing import Self

from bkclient.metadata.base import BookieAddress

__all__ = ["RecordingProxy"]


class RecordingProxy:
    """Listens on a port of its own. ``requests`` and ``answers`` hold what passed, of the latest connection."""

    def __init__(self, target: BookieAddress) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.requests = bytearray()
        self.answers = bytearray()

    @property
    def address(self) -> BookieAddress:
        """Where clients find the proxy."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return BookieAddress(host, port)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
        self.requests.clear()
        self.answers.clear()
        try:
            await asyncio.gather(
                self._pump(reader, far_writer, self.requests), self._pump(far_reader, writer, self.answers)
            )
        except (OSError, asyncio.CancelledError):
            pass  # asyncio's own callback of this task would ask for its exception
        finally:
            writer.transport.abort()
            far_writer.transport.abort()
            del self._tasks[task]

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, record: bytearray) -> None:
        while data := await source.read(65_536):
            record += data
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError("the end of a connection ends the other")
