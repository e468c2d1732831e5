"""Events as a history file packs them, grouped by kind, with the checks of a reader made in bulk.

:class:`scenarios.history.History` says what is wrong with a file, event by event. What is here only tells that something is,
several times faster: who finds no rows reads the file with ``History`` for the reason.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgpack

from scenarios.history.reader import header_problem, open_regular
from scenarios.history.schema import COMMON_FIELDS, Event

__all__ = [
    "LEADING",
    "MALFORMED",
    "Groups",
    "HeaderOf",
    "KindOf",
    "Whole",
    "bytes_up_to",
    "decode_events",
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


def bytes_up_to(path: Path, limit: int) -> bytes | None:
    """What the file at ``path`` holds; None if that is more than ``limit`` bytes.

    Raises :class:`scenarios.history.HistoryError` where there is no file, and ``OSError`` where it cannot be read.
    """
    with open_regular(path) as stream:
        return stream.read() if os.fstat(stream.fileno()).st_size <= limit else None


def decode_whole(data: bytes) -> Whole | None:
    """What a file consists of; None where any check fails that ``History`` makes."""
    try:
        header, items, digest = _unpacked(data)
        return Whole(header, group(items, kinds_of(header), 0), len(items), digest)
    except MALFORMED:
        return None


def decode_events(data: bytes) -> tuple[HeaderOf, Iterator[Event]] | None:
    """Header and events of a file, in order; None where any check fails that ``History`` makes."""
    try:
        header, items, _ = _unpacked(data)
        kinds = kinds_of(header)
        group(items, kinds, 0)  # for its checks
    except MALFORMED:
        return None
    return header, _events(items, kinds)


def _events(items: Sequence[Sequence[Any]], kinds: Sequence[KindOf]) -> Iterator[Event]:
    for item in items:
        kind, names = kinds[item[0]]
        fields = dict(zip(names, item[len(LEADING) :], strict=False))  # group() has compared their numbers
        yield Event(item[1], item[2], item[3], kind, item[4], fields)


def _unpacked(data: bytes) -> tuple[HeaderOf, list[Any], str]:
    """Header, events and digest of a file. Raises one of :data:`MALFORMED` where header or footer are not as they have to be."""
    objects = unpacker(data)
    header = objects.unpack()
    if (problem := header_problem(header)) is not None:
        raise ValueError(problem)
    start = objects.tell()
    items = list(objects)
    footer = items.pop()
    end = len(data) - len(msgpack.packb(footer))
    digest = hashlib.sha256(memoryview(data)[start:end]).hexdigest()
    if (footer["events"], footer["digest"]) != (len(items), digest):  # it may hold more
        raise ValueError("the footer tells of other events")
    return header, items, digest


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
