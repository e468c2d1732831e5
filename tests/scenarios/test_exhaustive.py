"""Small clusters are searched completely; what is left out is justified, and the tables say what the machines say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scenarios.exhaustive.automata
from bkclient.errors import Code
from bkclient.protocol.writer_state import WriterState
from scenarios.exhaustive.automata import APPEND, CLOSE, Answered, Ask, ClientAutomaton, ClientFacts, Told, stimulate
from scenarios.exhaustive.configuration import CONFIGURATIONS, Reductions, SmallCluster
from scenarios.exhaustive.moves import ClusterMoves
from scenarios.exhaustive.search import Search
from scenarios.exhaustive.verifying import verify
from scenarios.machines.bookies import MachineBookie, Message, StoredEntry
from scenarios.machines.clients import MachineClient
from scenarios.machines.world import MachineWorld

DONE = "recovery done"
#: States of a complete search, and how the ledger and its clients may end.
COMPLETE: dict[str, tuple[int, dict[str, int]]] = {
    "one-copy": (
        50,
        {
            f"closed at -1, acknowledged -1, writer closed, {DONE}": 1,
            f"closed at 0, acknowledged 0, writer open, {DONE}": 1,
        },
    ),
    "both-copies": (
        2493,
        {
            f"closed at -1, acknowledged -1, writer closed, {DONE}": 12,
            f"closed at 0, acknowledged -1, writer closed, {DONE}": 1,
            f"closed at 0, acknowledged 0, writer open, {DONE}": 3,
        },
    ),
    "both-copies-change": (
        37_222,
        {
            f"closed at -1, acknowledged -1, writer closed, {DONE}": 44,
            f"closed at -1, acknowledged -1, writer failed, {DONE}": 13,
            f"closed at 0, acknowledged -1, writer closed, {DONE}": 21,
            f"closed at 0, acknowledged -1, writer failed, {DONE}": 13,
            f"closed at 0, acknowledged 0, writer open, {DONE}": 9,
        },
    ),
}


@pytest.mark.rule("REC-42")
@pytest.mark.parametrize("name", COMPLETE)
def test_every_order_in_a_small_cluster_ends_well(name: str) -> None:
    search = Search(CONFIGURATIONS[name])
    searched = search.run()
    assert searched.found is None
    assert searched.is_complete
    assert (searched.states, searched.ends) == COMPLETE[name]
    verified = verify(search.moves)
    assert verified.is_sound, verified.wrong
    assert min(verified.checks[one] for one in ("ended", "alone")) > 0


def test_a_change_whose_answer_was_lost_is_the_writers_all_the_same() -> None:
    searched = Search(SmallCluster(1, 1, 1, bookies=2, entries=1, writer_timeouts=1, lost_answers=1)).run()
    assert searched.found is None
    assert searched.is_complete


def test_a_search_is_the_same_in_either_order() -> None:
    by_order = []
    for is_depth_first in (False, True):
        searched = Search(CONFIGURATIONS["both-copies"], is_depth_first=is_depth_first).run()
        by_order.append((searched.states, searched.edges, searched.ends))
    assert by_order[0] == by_order[1]


# Reductions --------------------------------------------------------------------------------------------------------

SMALL = (
    SmallCluster(1, 1, 1, bookies=1, entries=2),
    SmallCluster(1, 1, 1, bookies=1, entries=1, closes=True),
    SmallCluster(1, 1, 1, bookies=2, entries=1, writer_timeouts=1, recovery_timeouts=1),
    SmallCluster(1, 1, 1, bookies=1, entries=1, recoveries=2),
    SmallCluster(1, 1, 1, bookies=1, entries=1, lost_answers=1, writer_timeouts=1),
    SmallCluster(1, 1, 1, bookies=2, entries=1, crashes=1),
    SmallCluster(2, 2, 1, bookies=2, entries=0),
)
#: More and more of them. Answers are dead only where words of errors do not count.
MORE_AND_MORE = (
    replace(Reductions.none(), ended=True),
    replace(Reductions.none(), ended=True, dead=True),
    replace(Reductions.none(), alone=True),
    replace(Reductions(), rivals=False),
    Reductions(),
)


@pytest.mark.parametrize("cluster", SMALL, ids=str)
def test_reductions_leave_the_ends_as_they_are(cluster: SmallCluster) -> None:
    whole = Search(cluster, Reductions.none()).run()
    assert whole.is_complete
    for reductions in MORE_AND_MORE:
        search = Search(cluster, reductions)
        searched = search.run()
        assert searched.is_complete
        assert searched.ends.keys() == whole.ends.keys()
        assert searched.states <= whole.states
        if reductions.ended:
            assert verify(search.moves).wrong == []
    assert Search(cluster).run().states < whole.states


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "cluster",
    [
        CONFIGURATIONS["both-copies"],
        SmallCluster(2, 2, 1, bookies=2, entries=1),
        SmallCluster(2, 2, 1, bookies=2, entries=1, crashes=1),
        SmallCluster(1, 1, 1, bookies=2, entries=2, writer_timeouts=1, recovery_timeouts=1),
        SmallCluster(1, 1, 1, bookies=1, entries=2, recoveries=2, closes=True),
    ],
    ids=str,
)
def test_reductions_leave_the_ends_of_larger_clusters_as_they_are(cluster: SmallCluster) -> None:
    whole, reduced = Search(cluster, Reductions.none()).run(), Search(cluster).run()
    assert whole.is_complete
    assert reduced.ends.keys() == whole.ends.keys()


def _lying(method: Callable[..., bool], lies: Callable[..., bool]) -> Callable[..., bool]:
    return lambda *args, **named: lies(*args, **named) or method(*args, **named)


def _deaf_to_denials(patch: pytest.MonkeyPatch) -> None:
    def lies(_self: ClientAutomaton, _state: int, heard: Answered) -> bool:
        return heard.code == Code.NO_SUCH_ENTRY and heard.ask.kind == "read"

    patch.setattr(ClientAutomaton, "is_dead", _lying(ClientAutomaton.is_dead, lies))


def _order_never_matters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterMoves, "is_settled", staticmethod(lambda *_args, **_named: True))


def _open_writers_send_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scenarios.exhaustive.automata, "HAS_ENDED", tuple(WriterState))


def _answers_are_of_no_consequence(patch: pytest.MonkeyPatch) -> None:
    def mutated(client: MachineClient, *_others: object) -> Hashable:
        machine = client.machine.copy()
        for add in machine.adds.pending.values():
            add.acknowledged = 0
        return machine.snapshot()

    patch.setattr(scenarios.exhaustive.automata, "in_essence", mutated)


def _closing_is_closed(patch: pytest.MonkeyPatch) -> None:
    facts_of = ClientAutomaton.facts_of

    def mutated(*args: Any) -> ClientFacts:
        facts = facts_of(*args)
        return replace(facts, has_ended=True) if facts.outcome == "closing" else facts

    patch.setattr(ClientAutomaton, "facts_of", mutated)


@pytest.mark.parametrize(
    ("plant", "reduction"),
    [
        (_deaf_to_denials, "dead"),
        (_order_never_matters, "alone"),
        (_open_writers_send_nothing, "alone"),
        (_answers_are_of_no_consequence, "ended"),
        (_closing_is_closed, "ended"),
    ],
)
def test_a_reduction_that_leaves_out_too_much_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    search = Search(CONFIGURATIONS["both-copies"])
    search.run()
    wrong = verify(search.moves).wrong
    assert any(one.startswith(f"{reduction}: ") for one in wrong)


# The machines ------------------------------------------------------------------------------------------------------


def _bag(items: Iterable[Hashable]) -> Hashable:
    return frozenset(Counter(items).items())


def _entry(kind: str, entry: StoredEntry | None) -> Hashable:
    if entry is None:
        return None
    before = entry.length - len(entry.payload)
    return (entry.last_add_confirmed, before) if kind == "fence" else (entry.payload, entry.length)


def _stored(bookie: MachineBookie) -> Hashable:
    """What clients can learn of a bookie: of the LACs in its entries' headers that of the highest alone is told."""
    entries = sorted(bookie.entries.items())
    lac = entries[-1][1].last_add_confirmed if entries else -1
    return bookie.is_fenced, lac, tuple((number, one.payload, one.length) for number, one in entries)


