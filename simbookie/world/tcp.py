"""TCP between the hosts of a world: the kernels' side of connections.

A :class:`~simbookie.world.tcp_socket.Socket` is one end of a connection, in the hands of its machine's kernel. All chance is
drawn from a stream per link. What a link does to messages it does to segments as TCP would show it:

* a lost segment is sent again, so it and everything after it arrive later; a duplicate is not noticed, nor is disorder;
* a blocked link stops segments, and they arrive after it is unblocked;
* a machine that lost its power says nothing, and forgets its connections. What arrives for them after it is back is answered
  with a reset; until then it is sent again and again;
* a killed process's sockets are closed by its kernel: what was handed over is sent, then the end of the stream, or a reset if
  something had come that was never read.

Attempts to connect are refused where nothing listens, and repeated where nothing answers or the queue of a listener is full,
until they time out. What looks into the stream between both ends is a
:class:`~simbookie.world.tcp_socket.Middlebox`.

Not modelled: congestion, limits on retransmission, keep-alive; a connection whose other end is silent stays as it is.
"""

from __future__ import annotations

import errno
import os
import socket as sockets
from asyncio import TimerHandle
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Final

from simbookie.world.links import TcpConfig, TcpCounters
from simbookie.world.process import Process
from simbookie.world.rng import chance
from simbookie.world.tcp_listening import Listening
from simbookie.world.tcp_socket import Address, Socket

if TYPE_CHECKING:
    from simbookie.world.links import Link
    from simbookie.world.network import Network

__all__ = ["Tcp"]

#: When an attempt to connect is repeated: after this time, then after twice as much, and so on.
_CONNECT_RETRY_S: Final = 1.0
#: The longest wait for an answer to an attempt; after it the attempt has timed out, 127 s after it began.
_CONNECT_RETRY_MAX_S: Final = 64.0
_FIRST_EPHEMERAL_PORT: Final = 32_768


