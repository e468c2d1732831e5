"""Events as a history file packs them, grouped by kind, with the checks of a reader made in bulk.

:class:`scenarios.history.History` says what is wrong with a file, event by event. What is here only tells that something is,
several times faster: who finds no rows reads the file with ``History`` for the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgpack

from scenarios.history.schema import COMMON_FIELDS

__all__ = [
    "LEADING",
    "MALFORMED",
    "Groups",
    "HeaderOf",
    "KindOf",
    "Whole",
    "decode_whole",
    "group",
    "kinds_of",
    "unpacker",
]

#: An event as it is packed: the index of its kind, the other common fields, then the fields of the kind.
LEADING: Final = ("", *(name for name in COMMON_FIELDS if name != "kind"))

#: What reading bytes that are no events raises.
MALFORMED: Final = (msgpack.UnpackException, ValueError, TypeError, LookupError)

#: A kind as a header describes it: its name and its fields in order.
KindOf = tuple[str, tuple[str, ...]]
HeaderOf = Mapping[str, Any]
#: Events by kind, each as it is packed. A header that describes a kind twice has two groups of it.
Groups = list[tuple[KindOf, list[Sequence[Any]]]]


class Whole(NamedTuple):
    """A whole history: its header, its events by kind, how many they are, and their digest."""

    header: HeaderOf
    groups: Groups
    events: int
    digest: str


def decode_whole(data: bytes) -> Whole | None:
    """What a file consists of; None where any check fails that ``History`` makes."""
    objects = unpacker(data)
    try:
        header = objects.unpack()
        start = objects.tell()
        items = list(objects)
        footer = items.pop()
        end = len(data) - len(msgpack.packb(footer))
        digest = hashlib.sha256(memoryview(data)[start:end]).hexdigest()
        if (footer["events"], footer["digest"]) != (len(items), digest):  # it may hold more
            return None
        return Whole(header, group(items, kinds_of(header), 0), len(items), digest)
    except MALFORMED:
        return None


def kinds_of(header: HeaderOf) -> list[KindOf]:
    """The kinds that the header describes, by their index."""
    return [(str(kind), tuple(map(str, names))) for kind, names in header["kinds"]]


def group(items: list[Any], kinds: Sequence[KindOf], first_seq: int) -> Groups:
    """Events by kind, the first of which has to be event ``first_seq``.

    Raises one of :data:`MALFORMED` where an event is not as the header says, or not the next one.
    """
    if [item[1] for item in items] != list(range(first_seq, first_seq + len(items))):
        raise ValueError("events are missing or out of order")
    by_index: list[list[Any]] = [[] for _ in kinds]
    for item in items:
        by_index[item[0]].append(item)
    for (kind, names), rows in zip(kinds, by_index, strict=True):
        if set(map(len, rows)) - {len(LEADING) + len(names)}:
            raise ValueError(f"an event of kind {kind} has not {len(names)} fields")
    return list(zip(kinds, by_index, strict=True))


def unpacker(data: bytes) -> msgpack.Unpacker:
    """Of all objects in ``data``, however large."""
    objects = msgpack.Unpacker(None, max_buffer_size=max(len(data), 1), strict_map_key=False)
    objects.feed(data)
    return objects
