"""Digests that protect entries, and the keys derived from a ledger's password.

A digest covers a head (the fixed part of a packet) followed by a tail (the payload), as one stream, and is stored
between the two. :func:`digest_function` resolves digest type and password once per ledger to a plain function of head
and tail, so that an append pays for one call and never for a copy of its payload.

The CRC digests and DUMMY do not involve the password: they detect accidents, not forgery. The digest types differ in
size, which every reader of a packet has to know: see :data:`DIGEST_SIZES`.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable
from typing import Final

from google_crc32c import extend as _extend_crc32c

from bkclient.ledger import DigestType

__all__ = [
    "DIGEST_SIZES",
    "KEY_SIZE",
    "DigestFunction",
    "crc32_digest",
    "crc32c_digest",
    "digest_function",
    "mac_key",
    "master_key",
]

DigestFunction = Callable[[bytes, bytes], bytes]
"""``(head, tail)`` to the digest of both in that order."""

#: Bytes a digest takes in a packet. CRC32 is a 32-bit value widened to 64 bits, CRC32C is not.
DIGEST_SIZES: Final[dict[DigestType, int]] = {
    DigestType.CRC32: 8,
    DigestType.HMAC: 20,
    DigestType.CRC32C: 4,
    DigestType.DUMMY: 0,
}

#: Bytes of a master key and of a MAC key, whatever the digest type.
KEY_SIZE: Final = 20

_PACK_32: Final = struct.Struct(">I").pack
_PACK_64: Final = struct.Struct(">Q").pack


def master_key(password: bytes) -> bytes:
    """The key that bookies compare before they let anybody add to or fence a ledger; exists without a password too."""
    return hashlib.sha1(b"ledger" + password).digest()  # noqa: S324 - the protocol says SHA-1


def mac_key(password: bytes) -> bytes:
    """The key of the HMAC digest; it never leaves the client."""
    return hashlib.sha1(b"mac" + password).digest()  # noqa: S324 - the protocol says SHA-1


def digest_function(digest_type: DigestType, password: bytes) -> DigestFunction:
    """The digest of ``digest_type`` for a ledger with ``password``; :data:`DIGEST_SIZES` says how long its results are."""
    if digest_type is DigestType.CRC32C:
        return crc32c_digest
    if digest_type is DigestType.CRC32:
        return crc32_digest
    if digest_type is DigestType.HMAC:
        return _hmac_digest(mac_key(password))
    return _no_digest


def crc32c_digest(
    head: bytes,
    tail: bytes,
    extend: Callable[[int, bytes], int] = _extend_crc32c,
    pack: Callable[[int], bytes] = _PACK_32,
) -> bytes:
    """CRC-32C, in 32 bits."""
    return pack(extend(extend(0, head), tail))


def crc32_digest(
    head: bytes,
    tail: bytes,
    crc: Callable[..., int] = zlib.crc32,
    pack: Callable[[int], bytes] = _PACK_64,
) -> bytes:
    """CRC-32, in 64 bits."""
    return pack(crc(tail, crc(head)))


def _hmac_digest(key: bytes) -> DigestFunction:
    # Copying a keyed state costs less than hashing the key again for every entry.
    keyed = hmac.new(key, digestmod="sha1")

    def digest(head: bytes, tail: bytes) -> bytes:
        mac = keyed.copy()
        mac.update(head)
        mac.update(tail)
        return mac.digest()

    return digest


def _no_digest(head: bytes, tail: bytes) -> bytes:  # noqa: ARG001 - shape of a digest function
    return b""
