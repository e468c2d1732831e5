"""Entries as bookies store them: a header, a digest, a payload; and the explicit-LAC packet, their little sibling.

Layout of an entry, big-endian, the same in both protocol versions and on disk:

====== ==== ==========================================================================
offset size field
====== ==== ==========================================================================
0      8    ledger id
8      8    entry id
16     8    last add confirmed, as the writer knew it when it sent the entry (-1: none)
24     8    bytes of all payloads of the ledger up to and including this entry
32     D    digest of bytes 0-31 and the payload; D depends on the digest type
32+D   rest payload, possibly empty
====== ==== ==========================================================================

Bookies verify nothing of this; the client that reads does, and that is what makes a corrupt or confused replica
harmless. Master keys belong to requests, not to entries.
"""

from __future__ import annotations

import hmac
import struct
import zlib
from typing import Final, NamedTuple

from google_crc32c import extend as extend_crc32c

from bkclient._core import has_twins
from bkclient.errors import DigestMismatch
from bkclient.ledger import DigestType
from bkclient.wire.digest import DIGEST_SIZES, crc32_digest, crc32c_digest, digest_function, master_key

__all__ = ["ENTRY_HEADER_SIZE", "LAC_HEADER_SIZE", "DecodedEntry", "EntryCodec"]

_ENTRY: Final = struct.Struct(">qqqq")
_LAC: Final = struct.Struct(">qq")

#: Bytes of an entry before its digest.
ENTRY_HEADER_SIZE: Final = _ENTRY.size
#: Bytes of an explicit-LAC packet before its digest.
LAC_HEADER_SIZE: Final = _LAC.size


class DecodedEntry(NamedTuple):
    """A verified entry. ``length`` counts the payload bytes of the ledger up to and including this entry."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int
    payload: bytes


class EntryCodec:
    """Makes and verifies the packets of one ledger.

    ``master_key`` is the ledger's key for requests; ``overhead`` the bytes an entry takes beyond its payload.
    """

    __slots__ = ("_digest", "_lac_size", "digest_type", "ledger_id", "master_key", "overhead")

    def __init__(self, ledger_id: int, digest_type: DigestType, password: bytes) -> None:
        self.ledger_id = ledger_id
        self.digest_type = digest_type
        self.master_key = master_key(password)
        self.overhead = ENTRY_HEADER_SIZE + DIGEST_SIZES[digest_type]
        self._lac_size = LAC_HEADER_SIZE + DIGEST_SIZES[digest_type]
        self._digest = digest_function(digest_type, password)

    def encode_header(self, entry_id: int, last_add_confirmed: int, length: int, payload: bytes) -> bytes:
        """Header and digest of an entry; followed by ``payload`` it is the body a bookie stores.

        ``length`` includes ``payload``. The payload is read, never copied.
        """
        head = _ENTRY.pack(self.ledger_id, entry_id, last_add_confirmed, length)
        return head + self._digest(head, payload)

    def decode(self, body: bytes, expected_entry_id: int | None) -> DecodedEntry:
        """Verify a body that a bookie returned (R-3): size, digest, ledger id, entry id, in this order.

        ``expected_entry_id`` is ``None`` when the last entry was asked for, whichever that is. Raises
        :class:`~bkclient.errors.DigestMismatch`.
        """
        overhead = self.overhead
        if len(body) < overhead:
            raise self._mismatch(expected_entry_id, f"{len(body)} bytes are too few for an entry, which has {overhead}")
        payload = body[overhead:]
        head = body[:ENTRY_HEADER_SIZE]
        if not hmac.compare_digest(self._digest(head, payload), body[ENTRY_HEADER_SIZE:overhead]):
            raise self._mismatch(expected_entry_id, f"the {self.digest_type.name} digest does not fit the content")
        ledger_id, entry_id, last_add_confirmed, length = _ENTRY.unpack(head)
        if ledger_id != self.ledger_id:
            raise self._mismatch(expected_entry_id, f"the bookie returned an entry of ledger {ledger_id}")
        if expected_entry_id is not None and entry_id != expected_entry_id:
            raise self._mismatch(expected_entry_id, f"the bookie returned entry {entry_id}")
        # Its own constructor is a Python function, which every entry would pay.
        return tuple.__new__(DecodedEntry, (ledger_id, entry_id, last_add_confirmed, length, payload))

    def encode_lac(self, last_add_confirmed: int) -> bytes:
        """The explicit-LAC packet that a writer stores with its bookies."""
        head = _LAC.pack(self.ledger_id, last_add_confirmed)
        return head + self._digest(head, b"")

    def decode_lac(self, packet: bytes) -> int:
        """Verify an explicit-LAC packet and return its LAC; raises :class:`~bkclient.errors.DigestMismatch`."""
        size = self._lac_size
        if len(packet) < size:
            raise self._mismatch(None, f"{len(packet)} bytes are too few for an explicit LAC, which has {size}")
        head = packet[:LAC_HEADER_SIZE]
        if not hmac.compare_digest(self._digest(head, b""), packet[LAC_HEADER_SIZE:size]):
            raise self._mismatch(None, f"the {self.digest_type.name} digest does not fit the explicit LAC")
        ledger_id, last_add_confirmed = _LAC.unpack(head)
        if ledger_id != self.ledger_id:
            raise self._mismatch(None, f"the bookie returned the explicit LAC of ledger {ledger_id}")
        return int(last_add_confirmed)

    def _mismatch(self, entry_id: int | None, message: str) -> DigestMismatch:
        return DigestMismatch(message, ledger_id=self.ledger_id, entry_id=entry_id)


has_twins(
    "entries",
    EntryCodec,
    "encode_header",
    "decode",
    knows=(DecodedEntry, crc32c_digest, crc32_digest, extend_crc32c, zlib.crc32),
)
