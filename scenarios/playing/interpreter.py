"""Playing a plan on a stage.

1. Clients that no step starts are started, triggers are armed.
2. Until every program is at rest and every step that has to come was taken, or the plan's patience is over, things happen.
3. Every fault ends, and the schedule: bookies restart, processes resume, messages that were held back arrive. Nothing is
   broken after that.
4. Programs have the plan's patience once more, then their processes end.
5. Two new clients, one after the other, recover and read every ledger, and take over and read every log.

What the plan expects is compared with what happened: a program or a ledger that does not come to its end breaks a clause of
liveness (:mod:`scenarios.liveness`), unless the plan expects it to be blocked. Anything else that a plan says and the run did not
do is a problem that leaves it without a verdict (:class:`UnmetError`): such a run is not the plan's.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import anyio

from bkclient.errors import BookKeeperError
from scenarios.history import Event
from scenarios.liveness import ADD_RESOLVES, EVENTUALLY_CLOSED, StuckError
from scenarios.model import Scenario
from scenarios.plan import log_operations as log_ops
from scenarios.plan import operations as ops
from scenarios.plan.faults import DelayMessages, Drop, DuplicateMessages, Hold, MetadataCalls, Omit
from scenarios.plan.model import Expected, Plan, Program, Step
from scenarios.plan.triggers import At, Trigger, When
from scenarios.playing.acts import Acts, ClientLife
from scenarios.playing.ledgers import PlayedLedgers
from scenarios.playing.programs import PlayedProgram
from scenarios.playing.world_acts import WorldActs
from scenarios.recording.client import RecordedClient
from scenarios.recording.recorders import Recorder
from scenarios.stage import Stage

__all__ = ["PlayedPlan", "UnmetError", "scenario_of"]

#: These act while the triggering event is recorded, so that they meet the message or call which follows the event.
_AT_ONCE: Final = (Drop, Hold, DelayMessages, DuplicateMessages, MetadataCalls, Omit)
_WRITES: Final = (
    *(ops.Append, ops.AppendAll, ops.AppendAt, ops.Flush, ops.ForceLedger, ops.Close),
    *(log_ops.PublishMessages, log_ops.FlushLog, log_ops.ReleaseOwnLog),
)


class UnmetError(Exception):
    """The run did not do what its plan says."""


def scenario_of(plan: Plan) -> Scenario:
    """The plan as what the runner plays."""
    ends = "; ".join(f"{end.ledger} ends at {' or '.join(map(str, end.entries))}" for end in plan.ends)
    expected = plan.expect.verdict.name.lower()
    return Scenario(
        name=plan.name,
        summary=plan.summary,
        expected=f"{expected}; {ends}" if ends else expected,
        play=lambda stage: WorldPlan(plan, stage).play(),
        meets=plan.meets,
        draw=lambda _seed: plan.cluster.conditions(),
    )


@dataclass(slots=True, eq=False)
class _Armed:
    """A trigger that waits for an event, and what is done then."""

    trigger: When
    act: Callable[[], None]
    is_at_once: bool = False
    seen: int = 0
    fired: int = 0


class ProgramState(Protocol):
    """How far a program is, see :class:`~scenarios.playing.programs.PlayedProgram`."""

    failed: list[str]
    problems: list[str]
    current: ops.ClientOperation | None
    has_ended: bool

    @property
    def has_begun(self) -> bool:
        """Whether its client has come up."""

    @property
    def is_staying(self) -> bool:
        """Whether it does nothing more, and its process lives on."""


class PlayedClient(ClientLife, Protocol):
    """A process of a client."""

    @property
    def is_alive(self) -> bool:
        """Whether the program runs, even if it is paused."""

    async def ended(self) -> Any:
        """Wait until the program has returned or crashed; raises what it raised."""


class PlayedStage(Protocol):
    """What a plan is played on: the simulated world, or processes."""

    @property
    def recorder(self) -> Recorder:
        """Tells of every event that a plan may wait for."""

    def later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Call ``action`` in ``delay_s`` seconds."""

    async def read_back(self, ledger_ids: Sequence[int], logs: Sequence[str] = ()) -> None:
        """Have two new clients, one after the other, recover and read the ledgers, and take over and read the logs."""


