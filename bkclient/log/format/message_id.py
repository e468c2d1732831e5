"""Where a message is in a log."""

from __future__ import annotations

import re
from itertools import repeat
from typing import ClassVar, Final, NamedTuple, Self

from bkclient.errors import ArgumentError

__all__ = ["MessageId", "ids_of_batch"]

_LARGEST: Final = 2**63 - 1
_TEXT: Final = re.compile(r"(-1|0|[1-9][0-9]{0,18})(:(-1|0|[1-9][0-9]{0,18})){1,3}")


class _Place(NamedTuple):
    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1


class MessageId(_Place):
    """The place of a message: its ledger, its entry there, the partition of the log, and its index in the entry's batch.

    A named tuple. Parts that are absent are -1: the partition of a log without partitions, the index in an entry of one message.
    Ids of one log compare in its order. ``MessageId.EARLIEST`` is before all messages, ``MessageId.LATEST`` after all of them.
    """

    __slots__ = ()

    EARLIEST: ClassVar[MessageId]
    LATEST: ClassVar[MessageId]

    def __new__(cls, ledger_id: int, entry_id: int, partition: int = -1, batch_index: int = -1) -> Self:
        """Raises :class:`~bkclient.errors.ArgumentError` for a part that is no whole number from -1 on."""
        _check_part("ledger_id", ledger_id)
        _check_part("entry_id", entry_id)
        _check_part("partition", partition)
        _check_part("batch_index", batch_index)
        return super().__new__(cls, ledger_id, entry_id, partition, batch_index)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.partition}:{self.batch_index}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The id that ``text`` says: ``ledger:entry``, and optionally ``:partition`` and ``:batch``.

        Raises :class:`~bkclient.errors.ArgumentError` for anything else.
        """
        if not _is_id(text):
            raise ArgumentError(f"a message id must have the form ledger:entry:partition:batch, got {text!r}")
        return cls(*map(int, text.split(":")))


def ids_of_batch(ledger_id: int, entry_id: int, partition: int, count: int) -> list[MessageId]:
    """The ids of the messages of one entry, in order."""
    first = MessageId(ledger_id, entry_id, partition)
    if count == 1:
        return [first]
    # No code of ours runs for each of them: parts that were checked once are put together by the interpreter.
    places = zip(repeat(ledger_id), repeat(entry_id), repeat(partition), range(count))
    return list(map(tuple.__new__, repeat(MessageId, count), places))


def _is_id(text: object) -> bool:
    return isinstance(text, str) and _TEXT.fullmatch(text) is not None


def _check_part(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= _LARGEST:
        raise ArgumentError(f"{name} must be a whole number from -1 to {_LARGEST}, got {value!r}")


MessageId.EARLIEST = MessageId(-1, -1)
MessageId.LATEST = MessageId(_LARGEST, _LARGEST)
