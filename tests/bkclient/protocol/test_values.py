"""Machines are values: in every state they copy, compare and pickle, and a copy does what the original does.

The machines of a world are each replaced by a :class:`Mirror`. It gives every input to the machine and to a copy of it, made just
before in one of three ways, and compares what the two ask of their ports, return, and are afterwards.
"""

from __future__ import annotations

import copy
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import cycle
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.entry import Entry
from bkclient.errors import BookKeeperError, Code, LedgerFenced, NotEnoughBookies
from bkclient.ledger import Versioned
from bkclient.protocol.adds import NewEntry, PendingAdd
from bkclient.protocol.append import AppendMachine, WriterState
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.batch_read import BatchRead, BatchSupport
from bkclient.protocol.explicit_lac import ExplicitLac
from bkclient.protocol.force import ForceMachine, ForceState
from bkclient.protocol.lac import LacProgress, LacRead
from bkclient.protocol.long_poll import LongPollRead
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.quorum_timeout import QuorumClock
from bkclient.protocol.read import EntryRead, ReadOutcome
from bkclient.protocol.read_ahead import ReadAhead
from bkclient.protocol.reconnect import CheckState, ReconnectCheck
from bkclient.protocol.recovery import RecoveryMachine, RecoveryPhase
from bkclient.protocol.remembered import Remembered
from bkclient.protocol.sticky import StickyIndex
from bkclient.protocol.tail import TailRead
from bkclient.protocol.value import Value, ends_once, freeze, moved
from bkclient.protocol.writer_state import NEXT
from scenarios.machines.clients import RecoveryClient
from scenarios.machines.options_world import Force, OptionsWorld
from scenarios.machines.walks import walk
from scenarios.machines.world import Configuration
from tests.bkclient.protocol.harness import Writer

WAYS: Iterator[Callable[[Any], Any]] = cycle(
    (copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)), copy.copy)
)
INPUTS = frozenset(
    {
        "abandon",
        "acknowledged",
        "act_on_late_failures",
        "append",
        "append_at",
        "check_quorum_timeout",
        "close",
        "on_add_reply",
        "on_fence_reply",
        "on_force_reply",
        "on_forced",
        "on_read_reply",
        "on_retry",
        "on_taken_over",
        "on_update_answer",
        "on_update_done",
        "start",
    }
)


def a_copy(value: Any) -> Any:
    """One that was made in one of the ways there are, and is equal."""
    twin = next(WAYS)(value)
    assert twin is not value
    assert twin == value
    assert hash(twin.snapshot()) == hash(value.snapshot())
    return twin


