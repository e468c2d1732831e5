"""Answers that are counted where they arrive: writers do what they would do if they heard of each, whatever comes when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from bkclient._core import using_core
from bkclient.errors import Code
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.append_ports import Quorums
from bkclient.transport.striped_tally import StripedTally
from bkclient.transport.tally import HeldBack, RunTally, Tally
from tests.bkclient.core.both_cores import with_each_core
from tests.bkclient.protocol.harness import Writer
from tests.bkclient.protocol.test_append_counted import By

CODES = [Code.TIMEOUT, Code.WRITE_ON_READ_ONLY_BOOKIE, Code.BOOKIE_NOT_AVAILABLE, Code.LEDGER_FENCED]


class Owner:
    """What a writer's shell does with what it hears, around two machines: one is told everything, of the other it is counted."""

    def __init__(self, held_back: HeldBack, sizes: tuple[int, int, int], ensemble: str, **options: Any) -> None:
        self.is_striped = sizes[1] < sizes[0]
        self.plain, self.writer = (Writer(sizes, ensemble, spares="vwxyz", **options) for _ in range(2))
        self.held_back = held_back
        self.counts = True
        self.told = 0
        #: How often it was told what one bookie stored.
        self.told_of_one = 0

    def append(self) -> int:
        self.plain.append()
        self.writer.append()
        return self.writer.machine.last_add_pushed

    def write_set(self, entry_id: int) -> tuple[str, ...]:
        return tuple(sorted(self.writer.machine.adds.write_set(entry_id)))

    def plainly(self, bookie_id: str, entry_id: int, code: int = Code.OK) -> None:
        """The bookie answers, as the machine hears of it that is told everything."""
        self.plain.machine.on_add_reply(bookie_id, entry_id, code)

    def on_adds_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
        self.told += 1
        self.told_of_one += 1
        self.writer.machine.acknowledged(bookie_id, entry_ids)

    def on_adds_stored_by(self, quorums: Quorums, entry_ids: Sequence[int]) -> None:
        self.told += 1
        if not self.writer.machine.acknowledged_by(quorums, entry_ids):
            self.held_back.tell()

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        self.told += 1
        self.counts = False
        self.held_back.tell()
        self.writer.machine.on_add_reply(bookie_id, entry_id, code)


