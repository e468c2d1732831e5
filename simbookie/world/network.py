"""A network between named hosts, with everything that goes wrong in one.

Processes *connect* to hosts on which another process *listens* and exchange messages over the connection. Messages are Python
objects; they are not copied, so one that was sent must not be changed.

Each ordered pair of hosts is a :class:`Link` with its own chance: latency with jitter and an occasional slow tail, loss,
duplication. On a FIFO link (the default, as with TCP) messages arrive in the order in which they were sent; on others each
travels on its own. A blocked link carries nothing, in one direction only: silently, so that those who wait for an answer run
into their timeouts. Single messages are picked by :meth:`Network.intercept`.

Connections die as those of TCP do. A process that is killed while its machine lives takes its connections along: the other ends
hear of it after the time a message takes, unless the way is blocked. A machine without power says nothing; its old connections
are found dead when something arrives on them after it is back. What was sent before the sender died may arrive at any time; what
arrives for a process that is dead does not reach its successor.

A message takes four random numbers from its link, whatever becomes of it. So adding or removing a fault shifts the chances of the
later messages of a link by nothing, and those of other links never.

Not modelled: bandwidth, congestion, partial messages, and the retransmission of lost data, only that of connection attempts.
Streams of bytes over the same links have all of these but congestion; :mod:`simbookie.world.tcp` is a *layer* of the network.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Final, Protocol

from simbookie.world.attempt import Attempt
from simbookie.world.calls import size_of
from simbookie.world.connection_end import ConnectionEnd
from simbookie.world.faults import Action, Delay, Duplicate, Fate, Interception, Interceptions, Interrupt, Match
from simbookie.world.links import Link, NetworkConfig, NetworkCounters
from simbookie.world.loop import VirtualTimeLoop
from simbookie.world.process import KILLED, RUNNING, Process

__all__ = ["Accept", "Layer", "Network"]

#: When an attempt to connect is repeated: after this time, then after twice as much, and so on.
_CONNECT_RETRY_S: Final = 1.0
# Every message may ask for these, and members of an enumeration take longer to find.
_DROP: Final = Fate.DROP
_HOLD: Final = Fate.HOLD

Accept = Callable[["ConnectionEnd"], None]
_Parcel = tuple[Link, "ConnectionEnd", object]


class Layer(Protocol):
    """Connections of another kind over the same links, which share the fate of hosts: TCP's."""

    def process_killed(self, process: Process, *, power_loss: bool) -> None:
        """``process`` was killed, or its machine lost its power."""
        ...

    def power_on(self, host: str) -> None:
        """The machine has power again."""
        ...

    def reset_connections(self, host: str, other: str) -> int:
        """Break all connections between two hosts; returns how many there were."""
        ...

    def half_open(self, host: str, other: str) -> int:
        """Have ``host`` alone take its connections with ``other`` for broken; returns how many there were."""
        ...