class PlayedPlan(ABC):
    """One run of one plan; :meth:`new_acts` and :meth:`new_client` say on what."""

    def __init__(self, plan: Plan, stage: PlayedStage) -> None:
        self.plan = plan
        self.stage = stage
        self.ledgers = PlayedLedgers()
        self.programs: dict[str, ProgramState] = {}
        self.clients: dict[str, PlayedClient] = {}
        self.acts = self.new_acts()
        self._by_name: dict[str, Program] = {program.name: program for program in plan.clients}
        self._armed: list[_Armed] = []
        #: The same by the kind of event that each waits for.
        self._armed_for: dict[str, list[_Armed]] = {}
        self._reached: dict[int, asyncio.Event] = {}
        #: How many actions are due at a time that is known.
        self._due = 0
        self._watchers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._is_over = False
        self._blocked: list[str] = []

    @abstractmethod
    def new_acts(self) -> Acts:
        """What does what steps say."""

    @abstractmethod
    def new_client(self, program: Program) -> tuple[ProgramState, PlayedClient]:
        """Start a client process with its program."""

    async def play(self) -> None:
        """Play it from the beginning to the end."""
        plan = self.plan
        for step in plan.steps:
            self._arm(step)
        for operation in plan.operations:
            if isinstance(operation, ops.Until):
                self._await(operation.trigger)
        history = self.stage.recorder.history
        history.listen(PlayedLedgers.KINDS, self.ledgers.feed)
        history.listen(self._armed_for, self._on_event)
        for name in plan.client_names:
            if name not in plan.waiting:
                self.start(name)
        await self._rest(due=True)
        self._blocked = [name for name in plan.expect.clients if self._is_blocked(name)]
        self._is_over = True
        self.acts.end_all()
        await self._rest(due=False)
        self._check_rest()
        for client in self.clients.values():
            client.crash()
        await self._read_back()
        self._check_plan()

    # Triggers ----------------------------------------------------------------------------------------------------

    def _arm(self, step: Step) -> None:
        act = partial(self._take, step)
        if isinstance(step.trigger, When):
            self._arm_when(_Armed(step.trigger, act, isinstance(step.fault, _AT_ONCE)))
        else:
            self._at(step.trigger, act)

    def _await(self, trigger: Trigger) -> None:
        reached = self._reached[id(trigger)] = asyncio.Event()
        if isinstance(trigger, When):
            self._arm_when(_Armed(trigger, reached.set))
        else:
            self._at(trigger, reached.set)

    def _arm_when(self, armed: _Armed) -> None:
        self._armed.append(armed)
        self._armed_for.setdefault(armed.trigger.kind, []).append(armed)

    def _at(self, trigger: At, act: Callable[[], None]) -> None:
        for number in range(trigger.times):
            self._later(trigger.time_s + number * trigger.every_s, act)

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        self._due += 1

        def come() -> None:
            self._due -= 1
            if not self._is_over:
                act()
            self._changed.set()

        self.stage.later(delay_s, come)

    def _on_event(self, event: Event) -> None:
        if self._is_over:
            return
        for armed in self._armed_for[event.kind]:
            trigger = armed.trigger
            if armed.fired == trigger.times or not trigger.matches(event, self.ledgers.known, self.ledgers.place):
                continue
            armed.seen += 1
            if armed.seen % trigger.nth == 0:
                armed.fired += 1
                if armed.is_at_once and not trigger.after_s:
                    armed.act()
                    self._changed.set()
                else:
                    self._later(trigger.after_s, armed.act)

    def _take(self, step: Step) -> None:
        self.acts.perform(step)

    # Clients -----------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a client of the plan, unless it was started."""
        if name in self.clients:
            return
        self.programs[name], self.clients[name] = self.new_client(self._by_name[name])
        self._watchers.append(asyncio.ensure_future(self._watch(name)))

    def changed(self) -> None:
        """Note that a program is elsewhere than before."""
        self._changed.set()

    async def until(self, trigger: Trigger) -> None:
        """Wait until the trigger of an operation has come."""
        await self._reached[id(trigger)].wait()

    async def _watch(self, name: str) -> None:
        program = self.programs[name]
        try:
            await self.clients[name].ended()
        except BookKeeperError as error:  # the client did not come up: it could not reach the metadata service
            if program.has_begun:
                raise
            program.failed.append(f"its start: {error}")
        finally:
            self._changed.set()

    async def _rest(self, *, due: bool) -> None:
        """Wait until every program is at rest and, if ``due``, every step that has to come has been taken."""
        with anyio.move_on_after(self.plan.patience_s):
            while (due and self._has_more()) or not all(map(self._is_at_rest, self.clients)):
                await self._changed.wait()
                self._changed.clear()
                for watcher in self._watchers:
                    if watcher.done():
                        watcher.result()

    def _has_more(self) -> bool:
        """Whether a step is still to be taken for certain."""
        return self._due > 0 or any(not armed.fired and not armed.trigger.maybe for armed in self._armed)

    def _is_at_rest(self, name: str) -> bool:
        return self.programs[name].is_staying or not self.clients[name].is_alive

    def _is_blocked(self, name: str) -> bool:
        """Whether a client got nowhere so far."""
        program = self.programs.get(name)
        return program is None or bool(program.failed) or not (program.has_ended or program.is_staying)

    # Expectations ------------------------------------------------------------------------------------------------

    def _check_rest(self) -> None:
        """Everything that was asked for has come to an end by now, unless something is expected to be blocked."""
        if not self.plan.expect.demands_end:
            return
        for name in self.clients:
            program = self.programs[name]
            ledger = getattr(program.current, "ledger", "")
            log = getattr(program.current, "log", "")
            # nobody created it
            is_without_ledger = (bool(ledger) and ledger not in self.ledgers.ids) or (
                bool(log) and log not in self.ledgers.logs
            )
            if self._is_at_rest(name) or is_without_ledger or isinstance(program.current, ops.Until):
                continue
            clause = ADD_RESOLVES if isinstance(program.current, _WRITES) else EVENTUALLY_CLOSED
            verb = program.current.verb if program.current else "the end" if program.has_ended else "the start"
            problem = f"{verb} of {name} did not end {self.plan.patience_s:g} seconds after all faults"
            raise StuckError(self.ledgers.ids.get(ledger, -1), problem, clause)

    async def _read_back(self) -> None:
        remaining = [ledger_id for ledger_id in self.ledgers.ids.values() if ledger_id not in self.ledgers.deleted]
        try:
            if remaining or self.ledgers.logs:
                await self.stage.read_back(remaining, self.ledgers.logs)
        except StuckError:
            if self.plan.expect.demands_end:
                raise

    def _check_plan(self) -> None:
        plan = self.plan
        problems = [
            f"no event came for the step {self._shown(armed.trigger)}"
            for armed in self._armed
            if not armed.fired and not armed.trigger.maybe
        ]
        problems += self.acts.problems
        problems += [problem for program in self.programs.values() for problem in program.problems]
        if plan.expect.verdict is Expected.BLOCKED and not self._blocked:
            problems.append(f"nothing blocked {' or '.join(plan.expect.clients)}")
        for end in plan.ends:
            ledger_id = self.ledgers.ids.get(end.ledger)
            found = None if ledger_id is None else self.ledgers.ends.get(ledger_id)
            if found not in end.entries:
                shown = "it is not closed" if found is None else f"it ends at {found}"
                problems.append(f"{end.ledger} should end at {' or '.join(map(str, end.entries))}, and {shown}")
        if problems:
            raise UnmetError("; ".join(problems))

    @staticmethod
    def _shown(trigger: When) -> str:
        conditions = [f"{condition.field}={condition.value}" for condition in trigger.where]
        return " ".join(filter(None, ("when", trigger.kind, trigger.actor, *conditions)))


class WorldPlan(PlayedPlan):
    """One run of one plan in the simulated world."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._world_stage = stage
        super().__init__(plan, stage)

    async def play(self) -> None:
        """See :class:`PlayedPlan`; the schedule is in force until all faults end."""
        self._world_stage.begin_schedule(self.plan.schedule)
        await super().play()

    def new_acts(self) -> Acts:
        """See there."""
        return WorldActs(self._world_stage, self.ledgers, self.clients, self.start)

    def new_client(self, program: Program) -> tuple[ProgramState, PlayedClient]:
        """See there."""
        stage = self._world_stage
        rng = stage.world.rng(f"workload {program.name}")
        played = PlayedProgram(program, self.ledgers, stage.conditions, rng, self.until, self.changed)

        async def run(client: RecordedClient) -> None:
            await played.run(client)

        return played, stage.client(program.name, run)
