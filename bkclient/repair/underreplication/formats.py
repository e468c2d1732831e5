"""What auto-recovery writes into its nodes, as BookKeeper's own auto-recovery writes and reads it.

Marks, locks, votes and the layout are in protobuf's text format; the times of checks are binary protobuf; the delay is a
number as text. Unknown fields of a mark are kept out: the text format cannot carry what it cannot name.
"""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from bkclient.errors import MetadataSerializationError
from bkclient.wire.metadata_pb2 import (
    AuditorVoteFormat,
    CheckTimeFormat,
    LedgerRereplicationLayoutFormat,
    LockDataFormat,
    UnderreplicatedLedgerFormat,
)

__all__ = [
    "check_layout",
    "decode_check_time",
    "decode_delay",
    "decode_holder",
    "decode_mark",
    "decode_vote",
    "encode_check_time",
    "encode_holder",
    "encode_layout",
    "encode_mark",
    "encode_vote",
]

_LAYOUT_TYPE: Final = "BASIC"
_LAYOUT_VERSION: Final = 1
_DELAY_S_MAX: Final = 2**31 - 1

M = TypeVar("M", bound=Message)


def _parse(data: bytes, message: M, what: str) -> M:
    try:
        return text_format.Parse(data.decode(), message, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError, ValueError) as error:
        raise MetadataSerializationError(f"malformed {what}: {error}") from error


def encode_layout() -> bytes:
    """The layout of marks that this client, and BookKeeper's, understands."""
    message = LedgerRereplicationLayoutFormat(type=_LAYOUT_TYPE, version=_LAYOUT_VERSION)
    return text_format.MessageToString(message).encode()


def check_layout(data: bytes) -> None:
    """:class:`~bkclient.errors.MetadataSerializationError` for a layout of another type or version."""
    layout = _parse(data, LedgerRereplicationLayoutFormat(), "layout of marks")
    if (layout.type, layout.version) != (_LAYOUT_TYPE, _LAYOUT_VERSION):
        raise MetadataSerializationError(
            f"marks are laid out as {layout.type!r} version {layout.version}, "
            f"{_LAYOUT_TYPE!r} version {_LAYOUT_VERSION} is known"
        )


def encode_mark(missing: tuple[str, ...], marked_ms: int | None) -> bytes:
    """A mark that names the bookies in ``missing``, made at ``marked_ms`` since 1970."""
    message = UnderreplicatedLedgerFormat(replica=missing)
    if marked_ms is not None:
        message.ctime = marked_ms
    return text_format.MessageToString(message).encode()


def decode_mark(data: bytes) -> tuple[tuple[str, ...], int | None]:
    """The bookies that a mark names, each once, and when it was made."""
    message = _parse(data, UnderreplicatedLedgerFormat(), "mark of a ledger")
    return tuple(dict.fromkeys(message.replica)), message.ctime if message.HasField("ctime") else None


def encode_holder(name: str) -> bytes:
    """A lock held by ``name``."""
    return text_format.MessageToString(LockDataFormat(bookieId=name)).encode()


def decode_holder(data: bytes) -> str:
    """Who holds a lock; empty if it does not say."""
    return _parse(data, LockDataFormat(), "lock of a ledger").bookieId


def encode_vote(name: str) -> bytes:
    """A candidacy of ``name``."""
    return text_format.MessageToString(AuditorVoteFormat(bookieId=name)).encode()


def decode_vote(data: bytes) -> str:
    """Whose candidacy it is; empty if it does not say."""
    return _parse(data, AuditorVoteFormat(), "vote for an auditor").bookieId


def encode_check_time(at_ms: int) -> bytes:
    """The time of a check, in milliseconds since 1970."""
    return CheckTimeFormat(ctime=at_ms).SerializeToString()


def decode_check_time(data: bytes) -> int | None:
    """The time of a check, None if it holds none."""
    try:
        message = CheckTimeFormat.FromString(data)
    except DecodeError as error:
        raise MetadataSerializationError(f"malformed time of a check: {error}") from error
    return message.ctime if message.HasField("ctime") else None


def decode_delay(data: bytes) -> int:
    """The seconds that the audit of a lost bookie waits."""
    text = data.decode(errors="replace").strip()
    if not (text.isascii() and text.isdigit()) or int(text) > _DELAY_S_MAX:
        raise MetadataSerializationError(f"malformed delay of audits: {data[:100]!r}")
    return int(text)
