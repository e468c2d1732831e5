"""Reading a history back, refusing what is not one and what is not whole."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgpack

from scenarios.history.schema import COMMON_FIELDS, SCHEMA_VERSION, Event
from scenarios.history.writer import MAGIC

__all__ = ["History", "HistoryError", "header_problem", "open_regular", "read_history"]

_MAX_OBJECT_BYTES: Final = 16 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
#: In place of an event: the end of a history that was cut off.
_CUT: Final = object()


class HistoryError(Exception):
    """The file is not a readable, complete history; the message names the file and what is wrong."""

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = str(path)
        self.problem = problem


class History:
    """One history file: its header at once, its events as a stream.

    Events are checked while they are read: ``seq`` without gaps, fields as the header declares, footer present, event
    count and digest equal to the footer's. The first thing wrong raises :class:`HistoryError`.

    That of a process which was killed has no footer, and its last event may be cut off. With ``may_be_cut`` events are read as
    far as they go.
    """

    def __init__(self, path: Path, *, may_be_cut: bool = False) -> None:
        """Open ``path`` and read the header. Raises :class:`HistoryError`."""
        self.path = path
        self._may_be_cut = may_be_cut
        with open_regular(path) as stream:
            self.header = self._read_header(self._unpacker(stream))
        self._kinds = self._described_kinds()
        #: The digest over all events; known once they have been read to the end.
        self.digest = ""
        #: What a schedule chose, in lines for strands; known then, too.
        self.choices: tuple[str, ...] = ()

    def events(self) -> Iterator[Event]:
        """All events in order. May be called again; each call reads the file anew."""
        for seq, time_us, actor, kind, ledger, values in self.rows():
            yield Event(seq, time_us, actor, kind, ledger, values)

    def rows(self) -> Iterator[tuple[int, int, str, str, int, dict[str, Any]]]:
        """All events as ``(seq, time_us, actor, kind, ledger, fields)``."""
        digest = hashlib.sha256()
        packer = msgpack.Packer(autoreset=True)
        kinds = self._kinds
        expected_seq = 0
        with open_regular(self.path) as stream:
            unpacker = self._unpacker(stream)
            self._read_header(unpacker)
            while True:
                item = self._next(unpacker, expected_seq)
                if item is _CUT:
                    return
                if isinstance(item, dict):
                    self._check_footer(item, expected_seq, digest.hexdigest())
                    self._check_end(unpacker)
                    self.digest = digest.hexdigest()
                    self.choices = tuple(map(str, item.get("choices", ())))
                    return
                try:
                    kind_index, seq, time_us, actor, ledger, *values = item
                    kind, names = kinds[kind_index]
                except (TypeError, ValueError, IndexError) as error:
                    raise HistoryError(self.path, f"event {expected_seq} has no known shape ({error})") from error
                if seq != expected_seq:
                    raise HistoryError(self.path, f"event {seq} stands where event {expected_seq} belongs")
                if len(values) != len(names):
                    raise HistoryError(
                        self.path, f"event {seq}, {kind}, has {len(values)} fields instead of {len(names)}"
                    )
                digest.update(packer.pack(item))
                expected_seq += 1
                yield seq, time_us, actor, kind, ledger, dict(zip(names, values, strict=True))

    def _described_kinds(self) -> list[tuple[str, tuple[str, ...]]]:
        try:
            return [(str(kind), tuple(map(str, names))) for kind, names in self.header["kinds"]]
        except (KeyError, TypeError, ValueError) as error:
            raise HistoryError(self.path, "does not describe its kinds of events in its header") from error

    @staticmethod
    def _unpacker(stream: BinaryIO) -> msgpack.Unpacker:
        return msgpack.Unpacker(stream, max_buffer_size=_MAX_OBJECT_BYTES, read_size=_READ_BYTES, strict_map_key=False)

    def _read_header(self, unpacker: msgpack.Unpacker) -> Mapping[str, Any]:
        try:
            header = unpacker.unpack()
        except (msgpack.UnpackException, ValueError, TypeError) as error:
            raise HistoryError(self.path, "is not a history (no readable header)") from error
        if (problem := header_problem(header)) is not None:
            raise HistoryError(self.path, problem)
        known: Mapping[str, Any] = header
        return known

    def _next(self, unpacker: msgpack.Unpacker, expected_seq: int) -> Any:
        try:
            return unpacker.unpack()
        except msgpack.OutOfData as error:
            if self._may_be_cut:
                return _CUT
            raise HistoryError(self.path, f"is truncated after {expected_seq} events (no footer)") from error
        except (msgpack.UnpackException, ValueError, TypeError) as error:
            raise HistoryError(self.path, f"is damaged at event {expected_seq} ({error})") from error

    def _check_footer(self, footer: Mapping[str, Any], events: int, digest: str) -> None:
        if footer.get("events") != events:
            raise HistoryError(self.path, f"holds {events} events, its footer says {footer.get('events')}")
        if footer.get("digest") != digest:
            raise HistoryError(self.path, "does not match the digest in its footer")

    def _check_end(self, unpacker: msgpack.Unpacker) -> None:
        try:
            unpacker.unpack()
        except msgpack.OutOfData:
            return
        except (msgpack.UnpackException, ValueError, TypeError):
            pass
        raise HistoryError(self.path, "goes on after its footer")


def open_regular(path: Path) -> BinaryIO:
    """The file at ``path``, opened. Raises :class:`HistoryError` where there is none, or something else than a file."""
    try:
        # Opening a pipe would wait for somebody to write to it, and a device may have no end.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise HistoryError(path, "is no regular file")
        return os.fdopen(descriptor, "rb")
    except OSError as error:
        raise HistoryError(path, f"cannot be opened ({error.strerror})") from error


def header_problem(header: object) -> str | None:
    """Why the first object of a file is no header of a history that can be read; None if it is one."""
    if not isinstance(header, dict) or header.get("format") != MAGIC:
        return "is not a history (it does not start with a history header)"
    if header.get("schema_version") != SCHEMA_VERSION:
        return f"has schema version {header.get('schema_version')}; this program reads version {SCHEMA_VERSION}"
    return None


def read_history(path: Path | str) -> tuple[Mapping[str, Any], list[Event]]:
    """Header and all events of one file, for tests and small tools. Raises :class:`HistoryError`."""
    history = History(Path(path))
    return history.header, list(history.events())


assert COMMON_FIELDS == ("seq", "time_us", "actor", "kind", "ledger"), "rows() yields the common fields in this order"
