"""Acting: what a step of a plan breaks and mends in the world, each with its events in the history."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from bkclient.errors import BookKeeperError
from scenarios.plan import faults
from scenarios.plan.model import Step
from scenarios.plan.words import member_of, print_fields
from scenarios.playing.ledgers import PlayedLedgers
from scenarios.playing.matching import metadata_action, metadata_match, traffic_match
from scenarios.recording import BookieRecorder, Recorder
from scenarios.stage import Stage
from simbookie.garbage import GarbageCollector
from simbookie.storage.base import CrashMode
from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.memory import MemoryStorage
from simbookie.world.bookie_host import BookieHost
from simbookie.world.faults import Action, Delay, Duplicate, Fate, Interception

__all__ = ["Acts", "ClientLife", "Undo", "WorldActs", "directions", "directions_across", "message_acts"]

Undo = Callable[[], object]


class ClientLife(Protocol):
    """A process of a client, as far as steps break it; each call is without effect where there is nothing to do."""

    def crash(self) -> None:
        """Kill it."""

    def pause(self) -> None:
        """Let it execute nothing until :meth:`resume`."""

    def resume(self) -> None:
        """Let it go on."""


@dataclass(slots=True)
class _Lasting:
    """A fault that is in force; ``undo`` ends it."""

    name: str
    fault: faults.Fault
    undo: Undo


class Acts(ABC):
    """Does what steps say: which faults are in force, and what ends them. What a fault does is said by :meth:`acts`.

    ``start`` starts a client, ``clients`` are those that were started.
    """

    def __init__(
        self,
        recorder: Recorder,
        ledgers: PlayedLedgers,
        clients: Mapping[str, ClientLife],
        start: Callable[[str], None],
    ) -> None:
        self._recorder = recorder
        self._ledgers = ledgers
        self._clients = clients
        self._start = start
        #: Steps that could not be taken.
        self.problems: list[str] = []
        self._lasting: dict[str, _Lasting] = {}
        self._counts: Counter[str] = Counter()
        self._acts: Final = self.acts()

    @abstractmethod
    def acts(self) -> dict[type[faults.Fault], Callable[[Any], Undo | None]]:
        """What each fault does; that of a lasting one returns what ends it, None if there is nothing to break."""

    @abstractmethod
    def can_begin(self, fault: faults.Fault) -> bool:
        """Whether there is anything to break: a process that is dead can neither crash nor pause."""

    @abstractmethod
    def calm(self) -> None:
        """End what chance does to messages and calls."""

    def perform(self, step: Step) -> None:
        """Do what the step says."""
        fault = step.fault.at(self._ledgers.place)
        if any(member_of(host) for host in fault.hosts):
            self.problems.append(f"no ledger had the bookie of {step.fault.verb} {' '.join(step.fault.hosts)}")
            return
        if isinstance(fault, faults.Start):
            self._start(fault.host)
        elif isinstance(fault, faults.EndFault):
            self._end(lambda lasting: lasting.name == fault.step)
        elif isinstance(fault, faults.HealAll):
            self._end(lambda lasting: not isinstance(lasting.fault, _DEATHS))
        elif isinstance(fault, faults.Restart):
            self._end(lambda lasting: isinstance(lasting.fault, _DEATHS) and lasting.fault.host == fault.host)
        elif isinstance(fault, faults.Resume):
            self._end(lambda lasting: lasting.fault == faults.Pause(fault.host))
        elif fault.is_lasting:
            self._begin(step.name or self._numbered(fault), fault)
        else:
            self._record(fault, self._numbered(fault), "once")
            self._acts[type(fault)](fault)

    def end_all(self) -> None:
        """End every fault in force, and the chance ones of network and metadata service.

        A bookie whose disk was replaced stays down: it would be another one.
        """
        self._end(lambda lasting: not isinstance(lasting.fault, faults.Wipe))
        self.calm()

    def _numbered(self, fault: faults.Fault) -> str:
        self._counts[fault.verb] += 1
        return f"{fault.verb}-{self._counts[fault.verb]}"

    def _begin(self, name: str, fault: faults.Fault) -> None:
        if name in self._lasting or not self.can_begin(fault):
            return
        self._record(fault, name, "begin")
        undo = self._acts[type(fault)](fault)
        self._lasting[name] = _Lasting(name, fault, undo if undo is not None else lambda: None)

    def _end(self, is_meant: Callable[[_Lasting], bool]) -> None:
        for lasting in [found for found in self._lasting.values() if is_meant(found)]:
            del self._lasting[lasting.name]
            self._record(lasting.fault, lasting.name, "end")
            lasting.undo()

    def _record(self, fault: faults.Fault, name: str, phase: str) -> None:
        target, *others = fault.hosts or ("",)
        words = print_fields(fault)
        self._recorder.record_fault(
            fault.verb,
            " ".join(words) if phase != "end" else f"ends: {' '.join(words)}",
            fault=name,
            phase=phase,
            target=target,
            other=",".join(others),
            parameters=" ".join(words[len(fault.hosts) :] if not isinstance(fault, _SEVERAL_HOSTS) else words),
        )


class WorldActs(Acts):
    """In the simulated world every fault can be."""

    def __init__(
        self, stage: Stage, ledgers: PlayedLedgers, clients: Mapping[str, ClientLife], start: Callable[[str], None]
    ) -> None:
        self._stage = stage
        self._blocked: Counter[tuple[str, str]] = Counter()
        super().__init__(stage.recorder, ledgers, clients, start)

    @property
    def _world(self) -> Any:
        return self._stage.world

    def acts(self) -> dict[type[faults.Fault], Callable[[Any], Undo | None]]:
        """See :class:`Acts`, as for the methods that follow."""
        return {
            faults.Cut: partial(self._block, keep=False),
            faults.Clog: partial(self._block, keep=True),
            faults.Partition: self._partition,
            faults.LinkWeather: self._weather,
            **message_acts(self._world.network.intercept),
            faults.Crash: self._crash,
            faults.Wipe: self._wipe,
            faults.Pause: self._pause,
            faults.ReadOnly: self._read_only,
            faults.Limbo: self._limbo,
            faults.MetadataCalls: self._metadata,
            faults.StoreDown: self._store_down,
            faults.Reset: lambda fault: self._world.network.reset_connections(fault.host, fault.other) and None,
            faults.KillClient: lambda fault: self._client(fault.host, lambda client: client.crash()),
            faults.Alter: self._alter,
            faults.Lose: self._lose,
            faults.Collect: self._collect,
            faults.Compact: self._compact,
            faults.Omit: self._omit,
            faults.LoseSession: lambda fault: self._world.metadata.lose_sessions(fault.host, fault.outage_s) and None,
        }

    def can_begin(self, fault: faults.Fault) -> bool:
        """See there."""
        if isinstance(fault, faults.Crash | faults.Wipe):
            return self._stage.bookies[fault.host].is_alive
        if isinstance(fault, faults.ReadOnly | faults.Limbo):
            return self._stage.bookies[fault.host].is_alive
        if isinstance(fault, faults.Pause):
            host = self._world.hosts.get(fault.host)
            return host is not None and host.is_alive and not host.is_paused
        return True

    def end_all(self) -> None:
        """See there; nothing more becomes late, either."""
        self._stage.end_schedule()
        super().end_all()

    def calm(self) -> None:
        """See there."""
        network, metadata = self._world.network, self._world.metadata
        calm = replace(network.config, slow_probability=0.0, loss_probability=0.0, duplicate_probability=0.0)
        even = replace(metadata.config, conflict_probability=0.0, unknown_probability=0.0, failure_probability=0.0)
        if (calm, even) != (network.config, metadata.config):
            self._recorder.record_fault("calm", "no message is slow, lost or doubled by chance any more")
            network.config, metadata.config = calm, even

    # The network -------------------------------------------------------------------------------------------------

    def _block(self, fault: faults.Cut | faults.Clog, *, keep: bool) -> Undo:
        return self._block_all(directions(fault.host, fault.other, fault.way), keep=keep)

    def _partition(self, fault: faults.Partition) -> Undo:
        return self._block_all(directions_across(fault), keep=fault.keep)

    def _block_all(self, ways: list[tuple[str, str]], *, keep: bool) -> Undo:
        """Block these directions until the last fault that blocks them has ended."""
        for way in ways:
            self._blocked[way] += 1
            self._world.network.block(*way, keep=keep)

        def unblock() -> None:
            for way in ways:
                self._blocked[way] -= 1
                if not self._blocked[way]:
                    self._world.network.unblock(*way)

        return unblock

    def _weather(self, fault: faults.LinkWeather) -> Undo:
        links = [self._world.network.link(*way) for way in directions(fault.host, fault.other, fault.way)]
        for link in links:
            link.config = fault.network

        def clear() -> None:
            for link in links:
                link.config = None

        return clear

    # Hosts -------------------------------------------------------------------------------------------------------

    def _crash(self, fault: faults.Crash) -> Undo:
        bookie, mode = self._stage.bookies[fault.host], fault.mode
        if not fault.before:
            bookie.crash(mode)
            return partial(_restart, bookie)
        schedule = self._stage.crash_schedules[fault.host]
        schedule.arm(lambda: bookie.crash(mode), before=fault.before, number=fault.number)

        def end() -> None:
            if schedule.is_armed:
                schedule.disarm()
                self.problems.append(f"{fault.host} did not come to the step {fault.before}")
            _restart(bookie)

        return end

    def _wipe(self, fault: faults.Wipe) -> Undo:
        bookie = self._stage.bookies[fault.host]
        storage, observer = _memory(bookie), BookieRecorder(self._stage.recorder, fault.host)
        for ledger_id in storage.ledger_ids():
            for entry_id in storage.entry_ids(ledger_id):
                observer.entry_lost(ledger_id, entry_id, "wiped")
            info = storage.ledger(ledger_id)
            if info is not None and info.fenced:
                observer.fence_forgotten(ledger_id, "wiped")
        bookie.crash(CrashMode.POWER_LOSS)
        if storage.disk is not None:
            storage.disk.wipe()
        return partial(_restart, bookie)

    def _pause(self, fault: faults.Pause) -> Undo | None:
        if fault.host in self._clients:
            self._clients[fault.host].pause()
            return self._clients[fault.host].resume
        host = self._world.hosts[fault.host]
        host.pause()
        return lambda: host.resume() if host.is_paused else None

    def _client(self, name: str, act: Callable[[ClientLife], object]) -> None:
        if name in self._clients:
            act(self._clients[name])

    # Bookies -----------------------------------------------------------------------------------------------------

    def _read_only(self, fault: faults.ReadOnly) -> Undo:
        bookie = self._stage.bookies[fault.host].bookie
        bookie.set_read_only(True)
        return lambda: bookie.set_read_only(False)

    def _limbo(self, fault: faults.Limbo) -> Undo | None:
        ledger_id, host = self._ledgers.ids.get(fault.ledger), self._stage.bookies[fault.host]
        if ledger_id is None:
            return None
        host.bookie.set_limbo(ledger_id, in_limbo=True)
        return lambda: host.bookie.set_limbo(ledger_id, in_limbo=False) if host.is_alive else None

    def _alter(self, fault: faults.Alter) -> None:
        self._damage(fault, "altered", lambda storage, ledger, entry: storage.alter(ledger, entry, fault.byte))

    def _lose(self, fault: faults.Lose) -> None:
        self._damage(fault, "lost", lambda storage, ledger, entry: storage.lose(ledger, entry))

    def _damage(
        self, fault: faults.Alter | faults.Lose, detail: str, damage: Callable[[MemoryStorage, int, int], None]
    ) -> None:
        """Damage copies of entries; checkers count each as lost."""
        ledger_id, host = self._ledgers.ids.get(fault.ledger), self._stage.bookies[fault.host]
        if ledger_id is None or not host.is_alive:
            return
        storage, observer = _memory(host), BookieRecorder(self._stage.recorder, fault.host)
        if storage.ledger(ledger_id) is None:
            return
        for entry_id in storage.entry_ids(ledger_id):
            if not fault.entries or entry_id in fault.entries:
                damage(storage, ledger_id, entry_id)
                observer.entry_lost(ledger_id, entry_id, detail)

    def _collect(self, fault: faults.Collect) -> None:
        host = self._stage.bookies[fault.host]
        if host.is_alive and host.store is not None:
            collector = GarbageCollector(host.bookie, host.store)
            collect = collector.collect_overreplicated if fault.overreplicated else collector.collect
            host.spawn(_collected, collect, name=f"garbage collection of {fault.host}")

    def _compact(self, fault: faults.Compact) -> None:
        host = self._stage.bookies[fault.host]
        storage = host.storage
        assert isinstance(storage, JournaledStorage), "the plan has seen to it"
        if host.is_alive and storage.garbage is not None and not storage.garbage.is_running:
            major = frozenset({CompactionKind.MAJOR})
            host.spawn(_compacted, storage, major, name=f"compaction of {fault.host}")

    # Metadata ----------------------------------------------------------------------------------------------------

    def _metadata(self, fault: faults.MetadataCalls) -> Undo:
        match, action = metadata_match(fault), metadata_action(fault)
        return _undo(self._world.metadata.intercept(match, action, limit=fault.limit))

    def _omit(self, fault: faults.Omit) -> Undo | None:
        ledger_id = self._ledgers.ids.get(fault.ledger)
        if ledger_id is None:
            return None
        omitted: Undo = self._world.metadata.omit(fault.host, ledger_id)
        return omitted

    def _store_down(self, _fault: faults.StoreDown) -> Undo:
        self._world.metadata.stop()
        start: Undo = self._world.metadata.start
        return start


#: Faults that name more hosts than one in a word, so that their words say all there is.
_SEVERAL_HOSTS: Final = (faults.Partition, faults.Messages, faults.MetadataCalls)


#: Faults that a restart ends.
_DEATHS: Final = (faults.Crash, faults.Wipe)


async def _collected(collect: Callable[[], Awaitable[list[int]]]) -> None:
    """Collect once. A bookie whose metadata service fails collects nothing and tries again at its next turn."""
    with suppress(BookKeeperError):
        await collect()


async def _compacted(storage: JournaledStorage, kinds: frozenset[CompactionKind]) -> None:
    """Compact once, as code of the bookie."""
    storage.collect_garbage(lambda _token, _error: None, None, is_forced=True, kinds=kinds)


def _restart(bookie: BookieHost) -> None:
    """Start a bookie again, unless it lives."""
    if not bookie.is_alive:
        bookie.restart()


def _undo(interception: Interception[Any]) -> Undo:
    def end() -> None:
        interception.remove()
        interception.release()

    return end


def directions(host: str, other: str, way: faults.Way) -> list[tuple[str, str]]:
    """From which host to which a fault between two acts."""
    ways = {
        faults.Way.TO: [(host, other)],
        faults.Way.FROM: [(other, host)],
        faults.Way.BOTH: [(host, other), (other, host)],
    }
    return ways[way]


def message_acts(intercept: Callable[..., Interception[Any]]) -> dict[type[faults.Fault], Callable[[Any], Undo]]:
    """What each fault of single messages does, where ``intercept(match, action, limit=...)`` picks them."""

    def by(action: Callable[[Any], Action]) -> Callable[[faults.Messages], Undo]:
        return lambda fault: _undo(intercept(traffic_match(fault), action(fault), limit=fault.limit))

    return {
        faults.Drop: by(lambda _: Fate.DROP),
        faults.Hold: by(lambda _: Fate.HOLD),
        faults.DelayMessages: by(lambda fault: Delay(fault.by_s)),
        faults.DuplicateMessages: by(lambda fault: Duplicate(fault.copies)),
    }


def directions_across(partition: faults.Partition) -> list[tuple[str, str]]:
    """From which host to which nothing passes while the two groups are apart; a host is never apart from itself."""
    pairs = [(one, other) for one, other in itertools.product(partition.group, partition.others) if one != other]
    return [way for one, other in pairs for way in ((one, other), (other, one))]


def _memory(host: BookieHost) -> MemoryStorage:
    storage = host.storage
    assert isinstance(storage, MemoryStorage), "what the stage gave its bookies"
    return storage
