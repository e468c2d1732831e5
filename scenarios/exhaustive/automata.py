"""Clients as automata: states are numbered by value, and each step is computed once, by the shipped machine.

A state of a client is a :class:`~scenarios.machines.world.MachineWorld` in which this client is the only one that does
anything. A step copies it, hands the stimulus to the machine, and takes out the requests that it sent. The guarantees of
that world check what can be checked at one client.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from bkclient.errors import BookKeeperError, Code
from bkclient.ledger import BookieId, LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.adds import NewEntry
from bkclient.protocol.append import WriterState
from bkclient.protocol.read import ReadOutcome
from bkclient.protocol.recovery import RecoveryMachine, RecoveryPhase
from bkclient.protocol.update import ReadMetadata, WriteMetadata
from bkclient.protocol.value import freeze
from bkclient.protocol.writer_state import HAS_ENDED
from scenarios.exhaustive.configuration import SmallCluster
from scenarios.machines.bookies import Message, StoredEntry
from scenarios.machines.broken import BrokenAssertion, BrokenClause
from scenarios.machines.clients import MachineClient, RecoveryClient
from scenarios.machines.guarantees import Guarantees, Heard
from scenarios.machines.world import MachineWorld

__all__ = [
    "APPEND",
    "CLOSE",
    "Answered",
    "Ask",
    "AskStore",
    "Attentive",
    "AutomatonStep",
    "ClientAutomaton",
    "ClientFacts",
    "Stimulus",
    "Told",
    "stimulate",
]


class Ask(NamedTuple):
    """A request to a bookie, as a value; see :class:`~scenarios.machines.bookies.Message`."""

    bookie_id: BookieId
    kind: str
    entry_id: int
    fence: bool
    add: NewEntry | None

    def __str__(self) -> str:
        return self.kind if self.entry_id < 0 else f"{self.kind} {self.entry_id}"


class AskStore(NamedTuple):
    """The next action of a metadata update: a conditional write of ``write``, or a read; with ``is_done`` none is left."""

    number: int
    write: Versioned | None
    is_done: bool


class Answered(NamedTuple):
    """The stimulus that a request has this outcome."""

    ask: Ask
    code: int
    entry: StoredEntry | None


class Told(NamedTuple):
    """The stimulus that the metadata store answered: what is stored now, or None for a conflict or an unknown outcome."""

    number: int
    value: Versioned | None


# ruff: noqa: SLF001 - which parts of a state are of no consequence can only be said of parts

#: The stimuli that applications give.
APPEND: Final = "append"
CLOSE: Final = "close"

#: As many as an update has left after its first.
_ATTEMPTS_LEFT: Final = 999

Stimulus = Answered | Told | str


class AutomatonStep(NamedTuple):
    """What a stimulus does: the next state, and the requests sent. ``broken`` is the clause that it breaks, if any."""

    state: int
    asks: tuple[Ask, ...] = ()
    updates: tuple[AskStore, ...] = ()
    broken: BrokenClause | None = None


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What a search wants to know of a client in a state.

    ``has_ended``: it takes notice of nothing any more. ``sends_no_more``: it asks bookies for nothing any more. ``unsettled`` is
    the clause that is broken if nothing is under way.
    """

    acknowledged: int
    has_ended: bool
    sends_no_more: bool
    may_append: bool
    may_close: bool
    outcome: str
    unsettled: BrokenClause | None


