"""Named worlds: small ones for random walks, and prepared ones that can be searched exhaustively."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from bkclient.protocol.append_options import AppendOptions
from scenarios.machines.late_writes_world import LateWritesWorld
from scenarios.machines.options_world import OptionsWorld
from scenarios.machines.storage_world import StorageWorld
from scenarios.machines.world import Configuration, MachineWorld

__all__ = ["PREPARED", "WORLDS", "NamedWorld"]


@dataclass(frozen=True, slots=True)
class NamedWorld:
    """A world that can be made again: its class, its sizes, and the moves that prepare it."""

    name: str
    summary: str
    configuration: Configuration
    kind: type[MachineWorld] = MachineWorld
    prepare: Callable[[MachineWorld], None] | None = field(default=None, repr=False)

    def make(self) -> MachineWorld:
        """Make a new world."""
        world = self.kind(self.configuration)
        if self.prepare is not None:
            self.prepare(world)
        return world


_NO_OPTIONS: Final = AppendOptions()


def _by_name(*worlds: NamedWorld) -> Mapping[str, NamedWorld]:
    assert len({world.name for world in worlds}) == len(worlds), "names are unique"
    return MappingProxyType({world.name: world for world in worlds})


def _plain(name: str, summary: str, *sizes: int, bookies: int, entries: int, recoveries: int) -> NamedWorld:
    e, qw, qa = sizes
    return NamedWorld(name, summary, Configuration(e, qw, qa, bookies=bookies, entries=entries, recoveries=recoveries))


def _options(
    name: str,
    summary: str,
    *sizes: int,
    bookies: int,
    entries: int = 3,
    options: AppendOptions = _NO_OPTIONS,
    may_disable: bool = False,
    kind: type[OptionsWorld] = OptionsWorld,
) -> NamedWorld:
    e, qw, qa = sizes
    configuration = Configuration(
        e, qw, qa, bookies=bookies, entries=entries, recoveries=1, options=options, may_disable_changes=may_disable
    )
    return NamedWorld(name, summary, configuration, kind)


def _storage(*sizes: int, bookies: int, entries: int, recoveries: int = 3) -> NamedWorld:
    e, qw, qa = sizes
    configuration = Configuration(e, qw, qa, bookies=bookies, entries=entries, recoveries=recoveries)
    name = f"storage-{e}-{qw}-{qa}"
    return NamedWorld(name, f"disks that fail, readers and re-replication, {e}/{qw}/{qa}", configuration, StorageWorld)


# Prepared ----------------------------------------------------------------------------------------------------------


def _with_a_tail(*, recoveries: int, stored: bool = True, writer_lives: bool = False) -> Callable[[MachineWorld], None]:
    """The only entry is stored, if ``stored``; its writer has no answer. ``recoveries`` recoveries have begun."""

    def prepare(world: MachineWorld) -> None:
        world.move("append", 0)
        if stored:
            world.move("request arrives", 0)
        if not writer_lives:
            world.requests.clear()
            world.answers.clear()
            world.writer.crash()
        for _ in range(recoveries):
            world.move("recovery starts", 0)

    return prepare


def _with_an_add_under_way(world: MachineWorld) -> None:
    world.move("append", 0)
    world.move("recovery starts", 0)


def _with_a_closing_writer(world: MachineWorld) -> None:
    _with_a_tail(recoveries=1, writer_lives=True)(world)
    world.move("append", 0)
    world.move("close", 0)


def _with_a_changing_writer(world: MachineWorld) -> None:
    _with_a_tail(recoveries=1, stored=False, writer_lives=True)(world)
    world.move("request times out", 0)


_ALONE: Final = Configuration(1, 1, 1, bookies=1, entries=2, recoveries=3)
_WITH_A_SPARE: Final = Configuration(1, 1, 1, bookies=2, entries=2, recoveries=3)

PREPARED: Final = _by_name(
    NamedWorld(
        "two-recoveries",
        "two recoveries of an unacknowledged entry, after a crash of its writer",
        _ALONE,
        prepare=_with_a_tail(recoveries=2),
    ),
    NamedWorld(
        "three-recoveries",
        "three recoveries of an unacknowledged entry, after a crash of its writer",
        _ALONE,
        prepare=_with_a_tail(recoveries=3),
    ),
    NamedWorld(
        "add-under-way",
        "a recovery, and an add in flight that needs both copies",
        Configuration(2, 2, 2, bookies=2, entries=1, recoveries=1),
        prepare=_with_an_add_under_way,
    ),
    NamedWorld(
        "closing-writer",
        "a recovery, and a writer that appends and closes at the same time",
        _ALONE,
        prepare=_with_a_closing_writer,
    ),
    NamedWorld(
        "changing-writer",
        "a recovery, and a writer that replaces a bookie at the same time",
        _WITH_A_SPARE,
        prepare=_with_a_changing_writer,
    ),
)
"""Worlds for a search: a few operations are in progress."""

# For walks ---------------------------------------------------------------------------------------------------------

_DELAYED: Final = AppendOptions(delay_ensemble_change=True)
_DEFERRED: Final = AppendOptions(deferred_sync=True)
_GIVEN: Final = AppendOptions(entry_ids_given=True)
_GIVEN_AND_DEFERRED: Final = AppendOptions(entry_ids_given=True, deferred_sync=True)
_DOMAINS: Final = AppendOptions(enforce_fault_domains=True)
_ALL: Final = AppendOptions(
    delay_ensemble_change=True, entry_ids_given=True, enforce_fault_domains=True, quorum_timeout_s=8.0, max_resends=4
)

WORLDS: Final = _by_name(
    _plain("one-copy", "one entry on one bookie, and a spare", 1, 1, 1, bookies=2, entries=1, recoveries=1),
    _plain("one-copy-2", "two entries on one bookie, and a spare", 1, 1, 1, bookies=2, entries=2, recoveries=1),
    _plain("one-copy-3", "three entries on one bookie, and a spare", 1, 1, 1, bookies=2, entries=3, recoveries=1),
    _plain("both-copies", "both copies are needed", 2, 2, 2, bookies=2, entries=1, recoveries=1),
    _plain("both-copies-spare", "both copies are needed; a spare", 2, 2, 2, bookies=3, entries=2, recoveries=1),
    _plain("both-copies-rivals", "both copies are needed; two recoveries", 2, 2, 2, bookies=2, entries=2, recoveries=2),
    _plain("either-copy", "one copy of two suffices", 2, 2, 1, bookies=2, entries=1, recoveries=1),
    _plain("striped", "two copies, striped over three bookies", 3, 2, 2, bookies=3, entries=1, recoveries=1),
    _plain("no-spare", "two copies of three suffice; no spare", 3, 3, 2, bookies=3, entries=2, recoveries=2),
    _plain("rivals-1-1-1", "a spare and two recoveries, 1/1/1", 1, 1, 1, bookies=2, entries=3, recoveries=2),
    _plain("rivals-2-2-2", "a spare and two recoveries, 2/2/2", 2, 2, 2, bookies=3, entries=2, recoveries=2),
    _plain("rivals-2-2-1", "a spare and two recoveries, 2/2/1", 2, 2, 1, bookies=3, entries=2, recoveries=2),
    _plain("rivals-3-3-2", "a spare and two recoveries, 3/3/2", 3, 3, 2, bookies=4, entries=3, recoveries=2),
    _plain("rivals-3-2-2", "a spare and two recoveries, 3/2/2", 3, 2, 2, bookies=4, entries=3, recoveries=2),
    _options("delayed-2-2-1", "delayed ensemble changes, 2/2/1", 2, 2, 1, bookies=4, options=_DELAYED),
    _options("delayed-3-3-2", "delayed ensemble changes, 3/3/2", 3, 3, 2, bookies=5, options=_DELAYED),
    _options("delayed-3-3-3", "delayed ensemble changes, 3/3/3", 3, 3, 3, bookies=5, options=_DELAYED),
    _options("delayed-4-3-2", "delayed ensemble changes, 4/3/2", 4, 3, 2, bookies=5, entries=4, options=_DELAYED),
    _options("disabled-2-2-2", "ensemble changes disabled at times, 2/2/2", 2, 2, 2, bookies=4, may_disable=True),
    _options("disabled-3-3-2", "ensemble changes disabled at times, 3/3/2", 3, 3, 2, bookies=4, may_disable=True),
    _options(
        "delayed-and-disabled",
        "delayed ensemble changes, disabled at times, 3/3/2",
        *(3, 3, 2),
        bookies=5,
        options=_DELAYED,
        may_disable=True,
    ),
    _options("deferred-2-2-2", "deferred sync, 2/2/2", 2, 2, 2, bookies=3, options=_DEFERRED),
    _options("deferred-3-3-2", "deferred sync, 3/3/2", 3, 3, 2, bookies=4, options=_DEFERRED),
    _options("deferred-4-2-2", "deferred sync, 4/2/2", 4, 2, 2, bookies=4, entries=4, options=_DEFERRED),
    _options("given-1-1-1", "given entry ids, 1/1/1", 1, 1, 1, bookies=3, entries=4, options=_GIVEN),
    _options("given-3-2-2", "given entry ids, 3/2/2", 3, 2, 2, bookies=5, entries=4, options=_GIVEN),
    _options(
        "given-and-deferred",
        "given entry ids and deferred sync, 2/2/1",
        *(2, 2, 1),
        bookies=3,
        entries=4,
        options=_GIVEN_AND_DEFERRED,
    ),
    _options("fault-domains", "two fault domains, enforced, 3/3/2", 3, 3, 2, bookies=5, options=_DOMAINS),
    _options(
        "all-options",
        "all options that go together, 3/3/2",
        *(3, 3, 2),
        bookies=6,
        entries=4,
        options=_ALL,
        may_disable=True,
    ),
    _options("late-writes", "metadata writes are made late, 3/3/2", 3, 3, 2, bookies=4, kind=LateWritesWorld),
    _options(
        "late-writes-delayed",
        "metadata writes are made late, delayed ensemble changes, 2/2/1",
        *(2, 2, 1),
        bookies=3,
        options=_DELAYED,
        kind=LateWritesWorld,
    ),
    _storage(1, 1, 1, bookies=2, entries=4),
    _storage(2, 2, 2, bookies=3, entries=3),
    _storage(2, 2, 1, bookies=3, entries=3),
    _storage(3, 3, 2, bookies=4, entries=4),
    _storage(3, 3, 3, bookies=5, entries=3),
    _storage(3, 2, 2, bookies=4, entries=4),
    _storage(4, 3, 2, bookies=5, entries=5, recoveries=2),
)
"""Worlds for walks: no operation has begun."""
