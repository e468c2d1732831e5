"""The ordinary read of protocol version 2 and its good answer, for reading many entries at a time.

Both have one layout: a header, the ids, and in the answer the body behind them. So an answer is recognised by its header, and its
ids are what it is known by. Every other answer, and every other read, is left to :mod:`bkclient.wire.v2`; property tests hold the
two to the same bytes and outcomes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from bkclient.wire.envelope import EncodedReads

__all__ = ["BODY_AT", "ReadPacketEncoder", "match_in"]

# Version, operation READ_ENTRY, no flags.
_PREFIX_AND_HEADER: Final = struct.pack(">IBBH", 20, 2, 2, 0)
#: The header, and the number of success.
_GOOD: Final = struct.pack(">BBHi", 2, 2, 0, 0)
_MATCH_START: Final = b"\x02"
_PACK_ID: Final = struct.Struct(">q").pack

#: Where the body begins in the content of a good answer.
BODY_AT: Final = 24


class ReadPacketEncoder:
    """Encodes ordinary reads of one ledger."""

    __slots__ = ("_match_start", "_start")

    def __init__(self, ledger_id: int) -> None:
        ledger = _PACK_ID(ledger_id)
        self._start: Final = _PREFIX_AND_HEADER + ledger
        self._match_start: Final = _MATCH_START + ledger

    def encode(self, txn_id: int, entry_id: int) -> tuple[bytes, bytes, bytes]:  # noqa: ARG002 - version 3 has ids
        """Frame and match bytes of a read; of its answer nothing else is known before."""
        entry = _PACK_ID(entry_id)
        return self._start + entry, self._match_start + entry, b""

    def encode_all(self, txn_ids: Sequence[int], entry_ids: Sequence[int]) -> EncodedReads:  # noqa: ARG002 - as above
        """What :meth:`encode` says of each of these ids."""
        entries = list(map(_PACK_ID, entry_ids))
        frames = list(map(self._start.__add__, entries))
        return frames, list(map(self._match_start.__add__, entries)), [b""] * len(entries)


def match_in(data: bytes, position: int, end: int) -> bytes | None:
    """The match bytes of the read that the content from ``position`` to ``end`` is the good answer to; None if it is none."""
    if end - position < BODY_AT or not data.startswith(_GOOD, position):
        return None
    return _MATCH_START + data[position + 8 : position + BODY_AT]
