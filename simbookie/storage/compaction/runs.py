"""The garbage collectors of a bookie's store: one for each of its parts that has entry logs, run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from simbookie.storage.base import DurableCallback, StorageError
from simbookie.storage.compaction.collector import EntryLogCollector
from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.compaction.plan import CompactionConfig
from simbookie.storage.ledger_store import CollectedStore, OnStep, no_step
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sequence import Sequence as Steps
from simbookie.storage.sequence import WaitingStep
from simbookie.storage.space import SpaceState

__all__ = ["CollectorRuns"]

#: From the best to the worst.
_SHORTAGE: Final = (SpaceState.PLENTY, SpaceState.LITTLE, SpaceState.NONE)


class CollectorRuns:
    """Runs the collectors of ``parts``. Must be made inside a running loop, when the store serves."""

    def __init__(
        self,
        parts: Sequence[CollectedStore],
        config: CompactionConfig,
        *,
        on_step: OnStep = no_step,
        quirks: frozenset[Quirk] = REPAIRED,
    ) -> None:
        self._parts = tuple(parts)
        self._config = config
        self.collectors = [
            EntryLogCollector(part, config, on_step=on_step, quirks=quirks, number=number)
            for number, part in enumerate(self._parts)
        ]
        self._running: Steps | None = None

    @property
    def is_running(self) -> bool:
        """Whether a run is under way."""
        return self._running is not None

    def suspend(self, kind: CompactionKind) -> None:
        """Compact no more of this kind until :meth:`resume`; one that is under way goes on to its end."""
        for collector in self.collectors:
            collector.schedule.suspended.add(kind)

    def resume(self, kind: CompactionKind) -> None:
        """Compact again when it is due."""
        for collector in self.collectors:
            collector.schedule.suspended.discard(kind)

    def is_suspended(self, kind: CompactionKind) -> bool:
        """Whether no part compacts so at present, for an operator or for its disk."""
        return all(kind in collector.schedule.spared for collector in self.collectors)

    def collect(
        self,
        on_done: DurableCallback,
        token: object,
        *,
        is_forced: bool = False,
        kinds: frozenset[CompactionKind] | None = None,
    ) -> None:
        """Run each collector once. One run at a time."""
        assert self._running is None, "a run is under way"

        def run(collector: EntryLogCollector) -> WaitingStep:
            return lambda go_on: collector.collect(go_on, None, is_forced=is_forced, kinds=kinds)

        def done(_token: object, error: StorageError | None) -> None:
            self._running = None
            on_done(token, error)

        self._running = Steps(map(run, self.collectors), done, None)

    def stop(self) -> None:
        """End a run that is under way, without calling back."""
        if self._running is not None:
            self._running.cancel()
            self._running = None
        for collector in self.collectors:
            collector.stop()

    def space_changed(self, states: Sequence[SpaceState], on_shortage: Callable[[], None]) -> None:
        """With little space logs end, so that they can be collected, and what needs space waits or, if so configured, makes some.

        ``states`` are those of the disks of the store's folders: each part has its own, or, if there is one part for all of them,
        the worst. ``on_shortage`` is called in the latter case.
        """
        worst = max(states, key=_SHORTAGE.index)
        of_parts = states if len(states) == len(self._parts) else [worst] * len(self._parts)
        for part, collector, state in zip(self._parts, self.collectors, of_parts, strict=True):
            has_changed = collector.schedule.space is not state
            collector.schedule.space = state
            if has_changed and state is not SpaceState.PLENTY:
                part.logger.want_new_log()
        if self._config.forced_without_space and worst is not SpaceState.PLENTY:
            on_shortage()
