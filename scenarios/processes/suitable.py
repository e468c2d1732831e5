"""Which plans processes can play: those that ask for nothing that TCP and a process cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scenarios.history import Kind
from scenarios.plan import Plan, faults
from scenarios.plan.model import Step
from scenarios.plan.operations import Until
from scenarios.plan.triggers import At, Trigger
from scenarios.plan.words import print_fields
from simbookie.storage.base import CrashMode

__all__ = ["INSIDE_BOOKIES", "UnsuitablePlanError", "check_suitable", "problems_of"]

#: Kinds of events that happen inside a bookie, and are recorded by bookies that record.
INSIDE_BOOKIES: Final = frozenset(
    {
        *(Kind.BK_RECV, Kind.BK_ANSWER, Kind.BK_STORE, Kind.BK_SYNC, Kind.BK_LAC, Kind.FENCE_SET, Kind.FENCE_LOST),
        *(Kind.BK_LOSS, Kind.BK_LIMBO, Kind.BK_GC),
    }
)
_BY_CHANCE: Final = "chance neither loses nor doubles frames of a stream"
_FROM_OUTSIDE: Final = "what a bookie process keeps is not altered from outside"
_CALLS: Final = "single calls of a session with ZooKeeper cannot be picked"
_CLOCK: Final = "processes share the clock of their machine"
_CANNOT: Final[dict[type[faults.Fault], str]] = {
    faults.Alter: _FROM_OUTSIDE,
    faults.Lose: _FROM_OUTSIDE,
    faults.Limbo: _FROM_OUTSIDE,
    faults.ReadOnly: _FROM_OUTSIDE,
    faults.Collect: _FROM_OUTSIDE,
    faults.Compact: _FROM_OUTSIDE,
    faults.Omit: _CALLS,
    faults.Wipe: "a bookie process refuses a disk without its cookie",
    faults.MetadataCalls: _CALLS,
    faults.CutAfter: "a proxy breaks connections at once, and does not count bytes",
    faults.HalfOpen: "a proxy ends both sides of a connection",
    faults.SlowReader: "a process reads what comes",
    faults.ForeignCookie: _FROM_OUTSIDE,
    faults.DiskSlow: "processes share the disk of their machine",
    faults.DiskFull: "processes share the disk of their machine",
    faults.LateWatches: _CALLS,
    faults.ClockJump: _CLOCK,
    faults.ClockDrift: _CLOCK,
    faults.DisableChanges: "a client process asks nobody outside for its features",
}


class UnsuitablePlanError(Exception):
    """Processes cannot play the plan; the message names the first step that asks too much, and why."""


def check_suitable(plan: Plan, *, records: bool) -> None:
    """:class:`UnsuitablePlanError` unless processes can play the plan. ``records``: whether the bookies record."""
    problem = next(problems_of(plan, records=records), None)
    if problem is not None:
        raise UnsuitablePlanError(f"{plan.name} cannot be played with processes: {problem}")


def problems_of(plan: Plan, *, records: bool) -> Iterator[str]:
    """Everything in the plan that processes cannot do, one sentence each."""
    cluster = plan.cluster
    if cluster.forgets is not None:
        yield f"the cluster's bookies forget fences like {cluster.forgets.value}, and processes keep what they promise"
    if cluster.store is not None:
        yield f"the cluster's bookies have a {cluster.store.value} store, and processes have a kind of their own"
    chances = (cluster.network.loss_probability, cluster.network.duplicate_probability)
    if any(chances):
        yield f"the cluster's network loses or doubles messages, and {_BY_CHANCE}"
    metadata = cluster.metadata
    if any((metadata.conflict_probability, metadata.unknown_probability, metadata.failure_probability)):
        yield f"calls to the cluster's metadata service fail by chance, and {_CALLS}"
    if plan.schedule is not None:
        yield f"its schedule ({plan.schedule.verb}) makes things late, and the machine decides when processes run"
    for step in plan.steps:
        problem = _problem_of(step.fault)
        if problem:
            yield f"step {_shown(step)!r}: {problem}"
        if not records:
            yield from _unseen(step.trigger, f"step {_shown(step)!r}")
    if not records:
        for operation in plan.operations:
            if isinstance(operation, Until):
                yield from _unseen(operation.trigger, "an operation")


def _problem_of(fault: faults.Fault) -> str:
    if isinstance(fault, faults.Crash) and fault.mode is not CrashMode.PROCESS:
        return "a process dies and its machine keeps its power"
    if isinstance(fault, faults.Crash) and fault.before:
        return "a process is not killed at a step of its storage"
    if isinstance(fault, faults.KillClient) and fault.before is not None:
        return "a process is not killed at a step of its protocol"
    if isinstance(fault, faults.LinkWeather) and (fault.loss_probability or fault.duplicate_probability):
        return _BY_CHANCE
    return _CANNOT.get(type(fault), "")


def _unseen(trigger: Trigger, what: str) -> Iterator[str]:
    if not isinstance(trigger, At) and trigger.kind in INSIDE_BOOKIES:
        yield f"{what} waits for {trigger.kind}, which these bookies do not record"


def _shown(step: Step) -> str:
    return " ".join([step.fault.verb, *print_fields(step.fault)])
