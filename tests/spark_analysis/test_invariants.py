"""Every invariant finds what breaks it, names the ledger and the events, and leaves alone what only looks like it.

One verification of one folder: all stories of :mod:`tests.spark_analysis.plants`, one history each, which it shares with a
blameless ledger.
"""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession

from spark_analysis.invariants import INVARIANTS
from spark_analysis.jobs.verify import Verdict, WitnessedViolation, verify
from tests.spark_analysis.plants import NEAR_MISSES, PLANTS, Plant, honest_life
from tests.spark_analysis.recorded import bystander, record

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NAMES = [invariant.name for invariant in INVARIANTS]
HONEST = "honest.bkh"
ACCUSED = 7


@pytest.fixture(scope="module")
def verdict(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    folder = tmp_path_factory.mktemp("plants")
    for seed, plant in enumerate((*PLANTS, *NEAR_MISSES)):
        record(folder / plant.file, plant.story, bystander(), scenario=plant.invariant, seed=seed)
    record(folder / HONEST, honest_life(), bystander())
    return verify(spark, folder)


@pytest.fixture(scope="module")
def by_history(verdict: Verdict) -> dict[str, dict[str, WitnessedViolation]]:
    found: dict[str, dict[str, WitnessedViolation]] = {}
    for violation in verdict.violations:
        found.setdefault(violation.history, {})[violation.invariant] = violation
    return found


Found = dict[str, dict[str, WitnessedViolation]]


def case(plant: Plant) -> str:
    return f"{plant.invariant}-{plant.name}"


@pytest.mark.parametrize("name", NAMES)
def test_every_invariant_has_a_planted_violation_and_a_near_miss(name: str) -> None:
    assert any(plant.invariant == name for plant in PLANTS)
    assert any(plant.invariant == name for plant in NEAR_MISSES)


def test_every_story_has_a_history_of_its_own() -> None:
    assert len({plant.file for plant in (*PLANTS, *NEAR_MISSES)}) == len(PLANTS) + len(NEAR_MISSES)


@pytest.mark.parametrize("plant", PLANTS, ids=case)
def test_a_planted_violation_is_found_and_told(plant: Plant, by_history: Found) -> None:
    violation = by_history[plant.file][plant.invariant]
    assert violation.ledger == ACCUSED
    assert violation.scenario == plant.invariant
    assert plant.says in violation.witness
    numbers = [int(number) for number in re.findall(r"events? (\d+)", violation.witness)]
    assert numbers, "a witness names events"
    assert all(number < len(plant.story.events) for number in numbers), "of the story, which comes first in its file"
    assert 0 <= violation.first_seq < len(plant.story.events)


@pytest.mark.parametrize("plant", PLANTS, ids=case)
def test_a_planted_violation_breaks_what_it_has_to_and_no_more(plant: Plant, by_history: Found) -> None:
    assert sorted(by_history[plant.file]) == sorted({plant.invariant, *plant.also})
    assert {violation.ledger for violation in by_history[plant.file].values()} == {ACCUSED}


@pytest.mark.parametrize("plant", NEAR_MISSES, ids=case)
def test_a_near_miss_is_not_accused_of_anything(plant: Plant, by_history: Found) -> None:
    assert plant.file not in by_history


def test_an_honest_life_holds_for_all_invariants(by_history: Found) -> None:
    assert HONEST not in by_history


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_those_of_the_stories(name: str, verdict: Verdict) -> None:
    """Ledgers that share their file with an accused one are judged for themselves."""
    (counted,) = [invariant for invariant in verdict.invariants if invariant.name == name]
    broken = sum(name in {plant.invariant, *plant.also} for plant in PLANTS)
    assert (counted.violated, counted.violated_histories) == (broken, broken)
    assert counted.holds == counted.checked - broken
    assert counted.holds > 0
    assert counted.checked + counted.unknown == verdict.ledgers


def test_every_file_was_used(verdict: Verdict) -> None:
    stories = [plant.story for plant in (*PLANTS, *NEAR_MISSES)] + [honest_life()]
    assert verdict.histories == len(stories)
    assert verdict.ledgers == 2 * len(stories)
    assert verdict.events == sum(len(story.events) + len(bystander().events) for story in stories)
    assert verdict.rejected == ()