class Attentive(Guarantees):
    """The guarantees of one client's world; a clause that is not wanted may be broken, and the client goes on."""

    __slots__ = ("_wanted",)

    def __init__(self, world: MachineWorld, wanted: frozenset[str] | None) -> None:
        super().__init__(world)
        self._wanted = wanted

    @contextmanager
    def _only_wanted(self) -> Iterator[None]:
        try:
            yield
        except BrokenClause as broken:
            if self._wanted is None or broken.clause in self._wanted:
                raise

    def on_sent(self, message: Message) -> None:
        """As there."""
        with self._only_wanted():
            super().on_sent(message)

    def on_ruled_out(self, heard: Heard, entry_id: int) -> None:
        """As there."""
        with self._only_wanted():
            super().on_ruled_out(heard, entry_id)

    def on_gave_up(self, client: MachineClient, error: BookKeeperError) -> None:
        """As there."""
        with self._only_wanted():
            super().on_gave_up(client, error)

    def on_acknowledged(self, entry_id: int) -> None:
        """As there."""
        with self._only_wanted():
            super().on_acknowledged(entry_id)
        self.acknowledged = max(self.acknowledged, entry_id)

    def on_failed(self, entry_id: int) -> None:
        """As there."""
        with self._only_wanted():
            super().on_failed(entry_id)

    def on_metadata(self, client: MachineClient, before: LedgerMetadata) -> None:
        """As there."""
        with self._only_wanted():
            super().on_metadata(client, before)

    def check_confirmed(self) -> None:
        """As there."""
        with self._only_wanted():
            super().check_confirmed()


