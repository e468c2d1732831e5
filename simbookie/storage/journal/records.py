"""The bytes of a journal file, sans-I/O. All integers are big-endian.

A file has a header and records. A record is a length of four bytes and a body; a body begins with a ledger id and an entry id of
eight bytes each. Entries are bodies as they came from the client. Entry ids below zero mark what is no entry:

=========  =================  ======================================================  ============
entry id   what               the rest of the body                                    from version
=========  =================  ======================================================  ============
-0x1000    the master key     length (4), key                                         3
-0x2000    a fence            nothing                                                 4
-0x8000    an explicit LAC    length (4), the packet                                  6
=========  =================  ======================================================  ============

From version 5 on a flush ends at a multiple of the alignment: a *padding record* is the length -0x100, the length of the padding
(4) and zeros. Where less than the eight bytes of its head are left, it ends with the block after. A length of zero ends the
file: what was allocated ahead is zeros.

Versions: 1 has no header, 2 to 4 one of eight bytes (magic, version), 5 and 6 the same padded to 512.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from struct import Struct
from typing import Final

__all__ = [
    "EXPLICIT_LAC_ID",
    "FENCE_ID",
    "FORCE_ID",
    "HEADER_HEAD_BYTES",
    "KEY_ID",
    "LENGTH",
    "NEWEST_VERSION",
    "PADDED_FROM",
    "PADDING_MASK",
    "JournalFormatError",
    "JournalRecord",
    "JournalRecordKind",
    "explicit_lac_body",
    "fence_body",
    "file_id_of",
    "file_name",
    "header",
    "header_size",
    "key_body",
    "padding",
    "parse_body",
    "version_of_header",
]

NEWEST_VERSION: Final = 6
#: Magic and version.
HEADER_HEAD_BYTES: Final = 8
#: In the place of a length: a padding record.
PADDING_MASK: Final = -0x100
#: Entry ids of what is no entry. That of a request to sync is never written.
KEY_ID: Final = -0x1000
FENCE_ID: Final = -0x2000
FORCE_ID: Final = -0x4000
EXPLICIT_LAC_ID: Final = -0x8000

LENGTH: Final = Struct(">i")

_MAGIC: Final = b"BKLG"
_HEADER: Final = Struct(">4si")
_PADDED_HEADER_BYTES: Final = 512
#: From this version on headers and flushes are padded.
PADDED_FROM: Final = 5
_IDS: Final = Struct(">qq")
_IDS_AND_LENGTH: Final = Struct(">qqi")
_PADDING: Final = Struct(">ii")
_SUFFIX: Final = ".txn"


class JournalFormatError(Exception):
    """These bytes are no journal, or not one that can be read."""


class JournalRecordKind(Enum):
    """What a record says."""

    ENTRY = "entry"
    KEY = "key"
    FENCE = "fence"
    EXPLICIT_LAC = "explicit-lac"
    #: Of a version of BookKeeper that came later; skipped.
    UNKNOWN = "unknown"


_KINDS: Final = {
    KEY_ID: (JournalRecordKind.KEY, 3),
    FENCE_ID: (JournalRecordKind.FENCE, 4),
    EXPLICIT_LAC_ID: (JournalRecordKind.EXPLICIT_LAC, 6),
}
_IDS_OF_KINDS: Final = {kind: entry_id for entry_id, (kind, _) in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One record. ``content`` is the whole entry, the key, or the packet of an explicit LAC."""

    kind: JournalRecordKind
    ledger_id: int
    entry_id: int
    content: bytes = field(repr=False)


def file_name(file_id: int) -> str:
    """The name of a journal file."""
    return f"{file_id:x}{_SUFFIX}"


def file_id_of(name: str) -> int | None:
    """The id of the journal file of this name; ``None`` for other files."""
    stem, dot, rest = name.partition(".")
    if dot + rest != _SUFFIX:
        return None
    try:
        return int(stem, 16)
    except ValueError:
        return None


def header_size(version: int) -> int:
    """Where the first record is."""
    if version >= PADDED_FROM:
        return _PADDED_HEADER_BYTES
    return HEADER_HEAD_BYTES if version >= 2 else 0


def header(version: int) -> bytes:
    """The header of a new file."""
    return _HEADER.pack(_MAGIC, version).ljust(header_size(version), b"\0")


def version_of_header(head: bytes) -> int:
    """The version of a file that begins with ``head``, its first eight bytes or fewer.

    :class:`JournalFormatError` if nobody can read it. Without a header a file is of version 1.
    """
    if len(head) < HEADER_HEAD_BYTES or not head.startswith(_MAGIC):
        return 1
    version: int = _HEADER.unpack_from(head)[1]
    if not 1 <= version <= NEWEST_VERSION:
        raise JournalFormatError(f"journal version {version}, expected 1 to {NEWEST_VERSION}")
    return version


def key_body(ledger_id: int, master_key: bytes) -> bytes:
    """The body of a record of a ledger's master key."""
    return _IDS_AND_LENGTH.pack(ledger_id, _IDS_OF_KINDS[JournalRecordKind.KEY], len(master_key)) + master_key


def fence_body(ledger_id: int) -> bytes:
    """The body of a record of a fence."""
    return _IDS.pack(ledger_id, _IDS_OF_KINDS[JournalRecordKind.FENCE])


def explicit_lac_body(ledger_id: int, packet: bytes) -> bytes:
    """The body of a record of an explicit LAC."""
    return _IDS_AND_LENGTH.pack(ledger_id, _IDS_OF_KINDS[JournalRecordKind.EXPLICIT_LAC], len(packet)) + packet


def padding(position: int, alignment: int) -> bytes:
    """The padding record that brings a file from ``position`` to a multiple of ``alignment``; nothing if it is at one."""
    over = position % alignment
    if over == 0:
        return b""
    size = alignment - over - _PADDING.size
    if size < 0:  # the head does not fit in what is left of the block
        size += alignment
    return _PADDING.pack(PADDING_MASK, size) + bytes(size)


def parse_body(body: bytes, version: int) -> JournalRecord:
    """The record with this body in a file of this version.

    :class:`JournalFormatError` if it is cut short, or of a kind that files of this version cannot have.
    """
    if len(body) < _IDS.size:
        raise JournalFormatError(f"a record of {len(body)} bytes is too short")
    ledger_id, entry_id = _IDS.unpack_from(body)
    if entry_id >= 0:
        return JournalRecord(JournalRecordKind.ENTRY, ledger_id, entry_id, body)
    kind, since = _KINDS.get(entry_id, (JournalRecordKind.UNKNOWN, 1))
    if version < since:
        raise JournalFormatError(f"a record of kind {kind.value} in a journal of version {version}")
    if kind is JournalRecordKind.FENCE:
        return JournalRecord(kind, ledger_id, entry_id, b"")
    if kind is JournalRecordKind.UNKNOWN:
        return JournalRecord(kind, ledger_id, entry_id, body[_IDS.size :])
    return JournalRecord(kind, ledger_id, entry_id, _counted(body, kind))


def _counted(body: bytes, kind: JournalRecordKind) -> bytes:
    if len(body) < _IDS_AND_LENGTH.size:
        raise JournalFormatError(f"a record of kind {kind.value} of {len(body)} bytes is too short")
    length: int = _IDS_AND_LENGTH.unpack_from(body)[2]
    content = body[_IDS_AND_LENGTH.size : _IDS_AND_LENGTH.size + length]
    if length < 0 or len(content) < length:
        raise JournalFormatError(f"a record of kind {kind.value} has {len(content)} of {length} bytes")
    return content
