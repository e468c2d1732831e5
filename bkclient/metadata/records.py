"""The other records beside the ledgers: LAYOUT, bookie registrations and cookies.

* **LAYOUT** fixes the ledger manager of a cluster. A client that misread it would look for ledgers under the wrong
  names and conclude that they do not exist, so anything but a known manager in a known version is an error.
* A **registration** is empty, meaning "my id is my address", or lists the endpoints of the bookie.
* A **cookie** is what a bookie writes down about itself to recognise, after a restart, that it still stands on its own
  disks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from google.protobuf import text_format

from bkclient._frozen import FrozenDict
from bkclient.errors import ArgumentError, MetadataSerializationError
from bkclient.ledger import BookieId
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.codec import MalformedError
from bkclient.metadata.paths import LedgerManager, shortened
from bkclient.wire.metadata_pb2 import BookieServiceInfoFormat, CookieFormat

__all__ = [
    "BOOKIE_RPC",
    "BookieServiceInfo",
    "Cookie",
    "Endpoint",
    "decode_cookie",
    "decode_layout",
    "decode_service_info",
    "encode_cookie",
    "encode_layout",
    "encode_service_info",
    "parse_bookie_address",
]

BOOKIE_RPC: Final = "bookie-rpc"
"""The protocol of the endpoint that clients use; others are ignored."""

# ---- LAYOUT ---------------------------------------------------------------------------------------------------------

_MANAGER_VERSION: Final = "1"
_FACTORY_OF_MANAGER: Final = {
    LedgerManager.FLAT: "org.apache.bookkeeper.meta.FlatLedgerManagerFactory",
    LedgerManager.HIERARCHICAL: "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
    LedgerManager.LONG_HIERARCHICAL: "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory",
    LedgerManager.LEGACY_HIERARCHICAL: "org.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory",
}
_MANAGER_BY_NAME: Final = {
    ("1", "flat"): LedgerManager.FLAT,
    ("1", "hierarchical"): LedgerManager.HIERARCHICAL,
    **{("2", factory): manager for manager, factory in _FACTORY_OF_MANAGER.items()},
}


def encode_layout(manager: LedgerManager) -> bytes:
    """The LAYOUT, of format version 2, that fixes ``manager``."""
    return f"2\n{_FACTORY_OF_MANAGER[manager]}:{_MANAGER_VERSION}".encode()


def decode_layout(data: bytes) -> LedgerManager:
    """The ledger manager that a LAYOUT of format version 1 or 2 fixes.

    :class:`~bkclient.errors.MetadataSerializationError` if it is malformed or names a manager or a version not known
    here.
    """
    lines = data.decode(errors="replace").split("\n")
    name, colon, version = lines[1].partition(":") if len(lines) == 2 else ("", "", "")
    manager = _MANAGER_BY_NAME.get((lines[0], name))
    if not colon or manager is None or version != _MANAGER_VERSION:
        raise MetadataSerializationError(f"LAYOUT {data[:200]!r} names no ledger manager that is known here")
    return manager


# ---- bookie registrations -------------------------------------------------------------------------------------------

_PORT: Final = re.compile(r"[0-9]{1,5}")
_PORT_MAX: Final = 65535
_HOST_LENGTH_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One port a bookie listens on, and the protocol spoken there."""

    endpoint_id: str
    host: str
    port: int
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BookieServiceInfo:
    """What a bookie announces about itself."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: Mapping[str, str] = field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", FrozenDict(self.properties))

    @classmethod
    def of_address(cls, address: BookieAddress) -> BookieServiceInfo:
        """The announcement of a bookie that listens at ``address`` and nowhere else."""
        return cls((Endpoint("bookie", address.host, address.port, BOOKIE_RPC, extensions=address.extensions),))

    def rpc_address(self) -> BookieAddress | None:
        """Where clients connect: the first endpoint that speaks :data:`BOOKIE_RPC`."""
        for endpoint in self.endpoints:
            if endpoint.protocol == BOOKIE_RPC:
                return BookieAddress(endpoint.host, endpoint.port, endpoint.extensions)
        return None


def parse_bookie_address(bookie_id: BookieId) -> BookieAddress:
    """The address that an id of the form ``host:port`` spells, split at the first colon as every client does.

    :class:`~bkclient.errors.ArgumentError` for any other id.
    """
    host, _, port = bookie_id.partition(":")
    if not host or _PORT.fullmatch(port) is None or not 0 < int(port) <= _PORT_MAX:
        raise ArgumentError(
            "the id is not host:port and nothing else tells where the bookie listens", bookie_id=bookie_id
        )
    return BookieAddress(host, int(port))


def encode_service_info(info: BookieServiceInfo) -> bytes:
    """The stored form of an announcement."""
    message = BookieServiceInfoFormat(properties=dict(info.properties))
    for endpoint in info.endpoints:
        message.endpoints.add(
            id=endpoint.endpoint_id,
            port=endpoint.port,
            host=endpoint.host,
            protocol=endpoint.protocol,
            auth=endpoint.auth,
            extensions=endpoint.extensions,
        )
    return message.SerializeToString(deterministic=True)


def decode_service_info(bookie_id: BookieId, data: bytes) -> BookieServiceInfo:
    """The announcement stored for ``bookie_id``; empty data means that the id itself is the address.

    :class:`~bkclient.errors.MetadataSerializationError`, naming the bookie, if the data is malformed, or empty while
    the id is not ``host:port``.
    """
    try:
        if not data:
            return BookieServiceInfo.of_address(parse_bookie_address(bookie_id))
        message = BookieServiceInfoFormat()
        message.ParseFromString(data)
        endpoints = tuple(
            Endpoint(_text(part.id), _host(part.host), _port(part.port), _text(part.protocol), *_lists(part))
            for part in message.endpoints
        )
        properties = {_text(key): _text(value) for key, value in message.properties.items()}
        return BookieServiceInfo(endpoints, FrozenDict(properties))
    except MalformedError as error:
        raise MetadataSerializationError(f"malformed registration: {error}", bookie_id=bookie_id) from error


def _lists(part: BookieServiceInfoFormat.Endpoint) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(_text(item) for item in part.auth), tuple(_text(item) for item in part.extensions)


def _host(host: str) -> str:
    if len(_text(host)) > _HOST_LENGTH_MAX or not host.isprintable():
        raise ValueError(f"the endpoint's host {shortened(host)} is no host name")
    return host


def _port(number: int) -> int:
    if not 0 <= number <= _PORT_MAX:
        raise ValueError(f"the endpoint's port must be between 0 and {_PORT_MAX}, got {number}")
    return number


def _text(value: str) -> str:
    if not isinstance(value, str):
        # The binding hands out a string that is not UTF-8 as bytes instead of refusing it.
        raise TypeError(f"{value!r} is not UTF-8")
    return value


# ---- cookies --------------------------------------------------------------------------------------------------------

_COOKIE_VERSION: Final = 5
_COOKIE_VERSION_OF_LINES: Final = 3
_COOKIE_VERSION_LINE: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Cookie:
    """A bookie's identity and the directories that belong to it. ``bookie_host`` is its id."""

    bookie_host: BookieId
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    instance_id: str | None = None
    index_dirs: tuple[str, ...] | None = None


