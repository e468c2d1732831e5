"""Judging a history that still grows, from where the last look at it ended.

The online checker needs each event once, so nothing is read twice: of a history that is under way there is a *progress*, the
checker as it was after the last whole event, and the place in the file. A file that ends in the middle of an event, or of its
header, is read on when there is more of it. With the footer the history ends: what was read is compared with the digest, and the
progress is not needed any more.

A file of which the header is another one than before was written anew, and is judged from the beginning.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, BinaryIO, Final

import msgpack

from scenarios.checker import OnlineChecker
from scenarios.history import SCHEMA_VERSION, Event
from scenarios.history.writer import MAGIC
from scenarios.model import Violation

__all__ = ["OBJECT_BYTES_MAX", "Growth", "HistoryState", "Progress", "judge_growth"]

#: The largest event or header that is read.
OBJECT_BYTES_MAX: Final = 16 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
_MALFORMED: Final = (msgpack.UnpackException, ValueError, TypeError, LookupError)


class HistoryState(StrEnum):
    """What there is of a history; values of the column ``state``."""

    #: It has no footer yet: somebody writes it still, or was interrupted.
    OPEN = "open"
    #: It came to its end and was judged.
    JUDGED = "judged"
    #: It is no history, or is damaged.
    UNUSABLE = "unusable"


@dataclass(slots=True)
class Progress:
    """How far a history was judged; it pickles.

    ``position`` is the byte after the last whole event, ``header_bytes`` where events begin, and ``header_digest`` that of what
    stands before. ``told`` violations of the checker were told. ``started`` is the scan in which judging began.
    """

    started: int
    position: int = 0
    header_bytes: int = 0
    header_digest: str = ""
    scenario: str | None = None
    seed: int | None = None
    kinds: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    checker: OnlineChecker = field(default_factory=OnlineChecker)
    told: int = 0


@dataclass(frozen=True, slots=True)
class Growth:
    """What a look at a history came to: its state, why it is unusable, what is new, and from where to go on.

    ``violations`` are those that were not told before. ``digest`` is that of the events, once all are there.
    """

    state: HistoryState
    progress: Progress
    violations: tuple[Violation, ...] = ()
    problem: str | None = None
    digest: str | None = None


class _UnusableError(Exception):
    """The file is no history; the message says why."""


def judge_growth(path: str, before: Progress | None, up_to: int, scan: int) -> Growth:
    """Judge what the first ``up_to`` bytes of a file have beyond ``before``. Without it, judging begins, with this ``scan``."""
    progress = before if before is not None else Progress(scan)
    digest: str | None = None
    problem: str | None = None
    try:
        with _open(path) as stream:
            if progress.header_bytes and not _is_same(stream, progress):
                progress = Progress(scan)
            digest = _read_on(stream, progress, up_to)
    except _UnusableError as error:
        state, problem = HistoryState.UNUSABLE, str(error)
    except OSError as error:
        state, problem = HistoryState.UNUSABLE, f"cannot be read ({error.strerror})"
    except Exception as error:  # noqa: BLE001  whatever a history holds, the others are judged
        state, problem = HistoryState.UNUSABLE, f"holds what cannot be judged ({type(error).__name__}: {error})"
    else:
        state = HistoryState.OPEN if digest is None else HistoryState.JUDGED
    found = progress.checker.finish()
    violations = tuple(found[progress.told :])
    progress.told = len(found)
    return Growth(state, progress, violations, problem, digest)


def _open(path: str) -> BinaryIO:
    # Opening a pipe would wait for somebody to write to it, and a device may have no end.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _UnusableError("is no regular file")
    return os.fdopen(descriptor, "rb")


def _is_same(stream: BinaryIO, progress: Progress) -> bool:
    """Whether the file is the one that was begun, and not shorter than what was read of it."""
    head = stream.read(progress.header_bytes)
    is_long_enough = os.fstat(stream.fileno()).st_size >= progress.position
    return is_long_enough and hashlib.sha256(head).hexdigest() == progress.header_digest


def _read_on(stream: BinaryIO, progress: Progress, up_to: int) -> str | None:
    """Feed the events from where ``progress`` stands; the digest of all, if the footer is there."""
    objects = _objects(stream, progress.position, up_to)
    if not progress.header_bytes:
        begun = next(objects, None)
        if begun is None:
            return None
        _begin(stream, progress, *begun)
    kinds, checker = progress.kinds, progress.checker
    for item, end in objects:
        if isinstance(item, dict):
            return _finish(stream, progress, item, end, is_last=next(objects, None) is None)
        try:
            index, seq, time_us, actor, ledger, *values = item
            kind, names = kinds[index]
            fields = dict(zip(names, values, strict=True))
        except _MALFORMED as error:
            raise _UnusableError(f"event {checker.events} has no known shape ({error})") from error
        if seq != checker.events:
            raise _UnusableError(f"event {seq} stands where event {checker.events} belongs")
        checker.feed(Event(seq, time_us, actor, kind, ledger, fields))
        progress.position = end
    return None


def _objects(stream: BinaryIO, begin: int, up_to: int) -> Iterator[tuple[Any, int]]:
    """The whole objects between two places of the file, each with the place where it ends."""
    stream.seek(begin)
    unpacker = msgpack.Unpacker(max_buffer_size=2**31 - 1, strict_map_key=False)
    here = whole = begin
    while here < up_to and (data := stream.read(min(up_to - here, _READ_BYTES))):
        here += len(data)
        try:
            unpacker.feed(data)
            for item in unpacker:
                whole = begin + unpacker.tell()
                yield item, whole
        except (msgpack.UnpackException, ValueError, TypeError) as error:
            raise _UnusableError(f"is damaged after byte {whole} ({error})") from error
        if here - whole > OBJECT_BYTES_MAX:
            raise _UnusableError(f"has an object of more than {OBJECT_BYTES_MAX} bytes after byte {whole}")


def _begin(stream: BinaryIO, progress: Progress, header: Any, end: int) -> None:
    """Take in the header, which ends at ``end``."""
    if not isinstance(header, dict) or header.get("format") != MAGIC:
        raise _UnusableError("is not a history (it does not start with a history header)")
    if header.get("schema_version") != SCHEMA_VERSION:
        raise _UnusableError(
            f"has schema version {header.get('schema_version')}; this program reads version {SCHEMA_VERSION}"
        )
    try:
        progress.kinds = [(str(kind), tuple(map(str, names))) for kind, names in header["kinds"]]
    except _MALFORMED as error:
        raise _UnusableError("does not describe its kinds of events in its header") from error
    scenario, seed = header.get("scenario"), header.get("seed")
    progress.scenario = scenario if isinstance(scenario, str) else None
    progress.seed = seed if isinstance(seed, int) else None
    here = stream.tell()
    stream.seek(0)
    progress.header_digest = hashlib.sha256(stream.read(end)).hexdigest()
    stream.seek(here)
    progress.header_bytes = progress.position = end


def _finish(stream: BinaryIO, progress: Progress, footer: Mapping[str, Any], end: int, *, is_last: bool) -> str:
    """Hold what was read to the footer; the digest of the events."""
    events = progress.checker.events
    if footer.get("events") != events:
        raise _UnusableError(f"holds {events} events, its footer says {footer.get('events')}")
    digest = hashlib.sha256()
    stream.seek(progress.header_bytes)
    left = progress.position - progress.header_bytes
    while left > 0 and (data := stream.read(min(left, _READ_BYTES))):
        left -= len(data)
        digest.update(data)
    if footer.get("digest") != digest.hexdigest():
        raise _UnusableError("does not match the digest in its footer")
    if not is_last or os.fstat(stream.fileno()).st_size > end:
        raise _UnusableError("goes on after its footer")
    progress.position = end
    return digest.hexdigest()