class Recorded:
    """Ports that pass everything on and remember it."""

    def __init__(self, ports: Any) -> None:
        self.ports = ports
        self.calls: list[tuple[str, Any, Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            result = getattr(self.ports, name)(*arguments, **named)
            self.calls.append((name, freeze(list(arguments)), named, result))
            return result

        return call


class Expecting:
    """Ports that want to be called like that, and answer as before."""

    def __init__(self, calls: list[tuple[str, Any, Any, Any]]) -> None:
        self.calls = list(calls)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            *expected, result = self.calls.pop(0)
            assert [name, freeze(list(arguments)), named] == expected
            return result

        return call


class Mirror:
    """See the module."""

    #: All states that any mirrored machine was in.
    seen: ClassVar[set[Enum]] = set()

    def __init__(self, machine: Any) -> None:
        self.__dict__.update(machine=machine)

    def __getattr__(self, name: str) -> Any:
        return self._in_both(name) if name in INPUTS else getattr(self.machine, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.machine, name, value)

    def _in_both(self, name: str) -> Callable[..., Any]:
        machine = self.machine

        def give(*arguments: Any, **named: Any) -> Any:
            twin, before = a_copy(machine), machine.snapshot()
            ports = machine.ports
            recorded = machine.ports = Recorded(ports)
            try:
                outcome, raised = self._outcome(machine, name, arguments, named)
            finally:
                machine.ports = ports
            assert twin.snapshot() == before, "what happens to the original does not happen to its copy"
            twin.ports = expecting = Expecting(recorded.calls)
            if isinstance(machine, ForceMachine):
                # What it tells its writer it has told once; the twin's is another one, as it was before.
                twin.writer = self.writer_before
            their_outcome, _ = self._outcome(twin, name, arguments, named)
            assert their_outcome == outcome
            assert expecting.calls == []
            assert twin == machine
            Mirror.seen.add(machine.phase if isinstance(machine, RecoveryMachine) else machine.state)
            if raised is not None:
                raise raised
            return outcome[0]

        if isinstance(machine, ForceMachine):
            self.__dict__["writer_before"] = a_copy(getattr(machine.writer, "machine", machine.writer))
        return give

    @staticmethod
    def _outcome(
        machine: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, Any], Exception | None]:
        try:
            return (freeze(getattr(machine, name)(*arguments, **named)), None), None
        except BookKeeperError as error:
            return (None, freeze(error)), error


class MirroredWorld(OptionsWorld):
    """A world whose machines are all mirrored."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.writer.machine = Mirror(self.writer.machine)  # type: ignore[assignment]  # it stands for it

    def _recovery_starts(self) -> None:
        recovery = RecoveryClient(self)
        recovery.machine = Mirror(recovery.machine)  # type: ignore[assignment]  # it stands for it
        self.recoveries.append(recovery)
        recovery.machine.start()

    def _force(self) -> None:
        force = Force(self)
        force.machine = Mirror(force.machine)  # type: ignore[assignment]  # it stands for it
        self.forces.append(force)
        force.machine.start()


CONFIGURATIONS = (
    Configuration(2, 2, 1, bookies=3, entries=3, recoveries=2),
    Configuration(3, 2, 2, bookies=5, entries=3, recoveries=2, may_disable_changes=True),
    Configuration(3, 3, 2, bookies=4, entries=3, recoveries=1, options=AppendOptions(delay_ensemble_change=True)),
    Configuration(2, 2, 2, bookies=2, entries=3, recoveries=1, options=AppendOptions(deferred_sync=True)),
    Configuration(
        3,
        3,
        2,
        bookies=5,
        entries=4,
        recoveries=1,
        options=AppendOptions(entry_ids_given=True, enforce_fault_domains=True, quorum_timeout_s=8.0),
    ),
)


@settings(max_examples=40)
@given(configuration=st.sampled_from(CONFIGURATIONS), seed=st.integers(0, 2**32))
def test_a_copy_of_a_machine_does_what_the_machine_does(configuration: Configuration, seed: int) -> None:
    walk(MirroredWorld(configuration), seed, moves=60).settle()


def test_walks_copy_machines_in_every_state_there_is() -> None:
    Mirror.seen.clear()
    for seed in range(40):
        for configuration in CONFIGURATIONS:
            walk(MirroredWorld(configuration), seed, moves=60).settle()
    assert {*WriterState, *RecoveryPhase, ForceState.WAITING, ForceState.FINISHED} <= Mirror.seen


# The smaller machines -----------------------------------------------------------------------------------------------

SIZES = QuorumSizes(3, 3, 2)
BOOKIES = st.sampled_from("abc")
CODES = st.sampled_from([Code.OK, Code.TIMEOUT, Code.NO_SUCH_ENTRY, Code.UNAUTHORIZED, Code.BOOKIE_NOT_AVAILABLE])
NUMBERS = st.integers(0, 3)
TIMES = st.floats(0, 100)
DECODED = st.just((Entry(7, 0, b"x", 1, -1),))
Call = tuple[str, tuple[st.SearchStrategy[Any], ...]]


def some_pending() -> dict[int, PendingAdd]:
    return {entry_id: PendingAdd(NewEntry(entry_id, b"x", -1, 1)) for entry_id in range(3)}


MACHINES: dict[str, tuple[Callable[[], Value], tuple[Call, ...]]] = {
    "read": (lambda: EntryRead(0, "abc"), (("to_ask", ()), ("on_late", ()), ("on_reply", (BOOKIES, CODES)))),
    "recovery read": (
        lambda: EntryRead(0, "abc", negatives_to_deny=2, parallel=True),
        (("to_ask", ()), ("on_reply", (BOOKIES, CODES))),
    ),
    "batch": (
        lambda: BatchRead(0, 2, "abc"),
        (("to_ask", ()), ("on_reply", (BOOKIES, CODES)), ("on_entries", (BOOKIES, DECODED))),
    ),
    "batch support": (
        BatchSupport,
        (("on_batch_failed", (BOOKIES, CODES, TIMES)), ("on_single_read", (BOOKIES, TIMES))),
    ),
    "LAC": (lambda: LacRead(SIZES, tuple("abc")), (("on_reply", (BOOKIES, CODES, NUMBERS, NUMBERS)),)),
    "LAC progress": (lambda: LacProgress(tuple("abc"), 1), (("on_reply", (BOOKIES, CODES, NUMBERS)),)),
    "long poll": (
        lambda: LongPollRead(SIZES, 2, "abc"),
        (("to_ask", ()), ("on_late", ()), ("on_reply", (BOOKIES, CODES, NUMBERS))),
    ),
    "read-ahead": (
        lambda: ReadAhead(SIZES, tuple("abc"), 0, limit=3),
        (("take", ()), ("on_reply", (BOOKIES, NUMBERS, CODES, st.just(b"x"), NUMBERS))),
    ),
    "tail": (
        lambda: TailRead(0, 30.0),
        (("on_entry", ()), ("on_answer", ()), ("on_failed", (TIMES,)), ("on_nothing", ())),
    ),
    "sticky": (lambda: StickyIndex(3, 0), (("on_failed", (st.just(tuple("abc")), BOOKIES)),)),
    "memory": (
        lambda: Remembered[int](10.0, limit=2),
        (("put", (BOOKIES, NUMBERS, TIMES)), ("get", (BOOKIES, TIMES)), ("forget", (BOOKIES,))),
    ),
    "quorum timeout": (lambda: QuorumClock(8.0), (("find_expired", (TIMES, st.builds(some_pending))),)),
}


@pytest.mark.parametrize("name", MACHINES)
@given(data=st.data())
def test_smaller_machines_are_values_too(name: str, data: st.DataObject) -> None:
    make, calls = MACHINES[name]
    machine = make()
    if isinstance(machine, ReadAhead):
        machine.begin()
    for _ in range(data.draw(st.integers(0, 8))):
        method, strategies = data.draw(st.sampled_from(calls))
        arguments = [data.draw(strategy) for strategy in strategies]
        twin, before = a_copy(machine), machine.snapshot()
        outcome = freeze(getattr(machine, method)(*arguments))
        assert twin.snapshot() == before, "what happens to the original does not happen to its copy"
        assert freeze(getattr(twin, method)(*arguments)) == outcome
        assert twin == machine


class Nobody:
    """Ports that do nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_arguments, **_named: None


def test_machines_beside_a_writer_come_unbound_and_do_the_same_with_a_copy_of_the_writer() -> None:
    writer = Writer((1, 1, 1), "a", deferred_sync=True)
    writer.append(b"zero")
    writer.ok("0a")
    connections = {"a": 2}
    check = ReconnectCheck(writer.machine, connections, Nobody(), verified=1)
    force = ForceMachine(writer.machine, Nobody())
    lac = ExplicitLac(writer.machine, Nobody())
    force.start()
    check.on_forced("a", force)
    lac.on_tick()

    writer_twin, check_twin, force_twin, lac_twin = map(a_copy, (writer.machine, check, force, lac))
    with pytest.raises(AttributeError, match="writer"):
        _ = force_twin.writer
    for machine in (check_twin, force_twin, lac_twin):
        machine.writer, machine.ports = writer_twin, Nobody()
    check_twin.connections, check_twin.forces = connections, {1: force_twin}
    writer_twin.ports = writer

    for one, another in ((check, check_twin), (lac, lac_twin)):
        assert one == another
    check_twin.on_metadata(Versioned(writer.machine.metadata, 0), 0.0)
    assert (force_twin.is_finished, writer_twin.last_add_confirmed, check_twin.state) == (True, 0, CheckState.IDLE)
    assert (force.is_finished, writer.machine.last_add_confirmed, check.state) == (False, -1, CheckState.READING)
    check.on_metadata(Versioned(writer.machine.metadata, 0), 0.0)
    assert (check, force, writer.machine) == (check_twin, force_twin, writer_twin)


# What is no value ---------------------------------------------------------------------------------------------------


class Holder(Value):
    """Holds anything."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


@pytest.mark.parametrize("content", [lambda: None, object(), Nobody(), bytearray(b"x")])
def test_what_refers_to_the_outside_or_changes_has_no_place_in_a_value(content: object) -> None:
    with pytest.raises(AssertionError, match="has no place in a value"):
        Holder(content).snapshot()
    with pytest.raises(AssertionError, match="has no place in a value"):
        Holder(content).copy()


@pytest.mark.parametrize(
    ("content", "change"),
    [
        ([1], lambda content: content.append(2)),
        (deque([1]), lambda content: content.append(2)),
        ({1}, lambda content: content.add(2)),
        ({"a": [1]}, lambda content: content["a"].append(2)),
        (Holder([1]), lambda content: content.content.append(2)),
    ],
)
def test_a_copy_shares_nothing_that_changes(content: Any, change: Callable[[Any], None]) -> None:
    for _ in range(3):
        original = Holder(content)
        twin = a_copy(original)
        before = twin.snapshot()
        change(original.content)
        assert twin.snapshot() == before


def test_values_compare_by_content_and_kind() -> None:
    error = LedgerFenced("why", ledger_id=7)
    assert Holder(error) == Holder(LedgerFenced("why", ledger_id=7))
    assert Holder(error) != Holder(NotEnoughBookies("why", ledger_id=7))
    assert Holder([{1}, {"a": [2]}]) == Holder([{1}, {"a": [2]}])
    assert Holder({"a": 1, "b": 2}) != Holder({"b": 2, "a": 1}), "the order may matter"
    assert Holder(1) != 1
    assert repr(Holder(1)) == "Holder(content=1)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Holder(1))


# Tables -------------------------------------------------------------------------------------------------------------


def test_a_writer_moves_as_its_table_says_and_in_no_other_way() -> None:
    for state, following in NEXT.items():
        for to in WriterState:
            machine = Writer().machine
            machine.state = state
            machine.fatal_error = LedgerFenced()
            if to in following:
                machine._enter(to)
                assert machine.state is to
            else:
                with pytest.raises(AssertionError, match="is not followed by"):
                    machine._enter(to)


def test_what_has_ended_does_not_end_again() -> None:
    table = ends_once(ReadOutcome.WAITING)
    assert moved(table, ReadOutcome.WAITING, ReadOutcome.FOUND) is ReadOutcome.FOUND
    with pytest.raises(AssertionError, match="FOUND is not followed by"):
        moved(table, ReadOutcome.FOUND, ReadOutcome.FAILED)


# Runs ---------------------------------------------------------------------------------------------------------------

RUN_WRITERS: tuple[Callable[[], Writer], ...] = (
    lambda: Writer((3, 3, 2), "abc", spares="de"),
    lambda: Writer((3, 2, 2), "abc", spares="de"),
    lambda: Writer((3, 2, 1), "aba"),
    lambda: Writer((2, 2, 2), "ab", deferred_sync=True),
    lambda: Writer((3, 3, 2), "abc", spares="de", enforce_fault_domains=True),
    lambda: Writer((3, 3, 3), "abc", delay_ensemble_change=True),
)
STEPS = st.one_of(
    st.tuples(st.just("append")),
    st.tuples(st.just("metadata")),
    st.tuples(st.just("fail"), st.sampled_from("abcd"), st.integers(0, 5)),
    st.tuples(st.just("run"), st.sampled_from("abcde"), st.builds(range, st.integers(-1, 5), st.integers(-1, 7))),
    st.tuples(st.just("run"), st.sampled_from("abcde"), st.lists(st.integers(-1, 6), max_size=6)),
)


@settings(max_examples=300)
@given(make=st.sampled_from(RUN_WRITERS), steps=st.lists(STEPS, max_size=25))
def test_a_run_of_answers_is_the_same_answers_one_by_one(make: Callable[[], Writer], steps: list[Any]) -> None:
    by_run, one_by_one = make(), make()
    for writer in (by_run, one_by_one):
        writer.domains = {"a": "x", "b": "x", "c": "y"}
        for name, *arguments in steps:
            machine: AppendMachine = writer.machine
            if name == "append" and machine.is_writable:
                machine.append(b"x")
            elif name == "metadata" and writer.updates:
                writer.metadata_arrives()
            elif name == "fail":
                bookie_id, entry_id = arguments
                machine.on_add_reply(bookie_id, entry_id, Code.TIMEOUT)
            elif name == "run" and writer is by_run:
                machine.acknowledged(*arguments)
            elif name == "run":
                bookie_id, entry_ids = arguments
                for entry_id in entry_ids:
                    machine.on_add_reply(bookie_id, entry_id, Code.OK)
    assert by_run.machine == one_by_one.machine
    assert (by_run.acked, by_run.failed, by_run.sent()) == (one_by_one.acked, one_by_one.failed, one_by_one.sent())


def test_an_entry_to_be_sent_shows_what_it_is_and_not_what_is_in_it() -> None:
    shown = repr(NewEntry(entry_id=7, payload=b"secret", last_add_confirmed=6, length=42))
    assert shown == "NewEntry(entry_id=7, payload=..., last_add_confirmed=6, length=42)"
