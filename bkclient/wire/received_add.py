"""The ordinary add as a bookie receives it, together with the frame that acknowledges it: the request that a bookie gets most.

* In version 3 every writer's client, BookKeeper's own too, writes the fields of an add in ascending order, with a key of 20 bytes
  and, for an ordinary add, without priority, flags or anything unknown. One look at the frame tells that it is such an add and
  where its ids and its body stand. Its acknowledgement consists of its header, its ids and bytes that are always the same.
* In version 2 the layout is fixed, and an ordinary add is known by its header. Its acknowledgement repeats its ids.

Whatever else a frame holds, :mod:`bkclient.wire.v3` and :mod:`bkclient.wire.v2` read. Property tests hold both to the same
outcome.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from bkclient.wire.digest import KEY_SIZE
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import AddRequest, Operation
from bkclient.wire.v3_add import varint

__all__ = ["ReceivedAdd", "received_add_v2", "received_add_v3"]

_ADD: Final = int(Operation.ADD_ENTRY)

#: A varint that is not negative, in as few bytes as it needs: others are read, but not repeated, as they came.
_ID: Final = rb"([\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f])"
_LENGTH: Final = rb"([\x00-\x7f]|[\x80-\xff]{1,3}[\x01-\x7f])"

#: Header with transaction id, length of the message, ledger id, entry id, key, length of the body; up to the body.
_match_add: Final = re.compile(
    rb"\x0a([\x06-\x0e])\x08\x03\x10\x02\x18%b\xaa\x06%b\x08%b\x10%b\x1a\x14(.{20})\x22%b"
    % (_ID, _LENGTH, _ID, _ID, _LENGTH),
    re.DOTALL,
).match

_TXN_AT: Final = 7
#: Of the length of a header, what is not its transaction id.
_HEADER_REST: Final = _TXN_AT - 2
#: Bytes of a message before its body, but for its ids and the length of its body: three tags, the key with its length, a tag.
_MESSAGE_REST: Final = 2 + 22 + 1

#: Version, the operation of an add, no flags.
_V2_HEADER: Final = b"\x02\x01\0\0"
_V2_BODY_AT: Final = len(_V2_HEADER) + KEY_SIZE
_V2_IDS: Final = struct.Struct(">qq")
_V2_IDS_END: Final = _V2_BODY_AT + _V2_IDS.size
#: The length of an acknowledgement, a header as that of an add, and the number of success; up to the ids.
_V2_ADDED: Final = struct.pack(">I", len(_V2_HEADER) + 4 + _V2_IDS.size) + _V2_HEADER + bytes(4)


@dataclass(slots=True, eq=False)
class ReceivedAdd(ReceivedRequest):
    """An ordinary add, with the frame that answers that the entry is stored."""

    request: AddRequest
    acknowledgement: bytes = field(repr=False)


def received_add_v3(content: bytes) -> ReceivedAdd | None:
    """The ordinary add in a frame of version 3; ``None`` for any other content, which need be no request at all."""
    found = _match_add(content)
    if found is None:
        return None
    header_size, txn, message_size, ledger, entry, key, body_size = found.groups()
    body_at = found.end()
    size = len(content) - body_at
    rest = _MESSAGE_REST + len(ledger) + len(entry) + len(body_size) + size
    if header_size[0] != _HEADER_REST + len(txn) or body_size != _length(size) or message_size != _length(rest):
        return None
    head = content[: _TXN_AT + len(txn)]
    answer_size = 4 + len(ledger) + len(entry)
    frame_size = len(head) + 5 + answer_size
    acknowledgement = b"\0\0\0%c%b\x10\0\xaa\x06%c\x08\0\x10%b\x18%b" % (frame_size, head, answer_size, ledger, entry)
    request = AddRequest(_ledger_id(ledger), _value(entry), key, content[body_at:], b"")
    return ReceivedAdd(3, 3, _ADD, _value(txn), 0, request, acknowledgement)


def received_add_v2(content: bytes) -> ReceivedAdd | None:
    """The ordinary add in a frame of version 2; ``None`` for any other content, which need be no request at all."""
    if not content.startswith(_V2_HEADER) or len(content) < _V2_IDS_END:
        return None
    ledger_id, entry_id = _V2_IDS.unpack_from(content, _V2_BODY_AT)
    if ledger_id < 0 or entry_id < 0:
        return None
    acknowledgement = _V2_ADDED + content[_V2_BODY_AT:_V2_IDS_END]
    key = content[len(_V2_HEADER) : _V2_BODY_AT]
    request = AddRequest(ledger_id, entry_id, key, content[_V2_BODY_AT:], b"")
    return ReceivedAdd(2, 2, _ADD, 0, 0, request, acknowledgement)


def _value(data: bytes) -> int:
    size = len(data)
    if size == 1:
        return data[0]
    if size == 2:
        return data[0] & 0x7F | data[1] << 7
    if size == 3:
        return data[0] & 0x7F | (data[1] & 0x7F) << 7 | data[2] << 14
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data))


_length: Final = lru_cache(maxsize=1024)(varint)
_ledger_id: Final = lru_cache(maxsize=1024)(_value)
