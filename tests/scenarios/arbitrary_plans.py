"""Arbitrary plans, for properties of their text."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from hypothesis import strategies as st

from bkclient import ClientConfig
from bkclient.ledger import DigestType
from scenarios.history import FIELDS, KINDS, FieldType
from scenarios.model import TransportKind
from scenarios.plan import Plan
from scenarios.plan.cluster import Cluster
from scenarios.plan.faults import (
    FAULTS,
    Compact,
    Crash,
    Departure,
    EndFault,
    Fault,
    ForeignCookie,
    KillClient,
    MetadataCalls,
    MetadataWay,
    MetadataWhat,
)
from scenarios.plan.log_operations import MakeLog
from scenarios.plan.model import End, Expectation, Expected, Program, Step
from scenarios.plan.operations import OPERATIONS, Call, ClientOperation, CreateLedger, Open, Until, Wanted
from scenarios.plan.schedule import ChosenSchedule, DelaySchedule, LateTurn, PctSchedule, UniformSchedule
from scenarios.plan.triggers import At, Condition, Trigger, When
from scenarios.plan.words import Sizes
from scenarios.situations import SITUATIONS
from simbookie.storage.base import CrashMode
from simbookie.storage.forgetful import ForgetsLike
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.kinds import StoreKind
from simbookie.storage.memory import MemoryStorageConfig
from simbookie.world.files import FilesConfig
from simbookie.world.links import NetworkConfig, TcpConfig
from simbookie.world.loop import LoopLimits
from simbookie.world.metadata_service import MetadataConfig

__all__ = ["PLANS"]

CLIENTS = ("writer", "reader-2", "R0")
BOOKIES = ("bookie-0", "bookie-1")
LEDGERS = ("a", "b_2")
LOGS = ("l", "m.1")
HANDLES = ("a", "h.1")
STEPS = ("held", "s2")

durations = st.floats(0.0, 1e6, allow_nan=False)
some_time = st.floats(1e-9, 1e6, allow_nan=False)
chances = st.floats(0.0, 0.3)
entries = st.lists(st.integers(0, 900), min_size=1, max_size=4).map(tuple)
words = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=8)
prose = st.lists(st.lists(words, max_size=5).map(" ".join), max_size=3).map(tuple)


def hosts(among: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(among), min_size=1, max_size=3).map(tuple)


#: What a field of this name may be, in operations and faults; every other one follows from its type.
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "ledger": st.sampled_from(LEDGERS),
    "handle": st.sampled_from(HANDLES),
    "log": st.sampled_from(LOGS),
    "cursor": st.sampled_from(("c", "d-1")),
    "batch": st.integers(1, 900),
    "entries_max": st.integers(1, 900),
    "partitions": st.integers(0, 100),
    "keys": st.integers(0, 900),
    "deletions": st.integers(0, 900),
    "host": st.sampled_from(CLIENTS + BOOKIES),
    "other": st.sampled_from(CLIENTS + BOOKIES),
    "group": hosts(CLIENTS + BOOKIES),
    "others": hosts(CLIENTS + BOOKIES),
    "client": st.sampled_from((*CLIENTS, "any")),
    "bookie": st.sampled_from(BOOKIES),
    "bookies": hosts((*BOOKIES, "any")),
    "step": st.sampled_from(STEPS),
    "entries": entries,
    "limit": st.none() | st.integers(1, 99),
    "last": st.none() | st.integers(900, 990),
    "first": st.integers(0, 900),
    "entry": st.integers(0, 900),
    "count": st.integers(1, 900),
    "window": st.integers(1, 900),
    "size": st.integers(0, 900),
    "attempts": st.integers(1, 900),
    "copies": st.integers(1, 100),
    "byte": st.integers(0, 900),
    "outage_s": some_time,
    "bandwidth": st.integers(1, 10**9),
    "left": st.integers(0, 10**9),
    "rate": st.floats(0.0, 1e6, allow_nan=False),
    "unconfirmed": st.just(False),
    "slow_probability": chances,
    "loss_probability": chances,
    "duplicate_probability": chances,
    "sizes": st.sampled_from((None, Sizes(2, 2, 1), Sizes(1, 1, 1))),
}


def built(cls: type) -> st.SearchStrategy[Any]:
    """Values of a dataclass, with the fields above and others by their types."""
    names = {field.name: field for field in fields(cls)}
    given = {name: BY_NAME[name] for name in names if name in BY_NAME}
    given |= {name: durations for name in names if name.endswith("_s") and name not in given}
    rest = {name: field for name, field in names.items() if name not in given}
    flags = {name: st.booleans() for name, field in rest.items() if field.default is False or field.default is True}
    return st.builds(cls, **given, **flags, **{name: _member(cls, name) for name in rest if name not in flags})


def _member(cls: type, name: str) -> st.SearchStrategy[Any]:
    kind = typing.get_type_hints(cls)[name]
    kinds = [known for known in typing.get_args(kind) or (kind,) if known is not type(None)]
    return st.sampled_from(kinds[0]) | (st.none() if len(kinds) < len(typing.get_args(kind)) else st.nothing())


@st.composite
def conditions(draw: Callable[..., Any], kind: str) -> tuple[Condition, ...]:
    known = [name for name in KINDS[kind] if FIELDS[name] is not FieldType.FRAGMENTS]
    chosen = draw(st.lists(st.sampled_from([*known, "ledger"]), unique=True, max_size=3))
    values = {
        FieldType.LONG: st.integers(-100, 10**9),
        FieldType.STRING: st.sampled_from(("positive", "bookie-0", "b0,b1")),
        FieldType.BOOLEAN: st.booleans(),
    }
    return tuple(
        Condition(name, draw(st.sampled_from(LEDGERS) if name == "ledger" else values[FIELDS[name]])) for name in chosen
    )


@st.composite
def whens(draw: Callable[..., Any]) -> When:
    kind = str(draw(st.sampled_from(sorted(KINDS))))
    return When(
        kind=kind,
        actor=draw(st.sampled_from(("", *CLIENTS, *BOOKIES, "intruder"))),
        nth=draw(st.integers(1, 9)),
        times=draw(st.integers(1, 9)),
        after_s=draw(durations),
        maybe=draw(st.booleans()),
        where=draw(conditions(kind)),
    )


triggers: st.SearchStrategy[Trigger] = whens() | st.builds(
    At, time_s=durations, every_s=some_time, times=st.integers(1, 9)
)
operations: st.SearchStrategy[ClientOperation] = st.one_of(
    *(
        st.builds(Until, triggers) if cls is Until else built(cls)
        for cls in OPERATIONS.values()
        if cls is not CreateLedger and cls is not MakeLog
    )
)
calls = st.builds(Call, operations, st.none() | durations, st.sampled_from(Wanted))
#: What only bookies suffer that keep files.
OF_FILES: tuple[type[Fault], ...] = (Compact,)
OF_COOKIES: tuple[type[Fault], ...] = (ForeignCookie,)
faults: st.SearchStrategy[Fault] = st.one_of(
    *(
        built(cls)
        for cls in FAULTS.values()
        if cls not in {EndFault, MetadataCalls, Crash, KillClient, *OF_FILES, *OF_COOKIES}
    ),
    st.builds(Crash, st.sampled_from(BOOKIES), st.sampled_from(CrashMode)),
    st.builds(KillClient, st.sampled_from(CLIENTS)),
    st.builds(KillClient, st.sampled_from(CLIENTS), st.sampled_from(Departure), st.integers(1, 9)),
    # what is stored of logs suffers fewer faults than what is stored of ledgers
    st.builds(
        MetadataCalls,
        way=st.sampled_from([way for way in MetadataWay if way not in {MetadataWay.CONFLICT, MetadataWay.STALE}]),
        what=st.sampled_from(MetadataWhat),
        client=BY_NAME["client"],
        limit=BY_NAME["limit"],
        by_s=durations,
    ),
    st.builds(
        MetadataCalls, way=st.sampled_from(MetadataWay), what=st.just(MetadataWhat.WRITE), client=BY_NAME["client"]
    ),
)


of_files: st.SearchStrategy[Fault] = st.one_of(
    *map(built, OF_FILES),
    st.builds(
        Crash,
        st.sampled_from(BOOKIES),
        st.sampled_from(CrashMode),
        st.sampled_from(("journal.sync", "move.index")),
        st.integers(1, 9),
    ),
)
faults_in_files: st.SearchStrategy[Fault] = faults | of_files


@st.composite
def clusters(draw: Callable[..., Any]) -> Cluster:
    store = draw(st.none() | st.sampled_from(StoreKind))
    client = ClientConfig().with_changes(
        timeouts={"add_s": draw(st.floats(0.001, 9.0)), "add_quorum_s": draw(st.none() | st.floats(0.001, 9.0))},
        limits={"max_in_flight_entries": draw(st.integers(1, 99)), "throttle_per_s": draw(st.floats(0.0, 9.0))},
        connections={"protocol_version": draw(st.sampled_from((2, 3)))},
        writing={"delay_ensemble_change": draw(st.booleans()), "check_metadata_after_reconnect": draw(st.booleans())},
        reading={"batch": draw(st.booleans())},
    )
    bookies = draw(st.integers(3, 9))
    racks = draw(st.just(()) | st.lists(st.sampled_from(("a", "B-2")), min_size=bookies, max_size=bookies).map(tuple))
    return Cluster(
        bookies=bookies,
        racks=racks,
        sizes=draw(st.sampled_from((Sizes(3, 3, 2), Sizes(2, 2, 2), Sizes(3, 2, 1)))),
        digest=draw(st.sampled_from(DigestType)),
        transport=draw(st.sampled_from(TransportKind)),
        forgets=None if store else draw(st.none() | st.sampled_from(ForgetsLike)),
        checkpoint_s=draw(some_time),
        store=store,
        network=draw(built(NetworkConfig)),
        metadata=MetadataConfig(latency_s=draw(durations), conflict_probability=draw(chances)),
        storage=MemoryStorageConfig(JournalConfig(sync_latency_s=draw(durations)), draw(st.integers(0, 10**9))),
        files=FilesConfig(read_s=draw(durations), index_files=draw(st.integers(1, 99))),
        tcp=TcpConfig(segment_bytes=draw(st.integers(1, 9000)), bandwidth=draw(st.none() | some_time)),
        limits=LoopLimits(steps=draw(st.integers(1, 10**9)), seconds=draw(some_time)),
        client=client,
    )


late = st.builds(
    LateTurn, st.sampled_from(("writer>bookie-0", "R0", "writer>metadata#1")), st.integers(0, 9_999), st.integers(1, 99)
)
some_turns = st.integers(1, 9_999)
moments = st.floats(0.001, 2.0)
schedules = st.one_of(
    st.builds(UniformSchedule, moments),
    st.builds(PctSchedule, some_turns, some_turns, moments),
    st.builds(DelaySchedule, some_turns, some_turns, moments),
    st.lists(late, min_size=1, max_size=6, unique_by=lambda turn: (turn.strand, turn.number)).map(
        lambda turns: ChosenSchedule(tuple(sorted(turns, key=lambda turn: turn.strand)))
    ),
)


@st.composite
def plans(draw: Callable[..., Any]) -> Plan:
    """Plans of three clients, two ledgers and two named steps, of which anything else may refer to any."""
    first = [Call(replace(draw(built(CreateLedger)), ledger=ledger)) for ledger in LEDGERS]
    first += [Call(replace(draw(built(MakeLog)), log=log)) for log in LOGS]
    opened = [Call(Open("a")), Call(Open("a", handle="h.1"))]
    clients = (
        Program(CLIENTS[0], (*first, *opened, *draw(st.lists(calls, max_size=6))), draw(prose)),
        *(Program(name, (*opened, *draw(st.lists(calls, max_size=6))), draw(prose)) for name in CLIENTS[1:]),
    )
    cluster = draw(clusters())
    broken = faults if cluster.store is None else faults_in_files
    named = tuple(Step(draw(triggers), draw(broken), name) for name in STEPS)
    more = draw(
        st.lists(
            st.builds(Step, triggers, broken | st.builds(EndFault, st.sampled_from(STEPS)), prose=prose), max_size=5
        )
    )
    verdict = draw(st.sampled_from(Expected))
    is_blocked = verdict is Expected.BLOCKED
    expect = Expectation(verdict, CLIENTS[:2] if is_blocked else (), until_healed=is_blocked and draw(st.booleans()))
    return Plan(
        name=draw(st.sampled_from(("p", "late-add", "9.x_y"))),
        cluster=cluster,
        clients=clients,
        steps=(*named, *more),
        summary=draw(st.lists(words, max_size=5).map(" ".join)),
        expect=expect,
        ends=tuple(draw(st.lists(st.builds(End, st.sampled_from(LEDGERS), entries), max_size=2))),
        meets=tuple(draw(st.lists(st.sampled_from(sorted(SITUATIONS)), max_size=2))),
        patience_s=draw(some_time),
        schedule=draw(st.none() | schedules),
        prose=draw(prose),
    )


PLANS: st.SearchStrategy[Plan] = plans()
