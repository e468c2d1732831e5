"""Listening in on a client and a bookie: a faithful proxy that keeps every frame of either side."""

from __future__ import annotations

import asyncio
from typing import Self

from bkclient.metadata.base import BookieAddress

__all__ = ["Wiretap", "frames_in"]


def frames_in(stream: bytes) -> list[bytes]:
    """The contents of the frames of a stream, length prefixes taken off."""
    frames, position = [], 0
    while position < len(stream):
        size = int.from_bytes(stream[position : position + 4], "big")
        frames.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    return frames


class Wiretap:
    """Forwards whatever arrives at its port to ``target``."""

    def __init__(self, target: BookieAddress) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._requests: list[bytearray] = []
        self._answers: list[bytearray] = []

    @property
    def address(self) -> BookieAddress:
        """Where to connect instead."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return BookieAddress(host, port)

    @property
    def requests(self) -> list[bytes]:
        """Frames sent so far by clients, connection after connection."""
        return [frame for stream in self._requests for frame in frames_in(bytes(stream))]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
        requests, answers = bytearray(), bytearray()
        self._requests.append(requests)
        self._answers.append(answers)
        await asyncio.gather(_pump(reader, far_writer, requests), _pump(far_reader, writer, answers))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, record: bytearray) -> None:
    try:
        while data := await source.read(65_536):
            record += data
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.close()
