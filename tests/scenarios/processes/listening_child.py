"""A process of a run that tells each message that it takes, and stands still at every event."""

from __future__ import annotations

import asyncio
from typing import Any

from scenarios.history import HistoryWriter, Kind
from scenarios.processes.channel import Channel


async def main(channel: Channel) -> None:
    history = HistoryWriter({}, lambda: 0)
    channel.watch(history)

    def take(message: list[Any]) -> None:
        channel.tell("took", *message)
        if message[0] == "do":
            for _ in range(message[1]):
                history.record(Kind.CLIENT_START, "writer", incarnation=1, detail="")

    channel.on_message = take
    channel.listen()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Channel()))
