"""Bytes heard from Apache BookKeeper itself, and the conversation in which real bookies were heard.

Each file in ``golden/`` is one version of BookKeeper and one of the wire protocol: frames (contents, in hexadecimal) that its
Java client sent, and what one of its bookies answered to :func:`conversation`. ``make interop`` holds the files to the
real thing; the ordinary tests hold our codecs, and the simulated bookie, to the files.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bkclient.metadata.model import DigestType
from bkclient.wire import bookkeeper_pb2 as pb
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

__all__ = ["Exchange", "Golden", "content_of", "conversation", "converse", "golden_files", "without_chance"]

FOLDER: Final = Path(__file__).resolve().parent / "golden"
#: What is noted where a bookie closes the connection instead of answering.
CLOSED: Final = "closed"
_ANSWER_TIMEOUT_S: Final = 10.0
#: The operation whose frames carry a request id in version 2.
_BATCH_READ: Final = 7

_CODEC: Final = EntryCodec(1, DigestType.CRC32C, b"")
_KEY: Final = _CODEC.master_key
_OTHER_KEY: Final = EntryCodec(1, DigestType.CRC32C, b"other").master_key


def _add(entry_id: int, payload: bytes, lac: int, length: int, **options: Any) -> AddRequest:
    header = _CODEC.encode_header(entry_id, lac, length, payload)
    return AddRequest(1, entry_id, options.pop("key", _CODEC.master_key), header, payload, **options)


def _long_poll(previous_lac: int, timeout_ms: int) -> ReadRequest:
    return ReadRequest(1, LAST_ENTRY, long_poll=LongPoll(previous_lac, timeout_ms, piggyback=True))


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request, by its name in the conversation, and its answer: the content of a frame, or ``CLOSED``."""

    name: str
    request: str
    answer: str


@dataclass(frozen=True, slots=True)
class Golden:
    """One file."""

    version: str
    wire: int
    requests: tuple[str, ...]
    exchanges: tuple[Exchange, ...]

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return FOLDER / f"bookkeeper-{self.version}-v{self.wire}.json"

    def save(self) -> None:
        """Write it."""
        FOLDER.mkdir(exist_ok=True)
        value = {
            "version": self.version,
            "wire": self.wire,
            "requests": self.requests,
            "exchanges": [[each.name, each.request, each.answer] for each in self.exchanges],
        }
        self.path.write_text(json.dumps(value, indent=1) + "\n")