def _copied_states(cluster: SmallCluster) -> set[Hashable]:
    """Every state that copies of a world come to; here an answer of the store arrives at once."""

    def asked(world: MachineWorld, message: Message) -> Hashable:
        clients: list[MachineClient] = [world.writer, *world.recoveries]
        ask = Ask(message.bookie_id, message.kind, message.entry_id, message.fence, message.add)
        code, entry = message.answer or (None, None)
        return clients.index(message.client), ask, code, _entry(message.kind, entry)

    def state(world: MachineWorld) -> Hashable:
        return (
            world.store.value,
            tuple(map(_stored, world.bookies.values())),
            tuple(client.machine.snapshot() for client in (world.writer, *world.recoveries)),
            _bag(asked(world, message) for message in (*world.requests, *world.answers)),
        )

    first = MachineWorld(cluster.world())
    seen, waiting = {state(first)}, [first]
    while waiting:
        world = waiting.pop()
        for name in ("request arrives", "answer arrives", "store acts", "append", "recovery starts"):
            for choice in range(world.choices(name)):
                after = world.copy()
                after.move(name, choice)
                if state(after) not in seen:
                    seen.add(state(after))
                    waiting.append(after)
    return seen


def _searched_states(search: Search) -> set[Hashable]:
    """The states of a search in the same words, without those in which an answer of the store is under way."""
    moves, cluster, found = search.moves, search.cluster, set[Hashable]()
    for state in search.seen:
        machines, under_way, is_told = [], list[Hashable](), False
        for client in range(1 + cluster.recoveries):
            table, number = moves.conversations(client), moves.conversation(state, client)
            if not number:
                continue
            automaton = moves.recovery if client else moves.writer
            world = automaton.world(table.all[number].state)
            machines.append((world.recoveries[0] if client else world.writer).machine.snapshot())
            for item in table.described(number):
                is_told |= isinstance(item, Told)
                if isinstance(item, Ask):
                    under_way.append((client, item, None, None))
                elif isinstance(item, Answered):
                    under_way.append((client, item.ask, item.code, _entry(item.ask.kind, item.entry)))
        if not is_told:
            bookies = [moves.bookies.bookie(moves.bookie(state, place)) for place in range(cluster.bookies)]
            value = moves.values[moves.value(state)]
            found.add((value, tuple(map(_stored, bookies)), tuple(machines), _bag(under_way)))
    return found


