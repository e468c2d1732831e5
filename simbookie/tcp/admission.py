"""How many connections there may be, in all and from one source."""

from __future__ import annotations

import ipaddress
import resource
from typing import Final

__all__ = ["DESCRIPTORS_KEPT", "Admission", "connections_possible", "source_of"]

DESCRIPTORS_KEPT: Final = 64
"""File descriptors that are not for connections: logs, the metadata service, listening, what libraries open."""


def connections_possible() -> int:
    """How many connections this process has file descriptors for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return max(1, soft - min(DESCRIPTORS_KEPT, soft // 2))


def source_of(host: str) -> str:
    """What counts as one source: an IPv4 address, or the network of 64 bits of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


class Admission:
    """Counts connections by source."""

    def __init__(self, connections_max: int, per_source_max: int | None) -> None:
        self.connections_max = connections_max
        self.per_source_max = per_source_max if per_source_max is not None else max(1, connections_max // 2)
        #: Connections there are.
        self.connections = 0
        self._of_source: dict[str, int] = {}

    def enter(self, source: str) -> str | None:
        """Count a connection of ``source``; the reason if there may be no more."""
        if self.connections >= self.connections_max:
            return f"there are {self.connections_max} connections already"
        count = self._of_source.get(source, 0)
        if count >= self.per_source_max:
            return f"there are {self.per_source_max} connections from {source} already"
        self.connections += 1
        self._of_source[source] = count + 1
        return None

    def leave(self, source: str) -> None:
        """A connection of ``source`` that was counted has ended."""
        self.connections -= 1
        self._of_source[source] -= 1
        if not self._of_source[source]:
            del self._of_source[source]
