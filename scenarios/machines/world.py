"""The basic world of protocol machines, and its moves.

It contains one ledger, its writer, and any number of recoveries, all shipped machines. The network delays, loses, repeats and
reorders messages. A request that timed out may still arrive. Bookies crash and return with all entries that they acknowledged;
no bookie loses data, so every loss is a violation. The metadata store is correct, but answers to writes may be lost.

After every move the guarantees are checked independently of the machines, from messages, stored entries and results of
applications, with their own quorum arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Self

from bkclient.errors import Code
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.append import WriterState
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.update import UpdateHandle, WriteMetadata
from scenarios.machines.bookies import MachineBookie, Message, StoredEntry
from scenarios.machines.broken import BrokenAssertion, BrokenClause
from scenarios.machines.clients import MachineClient, RecoveryClient, WriterClient
from scenarios.machines.guarantees import Guarantees
from scenarios.machines.store import Store, ledger

__all__ = ["Configuration", "MachineWorld"]


class Configuration(NamedTuple):
    """The sizes of a world, and the options of its writer."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    bookies: int
    entries: int
    recoveries: int
    #: How many entries a recovery reads ahead; small worlds have few, so that the window opens and fills up.
    read_ahead: int = 3
    #: How the writer behaves, and whether its ensemble changes may be disabled at times; only an options world uses it.
    options: AppendOptions = AppendOptions()
    may_disable_changes: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """E, Qw and Qa."""
        return self[:3]


class MachineWorld:
    """See the module. ``moves`` has every move by its name; :meth:`move` makes one if it is possible.

    A schedule is a list of moves with choices. It can be made in any world: impossible moves are skipped, and a choice is taken
    modulo the number of choices. So a part of a schedule is a schedule.
    """

    #: The weights of moves in walks. Progress is more likely than faults.
    weights: ClassVar[Mapping[str, float]] = MappingProxyType(
        {
            "request arrives": 6.0,
            "answer arrives": 6.0,
            "store acts": 4.0,
            "append": 2.0,
            "bookie returns": 1.0,
            "request times out": 0.5,
            "recovery starts": 0.3,
            "bookie crashes": 0.2,
            "close": 0.1,
            "writer crashes": 0.1,
            "recovery crashes": 0.1,
        }
    )

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        names = [chr(ord("a") + i) for i in range(configuration.bookies)]
        self.bookies = {name: MachineBookie() for name in names}
        self.store = Store(ledger(configuration.sizes, "".join(names[: configuration.ensemble_size])))
        self.requests: list[Message] = []
        self.answers: list[Message] = []
        self.updates: list[tuple[MachineClient, UpdateHandle]] = []
        self.guarantees = Guarantees(self)
        self.writer = WriterClient(self)
        self.recoveries: list[RecoveryClient] = []
        self.appended: list[bytes] = []
        self.replacements_offered = 0
        self.is_change_disabled = False
        self.moves = self._moves()

    def _moves(self) -> dict[str, tuple[Callable[[], int], Callable[[int], None]]]:
        return {
            # the number of choices, and the function that makes the move
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
        """An equal, independent world. Raises ``TypeError`` for subclasses with more state."""
        if type(self).copy is MachineWorld.copy and type(self) is not MachineWorld:
            raise TypeError(f"a {type(self).__name__} has more state than is copied")
        twin = object.__new__(type(self))
        twin.configuration = self.configuration
        twin.bookies = {name: bookie.copy() for name, bookie in self.bookies.items()}
        twin.store = self.store.copy()
        twin.guarantees = self.guarantees.copy()
        twin.guarantees.bind(twin)
        clients: dict[MachineClient, MachineClient] = {
            client: client.copy(twin) for client in (self.writer, *self.recoveries)
        }
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
        """The number of choices of ``move`` now; 0 if it is not possible."""
        return self.moves[move][0]()

    def move(self, move: str, choice: int) -> None:
        """Make ``move`` with ``choice`` (any number) if it is possible, and check the guarantees."""
        count, act = self.moves[move]
        choices = count()
        if choices:
            try:
                act(choice % choices)
            except BrokenClause:
                raise
            except AssertionError as error:
                raise BrokenAssertion(str(error)) from error
            self.guarantees.check()

    def told(self, move: str, choice: int) -> str:
        """A description of ``move``, with the message, client or bookie that it applies to."""
        subjects = self._subjects().get(move, ())
        return f"{move}: {subjects[choice % len(subjects)]}" if subjects else move

    def _subjects(self) -> dict[str, Sequence[object]]:
        """The messages, clients or bookies that each move may apply to, in the order of its choices."""
        up = [name for name, bookie in self.bookies.items() if bookie.is_up]
        down = [name for name, bookie in self.bookies.items() if not bookie.is_up]
        updates = [f"{update.cause} of {client.name}" for client, update in self.updates]
        writes = [updates[index] for index in self._writes()]
        return {
            "request arrives": self.requests,
            "request arrives and is repeated": self.requests,
            "request is lost": self._unanswered(),
            "request times out": self._waiting(),
            "answer arrives": self.answers,
            "answer arrives twice": self.answers,
            "store acts": updates,
            "store acts and its answer is lost": writes,
            "store does not act and nobody knows": writes,
            "bookie crashes": up,
            "bookie returns": down,
            "recovery crashes": [recovery.name for recovery in self._alive_recoveries()],
        }

    def settle(self) -> None:
        """End all faults: every bookie is up and everything in flight arrives. Then every operation must have ended.

        If a recovery has begun and the ledger is not closed, another recovery must be able to close it.
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
        """A request is on its way."""
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
        code, entry = self.bookies[message.bookie_id].handle(message, of_writer=message.client is self.writer)
        if message.add is not None and code == Code.OK:
            self.guarantees.on_stored(message)
        return code, entry

    def _bookies(self, *, is_up: bool) -> list[MachineBookie]:
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

    def _carry_out(self, client: MachineClient, update: UpdateHandle, *, lose_answer: bool) -> None:
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
        return [recovery for recovery in self.recoveries if recovery.is_alive and not recovery.has_ended]

    def _recovery_crashes(self, choice: int) -> None:
        self._alive_recoveries()[choice].crash()
