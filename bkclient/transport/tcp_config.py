"""What can be configured about talking to bookies over TCP: the part of a client's configuration that a transport needs.

A transport can be used without a client (benchmarks, simulated clocks, other programs), so it has a configuration of its
own. Its settings are those of :class:`~bkclient.config.ClientConfig`, declared once, there: defaults and bounds are taken
from that declaration.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

from bkclient._backoff import Backoff
from bkclient.config import ClientConfig
from bkclient.config.fields import check_settings, number, whole
from bkclient.config.group import groups_of
from bkclient.wire.messages import Operation, ReadRequest, Request

__all__ = ["TcpTransportConfig"]

_DECLARED: Final = {
    f"{name}.{field.name}": field for name, group in groups_of(ClientConfig).items() for field in fields(group)
}
#: How often per timeout outstanding requests are looked through.
_SCANS_PER_TIMEOUT: Final = 20
_CLIENT_NAME: Final = "bkclient.client_setting"
# Every request asks for these, and members of an enumeration take longer to find.
_ADD_ENTRY: Final = Operation.ADD_ENTRY
_GET_BOOKIE_INFO: Final = Operation.GET_BOOKIE_INFO


def _of_client(name: str) -> Any:
    """A field declared as the setting ``name`` of a client."""
    declared = _DECLARED[name]
    return dataclasses.field(default=declared.default, metadata={**declared.metadata, _CLIENT_NAME: name})


@dataclass(frozen=True, slots=True)
class TcpTransportConfig:
    """How to talk to bookies. :class:`~bkclient.errors.ArgumentError` for values that cannot work.

    A request times out ``add_timeout_s`` or, if it is no add, ``read_timeout_s`` after it was handed to an established
    connection, noticed up to a twentieth later; the question for a bookie's disk space has ``bookie_info_timeout_s``.
    ``connect_timeout_s`` includes resolving the bookie's address.

    After an attempt to connect fails, further requests fail at once for a time that doubles with every failure from
    ``backoff_initial_s`` to ``backoff_max_s``, each shortened by up to half at random; a bookie's first answer resets it.
    A bookie that cannot be reached is logged once in ``unavailable_log_interval_s``.

    There are up to ``channels_per_bookie`` connections to a bookie, made when they are needed; a ledger uses the one that
    its id modulo their number says. With ``follow_bookie_addresses`` every connection asks anew where its bookie is,
    without it the first answer holds for good.

    A connection counts as not writable from ``write_buffer_high_water_bytes`` unsent bytes on until fewer than
    ``write_buffer_low_water_bytes`` are left. The settings of the socket are the kernel's where they are None.

    ``max_outstanding_requests`` and ``max_outstanding_bytes`` bound what a bookie owes answers to, per channel: once
    reached, requests fail with ``TOO_MANY_REQUESTS``. Keep the number of entries a writer has in flight below.

    With protocol version 2 a channel has up to ``lanes_max`` connections, for requests whose answers could not be told apart
    on one (:mod:`bkclient.transport.lanes`). One on which ``lane_given_up_max`` requests timed out and were not answered
    since is replaced; all but the first are closed after ``lane_idle_s`` without requests.
    """

    protocol_version: int = _of_client("connections.protocol_version")
    add_timeout_s: float = _of_client("timeouts.add_s")
    read_timeout_s: float = _of_client("timeouts.read_s")
    connect_timeout_s: float = _of_client("timeouts.connect_s")
    max_frame_size_bytes: int = _of_client("limits.max_frame_size_bytes")
    max_outstanding_requests: int = whole(20_000, low=1)
    max_outstanding_bytes: int = whole(128 * 1024 * 1024, low=1)
    lanes_max: int = whole(4, low=2)
    lane_given_up_max: int = whole(1_000, low=1)
    lane_idle_s: float = number(30.0, low=0.0)
    write_buffer_low_water_bytes: int = _of_client("connections.write_buffer_low_water_bytes")
    write_buffer_high_water_bytes: int = _of_client("connections.write_buffer_high_water_bytes")
    backoff_initial_s: float = _of_client("connections.backoff_initial_s")
    backoff_max_s: float = _of_client("connections.backoff_max_s")
    bookie_info_timeout_s: float = _of_client("timeouts.bookie_info_s")
    channels_per_bookie: int = _of_client("connections.channels_per_bookie")
    follow_bookie_addresses: bool = _of_client("connections.follow_bookie_addresses")
    unavailable_log_interval_s: float = _of_client("connections.unavailable_log_interval_s")
    tcp_no_delay: bool = _of_client("connections.tcp_no_delay")
    tcp_keepalive: bool = _of_client("connections.tcp_keepalive")
    tcp_keepalive_idle_s: int | None = _of_client("connections.tcp_keepalive_idle_s")
    tcp_keepalive_interval_s: int | None = _of_client("connections.tcp_keepalive_interval_s")
    tcp_keepalive_probes: int | None = _of_client("connections.tcp_keepalive_probes")
    tcp_user_timeout_s: float | None = _of_client("connections.tcp_user_timeout_s")
    send_buffer_bytes: int | None = _of_client("connections.send_buffer_bytes")
    receive_buffer_bytes: int | None = _of_client("connections.receive_buffer_bytes")

    def __post_init__(self) -> None:
        check_settings(self, _ORDERED)

    def timeout_s(self, request: Request) -> float:
        """For how many seconds a connection waits for the answer to ``request``."""
        operation = request.operation
        if operation is _ADD_ENTRY:
            return self.add_timeout_s
        if operation is _GET_BOOKIE_INFO:
            return self.bookie_info_timeout_s
        if isinstance(request, ReadRequest) and request.long_poll is not None:
            return self.read_timeout_s + request.wait_s  # it is not late while the bookie waits as asked (H-21)
        return self.read_timeout_s

    @property
    def backoff(self) -> Backoff:
        """For how long a bookie is left alone after an attempt to connect failed, before chance shortens it."""
        return Backoff(self.backoff_initial_s, self.backoff_max_s)

    @property
    def scan_interval_s(self) -> float:
        """How often requests that have waited too long are looked for."""
        return min(self.add_timeout_s, self.read_timeout_s, self.bookie_info_timeout_s) / _SCANS_PER_TIMEOUT

    @classmethod
    def of_client(cls, config: ClientConfig) -> TcpTransportConfig:
        """What ``config`` says about connections.

        What a connection refuses counts as a failed bookie, so the windows of writers must be full first; and a slow
        bookie may owe answers to many more entries than are in flight, because those the others stored are confirmed.
        """
        settings = {
            field.name: attrgetter(field.metadata[_CLIENT_NAME])(config)
            for field in fields(cls)
            if _CLIENT_NAME in field.metadata
        }
        least, limits = cls(), config.limits
        return cls(
            max_outstanding_requests=max(
                least.max_outstanding_requests,
                10 * limits.max_in_flight_entries,
                2 * limits.max_client_in_flight_entries,
            ),
            max_outstanding_bytes=limits.max_unanswered_bytes
            or max(least.max_outstanding_bytes, 2 * limits.max_in_flight_bytes, 2 * limits.max_client_in_flight_bytes),
            **settings,
        )


_ORDERED: Final = (
    ("write_buffer_low_water_bytes", "write_buffer_high_water_bytes"),
    ("backoff_initial_s", "backoff_max_s"),
)
