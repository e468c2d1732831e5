"""The stage of processes: bookies, clients, a ZooKeeper server, and a link between each client and each of the others.

The director is this process. It serves ZooKeeper and the links, breaks things when the plan says so, and records what it does and
what happens in the metadata service; the processes record the rest (:mod:`scenarios.processes.merging`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from bkclient.errors import BookKeeperError
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.opening import open_store
from scenarios.history import Event, History, Kind
from scenarios.plan import Plan, print_plan
from scenarios.plan import operations as ops
from scenarios.plan.model import Program
from scenarios.plan.triggers import At, When
from scenarios.plan.words import member_of
from scenarios.playing.acts import Acts
from scenarios.playing.interpreter import PlayedClient, PlayedPlan, ProgramState
from scenarios.processes.acts import ProcessActs
from scenarios.processes.client_process import ClientChild, ProgramReport
from scenarios.processes.links import ClientLink, LinkWay
from scenarios.processes.merging import Part
from scenarios.processes.metadata_log import MetadataLog
from scenarios.processes.picking import FrameFaults
from scenarios.processes.served import BookieMaker, BookieWishes, ServedBookie
from scenarios.recording.recorders import Recorder
from simbookie.world.faults import Action, Interceptions
from simbookie.world.metadata_service import METADATA_HOST
from simbookie.world.rng import split
from simbookie.zookeeper.embedded import EmbeddedZooKeeper

__all__ = ["ProcessPlan", "ProcessStage"]

_ROOT: Final = "/ledgers"
_SESSION_TIMEOUT_S: Final = 4.0
_REGISTRATION_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05
_FINAL_TIMEOUT_S: Final = 120.0
_FINALS: Final = ("final-0", "final-1")


class ProcessStage:
    """One run of one plan with processes; an asynchronous context manager that leaves none behind, however it ends."""

    def __init__(
        self, plan: Plan, seed: int, mutant: str, recorder: Recorder, started_ns: int, folder: Path, maker: BookieMaker
    ) -> None:
        self.plan = plan
        self.recorder = recorder
        self.bookies: dict[str, ServedBookie] = {}
        self.clients: dict[str, ClientChild] = {}
        #: What is done to single requests to bookies and to answers.
        self.interceptions: Interceptions[Action] = Interceptions()
        self._seed = seed
        self._mutant = mutant
        self._started_ns = started_ns
        self._folder = folder
        self._maker = maker
        self._zookeeper = EmbeddedZooKeeper()
        self._addresses: dict[str, str] = {}
        self._links: dict[tuple[str, str], ClientLink] = {}
        self._store: MetadataStore | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lives = dict.fromkeys(plan.cluster.bookie_names, 1)
        #: Called with what a client says that it created.
        self.on_created: Callable[[list[Any]], None] = lambda _: None
        #: What went wrong where nobody waits for it.
        self.problems: list[str] = []
        self._shown = print_plan(plan, full=True)
        #: Steps that wait for an event name its kind, and its process.
        self._triggers = [step.trigger for step in plan.steps if isinstance(step.trigger, When)]
        self._awaited = [
            operation.trigger
            for operation in plan.operations
            if isinstance(operation, ops.Until) and not isinstance(operation.trigger, At)
        ]

    @property
    def sources(self) -> dict[str, str]:
        """The hosts by the addresses that their links' connections come from."""
        return {address: host for host, address in self._addresses.items()}

    # Beginning and end -------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _begin(self) -> None:
        names = [*self.plan.client_names, *_FINALS]
        hosts = [*names, *self.plan.cluster.bookie_names]
        self._addresses = {host: f"127.0.{1 + number // 250}.{1 + number % 250}" for number, host in enumerate(hosts)}
        await self._zookeeper.start()
        MetadataLog(self._zookeeper.service, _ROOT, self.recorder, self._client_at)
        for host in hosts:
            await self._new_link(host, METADATA_HOST, lambda: self._zookeeper.port)
        self._store = await open_store(
            self._zookeeper.metadata_uri(_ROOT), rng=split(self._seed, "director"), initialise=True
        )
        for name in self.plan.cluster.bookie_names:
            self.bookies[name] = self._maker(self._wishes(name), self._take)
        for bookie in self.bookies.values():
            bookie.start()
        for name in names:
            for bookie_id, bookie in self.bookies.items():
                await self._new_link(name, bookie_id, lambda bookie=bookie: bookie.port)  # type: ignore[misc]
        for name in names:
            self.clients[name] = self._new_child(name)
        for bookie in self.bookies.values():
            await bookie.serves()
        await self._registered()

    async def _end(self) -> None:
        """End everything that this stage started."""
        for task in self._tasks:
            task.cancel()
        for client in self.clients.values():
            client.discard()
        self.problems += [bookie.problem for bookie in self.bookies.values() if bookie.problem]
        for bookie in self.bookies.values():
            bookie.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links.values():
            await link.aclose()
        if self._store is not None:
            with contextlib.suppress(BookKeeperError):
                await self._store.aclose()
        await self._zookeeper.aclose()

    def parts(self, director: Sequence[Event]) -> list[Part]:
        """What the director and the processes recorded, after the run."""
        parts = [Part("director", director)]
        parts += [Part(client.name, _events_in(client.part)) for client in self.clients.values()]
        for name, bookie in self.bookies.items():
            for number, path in enumerate(bookie.parts, 1):
                parts.append(Part(name, _events_in(path), life=number))
        return parts

    async def _new_link(self, host: str, other: str, target: Callable[[], int]) -> None:
        rng = split(self._seed, f"link {host} {other}")
        faults = None if other == METADATA_HOST else FrameFaults(self.interceptions, host, other)
        link = self._links[host, other] = ClientLink(self._addresses[host], target, rng, faults)
        await link.start()

    def _wishes(self, name: str) -> BookieWishes:
        cluster = self.plan.cluster
        digests = {cluster.digest} | {
            operation.digest
            for operation in self.plan.operations
            if isinstance(operation, ops.CreateLedger) and operation.digest is not None
        }
        return BookieWishes(
            name=name,
            metadata=self._metadata_for(name),
            folder=self._folder / name,
            session_timeout_s=_SESSION_TIMEOUT_S,
            digest=cluster.digest.name if len(digests) == 1 else "",
            started_ns=self._started_ns,
            watched=self._watched_at(name),
        )

    def _metadata_for(self, host: str) -> str:
        return f"zk://127.0.0.1:{self._links[host, METADATA_HOST].port}{_ROOT}"

    def _watched_at(self, name: str) -> dict[str, bool]:
        """The kinds of events that a process tells of, and whether it waits until what they trigger is done."""
        is_bookie = name in self.plan.cluster.bookie_names
        watched: dict[str, bool] = {}
        for trigger, holds_up in [
            *((trigger, not trigger.after_s) for trigger in self._triggers),
            *((trigger, False) for trigger in self._awaited),
        ]:
            assert isinstance(trigger, When)
            if trigger.actor in {"", name} or (is_bookie and member_of(trigger.actor)):
                watched[trigger.kind] = watched.get(trigger.kind, False) or holds_up
        return watched

    def _new_child(self, name: str) -> ClientChild:
        task = {
            "plan": self._shown,
            "program": name not in _FINALS,
            "seed": self._seed,
            "mutant": self._mutant,
            "metadata": self._metadata_for(name),
            "routes": {bookie_id: self._links[name, bookie_id].port for bookie_id in self.bookies},
            "started_ns": self._started_ns,
            "watched": self._watched_at(name),
        }
        return ClientChild(name, task, self._folder, self.recorder, partial(self._take_from, name))

    def _client_at(self, address: str) -> str | None:
        host = self.sources.get(address)
        return host if host in self.clients else None

    async def _registered(self) -> None:
        """Wait until all bookies can be chosen; one that has ended meanwhile never will be."""
        assert self._store is not None
        missing: set[str] = set()
        try:
            async with asyncio.timeout(_REGISTRATION_TIMEOUT_S):
                while missing := set(self.bookies) - set((await self._store.bookies()).writable):
                    for name in missing:
                        if problem := self.bookies[name].problem:
                            raise RuntimeError(problem)
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise RuntimeError(
                f"not registered within {_REGISTRATION_TIMEOUT_S:g} s: {', '.join(sorted(missing))}"
            ) from None

    # What processes tell -----------------------------------------------------------------------------------------

    def _take_from(self, name: str, message: list[Any]) -> None:
        match message:
            case ["event", *_]:
                self._take(message, partial(self.clients[name].send, "go-on"))
            case ["created" | "log-created", *_]:
                self.on_created(message)
                for other, client in self.clients.items():
                    if other != name:
                        client.send(*message)

    def _take(self, message: list[Any], go_on: Callable[[], None]) -> None:
        _, time_us, actor, kind, ledger, fields, waits = message
        event = Event(-1, time_us, actor, kind, ledger, fields)
        self.recorder.history.tell(event)
        if waits:
            self.later(0, go_on)  # after what was triggered

    def share(self, event: Event) -> None:
        """Tell clients of what they need to know of metadata: ensembles, and ledgers of logs."""
        if event.kind == Kind.LOG_LEDGER or event.fields["outcome"] == "ok":
            for client in self.clients.values():
                client.send("event", event.kind, event.ledger, dict(event.fields))

    # What plans need ---------------------------------------------------------------------------------------------

    def later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Call ``action`` in ``delay_s`` seconds."""
        asyncio.get_running_loop().call_later(delay_s, action)

    async def read_back(self, ledger_ids: Sequence[int], logs: Sequence[str] = ()) -> None:
        """Have two new clients, one after the other, recover and read the ledgers, and take over and read the logs."""
        for name in _FINALS:
            client = self.clients[name]
            client.start(list(ledger_ids), list(logs))
            async with asyncio.timeout(_FINAL_TIMEOUT_S):
                await client.ended()

    def links_between(self, host: str, other: str) -> Iterator[ClientLink]:
        """The links between two hosts, in whichever direction they were made; none between hosts that never talk."""
        for pair in ((host, other), (other, host)):
            if pair in self._links:
                yield self._links[pair]

    def ways(self, host: str, other: str) -> Iterator[LinkWay]:
        """What leads from one host to the other."""
        if (host, other) in self._links:
            yield self._links[host, other].to
        if (other, host) in self._links:
            yield self._links[other, host].back

    def crash_bookie(self, name: str) -> None:
        """SIGKILL."""
        self.bookies[name].kill()
        self.recorder.record(Kind.BK_CRASH, name, clean=False, detail="SIGKILL")

    def restart_bookie(self, name: str) -> None:
        """Start it again on its data."""
        self.bookies[name].start()
        self._run(self._served_again(name))

    async def _served_again(self, name: str) -> None:
        bookie = self.bookies[name]
        await bookie.serves()
        if not self._maker.records:
            self._lives[name] = incarnation = self._lives[name] + 1
            self.recorder.record(Kind.BK_RESTART, name, incarnation=incarnation, detail="started again")

    def stop_store(self) -> None:
        """Stop the ZooKeeper server; sessions survive."""
        self._run(self._zookeeper.aclose())

    def start_store(self) -> None:
        """Start it again."""
        self._run(self._zookeeper.start())

    def lose_sessions(self, host: str, outage_s: float) -> None:
        """Have ZooKeeper forget a host's sessions; it can open another one after a while."""
        address = self._addresses[host]
        self._zookeeper.service.end_sessions(lambda client: client.source == address)
        ways = [self._links[host, METADATA_HOST].to, self._links[host, METADATA_HOST].back]
        for way in ways:
            way.block()
            self.later(outage_s, way.unblock)

    def _run(self, work: Any) -> None:
        """Do something that takes time while the plan goes on; what fails is told in the end."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.problems.append(str(task.exception()))


def _events_in(path: Path) -> list[Event]:
    return list(History(path, may_be_cut=True).events()) if path.exists() else []


class ProcessPlan(PlayedPlan):
    """One run of one plan with processes."""

    def __init__(self, plan: Plan, stage: ProcessStage) -> None:
        self._process_stage = stage
        self._waiting: set[asyncio.Future[None]] = set()
        super().__init__(plan, stage)
        stage.on_created = self._on_created
        stage.recorder.history.listen([Kind.LOG_LEDGER, Kind.META_CAS], stage.share)

    def new_acts(self) -> Acts:
        """See :class:`PlayedPlan`."""
        return ProcessActs(self._process_stage, self.ledgers, self.clients, self.start)

    def new_client(self, program: Program) -> tuple[ProgramState, PlayedClient]:
        """See there."""
        client = self._process_stage.clients[program.name]
        client.report = ProgramReport(program, self.changed)
        client.start()
        for index, call in enumerate(program.calls):
            if isinstance(call.operation, ops.Until):
                waiting = asyncio.ensure_future(self.until(call.operation.trigger))
                waiting.add_done_callback(partial(self._tell_reached, client, index))
                self._waiting.add(waiting)
        return client.report, client

    def _tell_reached(self, client: ClientChild, index: int, waiting: asyncio.Future[None]) -> None:
        self._waiting.discard(waiting)
        if not waiting.cancelled():
            client.send("reached", index)

    def _on_created(self, message: list[Any]) -> None:
        if message[0] == "created":
            self.ledgers.created(message[1], message[2])
        else:
            self.ledgers.log_created(message[1])