class _Attempt:
    """An attempt to connect, until it succeeds, fails or is given up."""

    def __init__(
        self,
        tcp: Tcp,
        process: Process,
        remote: Address,
        on_open: Callable[[Socket], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self.process = process
        self.local = (process.host_name, tcp.free_port(process.host_name))
        self.remote = remote
        self.is_over = False
        self._is_open = False
        #: This end, once the other one is made.
        self.socket: Socket | None = None
        #: Who listened when that was.
        self.listening: Listening | None = None
        self._tcp = tcp
        self._on_open = on_open
        self._on_failed = on_failed
        self._retry: TimerHandle | None = None

    def knock(self, retry_s: float = _CONNECT_RETRY_S) -> None:
        """Ask for a connection, and again after ``retry_s`` without an answer."""
        if self.is_over or not self.process.is_alive:
            return
        if retry_s > _CONNECT_RETRY_MAX_S:
            self.failed(TimeoutError(errno.ETIMEDOUT, f"Connect call failed {self.remote}"))
            return
        network = self._tcp.network
        network.signal(network.link(self.process.host_name, self.remote[0]), self._tcp.knocked, self)
        self._retry = network.loop.call_later(retry_s, self.knock, 2 * retry_s, context=network.context)

    def opened(self) -> None:
        """The other end has agreed."""
        socket = self.socket
        if socket is None or self._is_open:
            return
        if self.is_over or not self.process.is_alive:
            socket.send_reset()
            return
        self._is_open = True
        self.give_up()
        if socket.error is not None:
            self._tell(socket.error)
            return
        self._tcp.counters.connected += 1
        self._tcp.note(socket)
        self._tcp.network.loop.enter(self.process, self._on_open, socket)

    def refused(self) -> None:
        """The other side has refused."""
        if not self.is_over:
            self._tcp.counters.refused += 1
            self.failed(ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {self.remote}"))

    def failed(self, error: OSError) -> None:
        """Nothing comes of it."""
        self.give_up()
        self._tell(error)

    def _tell(self, error: OSError) -> None:
        self._tcp.network.loop.enter(self.process, self._on_failed, error)

    def give_up(self) -> None:
        """Try no more and call nothing. Idempotent."""
        self.is_over = True
        if self._retry is not None:
            self._retry.cancel()


class Tcp:
    """All sockets of a world. ``hosts`` are the names that exist; ``seed`` decides the chances, per link."""

    def __init__(self, network: Network, hosts: Container[str], seed: int, config: TcpConfig | None = None) -> None:
        self.network = network
        #: May be replaced at any time; new sockets have its sizes.
        self.config = config if config is not None else TcpConfig()
        self.counters = TcpCounters()
        #: Told both ends of every new connection, that of the client first; may give them middleboxes.
        self.on_connection: Callable[[Socket, Socket], None] | None = None
        #: By link with limited bandwidth, when what was sent over it has left.
        self.busy_until: dict[Link, float] = {}
        self._hosts = hosts
        self._seed = seed
        self._chances: dict[Link, Callable[[], float]] = {}
        self._listening: dict[Address, Listening] = {}
        self._sockets: dict[str, dict[Socket, None]] = {}
        self._ports: dict[str, int] = {}
        self._until_powered: dict[str, list[Callable[[], None]]] = {}
        network.layers.append(self)

    def listen(self, process: Process, port: int, backlog: int) -> Listening:
        """Listen on a port of the host of ``process``, 0 for any; ``OSError`` if it is taken."""
        host = process.host_name
        address = (host, port or self.free_port(host))
        if address in self._listening:
            raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {address}")
        listening = self._listening[address] = Listening(self, process, address, max(1, backlog))
        return listening

    def stop_listening(self, listening: Listening) -> None:
        """Refuse connections from now on; called by the socket."""
        if self._listening.get(listening.address) is listening:
            del self._listening[listening.address]

    def connect(
        self,
        process: Process,
        remote: Address,
        on_open: Callable[[Socket], None],
        on_failed: Callable[[OSError], None],
    ) -> Callable[[], None]:
        """Connect ``process`` to a port of a host; returns what gives the attempt up. One of both is called in the end."""
        if remote[0] not in self._hosts:
            raise sockets.gaierror(sockets.EAI_NONAME, f"Name or service not known: {remote[0]!r}")
        attempt = _Attempt(self, process, remote, on_open, on_failed)
        attempt.knock()
        return attempt.give_up

    def reset_connections(self, host: str, other: str) -> int:
        """Break all connections between two hosts, as a firewall does: both ends hear of it, what is under way is lost."""
        ends = [end for end in self._sockets.get(host, ()) if end.remote[0] == other]
        for end in ends:
            end.cut()
            end.peer.cut()
        return len(ends)

    def half_open(self, host: str, other: str) -> int:
        """Have ``host`` take its connections with ``other`` for broken; what arrives on them is answered with a reset."""
        ends = [end for end in self._sockets.get(host, ()) if end.remote[0] == other]
        for end in ends:
            end.break_off()
        return len(ends)

    # ----------------------------------------------------------------------------------------- called by the network

    def process_killed(self, process: Process, *, power_loss: bool) -> None:
        """Close what the process had open; with ``power_loss`` the other ends are not told."""
        for listening in [each for each in self._listening.values() if each.process is process]:
            if power_loss:
                self.stop_listening(listening)
            else:
                listening.shut()
        for end in list(self._sockets.get(process.host_name, ())):
            if power_loss:
                end.vanish()
                self.forget(end)
            elif end.process is process:
                end.die()

    def power_on(self, host: str) -> None:
        """The machine answers again."""
        for callback in self._until_powered.pop(host, ()):
            self.network.loop.call_soon(callback, context=self.network.context)

    # ------------------------------------------------------------------------------------------ called by the sockets

    def knocked(self, attempt: _Attempt) -> None:
        """Answer an attempt to connect that has arrived."""
        host = attempt.remote[0]
        if attempt.is_over or not self.network.is_powered(host):
            return
        back = self.network.link(host, attempt.process.host_name)
        listening = self._listening.get(attempt.remote)
        if listening is None:
            self.network.signal(back, attempt.refused)
            return
        if attempt.listening is not listening:
            if listening.is_full:
                return
            attempt.listening, attempt.socket = listening, self._new_pair(attempt, listening)
        self.network.signal(back, attempt.opened)

    def _new_pair(self, attempt: _Attempt, listening: Listening) -> Socket:
        client = Socket(self, attempt.process, attempt.local, attempt.remote)
        server = Socket(self, listening.process, attempt.remote, attempt.local)
        client.peer, server.peer = server, client
        if self.on_connection is not None:
            self.on_connection(client, server)
        self.note(server)
        listening.enqueue(server)
        return client

    def note(self, end: Socket) -> None:
        """An end stands."""
        self._sockets.setdefault(end.process.host_name, {})[end] = None

    def forget(self, end: Socket) -> None:
        """An end is no more. Idempotent."""
        self._sockets.get(end.process.host_name, {}).pop(end, None)

    def carry(self, link: Link, callback: Callable[[], None], when: float) -> None:
        """Call ``callback`` at ``when``, or later if the link is blocked then: what TCP repeats until it arrives."""

        def arrive() -> None:
            if link.blocked:
                link.waiters.append(callback)
            else:
                callback()

        if link.blocked:
            link.waiters.append(callback)
        else:
            self.network.loop.call_at(when, arrive, context=self.network.context)

    def when_powered(self, host: str, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the machine has power again."""
        self._until_powered.setdefault(host, []).append(callback)

    def chance_of(self, link: Link) -> Callable[[], float]:
        """The stream of chance of what travels over ``link``."""
        draw = self._chances.get(link)
        if draw is None:
            draw = self._chances[link] = chance(self._seed, f"tcp {link.source}->{link.destination}")
        return draw

    def free_port(self, host: str) -> int:
        """An unused port; they are given out in order, and never twice."""
        port = self._ports[host] = self._ports.get(host, _FIRST_EPHEMERAL_PORT - 1) + 1
        return port
