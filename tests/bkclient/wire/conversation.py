"""The conversation in which real bookies were heard, and which the simulated bookie has to answer alike.

It is held with a bookie that knows nothing yet and takes frames of :data:`FRAME_LIMIT` bytes, over plain TCP and on one
connection until the bookie closes it. One request follows the other, except where a step waits: that one goes over a
connection of its own and is answered only when the next step is news to it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Self

from bkclient.ledger import DigestType
from bkclient.wire import v2, v3
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import (
    LAST_ENTRY,
    AddRequest,
    AuthMessage,
    BatchReadRequest,
    BookieInfoRequest,
    EntryListRequest,
    ForceLedgerRequest,
    LongPoll,
    ReadLacRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    WriteLacRequest,
)
from tests.bkclient.wire.golden_files import CLOSED, Exchange

__all__ = ["CLOSING", "FRAME_LIMIT", "Step", "add_of_size", "content_of", "conversation", "converse"]

#: The largest frame that the bookie takes, length prefix included; small, so that the captures stay so.
FRAME_LIMIT: Final = 1024
#: What bookies answer by closing the connection.
CLOSING: Final = frozenset(
    {
        "version 3 after version 2",
        "a frame of one byte more than the limit",
        "an operation that version 3 does not have",
        "an operation that version 2 does not have",
        "nothing that either version knows",
    }
)
_ANSWER_TIMEOUT_S: Final = 10.0
_PREFIX_SIZE: Final = 4
#: Longer than any bookie takes until it has been told the news.
_PATIENCE_MS: Final = 5000


@dataclass(frozen=True, slots=True)
class Step:
    """A request, or the content of a frame that our codecs do not make; ``wire`` if not that of the conversation."""

    name: str
    request: Request | bytes
    wire: int | None = None
    waits: bool = False

    def content(self, wire: int, txn_id: int) -> bytes:
        """The frame without its length prefix."""
        return self.request if isinstance(self.request, bytes) else content_of(self.request, self.wire or wire, txn_id)


def content_of(request: Request, wire: int, txn_id: int) -> bytes:
    """A request's frame without its length prefix."""
    encoded = (v3 if wire == 3 else v2).encode_request(request, txn_id)
    return b"".join(encoded.buffers)[_PREFIX_SIZE:]


_CODEC: Final = EntryCodec(1, DigestType.CRC32C, b"")
_KEY: Final = _CODEC.master_key
_OTHER_KEY: Final = EntryCodec(1, DigestType.CRC32C, b"other").master_key


def _add(entry_id: int, payload: bytes, lac: int, length: int, *, ledger_id: int = 1, **options: Any) -> AddRequest:
    header = EntryCodec(ledger_id, DigestType.CRC32C, b"").encode_header(entry_id, lac, length, payload)
    return AddRequest(ledger_id, entry_id, options.pop("key", _KEY), header, payload, **options)


def add_of_size(wire: int, frame_size: int) -> AddRequest:
    """An addition whose frame has this size, prefix included."""

    def add(payload_size: int) -> AddRequest:
        return _add(0, bytes(payload_size), -1, payload_size, ledger_id=33)

    guess = frame_size // 2
    return add(guess + frame_size - _PREFIX_SIZE - len(content_of(add(guess), wire, 1)))


def _long_poll(previous_lac: int, timeout_ms: int) -> ReadRequest:
    return ReadRequest(1, LAST_ENTRY, long_poll=LongPoll(previous_lac, timeout_ms, piggyback=True))


def conversation(wire: int) -> list[Step]:
    """All steps, in order: successes, refusals, fencing, all operations, and what a bookie takes offence at."""
    return [
        Step("read before anything was added", ReadRequest(1, 0)),
        *(_BEFORE_ADDS[wire]),
        Step("add entry 0", _add(0, b"hello", -1, 5)),
        Step("add entry 1", _add(1, b"world!!", 0, 12)),
        Step("add entry 1 again", _add(1, b"world!!", 0, 12)),
        Step("read entry 0", ReadRequest(1, 0)),
        Step("read the last entry", ReadRequest(1, LAST_ENTRY)),
        Step("read an entry that is not there", ReadRequest(1, 7)),
        Step("read an unknown ledger", ReadRequest(99, 0)),
        Step("read the last entry of an unknown ledger", ReadRequest(99, LAST_ENTRY)),
        Step("add with another key", _add(2, b"x", 1, 13, key=_OTHER_KEY)),
        Step("authenticate where nobody asks", AuthMessage("AuthDisabledPlugin")),
        *(_AFTER_ADDS[wire]),
        Step("fencing read", ReadRequest(1, LAST_ENTRY, fence_key=_KEY)),
        Step("add entry 0 after the fence", _add(0, b"hello", -1, 5)),
        Step("add after the fence", _add(7, b"y", 1, 18)),
        Step("recovery add after the fence", _add(7, b"y", 1, 18, recovery=True, high_priority=True)),
        Step("recovery read", ReadRequest(1, 4, fence_key=_KEY, high_priority=True)),
        Step("fencing read with another key", ReadRequest(1, LAST_ENTRY, fence_key=_OTHER_KEY)),
        Step("fencing read of an unknown ledger", ReadRequest(77, LAST_ENTRY, fence_key=_KEY)),
        Step("add to a ledger that was only fenced", _add(0, b"z", -1, 1, ledger_id=77)),
        Step(
            "recovery add to a ledger that was only fenced",
            _add(0, b"z", -1, 1, ledger_id=77, recovery=True, high_priority=True),
        ),
        *(_AT_THE_END[wire]),
        Step("a frame of exactly the limit", add_of_size(wire, FRAME_LIMIT)),
        Step("a frame of one byte more than the limit", add_of_size(wire, FRAME_LIMIT + 1)),
        Step("nothing that either version knows", b"\xff" * 24),
        Step("version 3 on a new connection", ReadRequest(1, 0), wire=3),
        Step("version 2 after version 3", ReadRequest(1, 0), wire=2),
        Step("version 3 after version 2", ReadRequest(1, 0), wire=3),
        Step("version 2 on a new connection", ReadRequest(1, 1), wire=2),
    ]


