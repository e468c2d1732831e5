"""Metadata service URIs.

| URI | Store |
|---|---|
| ``mem://name`` | a service inside this process, shared by everybody who opens the same name |
| ``zk://host:port;host:port/root`` | ZooKeeper; the cluster's LAYOUT says how ledgers are named |
| ``zk+null://...`` | the same |
| ``zk+hierarchical://...``, ``zk+longhierarchical://...``, ``zk+flat://...`` | ZooKeeper; the LAYOUT must agree |

Hosts are separated by semicolons, as BookKeeper writes them, or by commas; the port defaults to 2181 and the root to
``/ledgers``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bkclient.errors import ArgumentError
from bkclient.metadata.paths import LedgerManager

__all__ = ["MemoryUri", "MetadataUri", "ZooKeeperUri", "parse_metadata_uri"]

ROOT_DEFAULT: Final = "/ledgers"
PORT_DEFAULT: Final = 2181

_MANAGER_BY_SCHEME: Final = {
    "zk": None,
    "zk+null": None,
    "zk+flat": LedgerManager.FLAT,
    "zk+hierarchical": LedgerManager.HIERARCHICAL,
    "zk+longhierarchical": LedgerManager.LONG_HIERARCHICAL,
}
_KNOWN_SCHEMES: Final = ("mem", *_MANAGER_BY_SCHEME)
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\[\]:/@\s]+)(:(?P<port>[0-9]{1,5}))?")
_ROOT: Final = re.compile(r"(/[A-Za-z0-9._-]+)+")


@dataclass(frozen=True, slots=True)
class MemoryUri:
    """A service of this process, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class ZooKeeperUri:
    """Servers of one ZooKeeper ensemble, ``host:port`` each, and the root of one BookKeeper cluster in it.

    ``manager`` is ``None`` where the URI leaves it to the cluster's LAYOUT.
    """

    hosts: tuple[str, ...]
    root: str = ROOT_DEFAULT
    manager: LedgerManager | None = None

    def __str__(self) -> str:
        scheme = "zk" if self.manager is None else f"zk+{self.manager.value}"
        return f"{scheme}://{';'.join(self.hosts)}{self.root}"


MetadataUri = MemoryUri | ZooKeeperUri


def parse_metadata_uri(uri: str) -> MetadataUri:
    """Take a metadata service URI apart; :class:`~bkclient.errors.ArgumentError`, quoting it, if it is not one."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in _KNOWN_SCHEMES:
        known = ", ".join(f"{known}://" for known in _KNOWN_SCHEMES)
        raise ArgumentError(f"metadata service URI {uri!r} has none of the known schemes: {known}")
    if scheme == "mem":
        return MemoryUri(rest)
    authority, slash, path = rest.partition("/")
    root = f"/{path.rstrip('/')}" if slash and path.strip("/") else ROOT_DEFAULT
    if _ROOT.fullmatch(root) is None or {".", "..", "zookeeper"} & {*root.split("/")}:
        raise ArgumentError(f"metadata service URI {uri!r} has the root {root!r}, which is not the path of a znode")
    hosts = tuple(_host(uri, host) for host in authority.replace(",", ";").split(";"))
    return ZooKeeperUri(hosts, root, _MANAGER_BY_SCHEME[scheme])


def _host(uri: str, text: str) -> str:
    match = _HOST.fullmatch(text.strip())
    port = int(match["port"] or PORT_DEFAULT) if match else 0
    if match is None or not 0 < port < 65536:
        raise ArgumentError(f"metadata service URI {uri!r} names the server {text!r}, which is not host:port")
    return f"{match['host']}:{port}"
