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

What verifies becomes an :class:`~bkclient.Entry`, the one object that a reader gets. Its class is frozen, so its own constructor
sets each field the slow way, which takes longer than anything else that is done for an entry. Hence it is filled in as an object
of a class with the same fields that is not frozen, and becomes an entry when it is complete.
"""

from __future__ import annotations

import hmac
import struct
import zlib
from collections.abc import Sequence
from itertools import repeat
from operator import add
from typing import Any, Final, cast

from google_crc32c import extend as extend_crc32c

from bkclient._core import has_twins
from bkclient.entry import Entry
from bkclient.errors import DigestMismatch
from bkclient.ledger import DigestType
from bkclient.wire.bodies import LENGTH_SIZE, Bodies
from bkclient.wire.digest import DIGEST_SIZES, crc32_digest, crc32c_digest, digest_function, master_key

__all__ = ["ENTRY_HEADER_SIZE", "LAC_HEADER_SIZE", "EntryCodec", "made_entry"]

_ENTRY: Final = struct.Struct(">qqqq")
_ENTRY_WITH_CRC32C: Final = struct.Struct(">qqqqI")
#: The same with the length of the body before it, as in a batch.
_PACKED_WITH_CRC32C: Final = struct.Struct(">iqqqqI")
_LAC: Final = struct.Struct(">qq")
_CRC32C: Final = struct.Struct(">I")

#: Bytes of an entry before its digest.
ENTRY_HEADER_SIZE: Final = _ENTRY.size
#: Bytes of an explicit-LAC packet before its digest.
LAC_HEADER_SIZE: Final = _LAC.size


class _Draft:
    """An entry before it is frozen: the slots are those of :class:`~bkclient.Entry`, or Python would not let it become one."""

    __slots__ = ("entry_id", "last_add_confirmed", "ledger_id", "ledger_length", "payload")

    ledger_id: int
    entry_id: int
    payload: bytes
    ledger_length: int
    last_add_confirmed: int


def made_entry(ledger_id: int, entry_id: int, payload: bytes, ledger_length: int, last_add_confirmed: int) -> Entry:
    """What ``Entry(...)`` with the same arguments returns."""
    draft = _Draft()
    draft.ledger_id = ledger_id
    draft.entry_id = entry_id
    draft.payload = payload
    draft.ledger_length = ledger_length
    draft.last_add_confirmed = last_add_confirmed
    draft.__class__ = Entry  # type: ignore[assignment]
    return cast("Entry", draft)


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
        if self._digest is crc32c_digest:  # whose call every entry would cost
            return head + _CRC32C.pack(extend_crc32c(extend_crc32c(0, head), payload))
        return head + self._digest(head, payload)

    def encode_headers(
        self, entry_ids: Sequence[int], lacs: Sequence[int], lengths: Sequence[int], payloads: Sequence[bytes]
    ) -> list[bytes]:
        """What :meth:`encode_header` says of each of these entries."""
        if self._digest is not crc32c_digest:
            return list(map(self.encode_header, entry_ids, lacs, lengths, payloads))
        heads = list(map(_ENTRY.pack, repeat(self.ledger_id), entry_ids, lacs, lengths))
        digests = map(extend_crc32c, map(extend_crc32c, repeat(0), heads), payloads)
        return list(map(add, heads, map(_CRC32C.pack, digests)))

    def decode(self, body: bytes, expected_entry_id: int | None) -> Entry:
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
        return made_entry(ledger_id, entry_id, payload, length, last_add_confirmed)

    def decode_several(self, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[Entry]:
        """The entries with these ids in as many bodies, up to the first that does not verify.

        Does what :meth:`decode_each` does. With the digest that nearly every ledger has, an entry is verified without a call.
        """
        if self._digest is not crc32c_digest:
            return self.decode_each(entry_ids, bodies)
        if type(bodies) is Bodies and bodies.number == len(entry_ids):
            return self._decode_together(entry_ids, bodies)
        own_id, overhead, head_size = self.ledger_id, self.overhead, ENTRY_HEADER_SIZE
        extend, unpack = extend_crc32c, _ENTRY_WITH_CRC32C.unpack_from
        entries: list[Entry] = []
        for expected, body in zip(entry_ids, bodies, strict=True):
            if len(body) < overhead:
                break
            ledger_id, entry_id, last_add_confirmed, length, digest = unpack(body)
            payload = body[overhead:]
            if extend(extend(0, body[:head_size]), payload) != digest or ledger_id != own_id or entry_id != expected:
                break
            draft: Any = _Draft()  # as in made_entry()
            draft.ledger_id = own_id
            draft.entry_id = entry_id
            draft.payload = payload
            draft.ledger_length = length
            draft.last_add_confirmed = last_add_confirmed
            draft.__class__ = Entry
            entries.append(draft)
        return entries

    def _decode_together(self, entry_ids: Sequence[int], bodies: Bodies) -> list[Entry]:
        """The same where bodies lie one after the other: each is read there, and nothing but its payload is cut out."""
        own_id, overhead, head_size = self.ledger_id, self.overhead, ENTRY_HEADER_SIZE
        extend, unpack = extend_crc32c, _PACKED_WITH_CRC32C.unpack_from
        content, position = bodies.content, bodies.start
        last = len(content) - LENGTH_SIZE - overhead
        entries: list[Entry] = []
        for expected in entry_ids:
            if position > last:
                break
            size, ledger_id, entry_id, last_add_confirmed, length, digest = unpack(content, position)
            start = position + LENGTH_SIZE
            position = start + size
            payload = content[start + overhead : position]
            if (
                size < overhead
                or extend(extend(0, content[start : start + head_size]), payload) != digest
                or ledger_id != own_id
                or entry_id != expected
            ):
                break
            draft: Any = _Draft()  # as in made_entry()
            draft.ledger_id = own_id
            draft.entry_id = entry_id
            draft.payload = payload
            draft.ledger_length = length
            draft.last_add_confirmed = last_add_confirmed
            draft.__class__ = Entry
            entries.append(draft)
        return entries

    def decode_each(self, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[Entry]:
        """What :meth:`decode_several` does, in the words in which it is defined."""
        entries: list[Entry] = []
        try:
            for entry_id, body in zip(entry_ids, bodies, strict=True):
                entries.append(self.decode(body, entry_id))
        except DigestMismatch:
            pass
        return entries

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
    "decode_several",
    knows=(Entry, Bodies, crc32c_digest, crc32_digest, extend_crc32c, zlib.crc32),
)
