"""The manifest as bytes: msgpack, with the version of the format in front.

``[1, {"log_id": ..., "settings": {...}, ..., "ledgers": [[id, epoch, created_ms, end]], ...}]``; ``end`` is nil for a ledger
that may be written to, else ``[last_entry_id, length, last_ms]``. A record of another version, with unknown fields or with a
wrong shape raises :class:`~bkclient.errors.MetadataSerializationError`: to write it again would lose what is not understood.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import astuple, fields
from operator import attrgetter
from typing import Any, Final

import msgpack

from bkclient.errors import ArgumentError, MetadataSerializationError
from bkclient.log.errors import LogTooLong
from bkclient.log.machine.manifest import (
    MAX_CURSORS,
    MAX_LEDGERS,
    CompactedLedger,
    LedgerEnd,
    LogLedger,
    LogManifest,
    LogState,
)
from bkclient.log.settings import LogSettings

__all__ = ["MAX_MANIFEST_BYTES", "ManifestDecoder", "decode_manifest", "encode_manifest"]

VERSION: Final = 1
"""Of the manifest of a log without partitions, which is none either."""
VERSION_2: Final = 2
"""With all fields. What earlier programs understand is stored as they know it."""
MAX_MANIFEST_BYTES: Final = 1_000_000
"""Below the 1 MiB that ZooKeeper takes by default."""

_LEDGER_ID: Final = attrgetter("ledger_id")
_ADDED: Final = ("partitions", "partition", "compacted", "compacting", "dropped")
_FIELDS_2: Final = tuple(field.name for field in fields(LogManifest))
_FIELDS: Final = tuple(name for name in _FIELDS_2 if name not in _ADDED)
_DEFAULTS: Final = {field.name: field.default for field in fields(LogManifest) if field.name in _ADDED}
_TYPES: Final[dict[str, type]] = {
    "log_id": str,
    "settings": dict,
    "state": int,
    "epoch": int,
    "owner": str,
    "claim_id": str,
    "created_ms": int,
    "ledgers": list,
    "trimmed": list,
    "trimmed_through": int,
    "cursors": list,
    "cursor_changes": int,
    "partitions": int,
    "partition": int,
    "compacting": int,
    "dropped": list,
}


def encode_manifest(manifest: LogManifest) -> bytes:
    """The bytes; :class:`~bkclient.log.errors.LogTooLong` for one that is too large for a metadata store."""
    ledgers = [_ledger_as_list(ledger) for ledger in manifest.ledgers]
    is_plain = all(getattr(manifest, name) == default for name, default in _DEFAULTS.items())
    table = {name: getattr(manifest, name) for name in (_FIELDS if is_plain else _FIELDS_2)}
    table |= {"settings": manifest.settings.as_dict(), "state": int(manifest.state), "ledgers": ledgers}
    if manifest.compacted is not None:
        table["compacted"] = list(astuple(manifest.compacted))
    data: bytes = msgpack.packb([VERSION if is_plain else VERSION_2, table])
    if len(ledgers) + len(manifest.trimmed) + len(manifest.dropped) > MAX_LEDGERS or len(data) > MAX_MANIFEST_BYTES:
        raise LogTooLong(
            f"a manifest holds {MAX_LEDGERS} ledgers in {MAX_MANIFEST_BYTES} bytes, this one would have "
            f"{len(ledgers) + len(manifest.trimmed)} in {len(data)}"
        )
    if len(manifest.cursors) > MAX_CURSORS:
        raise LogTooLong(f"a log has at most {MAX_CURSORS} cursors", advice="Remove cursors that are not used.")
    return data


def _ledger_as_list(ledger: LogLedger) -> list[Any]:
    end = ledger.end
    return [
        ledger.ledger_id,
        ledger.epoch,
        ledger.created_ms,
        None if end is None else [end.last_entry_id, end.length, end.last_ms],
    ]


def decode_manifest(data: bytes) -> LogManifest:
    """The manifest; :class:`~bkclient.errors.MetadataSerializationError` if the bytes are none that this version knows."""
    return ManifestDecoder().decode(data)


class ManifestDecoder:
    """Decodes one version of a manifest after the other, and of each only the ledgers that were not in the one before.

    A list grows at its end, where its last ledger gets an end, and loses ledgers at its beginning. What is the same as stored is
    the same as decoded.
    """

    def __init__(self) -> None:
        self._data = b""
        self._manifest: LogManifest | None = None
        #: The ledgers of ``_manifest`` as they are stored; none if it was not decoded here.
        self._items: list[Any] = []

    def know(self, data: bytes, manifest: LogManifest) -> None:
        """Remember what bytes say that were made from a manifest."""
        self._data, self._manifest, self._items = data, manifest, []

    def decode(self, data: bytes) -> LogManifest:
        """The manifest; raises as :func:`decode_manifest`."""
        if self._manifest is None or data != self._data:
            known = () if self._manifest is None or not self._items else self._manifest.ledgers
            table, fields_ = _table_from(data)
            try:
                manifest = _manifest_from(table, fields_, _ledgers_from(table["ledgers"], self._items, known))
            except (ValueError, TypeError, KeyError, AttributeError, ArgumentError) as error:
                raise _damaged(error) from error
            self._data, self._manifest, self._items = data, manifest, table["ledgers"]
        return self._manifest


def _table_from(data: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields as they are stored, and which are expected."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise MetadataSerializationError(f"the manifest of a log has at most {MAX_MANIFEST_BYTES} bytes")
    try:
        version, table = msgpack.unpackb(data)
        if version in (VERSION, VERSION_2):
            known = _FIELDS if version == VERSION else _FIELDS_2
            _check_fields(table, known)
            return table, known
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as error:
        raise _damaged(error) from error
    raise MetadataSerializationError(
        f"the manifest of the log has version {version!r}, known are {VERSION} and {VERSION_2}"
    )


def _damaged(error: Exception) -> MetadataSerializationError:
    return MetadataSerializationError(f"the manifest of the log is damaged: {error}")


def _check_fields(table: dict[str, Any], known: tuple[str, ...]) -> None:
    if set(table) != set(known):
        raise ValueError(f"its fields are {sorted(table)}")
    for name in known:
        if name in _TYPES and type(table[name]) is not _TYPES[name]:
            raise ValueError(f"{name} is {table[name]!r}")


def _ledgers_from(items: list[Any], known: list[Any], decoded: tuple[LogLedger, ...]) -> tuple[LogLedger, ...]:
    """The ledgers of a list, of which those that ``known`` has too are among ``decoded``."""
    first = 0
    if items and decoded:
        first = bisect_left(decoded, _whole(items[0][0]), key=_LEDGER_ID)
    same = min(len(items), len(decoded) - first)
    if items[:same] != known[first : first + same]:
        same -= 1  # the last one has got its end, as a rule
        if same < 0 or items[:same] != known[first : first + same]:
            same = 0
    return (*decoded[first : first + same], *map(_ledger_from, items[same:]))


def _manifest_from(table: dict[str, Any], known: tuple[str, ...], ledgers: tuple[LogLedger, ...]) -> LogManifest:
    assert set(table) == set(known)
    return LogManifest(
        **table
        | {
            "settings": LogSettings.of(table["settings"]),
            "state": LogState(table["state"]),
            "ledgers": ledgers,
            "trimmed": tuple(map(_whole, table["trimmed"])),
            "cursors": tuple(map(_text, table["cursors"])),
            "dropped": tuple(map(_whole, table.get("dropped", ()))),
            "compacted": _compacted_from(table.get("compacted")),
        }
    )


def _compacted_from(item: list[Any] | None) -> CompactedLedger | None:
    if item is None:
        return None
    ledger_id, through_ledger_id, through_entry_id, messages = map(_whole, item)
    return CompactedLedger(ledger_id, through_ledger_id, through_entry_id, messages)


def _ledger_from(item: list[Any]) -> LogLedger:
    ledger_id, epoch, created_ms, end = item
    found = None
    if end is not None:
        last_entry_id, length, last_ms = map(_whole, end)
        found = LedgerEnd(_whole(ledger_id), last_entry_id, length, last_ms)
    return LogLedger(_whole(ledger_id), _whole(epoch), _whole(created_ms), found)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not a text")
    return value
