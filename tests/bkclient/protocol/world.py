"""A small world for the protocol machines: bookies as dicts, a network that may do anything, and the guarantees.

The world contains one ledger, its writer, and any number of recoveries, all shipped machines. It moves by *moves*, each
the smallest step there is: one request reaches its bookie, one answer reaches its client, one metadata action is carried
out, something crashes. Whoever drives the world chooses the moves; in between nothing happens.

The network delays, loses, repeats and reorders. A client that timed out does not know whether its request will still
arrive, and it may. Bookies crash and return with all they acknowledged; nothing here loses what it stored, so nothing
excuses a loss. The metadata store is honest, but answers to writes may be lost.

After every move the guarantees are checked from outside, with nothing but what was sent, stored and told to applications,
and with quorum arithmetic written again from its definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Self, TypeVar

from bkclient.errors import BookKeeperError, Code, LedgerTruncated
from bkclient.ledger import BookieId, Ensemble, Versioned
from bkclient.protocol.adds import NewEntry
from bkclient.protocol.append import AppendMachine, WriterState
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.recovery import EntryVerdict, RecoveryMachine, RecoveryPhase
from bkclient.protocol.update import MetadataUpdate, UpdateHandle, WriteMetadata
from bkclient.protocol.value import Value
from tests.bkclient.protocol.guarantees import Guarantees, Heard, Violation
from tests.bkclient.protocol.harness import Store, ledger


class Configuration(NamedTuple):
    """How big a world is."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    bookies: int
    entries: int
    recoveries: int
    #: How many entries a recovery reads ahead; small worlds have few, so that the window opens and fills up.
    read_ahead: int = 3
    #: How the writer behaves, and whether its ensemble changes may be disabled at times; see the module ``modes``.
    options: AppendOptions = AppendOptions()
    may_disable_changes: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self[:3]


class StoredEntry(NamedTuple):
    """What a bookie keeps of an entry."""

    payload: bytes
    last_add_confirmed: int
    length: int


class Bookie(Value):
    """Stores what it is sent unless it is fenced; remembers everything, crash or not."""

    __slots__ = ("entries", "is_fenced", "is_up")

    def __init__(self) -> None:
        self.entries: dict[int, StoredEntry] = {}
        self.is_fenced = False
        self.is_up = True


