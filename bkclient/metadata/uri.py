"""Metadata service URIs, and the one call that opens a store from one.

| URI | Store |
|---|---|
| ``mem://name`` | a service inside this process, shared by everybody who opens the same name |
| ``zk://host:port;host:port/root`` | ZooKeeper; the cluster's LAYOUT says how ledgers are named |
| ``zk+null://...`` | the same |
| ``zk+hierarchical://...``, ``zk+longhierarchical://...``, ``zk+flat://...`` | ZooKeeper; the LAYOUT must agree |

Hosts are separated by semicolons, as BookKeeper writes them, or by commas; the port defaults to 2181 and the root to
``/ledgers``. A driver is imported when a URI asks for it, so nobody needs the ZooKeeper library who does not use it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Final

from bkclient.errors import ArgumentError, MetadataStoreError
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.paths import LedgerManager

__all__ = ["MemoryUri", "MetadataUri", "ZooKeeperUri", "open_store", "parse_metadata_uri"]

ROOT_DEFAULT: Final = "/ledgers"
PORT_DEFAULT: Final = 2181
SESSION_TIMEOUT_S_DEFAULT: Final = 10.0

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


async def open_store(
    uri: str,
    *,
    rng: Random,
    session_timeout_s: float = SESSION_TIMEOUT_S_DEFAULT,
    connect_timeout_s: float | None = None,
    initialise: bool = False,
) -> MetadataStore:
    """Open a session with the metadata service at ``uri``; whoever opens it closes it with ``aclose()``.

    ``rng`` supplies creator tokens (API-6). ``session_timeout_s`` is how long the service waits for a silent client
    before it forgets the bookies it registered; ``connect_timeout_s``, by default the same, bounds this call. With
    ``initialise`` a cluster that does not exist yet is made; without it a client that was given a wrong root learns so
    instead of finding an empty cluster. Both mean nothing to ``mem://``.

    :class:`~bkclient.errors.ArgumentError` for a URI that is malformed or disagrees with the cluster's LAYOUT,
    :class:`~bkclient.errors.MetadataStoreError` if the service cannot be reached, holds no cluster at the root, or if
    its driver is not installed.
    """
    target = parse_metadata_uri(uri)
    if isinstance(target, MemoryUri):
        return MemoryMetadataService.named(target.name).session(rng=rng)
    try:
        from bkclient.metadata.zookeeper import connect_zookeeper  # noqa: PLC0415 - see the docstring of the module
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        raise MetadataStoreError(f"{target} needs the ZooKeeper driver: install bkclient[zookeeper]") from error

    return await connect_zookeeper(
        target,
        rng=rng,
        session_timeout_s=session_timeout_s,
        connect_timeout_s=session_timeout_s if connect_timeout_s is None else connect_timeout_s,
        initialise=initialise,
    )
