"""A client's session with the metadata service of a simulated world.

Does over simulated links what the ZooKeeper driver does over real ones, with the same promises (:mod:`bkclient.metadata.base`):

* calls take time and are carried out in the order in which they were made;
* a call that is lost is repeated until its time is up, except a compare-and-set, whose loss is
  :class:`~bkclient.errors.MetadataOutcomeUnknown`;
* without a connection calls wait, and fail with :class:`~bkclient.errors.MetadataStoreError`;
* watches report late, in order, and survive everything;
* a session that was lost is replaced, its watches and bookies with it.

A call of a process that crashes is carried out only if it has reached the service by then. A call that was given up, by a timeout
or because its caller was cancelled, may still be carried out.

A session ends when its client closes it, some time after the client's process crashed, or by
:meth:`~simbookie.world.metadata_service.SimulatedMetadataService.lose_sessions`; not just because links are blocked for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

from bkclient.errors import BookKeeperError, ClientClosed, MetadataOutcomeUnknown, MetadataStoreError
from bkclient.ledger import BookieId, LedgerMetadata, Versioned
from bkclient.metadata.base import (
    BookieAddress,
    BookieListener,
    BookieSets,
    Cancel,
    LedgerListener,
    MetadataStore,
)
from bkclient.metadata.creator_token import with_creator_token
from bkclient.metadata.paths import check_ledger_id
from simbookie.world.faults import Delay
from simbookie.world.hosts import Host, World
from simbookie.world.metadata_service import METADATA_HOST, MetadataAction, MetadataCall, MetadataFault
from simbookie.world.node_tree import SimulatedTree
from simbookie.world.process import Process
from simbookie.world.schedule import Strand

__all__ = ["OpenSession", "SimulatedMetadataStore"]

T = TypeVar("T")

# Every call asks for these, and members of an enumeration take longer to find.
_CONFLICT: Final = MetadataFault.CONFLICT
_ANSWER_LOST: Final = MetadataFault.ANSWER_LOST
_CALL_LOST: Final = MetadataFault.CALL_LOST
_FAIL: Final = MetadataFault.FAIL
_STALE: Final = MetadataFault.STALE
_HOLD: Final = MetadataFault.HOLD

_WRITES: Final = ("create_ledger", "write_ledger")

OpenSession = Callable[[], MetadataStore]
"""Opens a session with the service itself, below all delays and faults; recorders wrap what it returns."""


class _CallLostError(Exception):
    """The connection was lost before the answer came."""


@dataclass(slots=True, eq=False)
class _Call(Generic[T]):
    """A call under way: what it is, how it is carried out, and who waits for its answer."""

    call: MetadataCall
    carry_out: Callable[[MetadataStore], Awaitable[T]]
    answer: asyncio.Future[T]
    session: MetadataStore
    action: MetadataAction | None
    answer_latency_s: float


@dataclass(slots=True, eq=False)
class _Watch:
    """A watch of a client, through all its sessions."""

    subscribe: Callable[[MetadataStore, Callable[[Any], None]], Cancel]
    listener: Callable[[Any], None]
    is_cancelled: bool = False
    unsubscribe: Cancel | None = None
    #: What the client has not been told yet, the last of it; empty if nothing.
    news: list[Any] = field(default_factory=list)
    #: When the last news that were late arrive, which later ones do not overtake.
    arrives_at: float = 0.0

    def cancel(self) -> None:
        """Tell the client nothing more."""
        self.is_cancelled = True
        if self.unsubscribe is not None:
            self.unsubscribe()

    def tell(self, value: Any) -> None:
        """Tell the client."""
        if not self.is_cancelled:
            self.listener(value)


class SimulatedMetadataStore:
    """A :class:`~bkclient.metadata.base.MetadataStore` for the process that runs on ``host`` at present.

    ``open_session`` is called at once, and again after a session was lost; without it sessions are the service's own.
    """

    def __init__(self, world: World, host: Host, open_session: OpenSession | None = None) -> None:
        self._service = world.metadata
        self._network = world.network
        self._loop = world.loop
        self._context = world.metadata.context
        self._process: Process = host.process
        self._host_name = host.name
        self._rng = world.rng(f"metadata of {host.name}#{host.incarnation}")
        self._way_out = world.network.link(host.name, METADATA_HOST)
        self._way_back = world.network.link(METADATA_HOST, host.name)
        self._open_session = open_session if open_session is not None else world.metadata.open_session
        self._session = self._open_session()
        self._is_closed = False
        self._has_session = True
        self._session_waiters: list[Callable[[], None]] = []
        self._last_arrival = 0.0
        self._last_answer = 0.0
        # of this session, for a host's later process has one of its own
        ways = (self._way_out, self._way_back)
        self._calls, self._answers = (Strand(f"{way.source}>{way.destination}#{host.incarnation}") for way in ways)
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._watches: dict[_Watch, None] = {}
        self._registered: dict[BookieId, tuple[BookieAddress, bool]] = {}
        self._forget_host = host.on_crash(self._crashed)
        self._service.attach(self._host_name, self)

    # ------------------------------------------------------------------------------------------------------- ledgers

    async def generate_ledger_id(self) -> int:
        """See :class:`~bkclient.metadata.base.MetadataStore`, as for all that follows."""
        return await self._ask(self._named("generate_ledger_id"), lambda store: store.generate_ledger_id())

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned:
        """See there. Repeated after a loss, and recognised by its creator token."""
        check_ledger_id(metadata.ledger_id)
        tokened = with_creator_token(metadata, self._rng)
        call = self._named("create_ledger", tokened.ledger_id, tokened)
        return await self._ask(call, lambda store: store.create_ledger(tokened))

    async def read_ledger(self, ledger_id: int) -> Versioned:
        """See there."""
        check_ledger_id(ledger_id)
        return await self._ask(self._named("read_ledger", ledger_id), lambda store: store.read_ledger(ledger_id))

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        """See there. Never repeated: a compare-and-set that was carried out would conflict with itself."""
        check_ledger_id(metadata.ledger_id)
        call = MetadataCall(self._host_name, "write_ledger", metadata.ledger_id, metadata, expected_version)
        return await self._ask(call, lambda store: store.write_ledger(metadata, expected_version), is_repeatable=False)

    async def delete_ledger(self, ledger_id: int) -> None:
        """See there."""
        check_ledger_id(ledger_id)
        await self._ask(self._named("delete_ledger", ledger_id), lambda store: store.delete_ledger(ledger_id))

    async def list_ledgers(self) -> AsyncIterator[int]:
        """See there. One call: the ids as of one moment, but for those that the service omits for this host."""
        is_omitted, host = self._service.is_omitted, self._host_name

        async def collect(store: MetadataStore) -> list[int]:
            return [ledger_id async for ledger_id in store.list_ledgers() if not is_omitted(host, ledger_id)]

        for ledger_id in await self._ask(self._named("list_ledgers"), collect):
            yield ledger_id

    def watch_ledger(self, ledger_id: int, listener: LedgerListener) -> Cancel:
        """See there."""
        check_ledger_id(ledger_id)
        return self._watch(lambda store, tell: store.watch_ledger(ledger_id, tell), listener)

    # ------------------------------------------------------------------------------------------------------- bookies

    async def bookies(self) -> BookieSets:
        """See there."""
        return await self._ask(self._named("bookies"), lambda store: store.bookies())

    def watch_bookies(self, listener: BookieListener) -> Cancel:
        """See there."""
        return self._watch(lambda store, tell: store.watch_bookies(tell), listener)

    async def bookie_address(self, bookie_id: BookieId) -> BookieAddress:
        """See there."""
        return await self._ask(self._named("bookie_address"), lambda store: store.bookie_address(bookie_id))

    async def register_bookie(self, bookie_id: BookieId, address: BookieAddress, *, read_only: bool = False) -> None:
        """See there. While another session holds the id, which may be that of an earlier life, this waits for its end."""
        config = self._service.config
        patience_ends = self._loop.time() + config.session_timeout_s + config.timeout_s
        while True:
            try:
                await self._ask(
                    self._named("register_bookie"),
                    lambda store: store.register_bookie(bookie_id, address, read_only=read_only),
                )
            except MetadataStoreError:
                if self._loop.time() >= patience_ends:
                    raise
                await asyncio.sleep(config.retry_s)
            else:
                self._registered[bookie_id] = (address, read_only)
                return

    async def unregister_bookie(self, bookie_id: BookieId) -> None:
        """See there."""
        self._registered.pop(bookie_id, None)
        await self._ask(self._named("unregister_bookie"), lambda store: store.unregister_bookie(bookie_id))

    # --------------------------------------------------------------------------------------------------------- nodes

    def node_tree(self) -> SimulatedTree:
        """The tree of nodes, by the same connection and under the same faults as everything else."""
        if self._is_closed:
            raise ClientClosed("the session with the metadata service is closed")
        return SimulatedTree(self._host_name, self._ask, self._watch)

    # ------------------------------------------------------------------------------------------- a session and its end

    async def aclose(self) -> None:
        """End the session; calls under way end with :class:`~bkclient.errors.ClientClosed`. Idempotent.

        The service learns of it by a message, or, if it cannot be reached, after the session timeout.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._forget_host()
        for watch in self._watches:
            watch.cancel()
        self._fail_pending(ClientClosed("the session with the metadata service was closed"))
        config = self._service.config
        delay_s = config.latency_s if self._is_connected() else config.session_timeout_s
        self._settle_later(delay_s)
        if self._is_connected():
            await asyncio.sleep(2 * delay_s)

    def lose_session(self, outage_s: float) -> None:
        """Let the session expire: bookies disappear, calls under way are lost. There is a new one after ``outage_s``."""
        if self._is_closed or not self._has_session:
            return
        self._has_session = False
        self._end_session()
        self._fail_pending(_CallLostError())
        self._loop.call_later(outage_s, self._renew_session, context=self._context)

    def _crashed(self) -> None:
        self._is_closed = True
        self._settle_later(self._service.config.session_timeout_s)

    def _settle_later(self, delay_s: float) -> None:
        self._loop.call_later(delay_s, self._detach, context=self._context)

    def _detach(self) -> None:
        self._service.detach(self._host_name, self)
        if self._has_session:
            self._end_session()

    def _end_session(self) -> None:
        for watch in self._watches:
            watch.unsubscribe = None
        self._loop.create_task(
            self._session.aclose(), name=f"end of a session of {self._host_name}", context=self._context
        )

    def _renew_session(self) -> None:
        if self._is_closed:
            return
        self._session = self._open_session()
        self._has_session = True
        waiters, self._session_waiters = self._session_waiters, []
        for waiter in waiters:
            waiter()
        for watch in list(self._watches):
            self._when_connected(partial(self._subscribe, watch))
        if self._registered and self._process.is_alive:
            self._loop.create_task(
                self._register_again(), name=f"registration of {self._host_name}", context=self._process.context()
            )

    async def _register_again(self) -> None:
        for bookie_id, (address, read_only) in list(self._registered.items()):
            while not self._is_closed:
                try:
                    await self.register_bookie(bookie_id, address, read_only=read_only)
                except BookKeeperError:
                    await asyncio.sleep(self._service.config.retry_s)
                else:
                    break

    # ---------------------------------------------------------------------------------------------------- connection

    def _is_connected(self) -> bool:
        return (
            self._has_session and not self._service.is_down and not self._way_out.blocked and not self._way_back.blocked
        )

    def _when_connected(self, callback: Callable[[], None]) -> None:
        """Call back as code of the world, at once if there is a connection, else when there is one."""
        if self._is_connected():
            callback()
            return
        again = partial(self._when_connected, callback)
        if self._service.is_down:
            self._service.when_up(again)
        elif not self._has_session:
            self._session_waiters.append(again)
        else:
            (self._way_out if self._way_out.blocked else self._way_back).waiters.append(again)

    async def _until_connected(self, deadline: float, call: MetadataCall) -> None:
        if self._is_connected():
            return
        connected: asyncio.Future[None] = self._loop.create_future()
        self._when_connected(lambda: None if connected.done() else connected.set_result(None))
        try:
            async with asyncio.timeout_at(deadline):
                await connected
        except TimeoutError:
            raise MetadataStoreError("the metadata service cannot be reached", **_where(call)) from None

    # --------------------------------------------------------------------------------------------------------- calls

    def _named(self, operation: str, ledger_id: int = -1, metadata: LedgerMetadata | None = None) -> MetadataCall:
        return MetadataCall(self._host_name, operation, ledger_id, metadata)

    async def _ask(
        self, call: MetadataCall, carry_out: Callable[[MetadataStore], Awaitable[T]], *, is_repeatable: bool = True
    ) -> T:
        """Make a call and wait for its answer, as the text of the module says."""
        config = self._service.config
        deadline = self._loop.time() + config.timeout_s
        while True:
            self._check_open(call)
            await self._until_connected(deadline, call)
            self._check_open(call)
            answer: asyncio.Future[T] = self._loop.create_future()
            self._pending[answer] = None
            self._send(call, carry_out, answer)
            try:
                async with asyncio.timeout_at(deadline):
                    return await answer
            except (_CallLostError, TimeoutError):
                if not is_repeatable:
                    raise MetadataOutcomeUnknown("the answer was lost", **_where(call)) from None
                if self._loop.time() + config.retry_s >= deadline:
                    raise MetadataStoreError("the metadata service does not answer", **_where(call)) from None
            finally:
                self._pending.pop(answer, None)
            await asyncio.sleep(config.retry_s)

    def _check_open(self, call: MetadataCall) -> None:
        if self._is_closed:
            raise ClientClosed("the session with the metadata service is closed", **_where(call))

    def _fail_pending(self, error: Exception) -> None:
        for answer in self._pending:
            if not answer.done():
                answer.set_exception(error)

    def _send(
        self, call: MetadataCall, carry_out: Callable[[MetadataStore], Awaitable[T]], answer: asyncio.Future[T]
    ) -> None:
        random, config = self._rng.random, self._service.config
        latency_s = config.latency_s + config.jitter_s * random()
        answer_latency_s = config.latency_s + config.jitter_s * random()
        action, interception = self._service.fate_of(call, random())
        sent = _Call(call, carry_out, answer, self._session, action, answer_latency_s)
        if action is _HOLD and interception is not None:
            interception.hold(lambda: self._send_on(sent, latency_s))
        elif isinstance(action, Delay):
            self._loop.call_later(latency_s + action.seconds, self._arrive, sent, context=self._context)
        else:
            self._send_on(sent, latency_s)

    def _send_on(self, sent: _Call[Any], latency_s: float) -> None:
        self._last_arrival = max(self._loop.time() + latency_s, self._last_arrival)
        self._loop.deliver_at(self._last_arrival, self._calls, self._arrive, (sent,), self._context)

    def _arrive(self, sent: _Call[Any]) -> None:
        """A call reaches the service."""
        if not self._process.is_alive or self._way_out.blocked or sent.session is not self._session:
            return
        if self._service.is_down or not self._has_session or sent.action is _CALL_LOST:
            self._answer_later(sent, None, _CallLostError())
        elif sent.action is _FAIL:
            self._answer_later(sent, None, MetadataStoreError("the service refused the call", **_where(sent.call)))
        else:
            self._loop.create_task(
                self._carry_out(sent), name=f"{sent.call.operation} for {self._host_name}", context=self._context
            )

    async def _carry_out(self, sent: _Call[Any]) -> None:
        """Carry a call out at the service, as code of the world."""
        call = sent.call
        result: Any = None
        error: Exception | None = None
        if sent.action is _CONFLICT:
            await self._service.intrude(call.ledger_id)
        try:
            if sent.action is _STALE and call.operation == "read_ledger":
                result = self._service.stale(call.ledger_id)
            if result is None:
                result = await sent.carry_out(sent.session)
                if call.operation in _WRITES:
                    self._service.learn(result)
        except BookKeeperError as refusal:
            error = refusal
        if sent.action is _ANSWER_LOST:
            error = _CallLostError()
        self._answer_later(sent, result, error)

    def _answer_later(self, sent: _Call[Any], result: Any, error: Exception | None) -> None:
        holder = self._service.holder_of_answer(sent.call)
        if holder is not None:
            holder.hold(lambda: self._answer_on(sent, result, error))
        else:
            self._answer_on(sent, result, error)

    def _answer_on(self, sent: _Call[Any], result: Any, error: Exception | None) -> None:
        self._last_answer = max(self._loop.time() + sent.answer_latency_s, self._last_answer)
        self._loop.deliver_at(self._last_answer, self._answers, self._answer, (sent, result, error), self._context)

    def _answer(self, sent: _Call[Any], result: Any, error: Exception | None) -> None:
        """The answer reaches the client."""
        if sent.answer.done() or self._way_back.blocked:
            return
        if error is None and not self._service.is_down:
            sent.answer.set_result(result)
        else:
            sent.answer.set_exception(error or _CallLostError())

    # ------------------------------------------------------------------------------------------------------- watches

    def _watch(
        self, subscribe: Callable[[MetadataStore, Callable[[Any], None]], Cancel], listener: Callable[[Any], None]
    ) -> Cancel:
        if self._is_closed:
            raise ClientClosed("the session with the metadata service is closed")
        watch = _Watch(subscribe, listener)
        self._watches[watch] = None
        latency_s = self._service.config.latency_s
        subscribe_when_connected = partial(self._when_connected, partial(self._subscribe, watch))
        self._loop.call_later(latency_s, subscribe_when_connected, context=self._context)

        def cancel() -> None:
            watch.cancel()
            self._watches.pop(watch, None)

        return cancel

    def _subscribe(self, watch: _Watch) -> None:
        """The watch reaches the service."""
        if not (watch.is_cancelled or self._is_closed or watch.unsubscribe is not None):
            watch.unsubscribe = watch.subscribe(self._session, partial(self._changed, watch))

    def _changed(self, watch: _Watch, value: Any) -> None:
        config = self._service.config
        latency_s = config.latency_s + config.jitter_s * self._rng.random()
        late_s = self._service.watch_delay_s(self._host_name)
        if late_s or watch.arrives_at > self._loop.time():
            watch.arrives_at = max(self._loop.time() + latency_s + late_s, watch.arrives_at)
            self._loop.call_at(watch.arrives_at, self._report, watch, value, context=self._context)
            return
        self._last_answer = max(self._loop.time() + latency_s, self._last_answer)
        self._loop.deliver_at(self._last_answer, self._answers, self._report, (watch, value), self._context)

    def _report(self, watch: _Watch, value: Any) -> None:
        """News reach the client, or wait until they can; then only the last of them count."""
        is_waiting = bool(watch.news)
        watch.news[:] = [value]
        if not is_waiting:
            self._when_connected(partial(self._tell, watch))

    def _tell(self, watch: _Watch) -> None:
        value = watch.news.pop()
        self._loop.enter(self._process, watch.tell, value)


def _where(call: MetadataCall) -> dict[str, Any]:
    return {"ledger_id": call.ledger_id} if call.ledger_id >= 0 else {}