def encode_cookie(cookie: Cookie) -> bytes:
    """The cookie as text of layout version 5.

    :class:`~bkclient.errors.MetadataSerializationError` for directories whose names contain the separators.
    """
    parts = (*cookie.ledger_dirs, *(cookie.index_dirs or ()))
    if any("\t" in part for part in parts) or any("," in part for part in cookie.journal_dirs):
        raise MetadataSerializationError(
            "a cookie cannot name directories with a TAB, nor journals with a comma", bookie_id=cookie.bookie_host
        )
    message = CookieFormat(
        bookieHost=cookie.bookie_host,
        journalDir=",".join(cookie.journal_dirs),
        ledgerDirs=_join_directories(cookie.ledger_dirs),
    )
    if cookie.instance_id is not None:
        message.instanceId = cookie.instance_id
    if cookie.index_dirs is not None:
        message.indexDirs = _join_directories(cookie.index_dirs)
    return f"{_COOKIE_VERSION}\n{text_format.MessageToString(message, as_utf8=False)}".encode()


def decode_cookie(bookie_id: BookieId, data: bytes) -> Cookie:
    """The cookie stored for ``bookie_id``, of layout version 3 (three plain lines) to 5 (protobuf text).

    :class:`~bkclient.errors.MetadataSerializationError`, naming the bookie, if it is malformed or of another version.
    """
    try:
        first, _, rest = data.decode().partition("\n")
        if _COOKIE_VERSION_LINE.fullmatch(first) is None:
            raise ValueError("no version in the first line")
        version = int(first)
        if version == _COOKIE_VERSION_OF_LINES:
            host, journal, ledgers = rest.removesuffix("\n").split("\n")
            return Cookie(host, tuple(journal.split(",")), _split_directories(ledgers))
        if not _COOKIE_VERSION_OF_LINES < version <= _COOKIE_VERSION:
            raise ValueError(f"layout version {version} is unknown, 3 to {_COOKIE_VERSION} are known")
        message = text_format.Parse(rest, CookieFormat())
        return Cookie(
            message.bookieHost,
            tuple(message.journalDir.split(",")),
            _split_directories(message.ledgerDirs),
            message.instanceId if message.HasField("instanceId") else None,
            _split_directories(message.indexDirs) if message.HasField("indexDirs") else None,
        )
    except MalformedError as error:
        raise MetadataSerializationError(f"malformed cookie: {error}", bookie_id=bookie_id) from error


def _join_directories(directories: tuple[str, ...]) -> str:
    return "\t".join((str(len(directories)), *directories))


def _split_directories(text: str) -> tuple[str, ...]:
    count, *directories = text.split("\t")
    if count != str(len(directories)):
        raise ValueError(f"{count!r} directories were announced, {len(directories)} follow")
    return tuple(directories)