@dataclass(eq=False)
class Message:
    """One request and its fate. The client hears exactly one outcome; the bookie may hear it never, once or more."""

    client: Client
    bookie_id: BookieId
    kind: str
    entry_id: int = -1
    fence: bool = False
    add: NewEntry | None = None
    answer: tuple[int, StoredEntry | None] | None = None
    is_answered: bool = False

    def copy(self, clients: Mapping[Client, Client]) -> Self:
        """The same message of the copy of its client."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), client=clients[self.client])
        return twin


class World:
    """See the module. ``moves`` names everything that can happen; :meth:`move` makes one happen if it can."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        names = [chr(ord("a") + i) for i in range(configuration.bookies)]
        self.bookies = {name: Bookie() for name in names}
        self.store = Store(ledger(configuration.sizes, "".join(names[: configuration.ensemble_size])))
        self.requests: list[Message] = []
        self.answers: list[Message] = []
        self.updates: list[tuple[Client, UpdateHandle]] = []
        self.guarantees = Guarantees(self)
        self.writer = WriterClient(self)
        self.recoveries: list[RecoveryClient] = []
        self.appended: list[bytes] = []
        self.replacements_offered = 0
        self.is_change_disabled = False
        self.moves = self._moves()

    def _moves(self) -> dict[str, tuple[Callable[[], int], Callable[[int], None]]]:
        return {
            # how many choices there are, and what to do with the chosen one
            "request arrives": (lambda: len(self.requests), self._request_arrives),
            "request arrives and is repeated": (lambda: len(self.requests), self._request_is_repeated),
            "request is lost": (lambda: len(self._unanswered()), self._request_is_lost),
            "request times out": (lambda: len(self._waiting()), self._times_out),
            "answer arrives": (lambda: len(self.answers), self._answer_arrives),
            "answer arrives twice": (lambda: len(self.answers), self._answer_arrives_twice),
            "store acts": (lambda: len(self.updates), self._store_acts),
            "store acts and its answer is lost": (lambda: len(self._writes()), self._store_answer_lost),
            "store does not act and nobody knows": (lambda: len(self._writes()), self._store_write_lost),
            "bookie crashes": (lambda: len(self._bookies(is_up=True)), self._bookie_crashes),
            "bookie returns": (lambda: len(self._bookies(is_up=False)), self._bookie_returns),
            "append": (self._may_append, self._append),
            "close": (self._may_close, lambda _: self._close()),
            "writer crashes": (lambda: int(self.writer.is_alive), lambda _: self.writer.crash()),
            "recovery starts": (
                lambda: int(len(self.recoveries) < self.configuration.recoveries),
                lambda _: self._recovery_starts(),
            ),
            "recovery crashes": (lambda: len(self._alive_recoveries()), self._recovery_crashes),
        }

    def copy(self) -> Self:
        """An equal world that goes its own way."""
        twin = object.__new__(type(self))
        twin.configuration = self.configuration
        twin.bookies = {name: bookie.copy() for name, bookie in self.bookies.items()}
        twin.store = self.store.copy()
        twin.guarantees = self.guarantees.copy()
        twin.guarantees.bind(twin)
        clients: dict[Client, Client] = {client: client.copy(twin) for client in (self.writer, *self.recoveries)}
        twin.writer = clients[self.writer]  # type: ignore[assignment]  # a copy of a writer is one
        twin.recoveries = [clients[recovery] for recovery in self.recoveries]  # type: ignore[misc]  # and of a recovery
        twin.requests = [message.copy(clients) for message in self.requests]
        twin.answers = [message.copy(clients) for message in self.answers]
        twin.updates = [(clients[c], UpdateHandle(clients[c], u.number)) for c, u in self.updates]
        twin.appended = list(self.appended)
        twin.replacements_offered = self.replacements_offered
        twin.is_change_disabled = self.is_change_disabled
        twin.moves = twin._moves()
        return twin

    @property
    def entries_appended(self) -> int:
        """How many entries the writer took."""
        return len(self.appended)

    def payload_of(self, entry_id: int) -> bytes:
        """What the application appended as ``entry_id``."""
        return self.appended[entry_id]

    def choices(self, move: str) -> int:
        """In how many ways ``move`` can happen now."""
        return self.moves[move][0]()

    def move(self, move: str, choice: int) -> None:
        """Make ``move`` happen, if it can, in the way that ``choice`` (any number) selects; then check everything."""
        count, act = self.moves[move]
        choices = count()
        if choices:
            act(choice % choices)
            self.guarantees.check()

    def settle(self) -> None:
        """No more trouble: every bookie is back and everything under way arrives. Nobody may be left waiting.

        A ledger that some recovery began to take over can then be closed by another one.
        """
        for bookie in self.bookies.values():
            bookie.is_up = True
        self._let_everything_arrive()
        self.guarantees.check_settled()
        if self.recoveries and not self.store.metadata.is_closed:
            self._recovery_starts()
            self._let_everything_arrive()
            self.guarantees.check_closed()

    def _let_everything_arrive(self) -> None:
        while self.requests or self.answers or self.updates:
            for move in ("request arrives", "answer arrives", "store acts"):
                self.move(move, 0)

    def send(self, message: Message) -> None:
        self.requests.append(message)
        self.guarantees.on_sent(message)

    def replace_bookie(self, ensemble: Ensemble, excluded: frozenset[BookieId]) -> BookieId | None:
        """A bookie that is allowed, whether it is up or not; another one each time."""
        allowed = [b for b in self.bookies if b not in ensemble and b not in excluded]
        self.replacements_offered += 1
        return allowed[self.replacements_offered % len(allowed)] if allowed else None

    # Network

    def _unanswered(self) -> list[Message]:
        return [message for message in self.requests if not message.is_answered]

    def _waiting(self) -> list[Message]:
        return [*self._unanswered(), *self.answers]

    def _request_arrives(self, choice: int) -> None:
        message = self.requests.pop(choice)
        message.answer = self._process(message)
        if not message.is_answered:
            self.answers.append(message)

    def _request_is_repeated(self, choice: int) -> None:
        self._process(self.requests[choice])

    def _request_is_lost(self, choice: int) -> None:
        message = self._unanswered()[choice]
        self.requests.remove(message)
        self._answer(message, Code.BOOKIE_NOT_AVAILABLE, None)

    def _times_out(self, choice: int) -> None:
        message = self._waiting()[choice]
        if message in self.answers:
            self.answers.remove(message)
        self._answer(message, Code.TIMEOUT, None)

    def _answer_arrives(self, choice: int) -> None:
        message = self.answers.pop(choice)
        assert message.answer is not None, "only answered requests have answers"
        self._answer(message, *message.answer)

    def _answer_arrives_twice(self, choice: int) -> None:
        message = self.answers[choice]
        self._answer_arrives(choice)
        assert message.answer is not None, "only answered requests have answers"
        self._answer(message, *message.answer)

    def _answer(self, message: Message, code: int, entry: StoredEntry | None) -> None:
        message.is_answered = True
        if message.client.is_alive:
            message.client.wake()
            self.guarantees.on_answer(message, code)
            message.client.on_answer(message, code, entry)

    def _process(self, message: Message) -> tuple[int, StoredEntry | None]:
        bookie = self.bookies[message.bookie_id]
        if not bookie.is_up:
            return Code.BOOKIE_NOT_AVAILABLE, None
        if message.fence:
            bookie.is_fenced = True
        if message.add is not None:
            if bookie.is_fenced and message.client is self.writer:
                return Code.LEDGER_FENCED, None
            add = message.add
            self.guarantees.on_stored(message)
            bookie.entries[add.entry_id] = StoredEntry(add.payload, add.last_add_confirmed, add.length)
            return Code.OK, None
        entry_id = max(bookie.entries, default=-1) if message.kind == "fence" else message.entry_id
        entry = bookie.entries.get(entry_id)
        return (Code.NO_SUCH_ENTRY, None) if entry is None else (Code.OK, entry)

    def _bookies(self, *, is_up: bool) -> list[Bookie]:
        return [bookie for bookie in self.bookies.values() if bookie.is_up is is_up]

    def _bookie_crashes(self, choice: int) -> None:
        self._bookies(is_up=True)[choice].is_up = False

    def _bookie_returns(self, choice: int) -> None:
        self._bookies(is_up=False)[choice].is_up = True

    # Store

    def _writes(self) -> list[int]:
        return [i for i, (_, update) in enumerate(self.updates) if isinstance(update.action, WriteMetadata)]

    def _store_acts(self, choice: int) -> None:
        client, update = self.updates[choice]
        if update.action is not None:
            self._carry_out(client, update, lose_answer=False)
        self._finish_update(choice)

    def _store_answer_lost(self, choice: int) -> None:
        index = self._writes()[choice]
        client, update = self.updates[index]
        self._carry_out(client, update, lose_answer=True)
        self._finish_update(index)

    def _carry_out(self, client: Client, update: UpdateHandle, *, lose_answer: bool) -> None:
        before = self.store.value
        self.store.carry_out(update, lose_answer=lose_answer)
        if self.store.value is not before:
            self.guarantees.on_metadata(client, before.metadata)

    def _store_write_lost(self, choice: int) -> None:
        index = self._writes()[choice]
        self.updates[index][1].on_conflict()
        self._finish_update(index)

    def _finish_update(self, index: int) -> None:
        client, update = self.updates[index]
        if update.action is None:
            del self.updates[index]
            client.wake()
            if client.is_alive:
                client.machine.on_update_done(update.number)

    # Clients

    def _may_append(self) -> int:
        writer = self.writer
        return int(writer.is_alive and writer.machine.is_writable and len(self.appended) < self.configuration.entries)

    def _may_close(self) -> int:
        return int(self.writer.is_alive and self.writer.machine.state not in (WriterState.CLOSING, WriterState.CLOSED))

    def _append(self, _: int) -> None:
        payload = b"x" * (len(self.appended) + 1)
        self.appended.append(payload)
        self.writer.wake()
        self.writer.machine.append(payload)

    def _close(self) -> None:
        self.writer.wake()
        self.writer.machine.close()

    def _recovery_starts(self) -> None:
        recovery = RecoveryClient(self)
        self.recoveries.append(recovery)
        recovery.machine.start()

    def _alive_recoveries(self) -> list[RecoveryClient]:
        ended = (RecoveryPhase.DONE, RecoveryPhase.FAILED)
        return [r for r in self.recoveries if r.is_alive and r.machine.phase not in ended]

    def _recovery_crashes(self, choice: int) -> None:
        self._alive_recoveries()[choice].crash()


