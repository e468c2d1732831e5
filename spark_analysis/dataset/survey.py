"""A first look at files that may be taken into a data set: whether their bytes are known, and where large ones can be cut.

A large file is cut where its objects end. To find these, objects are passed over without being decoded, thirty times as fast as
they can be, and the bytes are compared with the digest in the footer; so one core looks at a file, and all of them decode it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgpack

from scenarios.history import History, HistoryError
from spark_analysis.source import HistoryFile

__all__ = ["CHUNK_EVENTS", "LARGE_BYTES", "Chunk", "Surveyed", "survey_files"]

#: A file above this is cut into chunks.
LARGE_BYTES: Final = 16 * 1024 * 1024
#: Events in a chunk; some 8 MiB.
CHUNK_EVENTS: Final = 1 << 18

_READ_BYTES: Final = 1024 * 1024
_OBJECT_BYTES_MAX: Final = 16 * 1024 * 1024  # what a reader of histories accepts


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a large file: from which byte to which, and the numbers of its events."""

    start: int
    end: int
    first_seq: int
    events: int


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A file, its SHA-256, and for a large one what its footer says and where to cut it; or what is wrong with it."""

    file: HistoryFile
    sha256: str
    problem: str | None = None
    events: int = 0
    digest: str = ""
    chunks: tuple[Chunk, ...] = ()


def survey_files(files: Sequence[HistoryFile]) -> Iterator[Surveyed]:
    """On an executor: look at ``files``. Nothing in a file, and no file that is gone, ends it."""
    for file in files:
        try:
            yield _surveyed(file)
        except HistoryError as error:
            yield Surveyed(file, "", error.problem)
        except OSError as error:
            yield Surveyed(file, "", f"cannot be read ({error.strerror})")


def _surveyed(file: HistoryFile) -> Surveyed:
    path = Path(file.path)
    history = History(path)  # opens regular files only, and refuses what does not begin as a history does
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if path.stat().st_size <= LARGE_BYTES:
        return Surveyed(file, sha256)
    found = _cut(path)
    if found is None:
        for _ in history.rows():
            pass  # which says what is wrong
        raise HistoryError(path, "is damaged")
    chunks, footer = found
    return Surveyed(file, sha256, None, footer["events"], footer["digest"], chunks)


def _cut(path: Path) -> tuple[tuple[Chunk, ...], Mapping[str, Any]] | None:
    """The chunks of a file and its footer; None where something is wrong with it."""
    with path.open("rb") as stream:
        unpacker = msgpack.Unpacker(
            stream, max_buffer_size=_OBJECT_BYTES_MAX, read_size=_READ_BYTES, strict_map_key=False
        )
        cuts = []
        try:
            unpacker.skip()
            while True:
                cuts.append(unpacker.tell())
                for _ in range(CHUNK_EVENTS):
                    unpacker.skip()
        except msgpack.OutOfData:
            pass
        except (msgpack.UnpackException, ValueError):
            return None
        stream.seek(cuts[-1])
        last = stream.read()
        found = _last_chunk(last)
        if found is None:
            return None
        events, footer = found
        end = cuts[-1] + len(last) - len(msgpack.packb(footer))
        count = (len(cuts) - 1) * CHUNK_EVENTS + events
        told = (footer.get("events"), footer.get("digest"))  # there may be more
        if told != (count, _digest(stream, cuts[0], end)):
            return None
    chunks = [
        Chunk(start, stop, number * CHUNK_EVENTS, CHUNK_EVENTS) for number, (start, stop) in enumerate(pairwise(cuts))
    ]
    if events:
        chunks.append(Chunk(cuts[-1], end, (len(cuts) - 1) * CHUNK_EVENTS, events))
    return tuple(chunks), footer


def _last_chunk(data: bytes) -> tuple[int, Mapping[str, Any]] | None:
    """How many events ``data`` holds before the footer that ends it, and the footer."""
    unpacker = msgpack.Unpacker(None, max_buffer_size=max(len(data), 1), strict_map_key=False)
    unpacker.feed(data)
    try:
        items = list(unpacker)
    except (msgpack.UnpackException, ValueError):
        return None
    if not items or not isinstance(items[-1], dict) or unpacker.tell() != len(data):
        return None
    return len(items) - 1, items[-1]


def _digest(stream: BinaryIO, start: int, end: int) -> str:
    digest = hashlib.sha256()
    stream.seek(start)
    left = end - start
    while left > 0 and (block := stream.read(min(_READ_BYTES, left))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()
