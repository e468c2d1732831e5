"""Bytes heard from Apache BookKeeper itself.

Each file in ``golden/`` is one version of BookKeeper and one of the wire protocol: frames (contents, in hexadecimal) that its
Java client sent, and what one of its bookies answered to the requests of :mod:`tests.bkclient.wire.conversation`.
``make interop`` holds the files to the real thing; the ordinary tests hold our codecs, and the simulated bookie, to the files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bkclient.wire import bookkeeper_pb2 as pb

__all__ = ["CLOSED", "Exchange", "Golden", "golden_files", "wire_of", "without_chance"]

FOLDER: Final = Path(__file__).resolve().parent / "golden"
#: What is noted where a bookie closes the connection instead of answering.
CLOSED: Final = "closed"
#: Operations of version 2 whose frames are not the same in every run.
_AUTH: Final = 3
_BATCH_READ: Final = 7
_V2_HEADER_SIZE: Final = 4
#: The tag of the header, with which every frame of version 3 begins; as a number of version 2's kind nobody uses it.
_V3_FIRST_BYTE: Final = 0x0A


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request, by its name in the conversation, and its answer: the content of a frame, or ``CLOSED``."""

    name: str
    request: str
    answer: str

    @property
    def answer_without_chance(self) -> str:
        """The answer as it has to be in every run."""
        if self.answer == CLOSED:
            return CLOSED
        return without_chance(bytes.fromhex(self.answer), is_request=False).hex()


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


def wire_of(content: bytes) -> int:
    """The version of the protocol that the content of a frame is in; clients of version 2 send in 3 what that lacks."""
    return 3 if content[0] == _V3_FIRST_BYTE else 2


def without_chance(content: bytes, *, is_request: bool) -> bytes:
    """The content of a frame without what differs from run to run.

    That is transaction ids, times, free disk space, the nonces and proofs of plug-ins (not their sizes), and field order.
    """
    if wire_of(content) == 2:
        return _v2_without_chance(content, is_request=is_request)
    message: pb.Request | pb.Response = pb.Request() if is_request else pb.Response()
    message.ParseFromString(content)
    message.header.txnId = 0
    if isinstance(message, pb.Request):
        _silence(message.authRequest if message.HasField("authRequest") else None)
    else:
        _silence(message.authResponse if message.HasField("authResponse") else None)
        if message.readResponse.HasField("lacUpdateTimestamp"):
            message.readResponse.lacUpdateTimestamp = 0
        if message.HasField("getBookieInfoResponse"):
            message.getBookieInfoResponse.totalDiskCapacity = message.getBookieInfoResponse.freeDiskSpace = 0
    return message.SerializeToString(deterministic=True)


def _v2_without_chance(content: bytes, *, is_request: bool) -> bytes:
    if content[1] == _BATCH_READ:
        at = 20 if is_request else 24
        return content[:at] + bytes(8) + content[at + 8 :]
    if content[1] == _AUTH:
        message = pb.AuthMessage.FromString(content[_V2_HEADER_SIZE:])
        _silence(message)
        return content[:_V2_HEADER_SIZE] + message.SerializeToString(deterministic=True)
    return content


def _silence(auth: pb.AuthMessage | None) -> None:
    if auth is not None:
        auth.payload = bytes(len(auth.payload))
