"""What is configured about sockets arrives at the socket."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from bkclient.transport import socket_options
from bkclient.transport.socket_options import apply_socket_options
from bkclient.transport.tcp import TcpTransportConfig
from tests.bkclient.inside import socket_of, stream_to
from tests.bkclient.transport.scripted_bookie import running
from tests.bkclient.transport.test_tcp import add, transport_to

TCP, SOCKET = socket.IPPROTO_TCP, socket.SOL_SOCKET


class Recorder:
    """A socket that remembers what it was told."""

    def __init__(self) -> None:
        self.options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        assert (level, option) not in self.options
        self.options[level, option] = value


def told(**config: Any) -> dict[tuple[int, int], int]:
    sock = Recorder()
    apply_socket_options(sock, TcpTransportConfig(**config))
    return sock.options


def test_by_default_frames_leave_at_once_dead_peers_are_noticed_and_the_kernel_sizes_its_buffers() -> None:
    assert told() == {(TCP, socket.TCP_NODELAY): 1, (SOCKET, socket.SO_KEEPALIVE): 1}


@pytest.mark.skipif(sys.platform != "linux", reason="names of options differ")
def test_every_setting_has_its_option() -> None:
    assert told(
        tcp_no_delay=False,
        tcp_keepalive=False,
        send_buffer_bytes=100_000,
        receive_buffer_bytes=200_000,
        tcp_keepalive_idle_s=30,
        tcp_keepalive_interval_s=5,
        tcp_keepalive_probes=4,
        tcp_user_timeout_s=1.5,
    ) == {
        (TCP, socket.TCP_NODELAY): 0,
        (SOCKET, socket.SO_KEEPALIVE): 0,
        (SOCKET, socket.SO_SNDBUF): 100_000,
        (SOCKET, socket.SO_RCVBUF): 200_000,
        (TCP, socket.TCP_KEEPIDLE): 30,
        (TCP, socket.TCP_KEEPINTVL): 5,
        (TCP, socket.TCP_KEEPCNT): 4,
        (TCP, socket.TCP_USER_TIMEOUT): 1500,
    }


def test_an_option_that_the_platform_does_not_have_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_options, "_USER_TIMEOUT", ("TCP_OPTION_OF_ANOTHER_PLATFORM",))
    assert told(tcp_user_timeout_s=1.5) == told()


def loop_factories() -> list[Any]:
    uvloop = pytest.importorskip("uvloop")
    return [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.mark.parametrize("number", [0, 1], ids=["asyncio", "uvloop"])
def test_real_sockets_take_them_on_both_loops(number: int) -> None:
    factory: Callable[[], asyncio.AbstractEventLoop] = loop_factories()[number]

    async def options() -> tuple[int, ...]:
        config = {"tcp_no_delay": False, "send_buffer_bytes": 50_000, "tcp_keepalive_probes": 3}
        async with running() as bookie, transport_to(bookie, **config) as outcomes:
            outcomes.submit(add(0))
            await outcomes.wait()
            sock = socket_of(stream_to(outcomes.transport, "b"))
            return (
                sock.getsockopt(TCP, socket.TCP_NODELAY),
                sock.getsockopt(SOCKET, socket.SO_KEEPALIVE),
                sock.getsockopt(TCP, socket.TCP_KEEPCNT),
                sock.getsockopt(SOCKET, socket.SO_SNDBUF),
            )

    with asyncio.Runner(loop_factory=factory) as runner:
        no_delay, keepalive, probes, send_buffer = runner.run(options())
    assert (no_delay, bool(keepalive), probes) == (0, True, 3)
    assert 50_000 <= send_buffer <= 200_000  # Linux doubles what it is asked for