@pytest.mark.parametrize(
    "cluster",
    [
        SmallCluster(1, 1, 1, bookies=1, entries=2),
        SmallCluster(1, 1, 1, bookies=1, entries=1, recoveries=2),
        pytest.param(SmallCluster(2, 2, 1, bookies=2, entries=1), marks=[pytest.mark.sweep, pytest.mark.timeout(3600)]),
    ],
    ids=str,
)
def test_whatever_copies_of_a_world_come_to_is_searched(cluster: SmallCluster) -> None:
    search = Search(cluster, Reductions.none())
    assert search.run().is_complete
    copied, searched = _copied_states(cluster), _searched_states(search)
    assert len(copied) > 100
    assert copied <= searched


class Walker:
    """One client that is never copied, beside its automaton."""

    def __init__(self, moves: ClusterMoves, client: int, state: int) -> None:
        self.moves, self.client = moves, client
        automaton = moves.recovery if client else moves.writer
        self.world = automaton.new_world(moves.values[moves.value(state)])
        self.machine_client: MachineClient = self.world.recoveries[0] if client else self.world.writer

    def follow(self, label: tuple[str, object]) -> None:
        what, about = label
        if isinstance(about, Answered | Told):
            stimulate(self.world, self.machine_client, about)
        elif isinstance(about, Ask):
            stimulate(self.world, self.machine_client, Answered(about, Code.TIMEOUT, None))
        else:
            stimulate(self.world, self.machine_client, APPEND if what == "appends" else CLOSE)
        self.world.replacements_offered = 0

    def check(self, state: int) -> None:
        table = self.moves.conversations(self.client)
        one = table.all[self.moves.conversation(state, self.client)]
        automaton = self.moves.recovery if self.client else self.moves.writer
        world = automaton.world(one.state)
        by_table = world.recoveries[0] if self.client else world.writer
        assert by_table.machine == self.machine_client.machine
        assert one.facts.acknowledged == (-1 if self.client else self.world.guarantees.acknowledged)


WALKED = (
    CONFIGURATIONS["one-copy-change"],
    CONFIGURATIONS["both-copies-rivals-2"],
    replace(CONFIGURATIONS["both-copies-change-2"], closes=True, recovery_timeouts=1, lost_answers=1),
    CONFIGURATIONS["two-of-three-crash"],
)
TABLES = {cluster: ClusterMoves(cluster, Reductions.none()) for cluster in WALKED}


@given(st.sampled_from(WALKED), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_a_walk_by_the_tables_is_the_walk_of_machines_that_were_never_copied(cluster: SmallCluster, rng: Any) -> None:
    moves = TABLES[cluster]
    state = moves.first()[0]
    walkers = {0: Walker(moves, 0, state)}
    while steps := list(moves.in_words(state)):
        step = rng.choice(steps)
        what, _ = step.label
        if what == "begins":
            walkers[step.client] = Walker(moves, step.client, state)
        elif what not in ("arrives", "store"):
            walkers[step.client].follow(step.label)
        state = step.after
        walkers[step.client].check(state)
    assert sorted(walkers) == list(range(1 + cluster.recoveries))
