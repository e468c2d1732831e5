"""What a bookie's queues and counters were, moment by moment: readings at intervals of the running loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from simbookie.admin.levels import Reading, bookie_readings
from simbookie.bookie import Bookie
from simbookie.garbage import GarbageCollector

__all__ = ["Sampler", "Samples", "added_up"]


@dataclass(slots=True)
class Samples:
    """Values at ``times``, in seconds since the first; every series has one for each time."""

    times: list[float] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)

    def add(self, at: float, values: dict[str, float]) -> None:
        """One more moment. A series that was not there before was 0, and one that is not there now stays what it was."""
        before = len(self.times)
        self.times.append(at)
        for name, value in values.items():
            self.series.setdefault(name, [0.0] * before).append(value)
        for known in self.series.values():
            if len(known) == before:
                known.append(known[-1] if known else 0.0)

    def of(self, name: str) -> list[float]:
        """The values of a series; zeros for one that never was."""
        return self.series.get(name, [0.0] * len(self.times))

    def rate(self, name: str, moments: int = 1) -> list[float]:
        """How much a counter grew in a second, over the last ``moments``; 0 at first, and where it began anew."""
        values, rates = self.of(name), [0.0] * min(1, len(self.times))
        for index in range(1, len(self.times)):
            before = max(0, index - moments)
            rates.append(max(0.0, values[index] - values[before]) / (self.times[index] - self.times[before]))
        return rates


def added_up(readings: Iterable[Reading]) -> dict[str, float]:
    """By name the sum of readings that differ in labels only: several journals, folders or outcomes."""
    values: dict[str, float] = {}
    for reading in readings:
        values[reading.name] = values.get(reading.name, 0.0) + reading.value
    return values


class Sampler:
    """Takes a sample of ``bookie`` every ``interval_s`` from :meth:`start` to :meth:`stop`, ``samples_max`` at most.

    ``more`` gives further values, by names of its own.
    """

    def __init__(
        self,
        bookie: Bookie,
        collector: GarbageCollector | None = None,
        *,
        interval_s: float = 0.1,
        samples_max: int = 10_000,
        more: Callable[[], dict[str, float]] = dict,
    ) -> None:
        if not (interval_s > 0 and samples_max > 0):
            raise ValueError(f"sampler: interval_s and samples_max must be > 0, got {interval_s} and {samples_max}")
        self.samples = Samples()
        self._bookie = bookie
        self._collector = collector
        self._interval_s = interval_s
        self._samples_max = samples_max
        self._more = more
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Take the first sample."""
        self._began = asyncio.get_running_loop().time()
        self._take()

    def stop(self) -> None:
        """Take no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self) -> None:
        loop = asyncio.get_running_loop()
        values = added_up(bookie_readings(self._bookie, self._collector)) | self._more()
        self.samples.add(loop.time() - self._began, values)
        if len(self.samples.times) < self._samples_max:
            self._timer = loop.call_later(self._interval_s, self._take)
        else:
            self._timer = None