class ClientAutomaton:
    """The writer, or any recovery: all recoveries are alike.

    ``steps`` counts those that were computed. State 0 is that of a client after its violation, which goes no further.
    """

    _BROKEN: ClassVar[ClientFacts] = ClientFacts(-1, True, True, False, False, "broken", None)  # noqa: FBT003

    def __init__(
        self, cluster: SmallCluster, *, is_writer: bool, merges_ended: bool, wanted: frozenset[str] | None = None
    ) -> None:
        self.cluster = cluster
        self._wanted = wanted
        self.is_writer = is_writer
        self.merges_ended = merges_ended
        self._worlds: list[MachineWorld | None] = [None]
        self.facts: list[ClientFacts] = [self._BROKEN]
        self._numbers: dict[Hashable, int] = {}
        self.table: dict[tuple[int, Stimulus], AutomatonStep] = {}
        #: The other states that are one with an ended one.
        self.merged: dict[int, dict[Hashable, MachineWorld]] = {}

    @property
    def states(self) -> int:
        """How many states were seen."""
        return len(self.facts) - 1

    @property
    def steps(self) -> int:
        """How many steps were computed."""
        return len(self.table)

    def begin(self, value: Versioned) -> AutomatonStep:
        """The first state of a client that finds ``value`` in the metadata store."""
        world = self.new_world(value)
        return (
            AutomatonStep(self._number(world)) if self.is_writer else self._step_to(world, self._client(world), set())
        )

    def new_world(self, value: Versioned) -> MachineWorld:
        """A world in which the client finds ``value`` and begins."""
        world = MachineWorld(self.cluster.world())
        world.guarantees = Attentive(world, self._wanted)
        if self.is_writer:
            return world
        world.store.value = value
        world.appended = [b"x" * (entry_id + 1) for entry_id in range(self.cluster.entries)]
        # The writer's progress is not known here; what a recovery says too much of it is found by F5.
        world.guarantees.acknowledged = self.cluster.entries - 1
        recovery = RecoveryClient(world)
        world.recoveries.append(recovery)
        recovery.machine.start()
        return world

    def step(self, state: int, stimulus: Stimulus) -> AutomatonStep:
        """What ``stimulus`` does in ``state``."""
        found = self.table.get((state, stimulus))
        if found is None:
            world = self._worlds[state]
            assert world is not None, "a client goes no further after its violation"
            found = self.table[state, stimulus] = self.step_of(world, stimulus)
        return found

    def step_of(self, world: MachineWorld, stimulus: Stimulus) -> AutomatonStep:
        """What ``stimulus`` does in ``world``, which stays as it is."""
        before, original = {handle.number for _, handle in world.updates}, world
        if isinstance(stimulus, Told):
            before.discard(stimulus.number)
        world = world.copy()
        client = self._client(world)
        client.wake()
        try:
            stimulate(world, client, stimulus)
            world.guarantees.check_confirmed()
        except BrokenClause as broken:
            return AutomatonStep(0, broken=broken)
        except AssertionError as error:
            return AutomatonStep(0, broken=BrokenAssertion(str(error)))
        is_idle = isinstance(stimulus, Answered) and not world.requests and len(world.updates) == len(original.updates)
        if is_idle and client.machine == self._client(original).machine:
            world = original  # what the machine takes no notice of is no evidence either
        return self._step_to(world, self._client(world), before)

    def is_dead(self, state: int, stimulus: Stimulus) -> bool:
        """Whether ``stimulus`` changes nothing in ``state``."""
        step = self.step(state, stimulus)
        return step.state == state and not step.asks and not step.updates

    def world(self, state: int) -> MachineWorld:
        """The client in this state, in a world of its own. Not to be changed."""
        world = self._worlds[state]
        assert world is not None, "a client has no state after its violation"
        return world

    def client(self, state: int) -> MachineClient:
        """The client in this state. Not to be changed."""
        return self._client(self.world(state))

    def _client(self, world: MachineWorld) -> MachineClient:
        return world.writer if self.is_writer else world.recoveries[0]

    def _step_to(self, world: MachineWorld, client: MachineClient, known: set[int]) -> AutomatonStep:
        """The step to ``world``; the next actions of updates that are not ``known`` are to be carried out."""
        asks = tuple(Ask(m.bookie_id, m.kind, m.entry_id, m.fence, m.add) for m in world.requests)
        numbers = [handle.number for _, handle in world.updates if handle.number not in known]
        updates = tuple(_next_action(client, number) for number in numbers)
        world.requests.clear()
        world.replacements_offered = 0
        world.guarantees.forget_what_is_decided(of_writer=self.is_writer)
        if isinstance(client, RecoveryClient):
            _forget(client)
        if self.merges_ended:
            # An update gives up after a thousand conflicts, which so small a cluster has not got.
            for _, handle in world.updates:
                client.machine.update(handle.number).attempts_left = _ATTEMPTS_LEFT
        return AutomatonStep(self._number(world), asks, updates)

    def _number(self, world: MachineWorld) -> int:
        client = self._client(world)
        facts = self.facts_of(world, client)
        snapshot: Hashable = (
            client.machine.snapshot(),
            client.endings,
            freeze(client.heard),
            world.guarantees.snapshot(),
        )
        key = snapshot
        if self.merges_ended:
            ended = (facts.acknowledged, facts.outcome, facts.unsettled is None)
            key = ended if facts.has_ended else in_essence(client, facts, snapshot)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.facts)
            self._worlds.append(world)
            self.facts.append(facts)
        if key is not snapshot:
            self.merged.setdefault(number, {}).setdefault(snapshot, world)
        return number

    def facts_of(self, world: MachineWorld, client: MachineClient) -> ClientFacts:
        """What a search wants to know of ``client``."""
        unsettled = None
        try:
            world.guarantees.check_settled()
        except BrokenClause as broken:
            unsettled = broken
        acknowledged = world.guarantees.acknowledged
        if isinstance(client, RecoveryClient):
            phase = client.machine.phase
            has_ended = phase in (RecoveryPhase.DONE, RecoveryPhase.FAILED) and not world.updates
            sends_no_more = phase in (RecoveryPhase.CLOSING, RecoveryPhase.DONE, RecoveryPhase.FAILED)
            return ClientFacts(-1, has_ended, sends_no_more, False, False, phase.value, unsettled)  # noqa: FBT003
        machine = world.writer.machine
        state, entries = machine.state, self.cluster.entries
        may_append = machine.is_writable and len(world.appended) < entries
        may_close = self.cluster.closes and state not in (WriterState.CLOSING, WriterState.CLOSED)
        has_ended = state in (WriterState.FAILED, WriterState.CLOSED) and not world.updates and not may_close
        return ClientFacts(acknowledged, has_ended, state in HAS_ENDED, may_append, may_close, state.value, unsettled)


def stimulate(world: MachineWorld, client: MachineClient, stimulus: Stimulus) -> None:
    """Hand the stimulus to the machine of ``client``, which may be changed."""
    if stimulus == APPEND:
        payload = b"x" * (len(world.appended) + 1)
        world.appended.append(payload)
        world.writer.machine.append(payload)
    elif stimulus == CLOSE:
        world.writer.machine.close()
    elif isinstance(stimulus, Answered):
        ask = stimulus.ask
        message = Message(client, ask.bookie_id, ask.kind, ask.entry_id, ask.fence, ask.add)
        world.guarantees.on_answer(message, stimulus.code)
        client.on_answer(message, stimulus.code, stimulus.entry)
    elif isinstance(stimulus, Told):
        _answer_update(world, client, stimulus)
    else:
        raise AssertionError(stimulus)


