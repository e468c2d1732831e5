"""Taking many messages at a time: those that are at hand."""

from __future__ import annotations

from typing import Protocol

from bkclient.errors import ArgumentError
from bkclient.log.format.message import LogMessage

__all__ = ["MessageSource", "check_batch", "take_more"]


class MessageSource(Protocol):
    """What messages are read from: one partition, or several."""

    async def next(self) -> LogMessage:
        """The next message; StopAsyncIteration at the end. Cancellation loses nothing."""
        ...

    async def fill_now(self) -> bool:
        """Whether there is a message to take, without waiting for one."""
        ...

    def take(self) -> LogMessage | None:
        """A message that was read already; None if there is none."""
        ...

    def put_back(self, messages: list[LogMessage]) -> None:
        """Have messages that were taken taken again."""
        ...


def check_batch(max_messages: object) -> None:
    """:class:`~bkclient.errors.ArgumentError` for what is no number of messages."""
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise ArgumentError(f"max_messages must be a whole number >= 1, got {max_messages!r}")


async def take_more(source: MessageSource, found: list[LogMessage], max_messages: int) -> None:
    """Add to ``found`` what is at hand; a caller that is cancelled loses nothing of it."""
    try:
        while len(found) < max_messages:
            message = source.take()
            if message is not None:
                found.append(message)
            elif not await source.fill_now():
                return
    except BaseException:
        source.put_back(found)
        raise
