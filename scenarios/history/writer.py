"""Writing a history: header, events, footer, and the digest over all events."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgpack

from scenarios.history.schema import FIELDS, KINDS, SCHEMA_VERSION, Event

__all__ = ["MAGIC", "HistoryWriter"]

MAGIC: Final = "bk-history"

_Layout = tuple[int, int, Callable[[Mapping[str, Any]], tuple[Any, ...]]]


def _values_of(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """What takes the values of these names out of fields, in this order."""
    if len(names) >= 2:
        return itemgetter(*names)
    return (lambda fields: (fields[names[0]],)) if names else (lambda _: ())


def layouts_of(kinds: Mapping[str, tuple[str, ...]]) -> dict[str, _Layout]:
    """By kind: its number, how many fields it has, and what takes their values."""
    return {kind: (index, len(names), _values_of(names)) for index, (kind, names) in enumerate(kinds.items())}


_LAYOUTS: Final = layouts_of(KINDS)
#: Makes an event of its values in order; a named tuple's own constructor is a function of Python's, and takes twice as long.
_new: Final[Callable[[type[Event], tuple[Any, ...]], Event]] = tuple.__new__
_FLUSH_BYTES: Final = 64 * 1024


class HistoryWriter:
    """Records events in order, keeps their digest, and hands each to ``listeners``.

    The digest covers the packed events alone, so two runs with the same digest did the same things at the same times,
    whatever machine or file they were recorded on.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        clock_us: Callable[[], int],
        path: Path | None = None,
        *,
        writes_through: bool = False,
    ) -> None:
        """Start a history; with ``path`` it is also written to that file. ``header`` must be msgpack data.

        With ``writes_through`` each event is given to the system before :meth:`record` returns, so that it survives SIGKILL.
        """
        self.events = 0
        self.listeners: list[Callable[[Event], None]] = []
        self._clock_us = clock_us
        self._hash = hashlib.sha256()
        self._packer = msgpack.Packer(autoreset=True)
        self._chunks: list[bytes] = []
        self._chunk_bytes = 0
        self._writes_through = writes_through
        self._file: BinaryIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
            self._file.write(self._packer.pack(self.full_header(header)))
            if writes_through:
                self._file.flush()

    @staticmethod
    def full_header(header: Mapping[str, Any]) -> dict[str, Any]:
        """``header`` with what makes the file self-describing: format name, schema version, kinds and field types."""
        return {
            "format": MAGIC,
            "schema_version": SCHEMA_VERSION,
            "kinds": [[str(kind), list(names)] for kind, names in KINDS.items()],
            "fields": {name: str(type_) for name, type_ in FIELDS.items()},
            **header,
        }

    def record(self, kind: str, actor: str, ledger: int = -1, /, **fields: Any) -> None:
        """Append one event. Every field of the kind must be given, and no other."""
        index, count, values_of = _LAYOUTS[kind]
        if len(fields) != count:
            raise TypeError(f"{kind} takes the fields {list(KINDS[kind])}, not {sorted(fields)}")
        seq, now = self.events, self._clock_us()
        packed = self._packer.pack((index, seq, now, actor, ledger, *values_of(fields)))
        self.events = seq + 1
        self._chunks.append(packed)
        self._chunk_bytes += len(packed)
        if self._writes_through or self._chunk_bytes >= _FLUSH_BYTES:
            self._flush()
        if self.listeners:
            event = _new(Event, (seq, now, actor, kind, ledger, fields))
            for listener in self.listeners:
                listener(event)

    @property
    def digest(self) -> str:
        """SHA-256 over the packed events recorded so far, in hex."""
        self._flush()
        return self._hash.hexdigest()

    def close(self, choices: Sequence[str] = ()) -> None:
        """Write the footer, without which a reader takes the file for truncated; with what a schedule chose. Idempotent."""
        if self._file is None:
            return
        footer: dict[str, Any] = {"events": self.events, "digest": self.digest}
        self._file.write(self._packer.pack(footer | ({"choices": list(choices)} if choices else {})))
        self.abandon()

    def abandon(self) -> None:
        """Close the file as it is: without the footer, unless that was written, a reader takes it for truncated. Idempotent."""
        if self._file is None:
            return
        self._flush()
        self._file.close()
        self._file = None

    def _flush(self) -> None:
        """Hash and write what was recorded since the last call: many small pieces would take longer."""
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._chunk_bytes = 0
        self._hash.update(data)
        if self._file is not None:
            self._file.write(data)
            if self._writes_through:
                self._file.flush()
