"""Durations, counted by how long they were: a histogram that costs a few operations for each value.

Bounds are in milliseconds, as BookKeeper's metrics are, and spaced so that a quantile read from them is off by less than a
factor of 2.5: from a quarter of a millisecond, what a bookie on flash storage takes, to the minute that the longest timeouts
are made of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

__all__ = ["BOUNDS_MS", "Latencies"]

BOUNDS_MS: Final = (
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0, 30_000.0, 60_000.0,
)  # fmt: skip


class Latencies:
    """How many durations there were up to each bound; the last count is of those above all bounds."""

    __slots__ = ("count", "counts", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.count = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        milliseconds = seconds * 1000.0
        self.counts[bisect_left(BOUNDS_MS, milliseconds)] += 1
        self.count += 1
        self.sum_ms += milliseconds
        self.max_ms = max(self.max_ms, milliseconds)

    @property
    def mean_ms(self) -> float:
        """0 without any."""
        return self.sum_ms / self.count if self.count else 0.0

    def quantile_ms(self, quantile: float) -> float:
        """A bound that ``quantile`` of the durations do not exceed, no larger than the longest; 0 without any."""
        assert 0.0 <= quantile <= 1.0, "quantiles are between 0 and 1"
        below = 0
        for bound, count in zip(BOUNDS_MS, self.counts, strict=False):
            below += count
            if below and below >= quantile * self.count:
                return min(bound, self.max_ms)
        return self.max_ms

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Upper bounds as Prometheus writes them, and how many durations are at most that long."""
        below = 0
        for bound, count in zip((*map(str, BOUNDS_MS), "+Inf"), tuple(self.counts), strict=True):
            below += count
            yield bound, below