class Network:
    """All links, connections and listeners of a world. Its chances come from ``seed``, split per link."""

    def __init__(self, loop: VirtualTimeLoop, seed: int, config: NetworkConfig | None = None) -> None:
        self.loop = loop
        #: The chances of all links that have none of their own; may be replaced at any time.
        self.config = config if config is not None else NetworkConfig()
        self.counters = NetworkCounters()
        self._seed = seed
        #: That of no process: what the network does is done by the world.
        self.context = Context()
        #: What else has connections here.
        self.layers: list[Layer] = []
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[str, tuple[Process, Accept]] = {}
        self._powered_off: dict[str, None] = {}
        self._ends: dict[Process, dict[ConnectionEnd, None]] = {}
        self._at_departure: Interceptions[Action] = Interceptions()
        self._at_arrival: Interceptions[Action] = Interceptions()

    def link(self, source: str, destination: str) -> Link:
        """The way from ``source`` to ``destination``."""
        link = self._links.get((source, destination))
        if link is None:
            link = self._links[source, destination] = Link(source, destination, self._seed)
        return link

    # -------------------------------------------------------------------------------------------------------- faults

    def block(self, source: str, destination: str, *, keep: bool = False) -> None:
        """Let nothing through from ``source`` to ``destination``, neither what is sent from now on nor what is under way.

        With ``keep`` it arrives after :meth:`unblock` instead of being lost, as TCP's retransmissions see to.
        """
        link = self.link(source, destination)
        link.blocked = True
        link.keep = keep

    def unblock(self, source: str, destination: str) -> None:
        """Let messages through again. Idempotent."""
        link = self.link(source, destination)
        link.blocked = link.keep = False
        waiters, link.waiters = link.waiters, []
        for waiter in waiters:
            self.loop.call_soon(waiter, context=self.context)

    def partition(self, *groups: tuple[str, ...], keep: bool = False) -> None:
        """Block every link between hosts of different ``groups``, both ways. Hosts in no group are not affected."""
        for index, group in enumerate(groups):
            others = [name for other in (*groups[:index], *groups[index + 1 :]) for name in other]
            for source in group:
                for destination in others:
                    self.block(source, destination, keep=keep)

    def heal(self) -> None:
        """Unblock all links."""
        for link in list(self._links.values()):
            if link.blocked:
                self.unblock(link.source, link.destination)

    def intercept(
        self, match: Match, action: Action, *, limit: int | None = None, at_arrival: bool = False
    ) -> Interception[Action]:
        """Do ``action`` to the messages that ``match``, the first ``limit`` ones if there is a limit.

        Looked at when a message is sent, or ``at_arrival`` right before it is delivered. Of several interceptions that match,
        the one made first acts. A ``match`` that injects other faults does so before the message: a sender that it kills
        does not send it, a receiver that it kills does not get it.
        """
        return (self._at_arrival if at_arrival else self._at_departure).add(match, action, limit)

    @property
    def is_intercepting(self) -> bool:
        """Whether anything that leaves may be intercepted."""
        return self._at_departure.are_in_force

    def intercepted(self, link: Link, message: object, send_on: Callable[[], None]) -> Action | None:
        """The action for a message that leaves over ``link``, if one is meant for it; ``send_on`` releases one that is held.

        For layers; what is dropped or held is counted, and nothing else is done.
        """
        return self._intercepted(self._at_departure, link, message, send_on)

    def reset_connections(self, host: str, other: str) -> int:
        """Break all connections between two hosts, as a firewall does: both ends hear of it, what is under way is lost.

        Returns how many there were.
        """
        broken = sum(layer.reset_connections(host, other) for layer in self.layers)
        for end in self._ends_between(host, other):
            if end.peer is not None:
                broken += 1
                self._cut(end)
        return broken

    def half_open(self, host: str, other: str) -> int:
        """Have ``host`` take its connections with ``other`` for broken, which hears of it when it sends something.

        Returns how many there were.
        """
        lost = sum(layer.half_open(host, other) for layer in self.layers)
        for end in self._ends_between(host, other):
            lost += 1
            end.is_cut = True
            self._break(end)
        return lost

    def _ends_between(self, host: str, other: str) -> list[ConnectionEnd]:
        ends = [end for process, ends in self._ends.items() if process.host_name == host for end in ends]
        return [end for end in ends if end.peer_name == other]

    # --------------------------------------------------------------------------------------------------- connections

    def listen(self, process: Process, accept: Accept) -> None:
        """Accept connections to the host of ``process``: ``accept`` is called with each, as code of the process."""
        self._listeners[process.host_name] = (process, accept)

    def connect(
        self,
        process: Process,
        host: str,
        on_open: Callable[[ConnectionEnd], None],
        on_refused: Callable[[], None],
    ) -> Callable[[], None]:
        """Connect ``process`` to the listener on ``host``; returns what gives the attempt up.

        ``on_open`` gets the established connection. ``on_refused`` is called where nothing listens. Where the network or the
        machine is silent neither is called, though the attempt is repeated: the caller sets the limit.
        """
        attempt = Attempt(self, process, host, on_open, on_refused)
        attempt.knock(_CONNECT_RETRY_S)
        return attempt.give_up

    def establish(self, attempt: Attempt) -> None:
        """Answer an attempt to connect that has arrived; called by the attempt."""
        listener = self._listeners.get(attempt.host)
        if attempt.host in self._powered_off or attempt.is_over:
            return
        back = self.link(attempt.host, attempt.process.host_name)
        if listener is None or not listener[0].is_alive:
            self.signal(back, attempt.refused)
            return
        process, accept = listener
        if attempt.ends is None or attempt.ends[0].process is not process:
            server = ConnectionEnd(self, process, attempt.process.host_name)
            client = ConnectionEnd(self, attempt.process, attempt.host)
            server.peer, client.peer = client, server
            attempt.ends = (server, client)
            self._ends.setdefault(process, {})[server] = None
            self.loop.enter(process, accept, server)
        self.signal(back, attempt.opened, attempt.ends[1])

    def opened(self, end: ConnectionEnd) -> None:
        """Note that the client's side of a connection stands; called by the attempt."""
        self.counters.connected += 1
        self._ends.setdefault(end.process, {})[end] = None

    def close_end(self, end: ConnectionEnd) -> None:
        """Close one end and tell the other."""
        self._forget(end)
        if end.peer is not None:
            self.signal(self.link(end.process.host_name, end.peer_name), self._break, end.peer)

    def process_killed(self, process: Process, *, power_loss: bool = False) -> None:
        """Break the connections of a process that was killed; with ``power_loss`` the other ends are not told."""
        if power_loss:
            self._powered_off[process.host_name] = None
        for end in list(self._ends.pop(process, ())):
            end.is_closed = True
            if end.peer is not None and not power_loss:
                self.signal(self.link(process.host_name, end.peer_name), self._break, end.peer)
        for layer in self.layers:
            layer.process_killed(process, power_loss=power_loss)

    def power_on(self, host: str) -> None:
        """Let the machine answer again. Idempotent."""
        self._powered_off.pop(host, None)
        for layer in self.layers:
            layer.power_on(host)

    def is_powered(self, host: str) -> bool:
        """Whether the machine has power."""
        return host not in self._powered_off

    def _break(self, end: ConnectionEnd) -> None:
        """The news that a connection is dead arrive at ``end``."""
        if end.is_closed or not end.process.is_alive:
            return
        self._forget(end)
        self.counters.broken += 1
        self.loop.enter(end.process, end.lose)

    def _forget(self, end: ConnectionEnd) -> None:
        end.is_closed = True
        ends = self._ends.get(end.process)
        if ends is not None:
            ends.pop(end, None)

    # ------------------------------------------------------------------------------------------------------ messages

    def transmit(self, link: Link, end: ConnectionEnd, message: object) -> None:
        """Send ``message`` over ``link`` to ``end``; called by the end that sends."""
        counters, random = self.counters, link.random or link.begin()
        counters.sent += 1
        config = link.config or self.config
        latency = config.latency_s + config.jitter_s * random()
        slow, luck, copy = random(), random(), random()
        if slow < config.slow_probability:
            latency += config.slow_s * (slow / config.slow_probability)
        action = None
        if self._at_departure.made:
            action = self._leaves(link, end, message, latency)
            if action is _DROP:
                return
        if link.blocked:
            self._stop(link, end, message, latency)
            return
        if action is None and luck < config.loss_probability:
            counters.lost += 1
            return
        loop = self.loop
        if action is not None and isinstance(action, Delay):
            counters.delayed += 1
            loop.call_later(latency + action.seconds, self._arrive, (link, end, message), context=self.context)
        else:  # as _schedule(), whose call every message would cost
            fifo = config.fifo
            when = loop.now + latency
            if fifo:
                when = link.last_arrival = max(when, link.last_arrival)
            parcel = link, end, message
            loop.deliver_at(when, link.strand, self._arrive, (parcel,), self.context, is_ordered=fifo)
        if action is None:
            if luck >= 1 - config.duplicate_probability:
                self._send_copies(1, latency, config.latency_s + config.jitter_s * copy, (link, end, message))
        elif isinstance(action, Duplicate):
            self._send_copies(action.copies, latency, config.latency_s + config.jitter_s * copy, (link, end, message))

    def _leaves(self, link: Link, end: ConnectionEnd, message: object, latency: float) -> Action | None:
        """The action for a message that is sent; ``DROP`` also for one that is held, and where it ended the sender."""
        action = self.intercepted(link, message, partial(self._send_on, link, end, message, latency))
        if isinstance(action, Interrupt):
            action.act()
            return _DROP
        sender = end.peer
        return _DROP if action is _HOLD or (sender is not None and sender.process.state is KILLED) else action

    def _send_copies(self, copies: int, latency: float, copy_latency: float, parcel: _Parcel) -> None:
        """Have copies arrive one after the other, the first one so long after the message."""
        for number in range(1, copies + 1):
            self.counters.duplicated += 1
            self.loop.call_later(latency + number * copy_latency, self._arrive, parcel, context=self.context)

    def _schedule(
        self, latency: float, arrive: Callable[[Link, ConnectionEnd, object], None], *parcel: *_Parcel
    ) -> None:
        """Call ``arrive`` after ``latency``; on a FIFO link, not before what was sent before."""
        link, loop = parcel[0], self.loop
        when = loop.time() + latency
        fifo = (link.config or self.config).fifo
        if fifo:
            when = link.last_arrival = max(when, link.last_arrival)
        loop.deliver_at(when, link.strand, arrive, parcel, self.context, is_ordered=fifo)

    def _intercepted(
        self, interceptions: Interceptions[Action], link: Link, message: object, send_on: Callable[[], None]
    ) -> Action | None:
        """The action for a message, if one is meant for it. What is dropped or held is dealt with here."""
        interception = interceptions.meant_for(link.source, link.destination, message)
        if interception is None:
            return None
        action = interception.action
        if action is _DROP or isinstance(action, Interrupt):
            self.counters.dropped += 1
        elif action is _HOLD:
            self.counters.held += 1
            interception.hold(send_on)
        return action

    def _send_on(self, link: Link, end: ConnectionEnd, message: object, latency: float) -> None:
        """Let a message that was stopped travel on, past every interception and chance."""
        if link.blocked:
            self._stop(link, end, message, latency)
        else:
            self._schedule(latency, self._deliver, link, end, message)

    def _stop(self, link: Link, end: ConnectionEnd, message: object, latency: float) -> None:
        self.counters.blocked += 1
        if link.keep:
            link.waiters.append(partial(self._send_on, link, end, message, latency))

    def _arrive(self, parcel: _Parcel) -> None:
        link, end, message = parcel
        if self._at_arrival.made and not self._comes_in(link, end, message):
            return
        process = end.process
        is_plain = (
            link.cut_after is None and link.read_rate is None and not (link.read_until or link.blocked or end.is_cut)
        )
        if is_plain and process.state is RUNNING and process.late is None:  # as _deliver(), whose calls all would cost
            self.counters.delivered += 1
            on_message = end.on_message
            if on_message is not None:
                process.base.copy().run(on_message, message)
        else:
            self._deliver(link, end, message)

    def _comes_in(self, link: Link, end: ConnectionEnd, message: object) -> bool:
        """Whether a message that has arrived goes on to its end now; copies of it go first."""
        action = self._intercepted(self._at_arrival, link, message, partial(self._send_on, link, end, message, 0.0))
        if action is _DROP or action is _HOLD:
            return False
        if isinstance(action, Delay):
            self.counters.delayed += 1
            self.loop.call_later(action.seconds, self._deliver, link, end, message, context=self.context)
            return False
        if isinstance(action, Duplicate):
            self.counters.duplicated += action.copies
            for _ in range(action.copies):
                self._deliver(link, end, message)
        return True

    def _deliver(self, link: Link, end: ConnectionEnd, message: object) -> None:
        if link.blocked:
            self._stop(link, end, message, 0.0)
            return
        process = end.process
        if process.state is KILLED or end.is_cut:
            self._discard(end)
        elif link.cut_after is None and link.read_rate is None and not link.read_until:
            self.counters.delivered += 1
            self.loop.enter(process, end.take, message)
        else:
            self._let_through(link, end, message)

    def _let_through(self, link: Link, end: ConnectionEnd, message: object) -> None:
        """Deliver to an end that stands, as fast as its holder reads; or break the connection here."""
        now = self.loop.time()
        if link.cut_after is not None:
            link.cut_after -= size_of(message)
            if link.cut_after < 0:
                link.cut_after = None
                self._cut(end)
                return
        if link.read_rate is None and link.read_until <= now:
            self.counters.delivered += 1
            self.loop.enter(end.process, end.take, message)
            return
        takes_s = 0.0 if link.read_rate is None else size_of(message) / link.read_rate
        link.read_until = max(now, link.read_until) + takes_s
        self.loop.call_at(link.read_until, self._read_slowly, end, message, context=self.context)

    def _read_slowly(self, end: ConnectionEnd, message: object) -> None:
        if end.process.is_alive and not end.is_cut:
            self.counters.delivered += 1
            self.loop.enter(end.process, end.take, message)
        else:
            self._discard(end)

    def _cut(self, end: ConnectionEnd) -> None:
        """Something between both ends breaks the connection."""
        for side in (end, end.peer):
            if side is not None:
                side.is_cut = True
                self.signal(self.link(side.peer_name, side.process.host_name), self._break, side)

    def _discard(self, end: ConnectionEnd) -> None:
        """A message has come to an end that is no more."""
        process = end.process
        self.counters.discarded += 1
        if end.peer is not None and process.host_name not in self._powered_off:
            self.signal(self.link(process.host_name, end.peer_name), self._break, end.peer)

    def signal(self, link: Link, callback: Callable[..., None], *args: object) -> None:
        """Send what keeps connections going: like a message, but unaffected by chance, and lost on a blocked link."""
        if link.blocked:
            return
        config = link.config or self.config
        when = self.loop.now + config.latency_s + config.jitter_s / 2
        if config.fifo:
            when = link.last_arrival = max(when, link.last_arrival)

        def arrive() -> None:
            if not link.blocked:
                callback(*args)

        self.loop.deliver_at(when, link.strand, arrive, (), self.context, is_ordered=config.fifo)
