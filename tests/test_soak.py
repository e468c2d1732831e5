"""The soak's own judgement: it has to be able to fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.soak import Sample, growth

FLAT = [Sample(10.0 * number, 50.0 + number % 3, 7, 30 + number % 2, 20, 40_000) for number in range(40)]


def test_a_process_that_stays_as_large_as_it_was_is_flat() -> None:
    assert growth(FLAT) == []


def test_growth_within_the_first_tenth_is_a_warm_up() -> None:
    assert growth([replace(sample, rss_mib=20.0) for sample in FLAT[:4]] + FLAT[4:]) == []


@pytest.mark.parametrize(("name", "step"), [("rss_mib", 0.5), ("threads", 1), ("descriptors", 1)])
def test_what_grows_is_named(name: str, step: float) -> None:
    leaking = [replace(sample, **{name: getattr(sample, name) + step * i}) for i, sample in enumerate(FLAT)]
    (problem,) = growth(leaking)
    assert problem.startswith(f"{name} grew from ")


def test_a_run_too_short_for_tenths_is_judged_by_its_first_and_last_sample() -> None:
    assert growth(FLAT[:1]) == []
    assert growth([FLAT[0], replace(FLAT[0], threads=8)]) != []
