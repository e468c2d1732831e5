"""Acting: what a step of a plan breaks and mends in the simulated world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from bkclient.errors import BookKeeperError
from scenarios.plan import faults
from scenarios.playing.acts import Acts, ClientLife, Undo, directions, directions_across, message_acts, undone
from scenarios.playing.ledgers import PlayedLedgers
from scenarios.playing.matching import metadata_action, metadata_match, traffic_match
from scenarios.recording.recorders import BookieRecorder
from scenarios.stage import Stage
from scenarios.stage_cookies import StageCookies
from simbookie.bookie import BookieState
from simbookie.garbage import GarbageCollector
from simbookie.storage.base import CrashMode, LedgerStorage, StorageError
from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.memory import MemoryStorage
from simbookie.world.bookie_host import BookieHost
from simbookie.world.damage import alter_entries, lose_entries
from simbookie.world.faults import Interception, Interrupt
from simbookie.world.files import disk_of
from simbookie.world.links import Link
from simbookie.world.metadata_service import MetadataFault

__all__ = ["WorldActs"]

#: How often it is tried to take a bookie out of limbo that does not run, or whose disk is full.
_LIMBO_RETRY_S: Final = 0.1


class WorldActs(Acts):
    """In the simulated world every fault can be."""

    def __init__(
        self, stage: Stage, ledgers: PlayedLedgers, clients: Mapping[str, ClientLife], start: Callable[[str], None]
    ) -> None:
        self._stage = stage
        self._blocked: Counter[tuple[str, str]] = Counter()
        #: By link, the fault that breaks its connections after some bytes which began last.
        self._last_cut: dict[Link, faults.CutAfter] = {}
        #: What kills clients before something leaves them.
        self._ambushes: list[Interception[Any]] = []
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
            faults.HalfOpen: lambda fault: self._world.network.half_open(fault.host, fault.other) and None,
            faults.CutAfter: self._cut_after,
            faults.SlowReader: self._slow_reader,
            faults.KillClient: self._kill,
            faults.DiskSlow: self._disk_slow,
            faults.DiskFull: self._disk_full,
            faults.ForeignCookie: lambda fault: StageCookies.make_foreign(self._stage.bookies[fault.host].storage),
            faults.LateWatches: lambda fault: self._world.metadata.delay_watches(fault.host, fault.by_s),
            faults.ClockJump: self._clock_jump,
            faults.ClockDrift: self._clock_drift,
            faults.DisableChanges: self._disable_changes,
            faults.Alter: self._alter,
            faults.Lose: self._lose,
            faults.Collect: self._collect,
            faults.Compact: self._compact,
            faults.Omit: self._omit,
            faults.LoseSession: lambda fault: self._world.metadata.lose_sessions(fault.host, fault.outage_s) and None,
        }

    def can_begin(self, fault: faults.Fault) -> bool:
        """See there."""
        if isinstance(fault, faults.Crash | faults.ReadOnly):
            return self._stage.bookies[fault.host].is_alive
        if isinstance(fault, faults.Wipe | faults.Limbo):
            return self._runs(fault.host)
        if isinstance(fault, faults.Pause):
            host = self._world.hosts.get(fault.host)
            return host is not None and host.is_alive and not host.is_paused
        return True

    def _runs(self, host: str) -> bool:
        """Whether a bookie has started: one that checks what it has, or replays, can tell nothing of it yet."""
        return self._stage.bookies[host].bookie.state is BookieState.RUNNING

    def end_all(self) -> None:
        """See there; nothing more becomes late, either."""
        self._stage.end_schedule()
        for ambush in self._ambushes:
            ambush.remove()
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
        ends = []
        for way in directions(fault.host, fault.other, fault.way):
            link = self._world.network.link(*way)
            ends.append(self._in_force.begin(("weather", *way), partial(setattr, link, "config"), fault.network, None))
        return lambda: [end() for end in ends]

    def _cut_after(self, fault: faults.CutAfter) -> Undo:
        link = self._world.network.link(fault.host, fault.other)
        link.cut_after, self._last_cut[link] = fault.size, fault

        def end() -> None:
            if self._last_cut[link] is fault:  # what began after it counts, and has not ended
                link.cut_after = None

        return end

    def _slow_reader(self, fault: faults.SlowReader) -> Undo:
        link = self._world.network.link(fault.other, fault.host)
        what = "reading", fault.other, fault.host
        return self._in_force.begin(what, partial(setattr, link, "read_rate"), fault.bandwidth, None)

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
        storage, observer = bookie.storage, BookieRecorder(self._stage.recorder, fault.host)
        for ledger_id in storage.ledger_ids():
            for entry_id in storage.entry_ids(ledger_id):
                observer.entry_lost(ledger_id, entry_id, "wiped")
            info = storage.ledger(ledger_id)
            if info is not None and info.fenced:
                observer.fence_forgotten(ledger_id, "wiped")
        bookie.crash(CrashMode.POWER_LOSS)
        if not isinstance(storage, MemoryStorage):
            disk_of(storage).wipe()
        elif storage.disk is not None:
            storage.disk.wipe()
        return partial(_restart, bookie)

    def _pause(self, fault: faults.Pause) -> Undo | None:
        if fault.host in self._clients:
            self._clients[fault.host].pause()
            return self._clients[fault.host].resume
        host = self._world.hosts[fault.host]
        host.pause()
        return lambda: host.resume() if host.is_paused else None

    def _kill(self, fault: faults.KillClient) -> None:
        def crash() -> None:
            if fault.host in self._clients:
                self._clients[fault.host].crash()

        if fault.before is None:
            crash()
            return
        left = fault.number

        def is_the_one(matches: Callable[..., bool]) -> Callable[..., bool]:
            def match(*candidate: object) -> bool:
                nonlocal left
                is_one = matches(*candidate)
                left -= is_one
                return is_one and left == 0

            return match

        name = fault.before.name
        if name in faults.Traffic.__members__:
            sent = faults.Drop(faults.Traffic[name], fault.host, (faults.ANY,))
            network = self._world.network
            self._ambushes.append(network.intercept(is_the_one(traffic_match(sent)), Interrupt(crash), limit=1))
        else:
            called = faults.MetadataCalls(faults.MetadataWay.CALL_LOST, faults.MetadataWhat[name], fault.host)
            match = is_the_one(metadata_match(called))

            def kills(call: object) -> bool:
                if match(call):
                    crash()
                    return True
                return False

            self._ambushes.append(self._world.metadata.intercept(kills, MetadataFault.CALL_LOST, limit=1))

    def _clock_jump(self, fault: faults.ClockJump) -> None:
        self._world.wall_clock(fault.host).jump(-fault.by_s if fault.back else fault.by_s)

    def _clock_drift(self, fault: faults.ClockDrift) -> Undo:
        clock = self._world.wall_clock(fault.host)
        return self._in_force.begin(("clock", fault.host), clock.run_at, fault.rate, 1.0)

    def _disable_changes(self, fault: faults.DisableChanges) -> Undo:
        disabled = self._stage.without_changes
        disabled[fault.host] += 1

        def enable() -> None:
            disabled[fault.host] -= 1

        return enable

    # Bookies -----------------------------------------------------------------------------------------------------

    def _read_only(self, fault: faults.ReadOnly) -> Undo:
        set_read_only = self._stage.bookies[fault.host].bookie.set_read_only
        return self._in_force.begin(("mode", fault.host), set_read_only, True, False)  # noqa: FBT003

    def _disk_slow(self, fault: faults.DiskSlow) -> Undo:
        storage = self._stage.bookies[fault.host].storage
        stall = storage.stall if isinstance(storage, MemoryStorage) else partial(setattr, disk_of(storage), "stall_s")
        return self._in_force.begin(("disk", fault.host), stall, fault.by_s, 0.0)

    def _disk_full(self, fault: faults.DiskFull) -> Undo:
        bookie = self._stage.bookies[fault.host]
        storage = bookie.storage
        empty = (storage if isinstance(storage, MemoryStorage) else disk_of(storage)).fill(fault.left)

        def end() -> None:
            empty()
            if not self.is_dead(fault.host):  # a bookie ends when its journal finds no room
                _restart(bookie)

        return end

    def _limbo(self, fault: faults.Limbo) -> Undo | None:
        ledger_id = self._ledgers.ids.get(fault.ledger)
        if ledger_id is None:
            return None
        what = "limbo", fault.host, ledger_id
        return self._in_force.begin(what, lambda _: self._settle_limbo(what), True, False)  # noqa: FBT003

    def _settle_limbo(self, what: tuple[str, str, int]) -> None:
        """Take a bookie into limbo or out of it, as soon as it runs and has room to note it."""
        _, host, ledger_id = what
        with suppress(StorageError):
            if self._runs(host):
                in_limbo = self._in_force.value_of(what, False)  # noqa: FBT003  as above
                self._stage.bookies[host].bookie.set_limbo(ledger_id, in_limbo=in_limbo)
                return
        self._world.loop.call_later(_LIMBO_RETRY_S, self._settle_limbo, what, context=self._world.network.context)

    def _alter(self, fault: faults.Alter) -> None:
        self._damage(fault, "altered", partial(alter_entries, byte=fault.byte))

    def _lose(self, fault: faults.Lose) -> None:
        self._damage(fault, "lost", lose_entries)

    def _damage(
        self, fault: faults.Alter | faults.Lose, detail: str, damage: Callable[[LedgerStorage, int, list[int]], None]
    ) -> None:
        """Damage copies of entries; checkers count each as lost."""
        ledger_id, host = self._ledgers.ids.get(fault.ledger), self._stage.bookies[fault.host]
        if ledger_id is None or not self._runs(fault.host):
            return
        storage, observer = host.storage, BookieRecorder(self._stage.recorder, fault.host)
        if storage.ledger(ledger_id) is None:
            return
        entries = [entry for entry in storage.entry_ids(ledger_id) if not fault.entries or entry in fault.entries]
        damage(storage, ledger_id, entries)
        for entry_id in entries:
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
        if self._runs(fault.host):
            major = frozenset({CompactionKind.MAJOR})
            host.spawn(_compacted, storage, major, name=f"compaction of {fault.host}")

    # Metadata ----------------------------------------------------------------------------------------------------

    def _metadata(self, fault: faults.MetadataCalls) -> Undo:
        match, action = metadata_match(fault), metadata_action(fault)
        return undone(self._world.metadata.intercept(match, action, limit=fault.limit))

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


async def _collected(collect: Callable[[], Awaitable[list[int]]]) -> None:
    """Collect once. A bookie whose metadata service or disk fails collects nothing and tries again at its next turn."""
    with suppress(BookKeeperError, StorageError):
        await collect()


async def _compacted(storage: JournaledStorage, kinds: frozenset[CompactionKind]) -> None:
    """Compact once, as code of the bookie, unless it does."""
    if storage.garbage is not None and not storage.garbage.is_running:
        storage.collect_garbage(lambda _token, _error: None, None, is_forced=True, kinds=kinds)


def _restart(bookie: BookieHost) -> None:
    """Start a bookie again, unless it lives."""
    if not bookie.is_alive:
        bookie.restart()
