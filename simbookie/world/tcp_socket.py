"""Sockets in the kernels of a world's hosts: the ends of connections.

A :class:`Socket` goes on sending and receiving while its process is paused, and says goodbye for a process that was killed. What
is sent is kept in a bounded buffer, leaves in *segments* as far as the other end's bounded buffer has room, takes the time that
the link's bandwidth and latency say, and is put in order again where it arrives. :mod:`simbookie.world.tcp` says what goes wrong.
"""

from __future__ import annotations

import errno
import os
import socket as sockets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from simbookie.world.schedule import Strand

if TYPE_CHECKING:
    from simbookie.world.links import Link
    from simbookie.world.process import Process
    from simbookie.world.tcp import Tcp

__all__ = ["Address", "Middlebox", "Socket"]

Bytes = bytes | bytearray | memoryview

#: How often a process that reads slowly reads in a second.
_SLOW_READS_PER_S: Final = 20

Address = tuple[str, int]
"""The name of a host, and a port."""


class Middlebox(Protocol):
    """Looks into one direction of a connection, and decides what of it travels on, with :meth:`Socket.launch`."""

    def forward(self, data: bytes) -> None:
        """Bytes that are to travel on, in order."""
        ...

    def end(self, finish: Callable[[], None]) -> None:
        """Nothing more comes; call ``finish`` when everything is on its way."""
        ...


