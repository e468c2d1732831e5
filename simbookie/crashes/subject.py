"""The bookie that is killed: its disk, its storage, its garbage collector, over as many lives as it takes.

A life is one run of a loop in virtual time. It ends when what was to be done is done, or in the middle of a step, when the disk
crashes and :class:`~simbookie.storage.steps.CrashPoint` goes through everything, as nothing of a process that is killed runs on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from typing import Any, cast

from bkclient.errors import NoSuchLedger
from bkclient.ledger import Fragment, LedgerMetadata, LedgerState, Versioned
from bkclient.metadata.base import MetadataStore
from simbookie.bookie import Bookie, BookieState
from simbookie.config import BookieConfig
from simbookie.crashes.invariants import StorageViolation
from simbookie.crashes.making import storage_on
from simbookie.crashes.model import Promises
from simbookie.crashes.settings import RunSettings
from simbookie.crashes.watch import Watch
from simbookie.garbage import GarbageCollector, GarbageConfig
from simbookie.integrity import IntegrityCheck
from simbookie.storage.base import CrashMode, StorageError
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.steps import CrashPoint
from simbookie.world.errors import UnhandledErrors
from simbookie.world.loop import VirtualTimeLoop

__all__ = ["Subject", "run_to_crash_point"]

_COSTS = DiskCosts(sync_s=0.001, at_a_time=3)


def run_to_crash_point(story: Callable[[], Coroutine[Any, Any, None]]) -> str | None:
    """Run ``story`` in virtual time; the crash point that ended it, if one did, in whatever callback it came."""
    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(story())
    except CrashPoint as reached:
        return str(reached)
    except UnhandledErrors as errors:
        # what else was ready in the turn in which the bookie was killed may meet what is left of it
        for error in errors.errors:
            if isinstance(error, CrashPoint):
                return str(error)
        raise
    finally:
        loop.close()
    return None


class Registry:
    """The metadata store, as far as a garbage collector looks into it."""

    def __init__(self, promises: Promises) -> None:
        self._promises = promises

    async def list_ledgers(self) -> AsyncIterator[int]:
        """Every ledger."""
        for ledger_id in list(self._promises.ledgers):
            yield ledger_id

    async def read_ledger(self, ledger_id: int) -> Versioned:
        """One of them."""
        if ledger_id not in self._promises.ledgers:
            raise NoSuchLedger(ledger_id=ledger_id)
        state = LedgerState.CLOSED if ledger_id in self._promises.closed else LedgerState.OPEN
        return Versioned(LedgerMetadata(ledger_id, 1, 1, 1, (Fragment(0, ("b0",)),), state), 0)


class Subject:
    """A bookie over several lives, and what is known against it."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.rng = Random(f"disk {settings.seed}")  # noqa: S311
        self.disk = SimulatedDisk(self.rng, costs=_COSTS, sync_covers_names=settings.syncs_cover_names)
        self.promises = Promises()
        self.violations: list[StorageViolation] = []
        self.seen = Counter[str]()
        self.digest = hashlib.sha256()
        self.fatal: StorageError | None = None
        self._opened: asyncio.Future[None] | None = None
        self.watch = Watch(self)
        self.storage = storage_on(settings, self.disk, self.step, on_fatal=self._failed)
        config = BookieConfig(error_waits_for_fence=settings.error_waits_for_fence)
        self.bookie = Bookie("b0", self.storage, config, self.watch, wall_clock=lambda: 0.0)
        self.collector: GarbageCollector | None = None
        #: Ledgers that someone asked to fence, whatever came of it; and whether the disk has failed in this life.
        self.fencing: dict[int, None] = {}
        self.has_failed_disk = self.must_lose_power = self._is_dead = False
        self.countdown = 0
        #: The step that the life ends before, after so many times that it goes on.
        self.until, self.skips = "", 0
        self.lag_s = 0.0
        self.mode = CrashMode.PROCESS
        #: How the bookie ended last, and the marks that it had persisted then.
        self.persisted: list[tuple[int, int]] = []
        #: What the add that was answered last was told, and what questions were told.
        self.last_answer = ""
        self.answers: list[str] = []
        #: Fences that the bookie has to have in spite of a new disk, once it has looked what it lost.
        self._fences_of_lost_disk: dict[int, None] | None = None

    def violated(self, invariant: str, text: str) -> None:
        """Take note of something that should not be, unless the bookie was killed before that could be asked."""
        violation = StorageViolation(invariant, text)
        if not self._is_dead and violation not in self.violations:
            self.violations.append(violation)

    def note(self, *facts: object) -> None:
        """Have the digest of the run tell of something."""
        self.digest.update(repr(facts).encode())

    # ----------------------------------------------------------------------------------------------------------- life

    def step(self, name: str) -> None:
        """The :data:`~simbookie.storage.steps.OnStep` of everything."""
        self.countdown -= 1
        if name == self.until and self.skips:
            self.skips -= 1
        elif name == self.until and self.lag_s:
            self.until = ""
            asyncio.get_running_loop().call_later(self.lag_s, self._end_after, name)
        elif self.countdown == 0 or name == self.until:
            self.crash(self.mode)
            raise CrashPoint(name)
        self.watch.step(name)

    def _end_after(self, name: str) -> None:
        if not self._is_dead:
            self.crash(self.mode)
            raise CrashPoint(name)

    def _failed(self, error: StorageError) -> None:
        self.fatal = error
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(error)

    def live(
        self,
        story: Callable[[], Coroutine[Any, Any, None]],
        *,
        crash_at: int = 0,
        until: str = "",
        lag_s: float = 0.0,
        mode: CrashMode,
    ) -> str | None:
        """One life, to the step number ``crash_at`` or before the step ``until``; returns the step at which it ended early.

        With ``lag_s`` it ends so many seconds after the step ``until``, while what the step began is under way.
        """
        self.countdown, self.until, self.lag_s, self.mode = crash_at, until, lag_s, mode
        self.skips = 0
        self.fatal = None
        self.has_failed_disk = self.must_lose_power = self._is_dead = False
        self.disk.faults.heal()
        reached = run_to_crash_point(story)
        self.countdown, self.until = 0, ""
        if self.bookie.state not in (BookieState.NEW, BookieState.STOPPED):
            self.crash(self.mode)
        if reached is not None:
            self.seen[reached] += 1
        self.note(reached, self.mode.name)
        self.note(*self._image())
        return reached

    def _image(self) -> list[tuple[str, str]]:
        return [(path, hashlib.sha256(data).hexdigest()) for path, data in self.disk.image().items()]

    async def start(self) -> None:
        """Start the bookie, which looks what it has lost where its disk is new; :class:`StorageError` if it cannot."""
        self.watch.restart()
        opened = self._opened = asyncio.get_running_loop().create_future()
        try:
            self.bookie.start(lambda: opened.set_result(None))
            await opened
        except StorageError:
            self.bookie.state = BookieState.STOPPED
            raise
        registry = cast("MetadataStore", Registry(self.promises))
        if self._fences_of_lost_disk is not None:
            await IntegrityCheck(self.bookie, registry, quirks=self.settings.quirks).before_serving()
            self.promises.fences.update(self._fences_of_lost_disk)
            self._fences_of_lost_disk = None
        self.collector = GarbageCollector(self.bookie, registry, GarbageConfig(1.0, 0.0), quirks=self.settings.quirks)

    async def stop(self) -> None:
        """Shut the bookie down in order."""
        stopped = asyncio.get_running_loop().create_future()
        self.bookie.shutdown(lambda: stopped.set_result(None))
        await stopped

    def crash(self, mode: CrashMode) -> None:
        """Kill the bookie."""
        self.disk.faults.heal()
        self.watch.before_crash()
        self.bookie.crash(mode)
        self._is_dead = True
        settings = self.settings
        self.promises.crashed(mode, is_soft=not settings.sync_data, journals_entries=settings.write_data)

    def lose_disk(self) -> None:
        """The dead bookie gets a new disk."""
        self.disk.wipe()
        self.persisted.clear()
        self._fences_of_lost_disk = self.promises.lost_disk()