class Channel:
    """Runs of some writers, and the answers that are still to come. Each has the bookies that are named beside its sizes."""

    def __init__(self, *ledgers: tuple[tuple[int, int, int], str], **options: Any) -> None:
        (self.quorum,) = {sizes[2] for sizes, _ in ledgers}
        self.held_back = HeldBack()
        self.owners = [Owner(self.held_back, sizes, ensemble, **options) for sizes, ensemble in ledgers]
        #: By bookie, what it has not answered: by which object that is told, what the add is known by there, and the entry.
        self.awaited: dict[str, list[tuple[Any, int, Owner, int]]] = {}

    def run(self, writers: list[int]) -> None:
        """One turn's entries, of these writers in this order."""
        adds = [
            (owner, owner.append()) for owner in (self.owners[n % len(self.owners)] for n in writers) if writable(owner)
        ]
        if adds and all(owner.counts for owner, _ in adds):
            self._count([(owner, entry_id, owner.write_set(entry_id)) for owner, entry_id in adds])
        else:
            for add in adds:
                self._alone(*add)
        self._sent_again()

    def _count(self, adds: list[tuple[Owner, int, tuple[str, ...]]]) -> None:
        """As the transport does at the end of a run."""
        entry_ids = [entry_id for _, entry_id, _ in adds]
        parts = [
            (n, owner, owner.is_striped)
            for n, (owner, _, _) in enumerate(adds)
            if n == 0 or adds[n - 1][0] is not owner
        ]
        sets = list(dict.fromkeys(bookies for _, _, bookies in adds))
        places: dict[str, list[int]] = {}
        for place, (_, _, bookies) in enumerate(adds):
            for bookie_id in bookies:
                places.setdefault(bookie_id, []).append(place)
        tally: RunTally
        if len(sets) == 1 and not any(is_striped for _, _, is_striped in parts):
            tally = Tally(self.held_back, self.quorum, sets[0], entry_ids, parts)
        else:
            stripes = bytearray(sets.index(bookies) for _, _, bookies in adds)
            of_each = {bookie_id: tuple(own) for bookie_id, own in places.items()}
            tally = StripedTally(self.held_back, self.quorum, sets, stripes, of_each, entry_ids, parts)
        for bookie_id, own in places.items():
            awaited = self.awaited.setdefault(bookie_id, [])
            awaited += [(tally, place, *adds[place][:2]) for place in own]

    def alone(self, writer: int) -> None:
        """An entry that is in no run."""
        owner = self.owners[writer % len(self.owners)]
        if writable(owner):
            self._alone(owner, owner.append())
        self._sent_again()

    def stored(self, bookie: int, count: int) -> None:
        """The bookie answers the next adds, as it got them."""
        self._stored(bookie, 0, count)

    def stored_early(self, bookie: int, place: int) -> None:
        """The bookie answers one before others that it got earlier."""
        self._stored(bookie, place, 1)

    def stored_with_gaps(self, bookie: int, distance: int) -> None:
        """The bookie answers two adds together, others between them later."""
        _, awaited = self._of(bookie)
        place = 1 + distance % 3
        if len(awaited) > place:
            awaited.insert(1, awaited.pop(place))
            self._stored(bookie, 0, 2)

    def failed(self, bookie: int, place: int, code: int) -> None:
        bookie_id, awaited = self._of(bookie)
        if awaited:
            told, known_by, owner, entry_id = awaited.pop(place % len(awaited))
            owner.plainly(bookie_id, entry_id, CODES[code % len(CODES)])
            told.on_add_failed(bookie_id, known_by, CODES[code % len(CODES)])

    def changed(self, writer: int) -> None:
        """The metadata is stored, with another bookie in the ensemble."""
        owner = self.owners[writer % len(self.owners)]
        if owner.plain.updates:
            owner.plain.metadata_arrives()
            owner.writer.metadata_arrives()
        self._sent_again()

    def told(self) -> None:
        """All that was held back is told, and then no difference is left."""
        self.held_back.tell()
        assert not self.held_back
        for owner in self.owners:
            assert owner.writer.machine.snapshot() == owner.plain.machine.snapshot()

    def check(self) -> None:
        for owner in self.owners:
            plain, writer = owner.plain, owner.writer
            assert (writer.acked, writer.failed, writer.closed) == (plain.acked, plain.failed, plain.closed)
            assert len(writer.updates) == len(plain.updates)
            assert (writer.state, writer.machine.length) == (plain.state, plain.machine.length)

    def _stored(self, bookie: int, place: int, count: int) -> None:
        bookie_id, awaited = self._of(bookie)
        if not awaited:
            return
        place %= len(awaited)
        answered = awaited[place : place + count]
        del awaited[place : place + count]
        for _, _, owner, entry_id in answered:
            owner.plainly(bookie_id, entry_id)
        while answered:
            first = answered[0][0]
            same = next((n for n, add in enumerate(answered) if add[0] is not first), len(answered))
            first.on_adds_stored(bookie_id, [known_by for _, known_by, _, _ in answered[:same]])
            del answered[:same]

    def _of(self, bookie: int) -> tuple[str, list[tuple[Any, int, Owner, int]]]:
        names = sorted(self.awaited)
        return (names[bookie % len(names)], self.awaited[names[bookie % len(names)]]) if names else ("", [])

    def _alone(self, owner: Owner, entry_id: int, bookies: Sequence[str] = ()) -> None:
        for bookie_id in bookies or owner.write_set(entry_id):
            self.awaited.setdefault(bookie_id, []).append((owner, entry_id, owner, entry_id))

    def _sent_again(self) -> None:
        for owner in self.owners:
            sent = owner.writer.sent()
            assert sent == owner.plain.sent()
            for cue in sent.split():
                entry_id, bookie_id = int(cue[:-1]), cue[-1]
                # What a run was sent with is known already; an entry goes to no bookie twice before that has answered.
                if not any(add[2:] == (owner, entry_id) for add in self.awaited.get(bookie_id, ())):
                    self._alone(owner, entry_id, bookie_id)


def writable(owner: Owner) -> bool:
    return owner.writer.machine.is_writable


#: By ack quorum, what a ledger may have as E and Qw.
SIZES = {
    1: [(1, 1), (2, 1), (3, 1), (3, 3), (5, 2), (7, 3)],
    2: [(3, 3), (3, 3), (2, 2), (3, 2), (3, 2), (4, 3), (5, 3), (5, 3), (7, 2), (7, 4)],
    3: [(3, 3), (5, 5), (4, 3), (5, 4), (6, 5), (7, 3)],
}


