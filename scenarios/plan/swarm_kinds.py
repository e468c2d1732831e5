"""The kinds of faults that swarms draw from, each with its parameters drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from scenarios.history import Kind
from scenarios.plan import faults
from scenarios.plan.fault import ANY
from scenarios.plan.triggers import Condition
from simbookie.storage.base import CrashMode

if TYPE_CHECKING:
    from scenarios.plan.swarm import Swarm

__all__ = ["KINDS"]

_MARKED: Final = Condition("cause", "recover")
_CREATED: Final = Condition("cause", "create")


def _messages(swarm: Swarm) -> faults.Messages:
    rng = swarm.rng
    bookies = tuple(rng.sample(swarm.cluster.bookie_names, rng.randint(1, swarm.cluster.bookies)))
    traffic, answers = rng.choice(list(faults.Traffic)), rng.random() < 0.5
    client, limit = swarm.client(), rng.choice((None, None, 1, 3))
    match rng.randrange(4):
        case 0:
            return faults.Drop(traffic, client, bookies, answers=answers, limit=limit)
        case 1:
            return faults.Hold(traffic, client, bookies, answers=answers, limit=limit)
        case 2:
            delay_s = rng.choice((0.01, 0.1, 2.0))
            return faults.DelayMessages(traffic, client, bookies, answers=answers, limit=limit, by_s=delay_s)
        case _:
            return faults.DuplicateMessages(traffic, client, bookies, answers=answers, limit=limit)


def _partition(swarm: Swarm) -> faults.Fault:
    rng = swarm.rng
    hosts = [*swarm.clients, *swarm.cluster.bookie_names, "metadata"]
    rng.shuffle(hosts)
    middle = rng.randint(1, len(hosts) - 1)
    return faults.Partition(tuple(hosts[:middle]), tuple(hosts[middle:]), keep=rng.random() < 0.3)


def _alter(swarm: Swarm) -> faults.Fault | None:
    rng = swarm.rng
    if not swarm.damaged:
        return None
    return faults.Alter(rng.choice(swarm.damaged), rng.choice(swarm.ledgers), byte=rng.randrange(64))


def _kill(swarm: Swarm) -> faults.Fault:
    rng, client = swarm.rng, swarm.client()
    if rng.random() < 0.5:
        return faults.KillClient(client)
    before = rng.choice([step for step in faults.Departure if step is not faults.Departure.NODE])
    return faults.KillClient(client, before, rng.choice((1, 1, 2, 7)))


def _connections(swarm: Swarm) -> faults.Fault:
    """What only connections suffer."""
    rng = swarm.rng
    one, other = swarm.client(), swarm.bookie()
    if rng.random() < 0.5:
        one, other = other, one
    match rng.randrange(3):
        case 0:
            return faults.CutAfter(one, other, rng.choice((0, rng.randrange(300), rng.randrange(5_000))))
        case 1:
            return faults.HalfOpen(one, other)
        case _:
            return faults.SlowReader(one, other, bandwidth=rng.choice((200, 5_000, 100_000)))


def _disk(swarm: Swarm) -> faults.Fault:
    rng = swarm.rng
    if rng.random() < 0.5:
        return faults.DiskSlow(swarm.bookie(), rng.choice((0.01, 0.3, 6.0)))
    return faults.DiskFull(swarm.bookie(), rng.choice((0, 500, 70_000)))


def _omit(swarm: Swarm) -> None:
    """A bookie collects its garbage by a listing that leaves a ledger out."""
    bookie, ledger = swarm.bookie(), swarm.rng.choice(swarm.ledgers)
    swarm.step(faults.Omit(bookie, ledger), Kind.META_CAS, Condition("cause", "create"))
    swarm.step(faults.Collect(bookie), swarm.rng.choice((Kind.APP_ACK, Kind.REC_START, Kind.CLOSE_START)))


def _clock(swarm: Swarm) -> faults.Fault:
    rng = swarm.rng
    host = rng.choice([*swarm.clients, *swarm.cluster.bookie_names])
    if rng.random() < 0.5:
        return faults.ClockJump(host, rng.choice((0.5, 60.0, 86_400.0)), back=rng.random() < 0.5)
    return faults.ClockDrift(host, rng.choice((0.0, 0.5, 1.01, 100.0)))


#: Swarms have no logs.
_CALLS_ABOUT_LEDGERS: Final = [
    what for what in faults.MetadataWhat if what not in {faults.MetadataWhat.NODE, faults.MetadataWhat.NODE_READ}
]


#: A client whose answer is held gives its call up, as one whose answer is lost.
_WAYS_OF_CALLS: Final = [way for way in faults.MetadataWay if way is not faults.MetadataWay.HOLD_ANSWER]


def _metadata(swarm: Swarm) -> faults.Fault:
    rng = swarm.rng
    return faults.MetadataCalls(
        way=rng.choice(_WAYS_OF_CALLS),
        what=rng.choice(_CALLS_ABOUT_LEDGERS),
        client=swarm.client(),
        limit=rng.randint(1, 3),
        by_s=rng.choice((0.01, 0.5, 5.0)),
    )


def _weather(swarm: Swarm) -> faults.Fault:
    rng = swarm.rng
    return faults.LinkWeather(
        swarm.client(),
        swarm.bookie(),
        swarm.way(),
        latency_s=rng.choice((0.0003, 0.05, 0.6)),
        jitter_s=rng.choice((0.0004, 0.1)),
        loss_probability=rng.choice((0.0, 0.2)),
    )


# What chance hardly ever brings together ----------------------------------------------------------------------------


def _takeover(swarm: Swarm) -> None:
    """A writer sleeps through a recovery, and a bookie is restarted after it has fenced."""
    asleep = swarm.step(faults.Pause(swarm.rng.choice(swarm.writers)), Kind.META_CAS, _MARKED)
    down = swarm.step(_crash(swarm), Kind.FENCE_RESP)
    swarm.step(faults.EndFault(down), Kind.FENCE_RESP, after_s=0.2)
    swarm.step(faults.EndFault(asleep), Kind.FENCE_RESP, after_s=0.5)


def _late_change(swarm: Swarm) -> None:
    """An ensemble change is under way when the ledger is closed."""
    held = swarm.step(
        faults.MetadataCalls(faults.MetadataWay.HOLD, faults.MetadataWhat.CHANGE, ANY), Kind.META_CAS, _CREATED
    )
    swarm.step(_crash(swarm), swarm.rng.choice((Kind.APP_ACK, Kind.BK_STORE, Kind.CLOSE_START)))
    swarm.step(faults.EndFault(held), Kind.CLOSE_START, after_s=swarm.rng.choice((0.0, 0.001)))


def _half_written(swarm: Swarm) -> None:
    """One bookie has the last entry, and one recovery does not hear from it."""
    found, *others = swarm.rng.sample(swarm.cluster.bookie_names, swarm.cluster.bookies)
    writer = swarm.rng.choice(swarm.writers)
    if not others:
        return
    swarm.step(faults.Drop(faults.Traffic.ADD, writer, tuple(others)), swarm.rng.choice((Kind.ADD_SEND, Kind.APP_ACK)))
    swarm.step(faults.KillClient(writer), Kind.BK_STORE, after_s=0.3)
    for recoverer in (name for name in swarm.others if name.startswith("recoverer")):
        deaf = swarm.rng.choice(((found,), tuple(others)))
        swarm.step(faults.Drop(faults.Traffic.RECOVERY_READ, recoverer, deaf), Kind.ADD_SEND)
        if deaf == (found,):
            swarm.step(faults.Drop(faults.Traffic.FENCE, recoverer, deaf), Kind.ADD_SEND)
        else:
            swarm.step(faults.Hold(faults.Traffic.WRITE_BACK, recoverer, deaf), Kind.ADD_SEND)


def _crash(swarm: Swarm) -> faults.Fault:
    return faults.Crash(swarm.bookie(), swarm.rng.choice(list(CrashMode)))


KINDS: Final[dict[str, Callable[[Swarm], faults.Fault | None]]] = {
    "cut": lambda swarm: faults.Cut(swarm.client(), swarm.bookie(), swarm.way()),
    "clog": lambda swarm: faults.Clog(swarm.client(), swarm.bookie(), swarm.way()),
    "partition": _partition,
    "reset": lambda swarm: faults.Reset(swarm.client(), swarm.bookie()),
    "weather": _weather,
    "messages": _messages,
    "crash": _crash,
    "pause bookie": lambda swarm: faults.Pause(swarm.bookie()),
    "pause client": lambda swarm: faults.Pause(swarm.client()),
    "kill": _kill,
    "connections": _connections,
    "disk": _disk,
    "read-only": lambda swarm: faults.ReadOnly(swarm.bookie()),
    "limbo": lambda swarm: faults.Limbo(swarm.bookie(), swarm.rng.choice(swarm.ledgers)),
    "alter": _alter,
    "collect": lambda swarm: faults.Collect(swarm.bookie()),
    "metadata": _metadata,
    "store-down": lambda _: faults.StoreDown(),
    "late watches": lambda swarm: faults.LateWatches(
        swarm.rng.choice([*swarm.clients, *swarm.cluster.bookie_names]), swarm.rng.choice((0.05, 1.0, 20.0))
    ),
    "omit": _omit,
    "compact": lambda swarm: None if swarm.cluster.store is None else faults.Compact(swarm.bookie()),
    "session": lambda swarm: faults.LoseSession(
        swarm.rng.choice([*swarm.clients, *swarm.cluster.bookie_names]), swarm.rng.choice((0.1, 3.0))
    ),
    "wipe": lambda swarm: faults.Wipe(swarm.rng.choice(swarm.damaged or swarm.cluster.bookie_names)),
    "clock": _clock,
    "cookie": lambda swarm: (
        faults.ForeignCookie(swarm.rng.choice(swarm.damaged or swarm.cluster.bookie_names))
        if swarm.cluster.cookies
        else None
    ),
    "takeover": _takeover,
    "late change": _late_change,
    "half-written": _half_written,
}
