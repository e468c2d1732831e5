"""Writing a history: header, events, footer, and the digest over all events.

Events are encoded, hashed, written and judged in blocks. A judge that gets its events in a row takes two thirds of the time of
one that gets them one by one, because between two events a run takes the processor's caches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgpack

from scenarios.history.schema import FIELDS, KINDS, SCHEMA_VERSION, Event

__all__ = ["BLOCK_EVENTS", "MAGIC", "HistoryWriter"]

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
#: Makes an event without values, in a third of the time of the constructor, which is a function of Python's.
_new: Final[Callable[[type[Event]], Event]] = object.__new__
#: So many events are a block: as many as nearly all runs have, in some four megabytes.
BLOCK_EVENTS: Final = 4096


def _misnamed(kind: str, fields: Mapping[str, Any]) -> TypeError:
    return TypeError(f"{kind} takes the fields {list(KINDS[kind])}, not {sorted(fields)}")


class HistoryWriter:
    """Records events in order, keeps their digest, and hands them on.

    Each of ``listeners`` gets every event when it is recorded; those that :meth:`listen` names get events of some kinds, and get
    them first. Each of ``readers`` gets all events in order as well, but a block at a time: when it is full, when the digest is
    asked for, and at the end.

    The digest covers the packed events alone, so two runs with the same digest did the same things at the same times,
    whatever machine or file they were recorded on. Without digest and file events are handed on and not packed.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        clock_us: Callable[[], int],
        path: Path | None = None,
        *,
        writes_through: bool = False,
        with_digest: bool = True,
    ) -> None:
        """Start a history; with ``path`` it is also written to that file. ``header`` must be msgpack data.

        One that is written has a digest, and so has any other unless ``with_digest`` is false: then it is "", and misnamed fields
        are found by nobody.
        With ``writes_through`` each event is given to the system before :meth:`record` returns, so that it survives SIGKILL.
        """
        self.events = 0
        self.listeners: list[Callable[[Event], None]] = []
        self.readers: list[Callable[[Sequence[Event]], None]] = []
        #: By kind, who gets its events.
        self._listening: dict[str, list[Callable[[Event], None]]] = {}
        self._clock_us = clock_us
        self._hash = hashlib.sha256()
        self._packer = msgpack.Packer(autoreset=True)
        self._block: list[Event] = []
        self._writes_through = writes_through
        self._is_packed = with_digest or path is not None
        self._block_max = 1 if writes_through else BLOCK_EVENTS
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

    def listen(self, kinds: Iterable[str], listener: Callable[[Event], None]) -> None:
        """Have ``listener`` called with every event of these kinds when it is recorded."""
        for kind in dict.fromkeys(kinds):
            self._listening.setdefault(kind, []).append(listener)

    def record(self, kind: str, actor: str, ledger: int = -1, /, **fields: Any) -> None:
        """Append one event. Every field of the kind must be given, and no other; :meth:`flush` finds those misnamed."""
        self.append(kind, actor, ledger, fields)

    def append(self, kind: str, actor: str, ledger: int, fields: dict[str, Any]) -> None:
        """As :meth:`record`, of fields in a dictionary, which nobody changes from now on.

        For the kinds of which there are most: a dictionary is made faster than arguments are collected into one.
        """
        if len(fields) != _LAYOUTS[kind][1]:
            raise _misnamed(kind, fields)
        event = _new(Event)
        event.seq = seq = self.events
        event.time_us, event.actor = self._clock_us(), actor
        event.kind, event.ledger, event.fields = kind, ledger, fields
        block = self._block
        block.append(event)
        self.events = seq + 1
        if len(block) >= self._block_max:
            self.flush()
        if self.listeners or kind in self._listening:
            self.tell(event)

    def tell(self, event: Event) -> None:
        """Tell those who listen of an event, which may be recorded elsewhere."""
        for listener in self._listening.get(event.kind, ()):
            listener(event)
        for listener in self.listeners:
            listener(event)

    @property
    def digest(self) -> str:
        """SHA-256 over the packed events recorded so far, in hex; "" of a history without one."""
        self.flush()
        return self._hash.hexdigest() if self._is_packed else ""

    def flush(self) -> None:
        """Hash and write what was recorded since the last call, and hand it to readers."""
        block = self._block
        if not block:
            return
        self._block = []
        if self._is_packed:
            self._pack(block)
        for reader in self.readers:
            reader(block)

    def _pack(self, block: Sequence[Event]) -> None:
        """Hash and write the events of a block."""
        try:
            rows = [
                [index, event.seq, event.time_us, event.actor, event.ledger, *values_of(event.fields)]
                for event in block
                for index, _, values_of in (_LAYOUTS[event.kind],)
            ]
        except KeyError:
            raise next(
                _misnamed(event.kind, event.fields) for event in block if event.fields.keys() != {*KINDS[event.kind]}
            ) from None
        # An array packs them with one call. What stands before its elements says how many there are, and belongs to no history.
        header = self._packer.pack_array_header(len(rows))
        data = memoryview(self._packer.pack(rows))[len(header) :]
        self._hash.update(data)
        if self._file is not None:
            self._file.write(data)
            if self._writes_through:
                self._file.flush()

    def close(self, choices: Sequence[str] = ()) -> None:
        """Flush, and write the footer, with what a schedule chose. A file without one is taken for truncated. Idempotent."""
        self.flush()
        if self._file is None:
            return
        footer: dict[str, Any] = {"events": self.events, "digest": self.digest}
        self._file.write(self._packer.pack(footer | ({"choices": list(choices)} if choices else {})))
        self.abandon()

    def abandon(self) -> None:
        """Flush, and close the file as it is, without a footer unless that was written. Idempotent."""
        if self._file is None:
            return
        self.flush()
        self._file.close()
        self._file = None
