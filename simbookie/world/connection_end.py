"""One end of a connection of the simulated network that carries objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simbookie.world.process import KILLED, RUNNING, Process

if TYPE_CHECKING:
    from simbookie.world.network import Network

__all__ = ["ConnectionEnd"]


class ConnectionEnd:
    """One end of a connection, in the hands of ``process``.

    The holder sets ``on_message`` and, to learn that the connection broke, ``on_lost``; both are called as code of the
    process. ``peer_name`` is the host at the other end.
    """

    __slots__ = ("_link", "_network", "is_closed", "is_cut", "on_lost", "on_message", "peer", "peer_name", "process")

    def __init__(self, network: Network, process: Process, peer_name: str) -> None:
        self.process = process
        self.peer_name = peer_name
        self.on_message: Callable[[Any], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.peer: ConnectionEnd | None = None
        #: Nothing goes out here any more. What the other end sent before it closed may still come in.
        self.is_closed = False
        #: The connection was reset on its way: what is under way to this end never arrives.
        self.is_cut = False
        self._network = network
        self._link = network.link(process.host_name, peer_name)

    def __repr__(self) -> str:
        return f"<ConnectionEnd {self.process.host_name} to {self.peer_name}{' closed' if self.is_closed else ''}>"

    def send(self, message: object) -> None:
        """Send ``message`` to the other end. Does nothing on a closed connection, nor for a killed process."""
        process = self.process
        state = process.state
        if self.is_closed or state is KILLED:
            return
        if state is RUNNING:
            peer = self.peer
            assert peer is not None, "a connection is used once it is established"
            self._network.transmit(self._link, peer, message)
        else:
            self._network.loop.enter(process, self.send, message)

    def close(self) -> None:
        """Give the connection up: nothing arrives here any more, the other end hears of it, ``on_lost`` is not called."""
        self.on_message = None
        if not self.is_closed:
            self._network.close_end(self)

    def take(self, message: object) -> None:
        """Hand ``message`` to the holder of this end; called by the network."""
        if self.on_message is not None:
            self.on_message(message)

    def lose(self) -> None:
        """Tell the holder that the connection broke; called by the network. A holder that was asleep has heard of it before."""
        if self.on_lost is not None:
            self.on_lost()