class Socket:
    """One end of an established connection.

    Has the names of :class:`socket.socket` where event loops and servers use them. :attr:`on_readable` and
    :attr:`on_writable` are called as code of the process when there is something to read (the end or an error count) and when
    there is room again after :meth:`send` had none.
    """

    __slots__ = (
        "_ack_is_due",
        "_bytes_to_acknowledge",
        "_early",
        "_end_is_wanted",
        "_expected",
        "_has_end",
        "_has_sent_end",
        "_is_closed",
        "_is_cut",
        "_is_full",
        "_is_gone",
        "_is_reading_slowly",
        "_is_silent",
        "_is_telling",
        "_last_arrival",
        "_next_number",
        "_random",
        "_received",
        "_strand",
        "_tcp",
        "_unsent",
        "_window_used",
        "error",
        "link",
        "local",
        "middlebox",
        "on_readable",
        "on_writable",
        "options",
        "peer",
        "process",
        "receive_buffer_bytes",
        "remote",
        "send_buffer_bytes",
    )

    def __init__(self, tcp: Tcp, process: Process, local: Address, remote: Address) -> None:
        self.process = process
        self.local = local
        self.remote = remote
        self.peer: Socket
        self.link: Link = tcp.network.link(process.host_name, remote[0])
        self.middlebox: Middlebox | None = None
        self.on_readable: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        #: Why the connection broke.
        self.error: OSError | None = None
        #: What was asked for, by level and option; buffer sizes are heeded.
        self.options: dict[tuple[int, int], int] = {}
        self.send_buffer_bytes = tcp.config.send_buffer_bytes
        self.receive_buffer_bytes = tcp.config.receive_buffer_bytes
        self._tcp = tcp
        self._random = tcp.chance_of(self.link)
        self._strand = Strand(f"{local[0]}:{local[1]}>{remote[0]}:{remote[1]}")
        # Outgoing: what was handed over and has not left, and how much of the other end's buffer is used or under way there.
        self._unsent = bytearray()
        self._window_used = 0
        self._is_full = False
        self._end_is_wanted = False
        self._has_sent_end = False
        self._next_number = 0
        self._last_arrival = 0.0
        # Incoming: what can be read, and what came before its turn.
        self._received = bytearray()
        self._has_end = False
        self._expected = 0
        self._early: dict[int, bytes | None] = {}
        self._bytes_to_acknowledge = 0
        self._ack_is_due = False
        self._is_telling = False
        #: The process has closed it; nothing is told and nothing read any more.
        self._is_closed = False
        #: Whatever arrives is answered with a reset.
        self._is_gone = False
        #: The machine lost its power: what has not left will not.
        self._is_silent = False
        #: Nothing arrives any more.
        self._is_cut = False
        #: The process has read what it may for now.
        self._is_reading_slowly = False

    def __repr__(self) -> str:
        state = "broken" if self.error else "closed" if self._is_closed else "open"
        return f"<Socket {self.local[0]}:{self.local[1]} to {self.remote[0]}:{self.remote[1]} {state}>"

    # ----------------------------------------------------------------------------------------- as programs see sockets

    def getsockname(self) -> Address:
        """The address of this end."""
        return self.local

    def getpeername(self) -> Address:
        """The address of the other end."""
        return self.remote

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Note an option; sizes of buffers count from now on."""
        self.options[level, option] = value
        if (level, option) == (sockets.SOL_SOCKET, sockets.SO_SNDBUF):
            self.send_buffer_bytes = max(1, value)
        elif (level, option) == (sockets.SOL_SOCKET, sockets.SO_RCVBUF):
            self.receive_buffer_bytes = max(1, value)

    def settimeout(self, _timeout_s: float | None) -> None:
        """Nothing to do: no call ever waits."""

    @property
    def is_readable(self) -> bool:
        """Whether :meth:`recv_into` has something to say: bytes, the end, or an error."""
        if self._is_reading_slowly:
            return False
        return bool(self._received) or self._has_end or self.error is not None

    def recv(self, size: int) -> bytes:
        """Up to ``size`` bytes, none at the end of the stream; ``BlockingIOError`` if there is nothing yet."""
        buffer = bytearray(min(size, len(self._received)) or 1)
        return bytes(buffer[: self.recv_into(buffer)])

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """The same, into ``buffer``; returns the number of bytes."""
        received = self._received
        if received:
            if self._is_reading_slowly:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            view = memoryview(buffer)
            size = min(len(view), len(received))
            rate = self.peer.link.read_rate
            if rate is not None:
                size = min(size, max(1, rate // _SLOW_READS_PER_S))
                self._rest(size / rate)
            view[:size] = received[:size]
            del received[:size]
            self._acknowledge(size)
            return size
        if self.error is not None:
            raise self.error
        if self._has_end:
            return 0
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def send(self, data: Bytes) -> int:
        """Hand over as much of ``data`` as there is room for; returns how much. After too little, :attr:`on_writable` follows."""
        if self.error is not None:
            raise self.error
        if self._end_is_wanted or self._is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        view = memoryview(data)
        if not self.process.is_alive:
            return len(view)
        if not self.process.is_running:  # it was paused by what it called, and sends this when it goes on
            self._tcp.network.loop.enter(self.process, self._hand_over, bytes(view))
            return len(view)
        sent = 0
        while sent < len(view):
            room = self.send_buffer_bytes - len(self._unsent)
            if room <= 0:
                self._is_full = True
                break
            self._hand_over(view[sent : sent + room])
            sent += min(room, len(view) - sent)
        return sent

    def shutdown(self, _how: int = sockets.SHUT_WR) -> None:
        """End the stream of this end after what was handed over; the other direction stays open."""
        if self.process.is_alive:
            self._end()

    def close(self) -> None:
        """Give the socket up: what was handed over is sent, then the end; a reset if something is left unread. Idempotent."""
        if not self._is_closed and self.process.is_alive:
            self._close()

    # ----------------------------------------------------------------------------------------------- the kernel, sending

    def _close(self) -> None:
        self._is_closed = True
        self.on_readable = self.on_writable = None
        if self.error is not None or self._is_gone:
            return
        if self._received:
            self._received.clear()
            self.send_reset()
        else:
            self._end()

    def _end(self) -> None:
        if not self._end_is_wanted and self.error is None and not self._is_gone:
            self._end_is_wanted = True
            self._pump()

    def _hand_over(self, data: Bytes) -> None:
        self._unsent += data
        self._pump()

    def _pump(self) -> None:
        """Let go what the other end has room for."""
        if self._is_silent or self._is_gone or self.error is not None:
            return
        unsent, config = self._unsent, self._tcp.config
        while unsent:
            window = self.peer.receive_buffer_bytes - self._window_used
            size = min(len(unsent), window, config.segment_bytes)
            if size <= 0:
                break
            if size > 1 and config.cut_probability and self._random() < config.cut_probability:
                size = 1 + int(self._random() * (size - 1))
            piece = bytes(unsent[:size])
            del unsent[:size]
            if self.middlebox is None:
                self.launch(piece)
            else:
                self.middlebox.forward(piece)
        if self._end_is_wanted and not self._has_sent_end and not unsent:
            self._has_sent_end = True
            if self.middlebox is None:
                self.launch_end()
            else:
                self.middlebox.end(self.launch_end)
        if self._is_full and 2 * len(unsent) <= self.send_buffer_bytes:
            self._is_full = False
            if self.on_writable is not None:
                self._tcp.network.loop.enter(self.process, self._tell_writable)

    def launch(self, piece: bytes) -> None:
        """Send a segment on its way; called by the middlebox, if there is one."""
        self._window_used += len(piece)
        self._number_and_send(piece)

    def launch_end(self) -> None:
        """Send the end of the stream on its way; for middleboxes too."""
        self._number_and_send(None)
        if self._has_end and self._is_closed:
            self._tcp.forget(self)

    def _number_and_send(self, piece: bytes | None) -> None:
        number = self._next_number
        self._next_number += 1
        self._tcp.counters.segments += 1
        self._travel(number, piece)

    def _travel(self, number: int, piece: bytes | None) -> None:
        if self._is_silent or self._is_gone:
            return
        if self.link.blocked:
            self._again_when_unblocked(number, piece)
            return
        when = self._arrival_time(0 if piece is None else len(piece))
        network = self._tcp.network
        network.loop.deliver_at(when, self._strand, self._arrive, (number, piece), network.context)

    def _arrival_time(self, size: int) -> float:
        tcp, link, random = self._tcp, self.link, self._random
        chances, config = link.config or tcp.network.config, tcp.config
        latency = chances.latency_s + chances.jitter_s * random()
        if chances.slow_probability:
            slow = random()
            if slow < chances.slow_probability:
                latency += chances.slow_s * (slow / chances.slow_probability)
        if chances.loss_probability:
            wait_s = config.retransmit_s
            while random() < chances.loss_probability:
                tcp.counters.retransmitted += 1
                latency += wait_s
                wait_s *= 2
        when = tcp.network.loop.time()
        if size and config.bandwidth is not None:
            when = tcp.busy_until[link] = max(when, tcp.busy_until.get(link, 0.0)) + size / config.bandwidth
        self._last_arrival = max(when + latency, self._last_arrival)
        return self._last_arrival

    def _again_when_unblocked(self, number: int, piece: bytes | None) -> None:
        self._tcp.counters.retransmitted += 1
        self.link.waiters.append(lambda: self._travel(number, piece))

    def _arrive(self, number: int, piece: bytes | None) -> None:
        if self.link.blocked:
            self._again_when_unblocked(number, piece)
        elif self.link.cut_after is None or piece is None:
            self.peer.take(number, piece)
        elif len(piece) <= self.link.cut_after:
            self.link.cut_after -= len(piece)
            self.peer.take(number, piece)
        else:
            left, self.link.cut_after = self.link.cut_after, None
            self.peer.take(number, piece[:left])
            self.cut()
            self.peer.cut()

    def _rest(self, for_s: float) -> None:
        """Let the process read nothing for so long."""
        self._is_reading_slowly = True
        network = self._tcp.network
        network.loop.call_later(for_s, self._read_on, context=network.context)

    def _read_on(self) -> None:
        self._is_reading_slowly = False
        if self.is_readable:
            self._tell_readable()

    def send_reset(self) -> None:
        """Tell the other end that there is no connection any more, and forget it here."""
        self._is_gone = True
        self._unsent.clear()
        self._tcp.forget(self)
        self._send_reset_again()

    def _send_reset_again(self) -> None:
        self._tcp.carry(self.link, self.peer.break_off, self._arrival_time(0))

    # --------------------------------------------------------------------------------------------- the kernel, receiving

    def take(self, number: int, piece: bytes | None) -> None:
        """A segment has arrived; None is the end of the stream. Called by the other end."""
        tcp = self._tcp
        host = self.process.host_name
        if self._is_cut:
            return
        if not tcp.network.is_powered(host):
            tcp.when_powered(host, lambda: self.take(number, piece))
        elif self._is_gone or self.error is not None:
            self._send_reset_again()
        elif number == self._expected:
            self._accept(piece)
            while self._early and self._expected in self._early and not self._is_gone:
                self._accept(self._early.pop(self._expected))
            self._tell_readable()
        elif number > self._expected:
            self._early[number] = piece

    def _accept(self, piece: bytes | None) -> None:
        self._expected += 1
        if piece is None:
            self._has_end = True
            if self._is_closed and self._has_sent_end:
                self._tcp.forget(self)
        elif self._is_closed:
            self.send_reset()  # it will not be read
        else:
            self._received += piece
            self._tcp.counters.bytes_delivered += len(piece)

    def break_off(self) -> None:
        """The connection was reset; called by the other end, or by a fault."""
        if self.error is None and not self._is_gone:
            self.error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self._unsent.clear()
            self._tcp.counters.reset += 1
            self._tcp.forget(self)
            self._tell_readable()
            if self.on_writable is not None:
                self._tcp.network.loop.enter(self.process, self._tell_writable)

    def sever(self) -> None:
        """Break the connection behind what this end has sent, which arrives; both ends hear of it. For middleboxes."""
        self._is_silent = True
        tcp, back = self._tcp, self.peer.link
        tcp.carry(self.link, self.peer.break_off, self._arrival_time(0))
        latency_s = (back.config or tcp.network.config).latency_s
        tcp.carry(back, self.break_off, tcp.network.loop.time() + latency_s)

    def cut(self) -> None:
        """Something between both ends breaks the connection: what is under way is lost, and this end will hear of it."""
        self._is_cut = self._is_silent = True
        link = self.peer.link
        latency_s = (link.config or self._tcp.network.config).latency_s
        self._tcp.carry(link, self.break_off, self._tcp.network.loop.time() + latency_s)

    def vanish(self) -> None:
        """The machine lost its power."""
        self._is_gone = self._is_silent = True
        self.on_readable = self.on_writable = None

    def die(self) -> None:
        """The process was killed, the machine lives on."""
        self._close()

    def _acknowledge(self, size: int) -> None:
        """The process has read so much: there is room for more, which the other end has to learn if it waits for it."""
        peer, link, tcp = self.peer, self.link, self._tcp
        self._bytes_to_acknowledge += size
        if self._ack_is_due:
            return
        if link.blocked:
            self._ack_is_due = True
            link.waiters.append(self._acknowledged)
        elif peer._unsent:  # noqa: SLF001  the other end of the same connection
            self._ack_is_due = True
            tcp.carry(link, self._acknowledged, tcp.network.loop.time() + (link.config or tcp.network.config).latency_s)
        else:
            self._acknowledged()

    def _acknowledged(self) -> None:
        peer, size = self.peer, self._bytes_to_acknowledge
        self._ack_is_due = False
        self._bytes_to_acknowledge = 0
        peer._window_used -= size  # noqa: SLF001
        if peer._unsent:  # noqa: SLF001
            peer._pump()  # noqa: SLF001

    def _tell_readable(self) -> None:
        if self.on_readable is not None and not self._is_telling:
            self._is_telling = True
            self._tcp.network.loop.enter(self.process, self._told_readable)

    def _told_readable(self) -> None:
        self._is_telling = False
        if self.on_readable is not None:
            self.on_readable()

    def _tell_writable(self) -> None:
        if self.on_writable is not None:
            self.on_writable()
