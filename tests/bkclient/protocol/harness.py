"""A stage for the protocol machines: ports that record, a metadata register, and words to play a schedule by hand.

Bookies have one letter as their name. Who was asked what, and who answers what, is written down in short cues: ``"0a 0b"``
means entry 0 at bookies a and b. A stage never answers of its own accord; the test is the director.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bkclient.errors import BookKeeperError, Code, LedgerTruncated
from bkclient.ledger import BookieId, Ensemble, LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.adds import NewEntry
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.intents import Choose, Intent
from bkclient.protocol.recovery import EntryVerdict, RecoveryMachine
from bkclient.protocol.update import LocalMetadata, UpdateHandle
from scenarios.machines.store import Store, ledger


def cues(text: str) -> Iterator[tuple[int, BookieId]]:
    """``"0a 12b"`` as pairs of entry id and bookie."""
    for cue in text.split():
        yield int(cue[:-1]), cue[-1]


@dataclass(frozen=True)
class Wanted:
    """An intent made of two functions, for tests of what drives intents."""

    needed: Callable[[LedgerMetadata], bool]
    change: Callable[[LedgerMetadata], LedgerMetadata]
    cause: str = "ensemble"

    def is_needed(self, metadata: LedgerMetadata) -> bool:
        return self.needed(metadata)

    def applied(self, metadata: LedgerMetadata, choose: Choose) -> LedgerMetadata:
        return self.change(metadata)


def begin(local: LocalMetadata, intent: Intent, **options: Any) -> UpdateHandle:
    """An update of a view that belongs to no machine."""
    return UpdateHandle(local, local.begin(intent, **options))


class Stage:
    """What writers and recoveries have in common: a store, spare bookies, and a list of what was sent."""

    machine: AppendMachine | RecoveryMachine

    def __init__(self, value: Versioned, *, spares: str, store: Store | None = None) -> None:
        self.store = store or Store(value)
        #: Writable bookies that may replace others, in the order in which they are offered.
        self.spares = spares
        #: Updates that are under way; the test decides when they get on.
        self.updates: list[UpdateHandle] = []
        self.adds: dict[int, NewEntry] = {}
        self._sent: list[str] = []

    def sent(self) -> str:
        """Everything sent since the last call, in order."""
        sent, self._sent = " ".join(self._sent), []
        return sent

    def metadata_arrives(self) -> None:
        """The oldest update under way runs to its end."""
        update = self.updates.pop(0)
        self.store.finish(update)
        self.ended(update)

    def ended(self, update: UpdateHandle) -> None:
        """The machine is told that an update has ended."""
        self.machine.on_update_done(update.number)

    def run_update(self, number: int) -> None:
        self.updates.append(UpdateHandle(self.machine, number))

    def replace_bookie(self, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        return next((spare for spare in self.spares if spare not in excluded and spare not in ensemble), None)

    def _note_add(self, entry: NewEntry, bookies: tuple[BookieId, ...], prefix: str = "") -> None:
        known = self.adds.setdefault(entry.entry_id, entry)
        assert known == entry, "every replica is the same"
        self._sent.extend(f"{prefix}{entry.entry_id}{bookie_id}" for bookie_id in bookies)


class Writer(Stage):
    """A writer and its ports."""

    def __init__(
        self,
        sizes: tuple[int, int, int] = (3, 3, 2),
        ensemble: str = "abc",
        *,
        spares: str = "",
        store: Store | None = None,
        **options: Any,
    ) -> None:
        value = ledger(sizes, ensemble) if store is None else store.value
        super().__init__(value, spares=spares, store=store)
        #: What the application was told, in order.
        self.acked: list[int] = []
        self.failed: list[tuple[int, Code]] = []
        self.errors: list[BookKeeperError] = []
        self.closed: list[Code | None] = []
        #: Losses: what was confirmed, and where the ledger ends.
        self.truncations: list[tuple[int, int]] = []
        #: Whether ensemble changes are disabled, and how long the machine wants to wait before it sends again.
        self.is_change_disabled = False
        self.retries: list[float] = []
        #: Bookies by fault domain; every bookie is one by itself if it is not named.
        self.domains: dict[BookieId, str] = {}
        self.min_domains = 2
        self.machine: AppendMachine = AppendMachine(self.store.value, self, options=AppendOptions(**options))

    @property
    def state(self) -> str:
        return self.machine.state.value

    # What the test does

    def append(self, *payloads: bytes) -> None:
        for payload in payloads or (b"x",):
            self.machine.append(payload)

    def append_at(self, *entry_ids: int, payload: bytes = b"x") -> None:
        for entry_id in entry_ids:
            self.machine.append_at(entry_id, payload)

    def retry(self) -> float:
        """The time the machine wanted to wait is over; returns how long that was."""
        delay = self.retries.pop()
        self.machine.on_retry()
        return delay

    def ok(self, answers: str) -> None:
        self.answer(answers, Code.OK)

    def timeout(self, answers: str) -> None:
        self.answer(answers, Code.TIMEOUT)

    def answer(self, answers: str, code: int) -> None:
        for entry_id, bookie_id in cues(answers):
            self.machine.on_add_reply(bookie_id, entry_id, code)

    def close(self) -> None:
        self.machine.close()

    # Ports

    def send_add(self, entry: NewEntry, bookies: tuple[BookieId, ...]) -> None:
        self._note_add(entry, bookies)

    def send_adds(self, entries: Sequence[NewEntry], write_sets: tuple[tuple[BookieId, ...], ...]) -> None:
        for entry in entries:
            self.send_add(entry, write_sets[entry.entry_id % len(write_sets)])

    def confirm_adds(self, entries: list[NewEntry]) -> None:
        self.acked.extend(entry.entry_id for entry in entries)

    def fail_add(self, entry: NewEntry, error: BookKeeperError) -> None:
        self.failed.append((entry.entry_id, error.code))
        self.errors.append(error)

    def is_ensemble_change_disabled(self) -> bool:
        return self.is_change_disabled

    def retry_later(self, delay_s: float) -> None:
        assert not self.retries, "one retry at a time"
        self.retries.append(delay_s)

    def spans_fault_domains(self, bookies: tuple[BookieId, ...]) -> bool:
        return len({self.domains.get(bookie_id, bookie_id) for bookie_id in bookies}) >= self.min_domains

    def ledger_truncated(self, error: LedgerTruncated) -> None:
        self.truncations.append((error.last_add_confirmed, error.last_entry_id))

    def close_finished(self, error: BookKeeperError | None) -> None:
        self.closed.append(error.code if error else None)
        if error is not None:
            self.errors.append(error)


class Recovery(Stage):
    """A recovery and its ports.

    What was sent reads ``F.a`` for a fence, ``R0a`` for a fencing read, ``r0a`` for a plain one, ``W0a`` for an add.
    ``limits`` are those of the machine.
    """

    def __init__(
        self,
        sizes: tuple[int, int, int] = (3, 3, 2),
        ensembles: str | Mapping[int, str] = "abc",
        *,
        spares: str = "",
        store: Store | None = None,
        **limits: Any,
    ) -> None:
        value = ledger(sizes, ensembles) if store is None else store.value
        super().__init__(value, spares=spares, store=store)
        self.decided: list[tuple[int, EntryVerdict, str]] = []
        self.finished: list[Code | None] = []
        self.errors: list[BookKeeperError] = []
        self.machine: RecoveryMachine = RecoveryMachine(self.store.value, self, **limits)

    @property
    def phase(self) -> str:
        return self.machine.phase.value

    # What the test does

    def start(self) -> None:
        """Mark the ledger and send the fences."""
        self.machine.start()
        self.metadata_arrives()

    def fenced(self, bookies: str, *, lac: int | None = None, length: int = 0, code: int | None = None) -> None:
        """Bookies answer the fence: with their LAC, with ``code``, or by default that they have no entry."""
        if code is None:
            code = Code.NO_SUCH_ENTRY if lac is None else Code.OK
        for bookie_id in bookies:
            if lac is None:
                self.machine.on_fence_reply(bookie_id, code)
            else:
                self.machine.on_fence_reply(bookie_id, code, lac, length)

    def found(self, answers: str, *, payload: bytes = b"x", length: int | None = None) -> None:
        """Bookies return the entry; the ledger's length with it is by default that of one-byte entries."""
        for entry_id, bookie_id in cues(answers):
            total = entry_id + 1 if length is None else length
            self.machine.on_read_reply(bookie_id, entry_id, Code.OK, payload, total)

    def denied(self, answers: str, code: int = Code.NO_SUCH_ENTRY) -> None:
        for entry_id, bookie_id in cues(answers):
            self.machine.on_read_reply(bookie_id, entry_id, code)

    def unknown(self, answers: str, code: int = Code.TIMEOUT) -> None:
        self.denied(answers, code)

    def written(self, answers: str, code: int = Code.OK) -> None:
        for entry_id, bookie_id in cues(answers):
            self.machine.on_add_reply(bookie_id, entry_id, code)

    def not_written(self, answers: str, code: int = Code.TIMEOUT) -> None:
        self.written(answers, code)

    # Ports

    def send_fence(self, bookie_id: BookieId) -> None:
        self._sent.append(f"F.{bookie_id}")

    def send_read(self, entry_id: int, bookie_id: BookieId, *, fence: bool) -> None:
        self._sent.append(f"{'R' if fence else 'r'}{entry_id}{bookie_id}")

    def send_add(self, entry: NewEntry, bookies: tuple[BookieId, ...]) -> None:
        self._note_add(entry, bookies, "W")

    def entry_decided(self, entry_id: int, verdict: EntryVerdict, bookies: tuple[BookieId, ...]) -> None:
        self.decided.append((entry_id, verdict, "".join(bookies)))

    def recovery_finished(self, error: BookKeeperError | None) -> None:
        self.finished.append(error.code if error else None)
        if error is not None:
            self.errors.append(error)


def reading(
    sizes: tuple[int, int, int] = (3, 3, 2),
    ensembles: str | dict[int, str] = "abc",
    *,
    lac: int | None = None,
    length: int = 0,
    spares: str = "",
    **limits: Any,
) -> Recovery:
    """A recovery whose fences were answered by all bookies; what it has sent so far is forgotten."""
    recovery = Recovery(sizes, ensembles, spares=spares, **limits)
    recovery.start()
    recovery.fenced("".join(recovery.store.metadata.last_fragment.ensemble), lac=lac, length=length)
    return recovery


def end_of(recovery: Recovery) -> tuple[LedgerState, int, int]:
    """State, last entry and length of the ledger as stored."""
    metadata = recovery.store.metadata
    return metadata.state, metadata.last_entry_id, metadata.length