class Client:
    """What writers and recoveries have in common. A crashed client hears nothing; what it sent still arrives."""

    machine: AppendMachine | RecoveryMachine
    heard: Heard | None = None

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_alive = True
        #: How often it was told that it is done: the writer with closing, a recovery with everything.
        self.endings = 0
        #: Whether copies of this client have the same machine, which nothing has happened to since.
        self.is_shared = False
        #: What a search calls this state of the client, if it has seen it.
        self.number: int | None = None

    def copy(self, world: World) -> Self:
        """The same client in a copy of its world."""
        self.is_shared = True
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), world=world)
        return twin

    def wake(self) -> None:
        """Something is about to happen to the machine: it may be that of several copies so far, and this one needs its own."""
        self.number = None
        if self.is_shared:
            self.is_shared = False
            self.machine = self.machine.copy()
            self.machine.ports = self  # type: ignore[assignment]  # a client of either kind has the ports of its machine
            self.heard = None if self.heard is None else self.heard.copy()

    def crash(self) -> None:
        self.wake()
        self.is_alive = False

    def update(self, number: int) -> MetadataUpdate:
        """An update of the machine, for the store."""
        return self.machine.update(number)

    def on_update_answer(self, number: int, answer: Versioned | BookKeeperError | None) -> None:
        """The store answers."""
        self.wake()
        self.machine.on_update_answer(number, answer)

    def on_answer(self, message: Message, code: int, entry: StoredEntry | None) -> None:
        raise NotImplementedError

    # Ports of both machines

    def send_add(self, entry: NewEntry, bookies: tuple[BookieId, ...]) -> None:
        for bookie_id in bookies:
            self.world.send(Message(self, bookie_id, "add", entry.entry_id, add=entry))

    def run_update(self, number: int) -> None:
        self.world.updates.append((self, UpdateHandle(self, number)))

    def replace_bookie(self, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        return self.world.replace_bookie(ensemble, excluded)


class WriterClient(Client):
    """The writer."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.is_retry_due = False
        self.machine: AppendMachine = AppendMachine(world.store.value, self, options=world.configuration.options)

    def on_answer(self, message: Message, code: int, entry: StoredEntry | None) -> None:
        self.machine.on_add_reply(message.bookie_id, message.entry_id, code)

    def confirm_adds(self, entries: list[NewEntry]) -> None:
        for entry in entries:
            self.world.guarantees.on_acknowledged(entry.entry_id)

    def fail_add(self, entry: NewEntry, error: BookKeeperError) -> None:
        self.world.guarantees.on_failed(entry.entry_id)

    def is_ensemble_change_disabled(self) -> bool:
        return self.world.is_change_disabled

    def retry_later(self, delay_s: float) -> None:
        assert not self.is_retry_due, "one retry at a time"
        self.is_retry_due = True

    def spans_fault_domains(self, bookies: tuple[BookieId, ...]) -> bool:
        raise NotImplementedError

    def ledger_truncated(self, error: LedgerTruncated) -> None:
        raise Violation("A1", str(error))

    def close_finished(self, error: BookKeeperError | None) -> None:
        self.endings += 1


class RecoveryClient(Client):
    """One recovery; what it has heard is noted for the checks."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.heard: Heard = Heard()
        self.machine: RecoveryMachine = RecoveryMachine(
            world.store.value, self, read_ahead=world.configuration.read_ahead
        )

    def on_answer(self, message: Message, code: int, entry: StoredEntry | None) -> None:
        machine = self.machine
        if message.kind == "add":
            machine.on_add_reply(message.bookie_id, message.entry_id, code)
        elif message.kind == "fence" and entry is not None:
            machine.on_fence_reply(message.bookie_id, code, entry.last_add_confirmed, entry.length)
        elif message.kind == "fence":
            machine.on_fence_reply(message.bookie_id, code)
        elif entry is not None:
            machine.on_read_reply(message.bookie_id, message.entry_id, code, entry.payload, entry.length)
        else:
            machine.on_read_reply(message.bookie_id, message.entry_id, code)

    def send_fence(self, bookie_id: BookieId) -> None:
        self.world.send(Message(self, bookie_id, "fence", fence=True))

    def send_read(self, entry_id: int, bookie_id: BookieId, *, fence: bool) -> None:
        kind = "read" if self.machine.phase is RecoveryPhase.READING else "measure"
        self.world.send(Message(self, bookie_id, kind, entry_id, fence=fence))

    def entry_decided(self, entry_id: int, verdict: EntryVerdict, bookies: tuple[BookieId, ...]) -> None:
        self.world.guarantees.on_decided(self.heard, entry_id, verdict)

    def recovery_finished(self, error: BookKeeperError | None) -> None:
        self.endings += 1
        if error is not None:
            self.world.guarantees.on_gave_up(self, error)


#: How often a walk makes a move that its weights do not name: trouble, less likely than progress.
TROUBLE = 0.3

AnyWorld = TypeVar("AnyWorld", bound=World)


def wander(world: AnyWorld, weights: Mapping[str, float], seed: int, moves: int) -> AnyWorld:
    """Make ``moves`` random moves in ``world``, each as often as ``weights`` say."""
    rng = Random(seed)
    chances = [weights.get(name, TROUBLE) for name in world.moves]
    for _ in range(moves):
        (name,) = rng.choices(tuple(world.moves), chances)
        choices = world.choices(name)
        if choices:
            world.move(name, rng.randrange(choices))
    return world
