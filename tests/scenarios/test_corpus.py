"""The corpus of broken histories, and of lawful ones that look like them, judged by the online checker.

Spark's invariants are held to the same corpus, under the same names (tests/spark_analysis/test_invariants.py). Each
story says which invariants it breaks, so an accusation too many is noticed as well as one too few.
"""

from __future__ import annotations

import pytest

from scenarios.checker import CLAUSES, INVARIANTS
from tests.spark_analysis.plants import NEAR_MISSES, PLANTS, Plant, honest_life


def case(plant: Plant) -> str:
    return f"{plant.invariant}-{plant.name}"


@pytest.mark.parametrize("name", INVARIANTS)
def test_every_invariant_has_a_story_that_breaks_it_and_one_that_hardly_does_not(name: str) -> None:
    assert any(plant.invariant == name for plant in PLANTS)
    assert any(plant.invariant == name for plant in NEAR_MISSES)


def test_stories_name_invariants_that_exist() -> None:
    for plant in (*PLANTS, *NEAR_MISSES):
        assert {plant.invariant, *plant.also} <= INVARIANTS.keys(), case(plant)


def test_every_clause_of_the_checker_is_broken_by_a_story() -> None:
    """So what a family says that it judges, it does judge."""
    broken = {violation.clause for plant in PLANTS for violation in plant.story.checked().finish()}
    assert broken == set(CLAUSES)


@pytest.mark.parametrize("plant", PLANTS, ids=case)
def test_a_broken_history_breaks_what_it_has_to_and_no_more(plant: Plant) -> None:
    found = {violation.invariant for violation in plant.story.checked().finish()}
    assert sorted(found) == sorted({plant.invariant, *plant.also})


@pytest.mark.parametrize("plant", NEAR_MISSES, ids=case)
def test_a_lawful_history_that_looks_like_one_is_not_accused(plant: Plant) -> None:
    assert plant.story.checked().finish() == ()


def test_an_honest_life_breaks_nothing() -> None:
    assert honest_life().checked().finish() == ()
