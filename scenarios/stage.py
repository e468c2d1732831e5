"""The stage: the cluster, clients and faults that a scenario controls.

A scenario starts *client processes*, each on its own host, injects faults into hosts, bookies and links, and in the end has new
clients recover and read the ledger. A scenario draws from ``stage.rng``. The network, the metadata service, each workload and
each client have their own random streams from the same seed, so an additional draw in one does not change the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import Context
from functools import lru_cache, partial
from random import Random
from typing import Any, Final

import anyio

from bkclient import AdvancedLedgerWriter, AppendFuture, ClientConfig, LedgerWriter
from bkclient.errors import BookKeeperError
from bkclient.metadata.base import MetadataStore
from bkclient.observability.recovery_observer import RecoveryObserver
from bkclient.transport.base import BookieTransport
from bkclient.transport.tcp import TcpTransport
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.messages import Request
from scenarios.conditions import Conditions
from scenarios.history import Event, Kind
from scenarios.hosted import HostedProcess
from scenarios.plan.schedule import PlanSchedule
from scenarios.plan.words import flag_word
from scenarios.reading_back import read_ledger_back, read_log_back
from scenarios.recording.client import RecordedClient
from scenarios.recording.recorders import BookieRecorder, ClientLog, Recorder, RecoveryRecorder
from scenarios.recording.store import AppliedStore, recorded_store
from scenarios.recording.transport import RecordingTransport
from scenarios.slots import PATIENCE_S, HeldCall, LedgerSlot
from scenarios.stage_cookies import StageCookies
from simbookie.config import BookieConfig
from simbookie.server import ServerConfig
from simbookie.storage.base import CrashMode, LedgerStorage
from simbookie.storage.forgetful import ForgetfulStorage
from simbookie.storage.memory import MemoryStorage, RecordLog
from simbookie.storage.steps import CrashSchedule
from simbookie.world.bookie_host import BookieHost
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.damage import alter_entries
from simbookie.world.faults import Action, Fate, Interception
from simbookie.world.files import storage_in_files
from simbookie.world.frames import filter_frames
from simbookie.world.hosts import Host, World
from simbookie.world.metadata_service import METADATA_HOST, MetadataCall, MetadataFault
from simbookie.world.process import Process, current_process
from simbookie.world.schedule import Schedule
from simbookie.world.transport import SimulatedTransport

__all__ = ["ClientProcess", "LedgerSlot", "Program", "Stage"]

Program = Callable[[RecordedClient], Awaitable[None]]
"""The program of a client process; the process ends when it returns."""

#: Clients have to live with BookKeeper's bookies, which deny an entry to a fencing read before the fence is durable, and forget
#: long polls that an update of the LAC has nothing to tell.
_LIKE_BOOKKEEPER: Final = BookieConfig(error_waits_for_fence=False, long_polls_wait_on=False)
# Every event asks for these, and members of an enumeration take longer to find.
_META_CAS: Final = Kind.META_CAS
_APP_ACK: Final = Kind.APP_ACK
_WAYS: Final = {">": "to", "<": "from", "><": "both"}
#: What so many configurations of clients say about connections is remembered; nearly all runs have one of a few.
_CONFIGS_MAX: Final = 64
_transport_config: Final = lru_cache(_CONFIGS_MAX)(TcpTransportConfig.of_client)


class ClientProcess(HostedProcess):
    """One client on a host of its own, whose program gets it."""

    def __init__(self, stage: Stage, name: str, program: Program) -> None:
        self._stage = stage
        super().__init__(stage.world, stage.recorder, name, partial(self._use_client, program), program.__qualname__)

    async def _use_client(self, program: Program) -> None:
        stage, host = self._stage, self._host
        async with stage.new_client(
            host,
            ClientLog(stage.recorder, host.name, host.incarnation),
            stage.conditions.client,
            rng=stage.world.rng(f"client {host.name}"),
            wall_clock=host.wall_clock,
        ) as client:
            await program(client)


class Stage:
    """One run of one scenario. The runner makes it."""

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        conditions: Conditions,
        wrap_transport: Callable[[BookieTransport], BookieTransport] | None = None,
    ) -> None:
        self.world = world
        self.recorder = recorder
        self.conditions = conditions
        self.wrap_transport = wrap_transport
        self.rng = world.rng("scenario")
        self.bookies: dict[str, BookieHost] = {}
        #: By bookie, what kills it at a step of its storage; of those that keep files.
        self.crash_schedules: dict[str, CrashSchedule] = {}
        #: What says what is late, and has chosen so far; kept when it has ended.
        self.schedule: Schedule | None = None
        #: Hosts whose clients may not change ensembles, by how many faults each.
        self.without_changes: Counter[str] = Counter()
        self._interceptions: list[Interception[Any]] = []
        self._ensembles: dict[int, tuple[str, ...]] = {}
        self._acknowledged: dict[int, int] = {}
        self._watchers: dict[Callable[[Event], bool], Callable[[], object]] = {}
        #: Who waits for acknowledgements: ledger, entry, and what is called.
        self._awaiting: list[tuple[int, int, Callable[[], object]]] = []
        recorder.history.listen([_META_CAS], self._on_cas)
        recorder.history.listen([_APP_ACK], self._on_ack)
        self._transports: dict[Process | None, TcpTransport] = {}
        if conditions.tcp is not None:
            world.loop.after_step = self._check_transport_of
        world.tcp.on_connection = partial(filter_frames, network=world.network)

    def new_client(
        self,
        host: Host,
        log: ClientLog,
        config: ClientConfig,
        *,
        rng: Random,
        wall_clock: Callable[[], float],
        observer: RecoveryObserver | None = None,
        **options: Any,
    ) -> RecordedClient:
        """A client of the process on ``host``; its application records in ``log``. ``observer`` watches its recoveries, too."""
        recorder = self.recorder
        store = recorded_store(self.world, host, recorder)
        transport = self._new_transport(host, store, _transport_config(config))
        transport = RecordingTransport(transport, recorder, host.name, host.incarnation)
        if self.wrap_transport is not None:
            transport = self.wrap_transport(transport)
        disabling = config.writing.disable_ensemble_change_feature
        options.setdefault("features", lambda name: name == disabling and self.without_changes[host.name] > 0)
        options.setdefault("locations", self.conditions.locations)
        resources = AsyncExitStack()
        resources.push_async_callback(store.aclose)
        client = RecordedClient(
            store,
            transport,
            config=config,
            rng=rng,
            wall_clock=wall_clock,
            observer=RecoveryRecorder(recorder, host.name, observer),
            resources=resources,
            **options,
        )
        client.log, client.racks = log, self.conditions.demanded_racks
        return client

    def _new_transport(self, host: Host, store: MetadataStore, config: TcpTransportConfig) -> BookieTransport:
        if self.conditions.tcp is None:
            return SimulatedTransport(self.world, host, config)
        rng = self.world.rng(f"transport of {host.name}#{host.incarnation}")
        transport = self._transports[host.process] = TcpTransport(store.bookie_address, config, rng=rng)
        return transport

    def _check_transport_of(self, process: Process | None) -> None:
        """Check the counters of a process's newest transport after every callback of it; those of objects see to that."""
        transport = self._transports.get(process)
        if transport is not None:
            transport.check()

    async def start_bookies(self) -> None:
        """Start the bookies and wait until all are registered."""
        # The metadata of injected conflicts is recorded too: it changes versions.
        intruder = self.world.metadata.intruder
        self.world.metadata.intruder = AppliedStore(intruder, self.recorder, "intruder", cause="rereplicate")
        server = None if self.conditions.tcp is None else ServerConfig()
        for index in range(self.conditions.bookies):
            name = f"bookie-{index}"
            storage = self._new_storage(name)
            cookies = StageCookies(self.world.metadata.memory, name, storage, checks=self.conditions.integrity)
            has_cookies = self.conditions.cookies
            observer = BookieRecorder(self.recorder, name, cookie=cookies.found if has_cookies else lambda: None)
            cookies.was_killed = partial(getattr, observer, "was_killed")
            self.bookies[name] = BookieHost(
                self.world,
                name,
                storage=storage,
                config=_LIKE_BOOKKEEPER,
                observer=observer,
                server=server,
                requests=self.recorder.requests_at(name),
                start_checks=cookies.start_checks if has_cookies else None,
            )
        for bookie in self.bookies.values():
            await bookie.registered()

    def _new_storage(self, name: str) -> LedgerStorage:
        conditions = self.conditions
        if conditions.store is not None:
            schedule = self.crash_schedules[name] = CrashSchedule()
            return storage_in_files(
                conditions.store,
                conditions.files,
                self.world.rng(f"disk of {name}"),
                on_step=schedule,
                on_fatal=lambda _error: self.bookies[name].crash(),
            )
        if conditions.forgets_fences is None:
            return MemoryStorage(conditions.storage, RecordLog())
        return ForgetfulStorage(
            conditions.storage,
            like=conditions.forgets_fences,
            checkpoint_interval_s=conditions.checkpoint_interval_s,
        )

    # Clients -----------------------------------------------------------------------------------------------------

    def ledger(self) -> LedgerSlot:
        """A ledger that a client will create."""
        return LedgerSlot(self.conditions)

    def client(self, name: str, program: Program) -> ClientProcess:
        """Start a client process."""
        return ClientProcess(self, name, program)

    async def append_entries(self, writer: LedgerWriter, count: int, *, window: int = 8) -> None:
        """Append ``count`` entries of various sizes with up to ``window`` in flight; stops at the first refusal."""
        window = min(window, self.conditions.client.limits.max_in_flight_entries)
        process = current_process.get()
        assert process is not None, "a client's program appends"
        rng = self.world.rng(f"workload {process.host_name}")
        in_flight: deque[AppendFuture] = deque()
        try:
            for _ in range(count):
                while len(in_flight) >= window:
                    await in_flight.popleft()
                if rng.random() < 0.4:
                    await anyio.sleep(rng.uniform(0.0, 0.006))
                in_flight.append(writer.append_nowait(rng.randbytes(rng.choice((0, 1, 17, 100, 300)))))
        except BookKeeperError:
            pass

    async def flush(self, writer: LedgerWriter | AdvancedLedgerWriter) -> None:
        """Wait until everything appended is acknowledged or has failed."""
        with suppress(BookKeeperError):
            await writer.flush()

    async def flush_for(self, writer: LedgerWriter | AdvancedLedgerWriter, limit_s: float) -> bool:
        """Like :meth:`flush`, for at most ``limit_s`` seconds; returns whether every append ended."""
        with anyio.move_on_after(limit_s) as scope:
            await self.flush(writer)
        return not scope.cancelled_caught

    async def finish(self, writer: LedgerWriter) -> None:
        """Flush and close; a fenced or failed writer is closed too."""
        for step in (writer.flush, writer.close):
            with suppress(BookKeeperError):
                await step()

    # Watching ----------------------------------------------------------------------------------------------------

    def _on_cas(self, event: Event) -> None:
        if event.fields["outcome"] == "ok":
            self._ensembles[event.ledger] = tuple(event.fields["fragments"][-1][1])

    def _on_ack(self, event: Event) -> None:
        entry = self._acknowledged[event.ledger] = event.fields["entry"]
        for waiter in list(self._awaiting):
            if event.ledger == waiter[0] and entry >= waiter[1]:
                self._awaiting.remove(waiter)
                self.later(0.0, waiter[2])

    def _watch(self, event: Event) -> None:
        for predicate, action in list(self._watchers.items()):
            if predicate(event):
                del self._watchers[predicate]
                self.later(0.0, action)
                self._listen()

    def _listen(self) -> None:
        """Listen to all events while there is something to watch for."""
        history = self.recorder.history
        listens = self._watch in history.listeners
        if self._watchers and not listens:
            history.listeners = [*history.listeners, self._watch]  # a new list: this one may be walked through
        elif listens and not self._watchers:
            history.listeners = [listener for listener in history.listeners if listener != self._watch]

    def on_event(self, predicate: Callable[[Event], bool], action: Callable[[], object]) -> None:
        """Call ``action`` once, right after the first event for which ``predicate`` is true."""
        self._watchers[predicate] = action
        self._listen()

    def disarm(self) -> None:
        """Remove all actions of :meth:`on_event`, so that no fault is injected after the scenario has healed all faults."""
        self._watchers.clear()
        self._awaiting.clear()
        self._listen()

    def later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Call ``action`` in ``delay_s`` seconds."""
        self.world.loop.call_later(delay_s, action, context=Context())

    async def until(self, predicate: Callable[[Event], bool], ended: ClientProcess | None = None) -> None:
        """Wait until ``predicate`` is true for an event or the client process has ended, at most 20 simulated seconds."""
        with anyio.move_on_after(PATIENCE_S):
            seen = anyio.Event()
            self.on_event(predicate, seen.set)
            if ended is None:
                await seen.wait()
                return
            over = asyncio.ensure_future(ended.ended())
            waiting = asyncio.ensure_future(seen.wait())
            try:
                await asyncio.wait((over, waiting), return_when=asyncio.FIRST_COMPLETED)
            finally:
                over.cancel()
                waiting.cancel()

    async def until_acknowledged(self, ledger: LedgerSlot, entry_id: int) -> None:
        """Wait until ``entry_id`` is acknowledged, at most 20 simulated seconds."""
        with anyio.move_on_after(PATIENCE_S):
            ledger_id = await ledger.id()
            if self._acknowledged.get(ledger_id, -1) < entry_id:
                acknowledged = anyio.Event()
                self._awaiting.append((ledger_id, entry_id, acknowledged.set))
                await acknowledged.wait()

    def ensemble(self, ledger: LedgerSlot) -> Sequence[str]:
        """The last ensemble that was stored; before the creation of the ledger, the first bookies."""
        unknown = tuple(self.bookies)[: self.conditions.ensemble_size]
        return self._ensembles[ledger.created_id] if ledger.is_created else unknown

    async def sleep(self, shortest_s: float, longest_s: float) -> None:
        """Sleep for a random time between the two."""
        await anyio.sleep(self.rng.uniform(shortest_s, longest_s))

    # Faults ------------------------------------------------------------------------------------------------------

    def crash_bookie(self, name: str, mode: CrashMode | None = None) -> None:
        """Crash a bookie's process or its machine (drawn if ``mode`` is None); data that was not synced may be lost."""
        if self.bookies[name].is_alive:
            mode = mode or self.rng.choice((CrashMode.PROCESS, CrashMode.POWER_LOSS))
            self.recorder.record_fault("crash", f"{name} {mode.name}", target=name, parameters=flag_word(mode))
            self.bookies[name].crash(mode)

    def restart_bookie(self, name: str) -> None:
        """Start a crashed bookie again."""
        if not self.bookies[name].is_alive:
            self.recorder.record_fault("restart", name, target=name)
            self.bookies[name].restart()

    def cut(self, client: str, bookie: str) -> None:
        """Drop messages between a client and a bookie, in one direction, the other, or both."""
        ways = self.rng.choice(((True, False), (False, True), (True, True)))
        arrows = f"{'>' if ways[0] else ''}{'<' if ways[1] else ''}"
        self.recorder.record_fault(
            "cut", f"{client} {arrows} {bookie}", target=client, other=bookie, parameters=_WAYS[arrows]
        )
        if ways[0]:
            self.world.network.block(client, bookie)
        if ways[1]:
            self.world.network.block(bookie, client)

    def alter_copies(self, ledger: LedgerSlot, name: str, byte: int) -> None:
        """Flip a bit in a bookie's copy of every entry of the ledger, in byte ``byte`` modulo the size of the copy.

        Checkers count the copy as lost.
        """
        self.recorder.record_fault("alter", name, target=name, parameters=f"byte={byte}")
        storage = self.bookies[name].storage
        if storage.ledger(ledger.created_id) is None:
            return
        observer, entries = BookieRecorder(self.recorder, name), storage.entry_ids(ledger.created_id)
        alter_entries(storage, ledger.created_id, entries, byte)
        for entry_id in entries:
            observer.entry_lost(ledger.created_id, entry_id, "altered")

    def hold(
        self, client: str, bookies: Sequence[str], predicate: Callable[[Request], bool], *, answers: bool = False
    ) -> Interception[Action]:
        """Hold back requests of ``client`` to ``bookies``, or the answers to them, until released."""
        return self._intercept("hold", client, bookies, predicate, Fate.HOLD, answers=answers)

    def drop(
        self, client: str, bookies: Sequence[str], predicate: Callable[[Request], bool], *, answers: bool = False
    ) -> Interception[Action]:
        """Drop requests of ``client`` to ``bookies``, or the answers to them."""
        return self._intercept("drop", client, bookies, predicate, Fate.DROP, answers=answers)

    def _intercept(
        self,
        cause: str,
        client: str,
        bookies: Sequence[str],
        predicate: Callable[[Request], bool],
        fate: Fate,
        *,
        answers: bool,
    ) -> Interception[Action]:
        self.recorder.record_fault(
            cause,
            f"{client} {'<' if answers else '>'} {', '.join(bookies)}",
            target=client,
            other=",".join(bookies),
            parameters="answers" if answers else "",
        )
        targets = frozenset(bookies)
        sort = ResponseMessage if answers else RequestMessage

        def matches(source: str, destination: str, message: object) -> bool:
            near, far = (destination, source) if answers else (source, destination)
            return near == client and far in targets and isinstance(message, sort) and predicate(message.request)

        interception = self.world.network.intercept(matches, fate)
        self._interceptions.append(interception)
        return interception

    def begin_schedule(self, schedule: PlanSchedule | None) -> None:
        """From now on things are late as ``schedule`` says."""
        if schedule is not None:
            self.schedule = self.world.loop.schedule = Schedule(schedule.policy(self.world.rng("schedule")))

    def end_schedule(self) -> None:
        """Nothing more becomes late."""
        self.world.loop.schedule = None

    def hold_metadata(self, predicate: Callable[[MetadataCall], bool]) -> HeldCall:
        """Hold back the first call to the metadata service for which ``predicate`` is true, until it is released."""
        self.recorder.record_fault("hold", "metadata", target=METADATA_HOST)
        is_there = asyncio.Event()

        def matches(call: MetadataCall) -> bool:
            if not predicate(call):
                return False
            is_there.set()
            return True

        interception = self.world.metadata.intercept(matches, MetadataFault.HOLD, limit=1)
        self._interceptions.append(interception)
        return HeldCall(interception, is_there)

    def heal(self) -> None:
        """End every fault of the network and the metadata service; messages that were held back arrive."""
        self.recorder.record_fault("heal", "")
        self.world.network.heal()
        for interception in self._interceptions:
            interception.remove()
            interception.release()

    # The end -----------------------------------------------------------------------------------------------------

    async def settle(self, ledger: LedgerSlot) -> None:
        """Heal all faults; then two new clients, one after the other, recover the ledger and read all of it."""
        self.heal()
        for name in self.bookies:
            self.restart_bookie(name)
        if ledger.is_created:
            await self.read_back([ledger.created_id])

    async def read_back(self, ledger_ids: Sequence[int], logs: Sequence[str] = ()) -> None:
        """Have two new clients, one after the other, recover and read the ledgers, and take over and read the logs.

        :class:`~scenarios.liveness.StuckError` if one cannot.
        """

        async def read_all(client: RecordedClient) -> None:
            for ledger_id in ledger_ids:
                await read_ledger_back(client, ledger_id)
            for log in logs:
                await read_log_back(client, log, self.world.rng(f"logs of {client.log.actor}"))

        for index in range(2):
            await self.client(f"final-{index}", read_all).ended()
