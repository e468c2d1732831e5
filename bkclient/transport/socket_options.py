"""What is asked of the socket of an established connection.

Sizes of the kernel's buffers are asked for after the connection is made; kernels negotiate the scale of the receive window
from their own limits, so nothing is lost by that. A keep-alive setting that the platform does not have is skipped: what it
tunes is a safety net under the timeouts of requests.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final, Protocol

from bkclient.transport.tcp_config import TcpTransportConfig

__all__ = ["SocketLike", "apply_socket_options"]

#: Names of socket options where they exist; macOS calls the idle time of keep-alive otherwise.
_IDLE: Final = ("TCP_KEEPIDLE", "TCP_KEEPALIVE")
_INTERVAL: Final = ("TCP_KEEPINTVL",)
_PROBES: Final = ("TCP_KEEPCNT",)
_USER_TIMEOUT: Final = ("TCP_USER_TIMEOUT",)


class SocketLike(Protocol):
    """What event loops hand out as their transports' socket."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """See :meth:`socket.socket.setsockopt`."""
        ...


def apply_socket_options(sock: SocketLike, config: TcpTransportConfig) -> None:
    """Set the options that ``config`` has a say in."""
    for level, option, value in _options(config):
        sock.setsockopt(level, option, value)


def _options(config: TcpTransportConfig) -> Iterator[tuple[int, int, int]]:
    yield socket.IPPROTO_TCP, socket.TCP_NODELAY, int(config.tcp_no_delay)
    yield socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(config.tcp_keepalive)
    if config.send_buffer_bytes is not None:
        yield socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes
    if config.receive_buffer_bytes is not None:
        yield socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes
    user_timeout_s = config.tcp_user_timeout_s
    user_timeout_ms = None if user_timeout_s is None else max(1, round(user_timeout_s * 1000))
    for names, value in (
        (_IDLE, config.tcp_keepalive_idle_s),
        (_INTERVAL, config.tcp_keepalive_interval_s),
        (_PROBES, config.tcp_keepalive_probes),
        (_USER_TIMEOUT, user_timeout_ms),
    ):
        option = next((getattr(socket, name) for name in names if hasattr(socket, name)), None)
        if value is not None and option is not None:
            yield socket.IPPROTO_TCP, option, value
