"""A simulated world for tests of applications: bookies, processes of the application, faults, virtual time, one seed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import bkclient
from bkclient import ClientConfig
from bkclient.transport.tcp_config import TcpTransportConfig
from scenarios.checker import OnlineChecker
from scenarios.conditions import Conditions, draw_conditions, draw_tcp
from scenarios.history import Event, HistoryWriter, Kind
from scenarios.model import TransportKind, Violation
from scenarios.plan import faults
from scenarios.plan.model import Step
from scenarios.plan.triggers import At
from scenarios.playing.ledgers import PlayedLedgers
from scenarios.playing.world_acts import WorldActs
from scenarios.recording.log import recorded_logs
from scenarios.recording.recorders import Recorder
from scenarios.stage import Stage
from scenarios.testing.backend import TEST_HOST, URI, SimulatedBackend
from scenarios.testing.entropy import Audit
from scenarios.testing.process import SimulatedProcess
from simbookie.storage.base import CrashMode
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig
from simbookie.world.loop import LoopLimits
from simbookie.world.metadata_service import METADATA_HOST, MetadataConfig
from simbookie.world.rng import split

__all__ = ["SimulatedWorld", "WorldOptions"]

T = TypeVar("T")

Names = str | Iterable[str]

#: How often conditions are looked at, in virtual seconds.
_LOOK_S: Final = 0.01
_STEPS_MAX: Final = 5_000_000
_KINDS: Final = ("crash", "pause", "partition")


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """What a simulated world is made of; the arguments of the marker ``bk_world``.

    * ``bookies``: how many bookies there are, named bookie-0, bookie-1 and so on;
    * ``rough``: messages are lost, repeated and slow by chance, and compare-and-sets of the metadata service fail or their
      outcome is unknown; otherwise messages just take their varying time;
    * ``bytes_on_the_wire``: clients and bookies speak BookKeeper's protocol over simulated TCP; otherwise messages travel as
      objects, which is twice as fast;
    * ``limit_s``: virtual seconds after which a run is given up.
    """

    bookies: int = 4
    rough: bool = False
    bytes_on_the_wire: bool = False
    limit_s: float = 3600.0

    def __post_init__(self) -> None:
        if not 1 <= self.bookies <= 100:
            raise ValueError(f"bookies must be between 1 and 100, got {self.bookies}")
        if not self.limit_s > 0:
            raise ValueError(f"limit_s must be > 0, got {self.limit_s}")


class SimulatedWorld:
    """A cluster and the processes of an application in virtual time, in which one seed decides everything.

    ::

        async def test_it_survives(bk_world):
            app = bk_world.start("app", my_application, bk_world.uri)
            await asyncio.sleep(2)  # virtual seconds
            bk_world.crash("bookie-2")
            await app.ended()

    The body of the test runs on the host ``test``, which can be partitioned but neither crashed nor paused. Other hosts are the
    bookies, the processes from :meth:`start`, and ``metadata``, the metadata service. Code in the world connects by
    ``bkclient.connect(bk_world.uri)``, and its ``asyncio`` and ``anyio`` sleeps pass in virtual time.

    ``name`` goes into the history's header, ``history`` is the file it is written to. ``header`` holds more for the header.
    ``audit`` watches what runs in the world.
    """

    def __init__(
        self,
        seed: int,
        *,
        options: WorldOptions | None = None,
        name: str = "test",
        history: Path | None = None,
        header: Mapping[str, Any] | None = None,
        audit: Audit | None = None,
    ) -> None:
        self.seed = seed
        self._audit = audit
        self.options = options or WorldOptions()
        conditions = _conditions(self.options, seed)
        self._world = World(
            seed,
            network=conditions.network,
            metadata=conditions.metadata,
            limits=conditions.limits,
            tcp=conditions.tcp,
        )
        full_header = {
            "scenario": name,
            "seed": seed,
            "mutant": "",
            "transport": (TransportKind.OBJECTS if conditions.tcp is None else TransportKind.BYTES).value,
            "package_version": bkclient.__version__,
            **conditions.as_header(),
            **(header or {}),
        }
        self._checker = OnlineChecker()
        self._history = HistoryWriter(full_header, self._world.clock_us, history)
        self._history.listeners.append(self._note_ledger)
        self._history.readers.append(self._checker.feed_all)
        self._path = history
        self._stage = Stage(self._world, Recorder(self._history), conditions)
        self._backend = SimulatedBackend(self._stage)
        Host(self._world, TEST_HOST)
        self._processes: dict[str, SimulatedProcess] = {}
        self._acts = WorldActs(self._stage, PlayedLedgers(), self._processes, lambda _: None)
        self._ledgers: dict[int, None] = {}
        self._has_started = False
        self._has_settled = False
        self._violations: tuple[Violation, ...] | None = None

    def __repr__(self) -> str:
        return f"<SimulatedWorld seed={self.seed} at {self.now:.6f} s>"

    # The run -----------------------------------------------------------------------------------------------------

    def run(self, main: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run ``await main(*args)`` on the host ``test``, and return its result. For tests that are ordinary functions.

        Raises what ``main`` raises, and :class:`~simbookie.world.errors.WorldError` where nothing can happen any more, where a
        limit was reached, and where a task or callback failed unnoticed. May be called again, to go on in the same world.
        """
        name = getattr(main, "__qualname__", type(main).__name__)

        async def body() -> T:
            return await main(*args)

        async def play() -> T:
            if not self._has_started:
                self._has_started = True
                await self._stage.start_bookies()
                self._stage.recorder.record(Kind.CLIENT_START, TEST_HOST, incarnation=1, detail=name)
            task = self._world.spawn(TEST_HOST, body, name=name)
            with self._audit.listening() if self._audit is not None else nullcontext():
                await self._world.join(task)
            return task.result()

        with recorded_logs():
            return self._world.run(play)

    def finish(self) -> tuple[Violation, ...]:
        """End the run and its history; the clauses of BookKeeper's protocol that its events break. Idempotent."""
        if self._violations is None:
            self._history.record(Kind.RUN_END, "run", completed=self._has_settled)
            self._history.close()
            self._violations = tuple(self._checker.finish())
        return self._violations

    def close(self) -> None:
        """Finish, and end the world: whatever is suspended in it is unwound without an effect. Idempotent."""
        try:
            self.finish()
        finally:
            self._world.close()

    # What there is -----------------------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """What code in the world connects to: ``bkclient.connect(bk_world.uri)``."""
        return URI

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._world.loop.time()

    @property
    def bookies(self) -> tuple[str, ...]:
        """The names of all bookies, dead ones included."""
        return tuple(f"bookie-{index}" for index in range(self.options.bookies))

    @property
    def living_bookies(self) -> tuple[str, ...]:
        """The bookies that were not crashed; paused and partitioned ones live."""
        return tuple(name for name, host in self._stage.bookies.items() if host.is_alive)

    @property
    def ledgers(self) -> tuple[int, ...]:
        """The ids of all ledgers that were created, in order, without those that were deleted."""
        return tuple(self._ledgers)

    @property
    def history(self) -> Path | None:
        """Where the history is written, for ``bk-chaos show`` and ``bk-verify``."""
        return self._path

    @property
    def digest(self) -> str:
        """What names the run: equal digests mean that the same happened at the same times."""
        return self._history.digest

    def rng(self, name: str) -> Random:
        """A stream of chance of this seed for what ``name`` says; asking again gives another one."""
        return self._world.rng(f"test {name}")

    def wall_clock(self) -> float:
        """The time of day in the world, in seconds since 1970, for code that wants a clock to be handed in."""
        return self._backend.wall_clock()

    def _note_ledger(self, event: Event) -> None:
        if event.kind == Kind.META_CAS and event.fields["outcome"] == "ok":
            if event.fields["cause"] == "create":
                self._ledgers[event.ledger] = None
            elif event.fields["cause"] == "delete":
                self._ledgers.pop(event.ledger, None)

    # The application ---------------------------------------------------------------------------------------------

    def start(self, name: str, program: Callable[..., Awaitable[Any]], *args: Any) -> SimulatedProcess:
        """Run ``await program(*args)`` in a process of its own, on a new host ``name``.

        ``ValueError`` for a name that is taken; :meth:`SimulatedProcess.restart` begins another life of a process.
        """
        if name in self._world.hosts or name == METADATA_HOST:
            raise ValueError(f"there is a host {name!r} already; restart({name!r}) begins its next life")
        process = self._processes[name] = SimulatedProcess(self._stage, name, program, args)
        return process

    def process(self, name: str) -> SimulatedProcess:
        """A process of the application by its name; ``ValueError`` if there is none."""
        if name not in self._processes:
            raise ValueError(f"there is no process {name!r}; there are {_listed(self._processes)}")
        return self._processes[name]

    async def until(self, condition: Callable[[], Any], *, within_s: float = 60.0) -> None:
        """Wait until ``condition()`` is true, or what it returns, if awaitable, gives something true.

        It is asked every 10 virtual milliseconds. ``TimeoutError``, which names it, after ``within_s`` virtual seconds.
        """
        deadline = self.now + within_s
        while True:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return
            if self.now >= deadline:
                raise TimeoutError(f"{_named(condition)} was not true within {within_s:g} virtual seconds")
            await asyncio.sleep(_LOOK_S)

    # Faults ------------------------------------------------------------------------------------------------------

    def crash(self, name: str, *, power_loss: bool = False) -> None:
        """Kill a bookie or a process. Nothing of it executes any more, not even a ``finally`` block.

        A bookie keeps what it had synced. With ``power_loss`` its machine falls silent, so others notice by timeouts alone.
        """
        if name in self._processes:
            self._perform(faults.KillClient(name))
        else:
            mode = CrashMode.POWER_LOSS if power_loss else CrashMode.PROCESS
            self._perform(faults.Crash(self._bookie(name), mode))

    def restart(self, name: str) -> None:
        """Start a crashed bookie with what its disk kept, or begin the next life of a process (one that runs is killed)."""
        if name in self._processes:
            self._processes[name].restart()
        else:
            self._perform(faults.Restart(self._bookie(name)))

    def pause(self, name: str) -> None:
        """Let a bookie or a process execute nothing until :meth:`resume`. Its connections stay, nobody is told."""
        self._perform(faults.Pause(self._host(name)))

    def resume(self, name: str) -> None:
        """Let a paused bookie or process go on, first with everything that came due meanwhile."""
        self._perform(faults.Resume(self._host(name)))

    def partition(self, hosts: Names, others: Names | None = None) -> None:
        """Let nothing pass between ``hosts`` and ``others`` until :meth:`heal`, in either direction and without an error.

        What is sent meanwhile arrives then, as TCP would have it, unless those who wait have given up. Without ``others`` these
        are all other hosts, the metadata service among them. ``hosts`` reach each other.
        """
        group = self._hosts(hosts)
        rest = (
            self._hosts(others) if others is not None else tuple(sorted({*self._world.hosts, METADATA_HOST} - {*group}))
        )
        self._perform(faults.Partition(group, rest, keep=True))

    def heal(self) -> None:
        """End every partition and every pause; crashed bookies stay down."""
        self._perform(faults.HealAll())

    def lose_session(self, name: str) -> None:
        """Let the metadata service forget the session of a bookie or a process, as after a long pause; it gets a new one."""
        self._perform(faults.LoseSession(self._host(name)))

    @asynccontextmanager
    async def disturbances(
        self,
        *,
        kinds: Iterable[str] = _KINDS,
        hosts: Names | None = None,
        every_s: tuple[float, float] = (0.2, 2.0),
        lasting_s: tuple[float, float] = (0.1, 2.0),
    ) -> AsyncIterator[None]:
        """Break one thing after the other at random while the block runs, each for a while, and mend all at its end.

        ``kinds`` are of crash, pause and partition; ``hosts`` are the bookies unless they are given, and may be processes too.
        The seed decides the fault, its target and its time. One fault lasts at a time, so that a majority is always there.
        """
        chosen, victims = tuple(kinds), self.bookies if hosts is None else self._hosts(hosts)
        if not chosen or not {*chosen} <= {*_KINDS}:
            raise ValueError(f"kinds must be of {_listed(_KINDS)}, got {_listed(chosen)}")
        task = asyncio.ensure_future(self._disturb(chosen, victims, every_s, lasting_s))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _disturb(
        self,
        kinds: tuple[str, ...],
        hosts: tuple[str, ...],
        every_s: tuple[float, float],
        lasting_s: tuple[float, float],
    ) -> None:
        rng = self.rng("disturbances")
        while True:
            await asyncio.sleep(rng.uniform(*every_s))
            kind, host, duration_s = rng.choice(kinds), rng.choice(hosts), rng.uniform(*lasting_s)
            begin, end = self._disturbance(kind, host)
            begin()
            try:
                await asyncio.sleep(duration_s)
            finally:
                end()

    def _disturbance(self, kind: str, host: str) -> tuple[Callable[[], None], Callable[[], None]]:
        """What breaks ``host``, and what mends it."""
        if kind == "crash":
            return partial(self.crash, host), partial(self.restart, host)
        if kind == "pause":
            return partial(self.pause, host), partial(self.resume, host)
        return partial(self.partition, host), self.heal

    async def settle(self) -> None:
        """End all faults, start all bookies, and have two new clients in turn recover and read every ledger and every log.

        So everything that was acknowledged is looked at, the ledgers are closed, and logs are taken over. For the end of a test.
        Raises :class:`scenarios.liveness.StuckError` for a ledger or log that cannot be recovered or read.
        """
        self._acts.end_all()
        for name in self.bookies:
            self._stage.restart_bookie(name)
        logs = {name: log for name, log in self._stage.recorder.manifests.items() if not log.is_deleted}
        of_logs = {ledger.ledger_id for log in logs.values() for ledger in log.ledgers}
        whole = [name for name, log in logs.items() if log.partition < 0]
        await self._stage.read_back([ledger for ledger in self._ledgers if ledger not in of_logs], whole)
        self._has_settled = True

    def _perform(self, fault: faults.Fault) -> None:
        self._acts.perform(Step(At(0.0), fault))

    def _bookie(self, name: str) -> str:
        if name not in self._stage.bookies:
            known = (*self._stage.bookies, *self._processes)
            raise ValueError(f"there is no bookie or process {name!r}; there are {_listed(known)}")
        return name

    def _host(self, name: str) -> str:
        return name if name in self._processes else self._bookie(name)

    def _hosts(self, names: Names) -> tuple[str, ...]:
        given = (names,) if isinstance(names, str) else tuple(names)
        if not given:
            raise ValueError("hosts must name at least one host")
        return tuple(name if name in {METADATA_HOST, TEST_HOST} else self._host(name) for name in given)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _named(condition: Callable[..., Any]) -> str:
    name = getattr(condition, "__qualname__", repr(condition))
    code = getattr(condition, "__code__", None)
    return name if code is None else f"{name} ({Path(code.co_filename).name}, line {code.co_firstlineno})"


def _conditions(options: WorldOptions, seed: int) -> Conditions:
    """The conditions of the run with this seed."""
    drawn = draw_conditions(seed)
    network, metadata = drawn.network, drawn.metadata
    if not options.rough:
        jitter_s = split(seed, "jitter").choice((0.0002, 0.001, 0.004))
        network, metadata = NetworkConfig(jitter_s=jitter_s), MetadataConfig()
    config = ClientConfig()
    return replace(
        drawn,
        bookies=options.bookies,
        network=network,
        metadata=metadata,
        client=config,
        transport=TcpTransportConfig.of_client(config),
        tcp=draw_tcp(seed) if options.bytes_on_the_wire else None,
        limits=LoopLimits(steps=_STEPS_MAX, seconds=options.limit_s),
    )
