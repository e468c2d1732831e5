"""Plans without some of their parts. What refers to a part that is left out is left out too, so that the rest is a plan.

A step that ends a fault goes with the step that begins it, a reader's calls with the opening, all that concerns a ledger with its
creation, and everything about a host with the host. Where hosts are listed, the others stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from scenarios.plan import Plan, PlanError
from scenarios.plan import operations as ops
from scenarios.plan.cluster import Cluster
from scenarios.plan.faults import EndFault, Fault
from scenarios.plan.log_operations import MakeLog
from scenarios.plan.model import Expectation, Expected, Program, Step
from scenarios.plan.triggers import Trigger, When
from scenarios.plan.words import Sizes

__all__ = ["CallPlace", "bare", "calls_of", "sizes_below", "with_calls", "with_clients", "with_cluster", "with_steps"]

#: Fields of faults that list hosts.
_LISTS: Final = ("group", "others", "bookies")

CallPlace = tuple[str, int]
"""A call of a program: the client's name, and its position."""


def bare(plan: Plan, *, demands_end: bool) -> Plan:
    """The plan without what is only about its meaning: ends, situations, prose, names of steps that nothing refers to.

    What is expected becomes that everything ends, or that anything may happen.
    """
    ended = {step.fault.step for step in plan.steps if isinstance(step.fault, EndFault)}
    return replace(
        plan,
        clients=tuple(replace(client, prose=()) for client in plan.clients),
        steps=tuple(replace(step, prose=(), name=step.name if step.name in ended else "") for step in plan.steps),
        summary="",
        expect=Expectation(Expected.SAFE if demands_end else Expected.ANYTHING),
        ends=(),
        meets=(),
        prose=(),
    )


# Steps, clients, calls ---------------------------------------------------------------------------------------------


def with_steps(plan: Plan, steps: Iterable[Step]) -> Plan:
    """The plan with these of its steps only."""
    return _mended(plan, clients=plan.clients, steps=tuple(steps))


def with_clients(plan: Plan, names: Collection[str]) -> Plan:
    """The plan with these of its clients only; :class:`~scenarios.plan.PlanError` if none is left."""
    return _mended(plan, clients=tuple(client for client in plan.clients if client.name in names), steps=plan.steps)


def calls_of(plan: Plan) -> tuple[CallPlace, ...]:
    """Where the plan's calls are."""
    return tuple((client.name, index) for client in plan.clients for index in range(len(client.calls)))


def with_calls(plan: Plan, places: Collection[CallPlace]) -> Plan:
    """The plan with these of its calls only; a program without any stays."""
    clients = tuple(
        replace(client, calls=tuple(call for index, call in enumerate(client.calls) if (client.name, index) in places))
        for client in plan.clients
    )
    return _mended(plan, clients=clients, steps=plan.steps)


def _mended(plan: Plan, clients: tuple[Program, ...], steps: tuple[Step, ...]) -> Plan:
    created = [call.operation for client in clients for call in client.calls]
    ledgers = {operation.ledger for operation in created if isinstance(operation, ops.CreateLedger)}
    ledgers |= {operation.log for operation in created if isinstance(operation, MakeLog)}
    gone = _Gone(
        hosts={client.name for client in plan.clients} - {client.name for client in clients},
        ledgers=set(plan.ledgers | plan.logs) - ledgers,
    )
    return _without(plan, gone, plan.cluster, clients, steps)


def _without(plan: Plan, gone: _Gone, cluster: Cluster, clients: tuple[Program, ...], steps: tuple[Step, ...]) -> Plan:
    """The plan with this cluster, and of clients and steps what does not refer to anything that is gone."""
    kept = [mended for step in steps if (mended := gone.step(step)) is not None]
    names = {step.name for step in kept}
    return replace(
        plan,
        cluster=cluster,
        clients=tuple(replace(client, calls=tuple(gone.calls(client))) for client in clients),
        steps=tuple(step for step in kept if not isinstance(step.fault, EndFault) or step.fault.step in names),
    )