_BEFORE_ADDS: Final[dict[int, list[Step]]] = {
    2: [Step("batch read before anything was added", BatchReadRequest(1, 0, 2, 5_242_880))],
    3: [Step("read the LAC before anything was added", ReadLacRequest(1))],
}

_AFTER_ADDS: Final[dict[int, list[Step]]] = {
    2: [
        Step("batch read", BatchReadRequest(1, 0, 2, 5_242_880)),
        Step("batch read of less than one entry", BatchReadRequest(1, 0, 5, 10)),
        Step("batch read of an unknown ledger", BatchReadRequest(99, 0, 2, 5_242_880)),
    ],
    3: [
        Step("long poll without news", _long_poll(0, 50)),
        Step("long poll for what is far away", _long_poll(50, 50)),
        Step("write the LAC", WriteLacRequest(1, 0, _KEY, _CODEC.encode_lac(0))),
        Step("read the LAC", ReadLacRequest(1)),
        Step("read the LAC of an unknown ledger", ReadLacRequest(99)),
        Step("long poll that waits for an addition", _long_poll(0, _PATIENCE_MS), waits=True),
        Step("deferred sync add", _add(2, b"later", 1, 17, write_flags=1)),
        Step("long poll that waits for an explicit LAC", _long_poll(1, _PATIENCE_MS), waits=True),
        Step("write a higher LAC", WriteLacRequest(1, 2, _KEY, _CODEC.encode_lac(2))),
        Step("long poll that need not wait", _long_poll(1, 1000)),
        Step("long poll that need not wait for an older one", _long_poll(-1, 1000)),
        Step("force", ForceLedgerRequest(1)),
        Step("force an unknown ledger", ForceLedgerRequest(99)),
        Step("add far ahead", _add(5, b"5", 1, 18)),
        Step("add further ahead", _add(6, b"6", 1, 19)),
        Step("list entries", EntryListRequest(1)),
        Step("list entries of an unknown ledger", EntryListRequest(99)),
        Step("ask for bookie information", BookieInfoRequest(3)),
        Step("start TLS where there is none", StartTlsRequest()),
        Step("batch read, which version 3 has no message for", bytes.fromhex("0a060803100c180e")),
        Step("batch read of high priority", bytes.fromhex("0a080803100c180e2064")),
    ],
}

#: A bookie files an explicit LAC under the ledger that its body names.
_OTHER_CODEC: Final = EntryCodec(55, DigestType.CRC32C, b"")

#: Ledger 1 and entry 0.
_IDS: Final = "00000000000000010000000000000000"

_AT_THE_END: Final[dict[int, list[Step]]] = {
    2: [
        Step("read in version 0", bytes.fromhex("00000002" + _IDS)),
        Step("read in version 1", bytes.fromhex("01020000" + _IDS)),
        Step("read in a version 2 that calls itself 3", bytes.fromhex("03020000" + _IDS)),
        Step("an operation that version 2 does not have", bytes.fromhex("02080000" + _IDS)),
    ],
    3: [
        Step("write the LAC of a ledger without entries", WriteLacRequest(55, 3, _KEY, _OTHER_CODEC.encode_lac(3))),
        Step("read the LAC of a ledger without entries", ReadLacRequest(55)),
        Step("an operation that version 3 does not have", bytes.fromhex("0a060803100d180e")),
    ],
}


class _Line:
    """One connection to the bookie."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        return cls(*await asyncio.open_connection(host, port))

    def say(self, content: bytes) -> None:
        self._writer.write(len(content).to_bytes(_PREFIX_SIZE, "big") + content)

    async def hear(self) -> str:
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                size = int.from_bytes(await self._reader.readexactly(_PREFIX_SIZE), "big")
                return (await self._reader.readexactly(size)).hex()
        except (asyncio.IncompleteReadError, ConnectionError):
            return CLOSED

    def close(self) -> None:
        self._writer.close()


async def converse(host: str, port: int, wire: int) -> list[Exchange]:
    """Hold the conversation with a bookie; :class:`TimeoutError` if it leaves a request without an answer."""
    line = await _Line.open(host, port)
    exchanges: list[Exchange] = []
    waiting: tuple[Step, bytes, _Line] | None = None
    try:
        for txn_id, step in enumerate(conversation(wire), 1):
            content = step.content(wire, txn_id)
            if step.waits:
                waiting = step, content, await _waiting_line(host, port, content)
                continue
            line.say(content)
            answer = await line.hear()
            if waiting is not None:
                poll, polled, other = waiting
                exchanges.append(Exchange(poll.name, polled.hex(), await other.hear()))
                other.close()
                waiting = None
            exchanges.append(Exchange(step.name, content.hex(), answer))
            if answer == CLOSED:
                line.close()
                line = await _Line.open(host, port)
    finally:
        line.close()
        if waiting is not None:
            waiting[2].close()
    return exchanges


async def _waiting_line(host: str, port: int, content: bytes) -> _Line:
    """A connection on which ``content``, a long poll, waits for certain.

    Polls of one ledger are taken up one after the other, so once a second one has given up the first one waits.
    """
    line = await _Line.open(host, port)
    line.say(content)
    line.say(content_of(_long_poll(1_000_000, 20), 3, 0))
    await line.hear()
    return line
