"""The calls of an event loop that lead out of the process, in a simulated world: to its TCP, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVarTuple, Unpack

from simbookie.world import streams
from simbookie.world.errors import RealWorldRefused, WorldError

if TYPE_CHECKING:
    from simbookie.world.tcp import Tcp

__all__ = ["ConnectingLoop"]

Ts = TypeVarTuple("Ts")


class ConnectingLoop(asyncio.BaseEventLoop):
    """Connects and listens in the world of ``tcp``; real sockets, threads, signals and subprocesses are refused."""

    #: What connections lead through; set by the world.
    tcp: Tcp | None = None

    async def create_connection(
        self,
        protocol_factory: streams.ProtocolFactory,
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> Any:
        """Connect to a host of the world; options other than ``None`` and ``False`` are refused."""
        tcp = self._tcp("create_connection", **options)
        if host is None or port is None:
            raise ValueError("a host and a port are needed")
        return await streams.create_connection(self, tcp, protocol_factory, host, port)

    async def create_server(  # type: ignore[override]  # of the many overloads, what a world can serve
        self,
        protocol_factory: streams.ProtocolFactory,
        host: str | None = None,
        port: int | None = None,
        *,
        backlog: int = 100,
        reuse_address: bool | None = None,  # noqa: ARG002  no address is ever kept for a while
        start_serving: bool = True,
        **options: Any,
    ) -> Any:
        """Listen on the host that the caller runs on; other options than these are refused unless ``None`` or ``False``."""
        tcp = self._tcp("create_server", **options)
        server = streams.create_server(self, tcp, protocol_factory, host, port, backlog)
        if start_serving:
            server.serve()
        return server

    async def connect_accepted_socket(
        self, protocol_factory: streams.ProtocolFactory, sock: Any, **options: Any
    ) -> Any:
        """Make a transport of what a listening socket of the world accepted."""
        self._tcp("connect_accepted_socket", **options)
        return await streams.connect_accepted(self, protocol_factory, sock)

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        """Call ``callback`` as long as a listening socket of the world has connections to accept."""
        self._tcp("add_reader")
        streams.watch(self, fd, lambda: callback(*args))

    def remove_reader(self, fd: Any) -> bool:
        """Watch a listening socket no more."""
        self._tcp("remove_reader")
        return streams.unwatch(fd)

    def _tcp(self, call: str, **options: Any) -> Tcp:
        if self.tcp is None:
            raise RealWorldRefused(f"loop.{call}")
        for name, value in options.items():
            if value not in (None, False):
                raise WorldError(f"loop.{call}: {name} is not available in a simulated world")
        return self.tcp


def _refuse(name: str) -> Any:
    def refused(_self: ConnectingLoop, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise RealWorldRefused(f"loop.{name}")

    return refused


for _name in (
    *("add_signal_handler", "add_writer", "call_soon_threadsafe", "connect_read_pipe", "connect_write_pipe"),
    *("create_datagram_endpoint", "create_unix_connection", "create_unix_server", "getaddrinfo", "getnameinfo"),
    *("remove_signal_handler", "remove_writer", "run_in_executor", "sendfile", "set_default_executor"),
    *("set_task_factory", "sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom"),
    *("sock_recvfrom_into", "sock_sendall", "sock_sendfile", "sock_sendto", "subprocess_exec", "subprocess_shell"),
):
    setattr(ConnectingLoop, _name, _refuse(_name))