class _Gone:
    """Hosts, ledgers and logs that a plan no longer has; leaves out what refers to them."""

    def __init__(self, hosts: set[str], ledgers: set[str]) -> None:
        self._hosts = hosts
        self._ledgers = ledgers

    def step(self, step: Step) -> Step | None:
        if not self._trigger_stays(step.trigger) or getattr(step.fault, "ledger", None) in self._ledgers:
            return None
        try:
            fault = self._fault(step.fault)
        except PlanError:  # the last host of a list
            return None
        return None if any(map(self._is_gone, fault.hosts)) else replace(step, fault=fault)

    def calls(self, client: Program) -> Iterator[ops.Call]:
        handles: set[str] = set()
        for call in client.calls:
            operation = call.operation
            if {getattr(operation, "ledger", None), getattr(operation, "log", None)} & self._ledgers:
                continue
            if isinstance(operation, ops.Open):
                handles.add(operation.handle or operation.ledger)
            elif getattr(operation, "handle", None) not in {None, *handles}:
                continue
            if isinstance(operation, ops.Until) and not self._trigger_stays(operation.trigger):
                continue
            if isinstance(operation, ops.RecoverBookie | ops.Decommission) and self._is_gone(operation.bookie):
                continue
            yield call

    def _trigger_stays(self, trigger: Trigger) -> bool:
        if not isinstance(trigger, When):
            return True
        named = [trigger.actor, *(condition.value for condition in trigger.where if isinstance(condition.value, str))]
        is_about = any(
            condition.field in {"ledger", "log"} and condition.value in self._ledgers for condition in trigger.where
        )
        return not is_about and not any(map(self._is_gone, named))

    def _fault(self, fault: Fault) -> Fault:
        changed: dict[str, Any] = {}
        for name in _LISTS:
            value = getattr(fault, name, None)
            if value is not None:
                changed[name] = tuple(host for host in value if not self._is_gone(host))
                if not changed[name]:
                    raise PlanError("expected a host, found none")
        return replace(fault, **changed) if changed else fault

    def _is_gone(self, host: str) -> bool:
        return host in self._hosts or host.partition("@")[0] in self._ledgers


# The cluster -------------------------------------------------------------------------------------------------------


def sizes_below(sizes: Sizes) -> Iterator[Sizes]:
    """Smaller sizes, the smallest first: all up to three bookies, and then those of one bookie less."""
    largest = min(3, sizes.ensemble)
    small = [
        Sizes(ensemble, write_quorum, ack_quorum)
        for ensemble in range(1, largest + 1)
        for write_quorum in range(1, ensemble + 1)
        for ack_quorum in range(1, write_quorum + 1)
    ]
    if sizes.ensemble > largest:
        ensemble = sizes.ensemble - 1
        write_quorum = min(ensemble, sizes.write_quorum)
        small.append(Sizes(ensemble, write_quorum, min(write_quorum, sizes.ack_quorum)))
    yield from (found for found in small if _rank(found) < _rank(sizes))


def _rank(sizes: Sizes) -> tuple[int, int, int]:
    return sizes.ensemble, sizes.write_quorum, sizes.ack_quorum


def with_cluster(plan: Plan, sizes: Sizes, bookies: int) -> Plan:
    """The plan with ledgers of these sizes and so many bookies.

    Bookies that steps name get the first names, if there are enough of those; otherwise steps about the last ones are left out.
    Each stays in its rack.
    """
    names, racks = plan.cluster.bookie_names, plan.cluster.racks
    named = [name for name in names if name in set(_hosts_named(plan))]
    if bookies < plan.cluster.bookies and len(named) <= bookies:
        others = [name for name in names if name not in named]
        order = [*named, *others]
        plan = _renamed(plan, dict(zip(order, names, strict=True)))
        racks = tuple(racks[names.index(name)] for name in order) if racks else ()
    gone = _Gone(set(names[bookies:]), set())
    return _without(
        plan, gone, replace(plan.cluster, sizes=sizes, bookies=bookies, racks=racks[:bookies]), plan.clients, plan.steps
    )


def _hosts_named(plan: Plan) -> Iterator[str]:
    triggers = [step.trigger for step in plan.steps]
    for operation in plan.operations:
        if isinstance(operation, ops.Until):
            triggers.append(operation.trigger)
        elif isinstance(operation, ops.RecoverBookie | ops.Decommission):
            yield operation.bookie
    for step in plan.steps:
        yield from step.fault.hosts
    for trigger in triggers:
        if isinstance(trigger, When):
            yield trigger.actor
            yield from (str(condition.value) for condition in trigger.where)


def _renamed(plan: Plan, names: dict[str, str]) -> Plan:
    return replace(
        plan,
        clients=tuple(_renamed_calls(client, names) for client in plan.clients),
        steps=tuple(_renamed_step(step, names) for step in plan.steps),
    )


def _renamed_calls(client: Program, names: dict[str, str]) -> Program:
    def renamed(operation: ops.ClientOperation) -> ops.ClientOperation:
        if isinstance(operation, ops.Until):
            return ops.Until(_renamed_trigger(operation.trigger, names))
        if isinstance(operation, ops.RecoverBookie | ops.Decommission):
            return type(operation)(names.get(operation.bookie, operation.bookie))
        return operation

    return replace(client, calls=tuple(replace(call, operation=renamed(call.operation)) for call in client.calls))


def _renamed_step(step: Step, names: dict[str, str]) -> Step:
    return replace(
        step,
        trigger=_renamed_trigger(step.trigger, names),
        fault=step.fault.at(lambda host: names.get(host, host)),
    )


def _renamed_trigger(trigger: Trigger, names: dict[str, str]) -> Trigger:
    if not isinstance(trigger, When):
        return trigger
    where = tuple(
        replace(condition, value=names.get(condition.value, condition.value))
        if isinstance(condition.value, str)
        else condition
        for condition in trigger.where
    )
    return replace(trigger, actor=names.get(trigger.actor, trigger.actor), where=where)
