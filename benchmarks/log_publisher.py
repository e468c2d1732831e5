"""An owner of a log that publishes until it is killed or deposed, and tells a file what it asks for and what it is told.

``python -m benchmarks.log_publisher URI LOG NAME FILE``. Message ``n`` is the text ``NAME:n``. Each line is written at once,
before anything else happens: ``o EPOCH`` when it owns the log, ``p N`` before message ``N`` is handed in, ``a N ID`` when it is
acknowledged, and at the end ``d`` if another owner took over, or ``f ERROR``. So whatever ends the process, the file has it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import Final

import bkclient
from bkclient.errors import BookKeeperError
from bkclient.log import LogDeposed, Logs, MessageId, PublishSettings

_PENDING: Final = 64
_PAUSE_S: Final = 0.002
_SETTINGS: Final = PublishSettings(batch_messages=5, give_up_s=60.0)


class _Notes:
    """The file; what is written to it survives any end of the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def acknowledged(self, number: int, future: asyncio.Future[MessageId]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.add("a", number, future.result())


async def publish(uri: str, log: str, name: str, path: str) -> None:
    """Take the log over, and publish as long as that goes well."""
    notes, number = _Notes(path), 0
    try:
        async with bkclient.connect(uri) as client, Logs(client).writer(log, owner=name, settings=_SETTINGS) as writer:
            notes.add("o", writer.epoch)
            while True:
                if writer.pending_messages < _PENDING:
                    notes.add("p", number)
                    future = writer.publish_nowait(f"{name}:{number}".encode())
                    future.add_done_callback(partial(notes.acknowledged, number))
                    number += 1
                await asyncio.sleep(_PAUSE_S)
    except LogDeposed:
        notes.add("d")
    except BookKeeperError as error:
        notes.add("f", error)


if __name__ == "__main__":
    asyncio.run(publish(*sys.argv[1:]))
