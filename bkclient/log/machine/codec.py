"""The manifest as bytes: msgpack, with the version of the format in front.

``[1, {"log_id": ..., "settings": {...}, ..., "ledgers": [[id, epoch, created_ms, end]], ...}]``; ``end`` is nil for a ledger
that may be written to, else ``[last_entry_id, length, last_ms]``. A record of another version, with unknown fields or with a
wrong shape raises :class:`~bkclient.errors.MetadataSerializationError`: to write it again would lose what is not understood.
"""

from __future__ import annotations

from dataclasses import astuple, fields
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

__all__ = ["MAX_MANIFEST_BYTES", "decode_manifest", "encode_manifest"]

VERSION: Final = 1
"""Of the manifest of a log without partitions, which is none either."""
VERSION_2: Final = 2
"""With all fields. What earlier programs understand is stored as they know it."""
MAX_MANIFEST_BYTES: Final = 1_000_000
"""Below the 1 MiB that ZooKeeper takes by default."""

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
    if len(data) > MAX_MANIFEST_BYTES:
        raise MetadataSerializationError(f"the manifest of a log has at most {MAX_MANIFEST_BYTES} bytes")
    try:
        version, table = msgpack.unpackb(data)
        if version in (VERSION, VERSION_2):
            return _manifest_from(table, _FIELDS if version == VERSION else _FIELDS_2)
    except (ValueError, TypeError, KeyError, AttributeError, ArgumentError, msgpack.UnpackException) as error:
        raise MetadataSerializationError(f"the manifest of the log is damaged: {error}") from error
    raise MetadataSerializationError(
        f"the manifest of the log has version {version!r}, known are {VERSION} and {VERSION_2}"
    )


def _manifest_from(table: dict[str, Any], known: tuple[str, ...]) -> LogManifest:
    if set(table) != set(known):
        raise ValueError(f"its fields are {sorted(table)}")
    for name in known:
        if name in _TYPES and type(table[name]) is not _TYPES[name]:
            raise ValueError(f"{name} is {table[name]!r}")
    return LogManifest(
        **table
        | {
            "settings": LogSettings.of(table["settings"]),
            "state": LogState(table["state"]),
            "ledgers": tuple(_ledger_from(item) for item in table["ledgers"]),
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