def ledgers_of(rng: random.Random, writers: int) -> list[tuple[tuple[int, int, int], str]]:
    """Their sizes and bookies: of three seeds one has ledgers of the same bookies that store each entry."""
    quorum = rng.choice([1, 2, 2, 3])
    if rng.random() < 0.3:
        size = rng.choice([size for size, write_quorum in SIZES[quorum] if size == write_quorum])
        return [((size, size, quorum), "abcdefg"[:size])] * writers
    pool = "abcdefg"[: rng.choice([3, 5, 7])]
    found: list[tuple[tuple[int, int, int], str]] = []
    for _ in range(writers):
        size, write_quorum = rng.choice([sizes for sizes in SIZES[quorum] if sizes[0] <= len(pool)])
        found.append(((size, write_quorum, quorum), "".join(rng.sample(pool, size))))
    return found


#: How often each step is taken.
STEPS = {
    "run": 6,
    "alone": 1,
    "stored": 12,
    "stored_early": 1,
    "stored_with_gaps": 1,
    "failed": 1,
    "changed": 2,
    "told": 1,
}


def steps_of(rng: random.Random, writers: int) -> list[tuple[Any, ...]]:
    """What happens, in an order of its own for every seed; of three seeds one has no failure."""
    weights = STEPS if rng.random() < 0.6 else {**STEPS, "failed": 0, "stored_early": 0, "stored_with_gaps": 0}
    some = partial(rng.randrange, 64)
    steps: list[tuple[Any, ...]] = []
    for name in rng.choices(list(weights), list(weights.values()), k=rng.randrange(5, 40)):
        arguments: dict[str, tuple[Any, ...]] = {
            "run": ([rng.randrange(writers) for _ in range(rng.randrange(1, 9))],),
            "alone": (rng.randrange(writers),),
            "stored": (some(), rng.randrange(1, 12)),
            "stored_early": (some(), some()),
            "stored_with_gaps": (some(), some()),
            "failed": (some(), some(), some()),
            "changed": (rng.randrange(writers),),
            "told": (),
        }
        steps.append((name, *arguments[name]))
    return steps


def play(seed: int) -> None:
    rng = random.Random(seed)
    writers = rng.randrange(1, 5)
    channel = Channel(*ledgers_of(rng, writers), delay_ensemble_change=rng.random() < 0.3)
    for name, *arguments in steps_of(rng, writers):
        getattr(channel, name)(*arguments)
        channel.check()
    if rng.random() < 0.5:
        channel.told()
    for _ in range(4):  # and to the end
        for bookie in range(16):
            channel.stored(bookie, rng.choice([3, 1000]))
            channel.check()
        for writer in range(writers):
            channel.changed(writer)
    channel.told()


@with_each_core
def test_writers_do_as_if_they_had_heard_of_every_answer(core: str) -> None:
    with using_core(core):
        for seed in range(400):
            play(seed)


@pytest.mark.deep
@with_each_core
def test_writers_do_so_in_many_orders(core: str) -> None:
    with using_core(core):
        for seed in range(400, 6000):
            play(seed)


@with_each_core
@pytest.mark.parametrize(("writers", "calls"), [(1, 3), (3, 12)])
def test_a_writer_hears_of_an_entry_once(core: str, writers: int, calls: int) -> None:
    with using_core(core):
        channel = Channel(*[((3, 3, 2), "abc")] * writers)
        channel.run([0, 1, 2] * 4)
        for bookie, count in [(0, 5), (1, 3), (2, 1), (1, 9), (0, 7), (2, 11)]:
            channel.stored(bookie, count)
        channel.check()
        assert sum(owner.told for owner in channel.owners) == calls
        assert not channel.held_back
        assert sum(len(owner.writer.acked) for owner in channel.owners) == 12


def test_one_who_raises_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr("bkclient.transport.tally.report_failed", lambda owner, _: reported.append(owner))
    with using_core("python"):
        for ends_by in (Channel.told, lambda channel: channel.stored(1, 3)):
            channel = Channel(*[((3, 3, 2), "abc")] * 3)
            channel.run([0, 1, 2])

            def refuse(*_: object) -> None:
                raise LookupError

            raising: Any = channel.owners[1]
            raising.on_adds_stored = raising.on_adds_stored_by = refuse
            channel.stored(0, 3)
            with suppress(AssertionError):  # one writer did not hear
                ends_by(channel)
            assert reported.pop() is raising
            for owner in (channel.owners[0], channel.owners[2]):
                assert owner.writer.machine.snapshot() == owner.plain.machine.snapshot()


def test_what_is_not_counted_as_stored_by_all_who_are_named_is_not_done() -> None:
    """The machine does what it does for each bookie as soon as one has failed."""
    writer = Writer(spares="d")
    writer.append(b"x", b"y")
    writer.timeout("1c")
    machine: AppendMachine = writer.machine
    writer.metadata_arrives()
    assert not machine.acknowledged_by(By("cd"), [0])
    assert not writer.acked