def golden_files() -> list[Golden]:
    """All files."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        value: dict[str, Any] = json.loads(path.read_text())
        exchanges = tuple(Exchange(*each) for each in value["exchanges"])
        found.append(Golden(value["version"], value["wire"], tuple(value["requests"]), exchanges))
    return found


def without_chance(content: bytes, wire: int, *, is_request: bool) -> bytes:
    """The content of a frame without what differs from run to run: transaction ids, times, free disk space, field order."""
    if wire == 2:
        if content[1] != _BATCH_READ:
            return content
        at = 20 if is_request else 24
        return content[:at] + bytes(8) + content[at + 8 :]
    message: pb.Request | pb.Response = pb.Request() if is_request else pb.Response()
    message.ParseFromString(content)
    message.header.txnId = 0
    if isinstance(message, pb.Response):
        if message.readResponse.HasField("lacUpdateTimestamp"):
            message.readResponse.lacUpdateTimestamp = 0
        if message.HasField("getBookieInfoResponse"):
            message.getBookieInfoResponse.totalDiskCapacity = message.getBookieInfoResponse.freeDiskSpace = 0
    return message.SerializeToString(deterministic=True)


def conversation(wire: int) -> list[tuple[str, Request]]:
    """Requests to a bookie that knows nothing yet, in order: successes, refusals, fencing, and all operations."""
    return [
        ("read before anything was added", ReadRequest(1, 0)),
        *(_BEFORE_ADDS[wire]),
        ("add entry 0", _add(0, b"hello", -1, 5)),
        ("add entry 1", _add(1, b"world!!", 0, 12)),
        ("add entry 1 again", _add(1, b"world!!", 0, 12)),
        ("read entry 0", ReadRequest(1, 0)),
        ("read the last entry", ReadRequest(1, LAST_ENTRY)),
        ("read an entry that is not there", ReadRequest(1, 7)),
        ("read an unknown ledger", ReadRequest(99, 0)),
        ("read the last entry of an unknown ledger", ReadRequest(99, LAST_ENTRY)),
        ("add with another key", _add(2, b"x", 1, 13, key=_OTHER_KEY)),
        ("authenticate where nobody asks", AuthMessage("AuthDisabledPlugin")),
        *(_AFTER_ADDS[wire]),
        ("fencing read", ReadRequest(1, LAST_ENTRY, fence_key=_KEY)),
        ("add entry 0 after the fence", _add(0, b"hello", -1, 5)),
        ("add after the fence", _add(7, b"y", 1, 18)),
        ("recovery add after the fence", _add(7, b"y", 1, 18, recovery=True, high_priority=True)),
        ("recovery read", ReadRequest(1, 4, fence_key=_KEY, high_priority=True)),
        ("fencing read with another key", ReadRequest(1, LAST_ENTRY, fence_key=_OTHER_KEY)),
        ("fencing read of an unknown ledger", ReadRequest(77, LAST_ENTRY, fence_key=_KEY)),
        *(_AT_THE_END[wire]),
    ]


_BEFORE_ADDS: Final[dict[int, list[tuple[str, Request]]]] = {
    2: [("batch read before anything was added", BatchReadRequest(1, 0, 2, 5_242_880))],
    3: [("read the LAC before anything was added", ReadLacRequest(1))],
}

_AFTER_ADDS: Final[dict[int, list[tuple[str, Request]]]] = {
    2: [
        ("batch read", BatchReadRequest(1, 0, 2, 5_242_880)),
        ("batch read of less than one entry", BatchReadRequest(1, 0, 5, 10)),
        ("batch read of an unknown ledger", BatchReadRequest(99, 0, 2, 5_242_880)),
    ],
    3: [
        ("long poll without news", _long_poll(0, 50)),
        ("long poll for what is far away", _long_poll(50, 50)),
        ("write the LAC", WriteLacRequest(1, 0, _KEY, _CODEC.encode_lac(0))),
        ("read the LAC", ReadLacRequest(1)),
        ("read the LAC of an unknown ledger", ReadLacRequest(99)),
        ("write a higher LAC", WriteLacRequest(1, 1, _KEY, _CODEC.encode_lac(1))),
        ("long poll that need not wait", _long_poll(0, 1000)),
        ("long poll that need not wait for an older one", _long_poll(-1, 1000)),
        ("deferred sync add", _add(2, b"later", 1, 17, write_flags=1)),
        ("force", ForceLedgerRequest(1)),
        ("force an unknown ledger", ForceLedgerRequest(99)),
        ("add far ahead", _add(5, b"5", 1, 18)),
        ("add further ahead", _add(6, b"6", 1, 19)),
        ("list entries", EntryListRequest(1)),
        ("list entries of an unknown ledger", EntryListRequest(99)),
        ("ask for bookie information", BookieInfoRequest(3)),
        ("start TLS where there is none", StartTlsRequest()),
    ],
}

#: A bookie files an explicit LAC under the ledger that its body names.
_OTHER_CODEC: Final = EntryCodec(55, DigestType.CRC32C, b"")

_AT_THE_END: Final[dict[int, list[tuple[str, Request]]]] = {
    2: [],
    3: [
        ("write the LAC of a ledger without entries", WriteLacRequest(55, 3, _KEY, _OTHER_CODEC.encode_lac(3))),
        ("read the LAC of a ledger without entries", ReadLacRequest(55)),
    ],
}


def content_of(request: Request, wire: int, txn_id: int) -> bytes:
    """A request's frame without its length prefix."""
    encoded = (v3 if wire == 3 else v2).encode_request(request, txn_id)
    return b"".join(encoded.buffers)[4:]


async def converse(host: str, port: int, wire: int) -> list[Exchange]:
    """Hold the conversation with a bookie over plain TCP, one request after the other."""
    reader, writer = await asyncio.open_connection(host, port)
    exchanges = []
    try:
        for txn_id, (name, request) in enumerate(conversation(wire), 1):
            content = content_of(request, wire, txn_id)
            writer.write(len(content).to_bytes(4, "big") + content)
            try:
                async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    answer = (await reader.readexactly(size)).hex()
            except (asyncio.IncompleteReadError, ConnectionError):
                answer = CLOSED
            exchanges.append(Exchange(name, content.hex(), answer))
            if answer == CLOSED:
                writer.close()
                reader, writer = await asyncio.open_connection(host, port)
    finally:
        writer.close()
    return exchanges