def _answer_update(world: MachineWorld, client: MachineClient, told: Told) -> None:
    number, update = told.number, client.update(told.number)
    if update.action is not None:
        is_written = isinstance(update.action, WriteMetadata) and told.value is not None
        before = update.basis.metadata
        client.on_update_answer(number, told.value)
        # Answers may overtake each other: after that to a close those to earlier writes say nothing new.
        if told.value is not None and not world.store.metadata.is_closed:
            world.store.value = told.value
            if is_written or (client is world.writer and _is_lost_change(before, told.value.metadata)):
                world.guarantees.on_metadata(client, before)
        if client.update(number).action is not None:
            return
    # With nothing left to do, this is the shell's report that the update has ended.
    world.updates[:] = [(owner, handle) for owner, handle in world.updates if handle.number != number]
    client.machine.on_update_done(number)


def _is_lost_change(before: LedgerMetadata, stored: LedgerMetadata) -> bool:
    """Whether the writer reads that a change of its own was stored, whose answer was lost: nobody else changes an open ledger."""
    return stored.state is LedgerState.OPEN and stored.fragments != before.fragments


def in_essence(client: MachineClient, facts: ClientFacts, snapshot: Hashable) -> Hashable:
    """The snapshot without what is of no consequence: words of errors, codes that only words depend on, a LAC read that is over.

    Whether it is of consequence is not for this function to know: the verification after the search finds out.
    """
    machine = client.machine.copy()
    codes, machine.adds.failure_codes = machine.adds.failure_codes, {}
    fenced = () if facts.sends_no_more else sorted(b for b, code in codes.items() if code == Code.LEDGER_FENCED)
    for _, handle in client.world.updates:
        update = machine.update(handle.number)
        if isinstance(update.action, ReadMetadata):
            update.basis = machine.local.value
        if update.doubtful_version < machine.local.value.version:
            update.doubtful_version = -1
    if isinstance(machine, RecoveryMachine):
        if machine.phase is not RecoveryPhase.FENCING:
            machine._lac_read = None
        elif machine._lac_read is not None:
            machine._lac_read.failure_code, machine._lac_read.failed_by = Code.READ, None
        for entry in machine._reads._entries.values() if machine._reads is not None else ():
            if entry.read.outcome is ReadOutcome.WAITING:
                entry.read.code, entry.read.code_from = Code.OK, None
    assert isinstance(snapshot, tuple), "a snapshot has parts"
    return _without_words((machine.snapshot(), *snapshot[1:], *fenced))


def _without_words(snapshot: Hashable) -> Hashable:
    """The snapshot with errors by their kind alone; what they say is for people."""
    if type(snapshot) is not tuple or not snapshot:
        return snapshot
    kind = snapshot[0]
    if isinstance(kind, type) and issubclass(kind, BookKeeperError):
        return kind.__name__
    return tuple([_without_words(part) for part in snapshot])


def _forget(recovery: RecoveryClient) -> None:
    """Forget the evidence that no later check asks for."""
    heard, phase = recovery.heard, recovery.machine.phase
    assert heard is not None, "a recovery has heard something"
    if heard.has_read:
        heard.fenced = set()
    if phase not in (RecoveryPhase.MARKING, RecoveryPhase.FENCING, RecoveryPhase.READING):
        heard.denials, heard.write_backs = set(), {}
    last = recovery.machine.last_add_confirmed
    heard.write_backs = {what: code for what, code in sorted(heard.write_backs.items()) if what[0] > last}


def _next_action(client: MachineClient, number: int) -> AskStore:
    action = client.update(number).action
    if isinstance(action, WriteMetadata):
        return AskStore(number, Versioned(action.metadata, action.expected_version + 1), is_done=False)
    return AskStore(number, None, is_done=action is None)
