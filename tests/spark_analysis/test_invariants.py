"""Every invariant finds what breaks it, names the ledger and the events, and leaves alone what only looks like it.

Each story of :mod:`tests.spark_analysis.plants` has a history, which it shares with a blameless ledger; all are judged in one
verification, together with recorded runs.
"""

from __future__ import annotations

import re

import pytest

from scenarios.checker import INVARIANTS as ALL_NAMES
from scenarios.model import RunResult
from spark_analysis.invariants import INVARIANTS, Invariant
from spark_analysis.jobs.verify import Verdict, WitnessedViolation
from tests.spark_analysis.plants import HONEST, NEAR_MISSES, PLANTS, Plant, honest_life
from tests.spark_analysis.recorded import bystander

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NAMES = [invariant.name for invariant in INVARIANTS]
ACCUSED = 7


Found = dict[str, dict[str, list[WitnessedViolation]]]


def case(plant: Plant) -> str:
    return f"{plant.invariant}-{plant.name}"


def expected(plant: Plant) -> list[str]:
    """What the online checker accuses it of, as far as Spark judges that."""
    return sorted({plant.invariant, *plant.also} & set(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_every_invariant_has_a_planted_violation_and_a_near_miss(name: str) -> None:
    assert any(plant.invariant == name for plant in PLANTS)
    assert any(plant.invariant == name for plant in NEAR_MISSES)


def test_what_the_online_checker_judges_spark_judges_too() -> None:
    """Under the same name and by the same clauses."""
    assert set(ALL_NAMES) == set(NAMES)
    assert all(invariant.clauses == ALL_NAMES[invariant.name] for invariant in INVARIANTS)


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.name)
def test_the_clauses_of_an_invariant_are_those_it_can_tell_apart(invariant: Invariant, accused: Found) -> None:
    """So what it says that it judges, it does judge: each clause is broken by some story."""
    told = {violation.clause for found in accused.values() for violation in found.get(invariant.name, ())}
    assert told == set(invariant.clauses)


def test_every_story_has_a_history_of_its_own() -> None:
    assert len({plant.file for plant in (*PLANTS, *NEAR_MISSES)}) == len(PLANTS) + len(NEAR_MISSES)


@pytest.mark.parametrize("plant", [plant for plant in PLANTS if plant.invariant in NAMES], ids=case)
def test_a_planted_violation_is_found_and_told(plant: Plant, accused: Found) -> None:
    (violation,) = (found for found in accused[plant.file][plant.invariant] if plant.says in found.witness)
    assert violation.ledger == ACCUSED
    assert violation.scenario == plant.invariant
    numbers = [int(number) for number in re.findall(r"events? (\d+)", violation.witness)]
    assert numbers, "a witness names events"
    assert all(number < len(plant.story.events) for number in numbers), "of the story, which comes first in its file"
    assert 0 <= violation.first_seq < len(plant.story.events)


@pytest.mark.parametrize("plant", PLANTS, ids=case)
def test_a_planted_violation_is_judged_as_by_the_online_checker(plant: Plant, accused: Found) -> None:
    """Which tests/scenarios/test_corpus.py holds to the same names; and by the same clauses."""
    found = accused.get(plant.file, {})
    assert sorted(found) == expected(plant)
    online = {violation.clause for violation in plant.story.checked().finish()}
    violations = [violation for each in found.values() for violation in each]
    judged = {clause for invariant in INVARIANTS for clause in invariant.clauses}
    assert {violation.clause for violation in violations} == online & judged
    assert {violation.ledger for violation in violations} <= {ACCUSED}


@pytest.mark.parametrize(
    ("invariant", "name", "kinds"),
    [
        ("AckHasQuorum", "acknowledged_on_one_answer", ["META_CAS", "ADD_RESP", "APP_ACK"]),
        ("ClosedAtQuorum", "closed_with_an_entry_on_one_bookie", ["BK_STORE", "META_CAS"]),
        ("ClosedAtQuorum", "members_drop_a_closed_ledger", ["BK_STORE", "META_CAS", "BK_GC"]),
        ("AckedReadable", "closed_on_bookies_that_have_nothing", ["APP_ACK", "META_CAS"]),
        ("NothingBeyondClose", "read_above_the_end_that_the_reader_knew", ["META_CAS", "READ_RESULT"]),
    ],
)
def test_a_violation_is_shown_by_all_events_that_it_takes_and_no_more(
    invariant: str, name: str, kinds: list[str], accused: Found
) -> None:
    (violation,) = accused[f"plants/{invariant}/{name}.bkh"][invariant]
    assert [line.split()[1] for line in violation.evidence] == kinds
    assert violation.replay.startswith("bk-chaos replay ")
    assert violation.replay.endswith(f"/plants/{invariant}/{name}.bkh")


@pytest.mark.parametrize("plant", NEAR_MISSES, ids=case)
def test_a_near_miss_is_not_accused_of_anything(plant: Plant, accused: Found) -> None:
    assert plant.file not in accused


def test_an_honest_life_holds_for_all_invariants(accused: Found) -> None:
    assert HONEST not in accused


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_those_of_the_histories(name: str, verdict: Verdict, accused: Found) -> None:
    """Ledgers that share their file with an accused one are judged for themselves."""
    (counted,) = [invariant for invariant in verdict.invariants if invariant.name == name]
    planted = sum(name in expected(plant) for plant in PLANTS)
    in_runs = [
        {violation.ledger for violation in found[name]}
        for history, found in accused.items()
        if history.startswith("runs/") and name in found
    ]
    assert counted.violated == planted + sum(map(len, in_runs))
    assert counted.violated_histories == planted + len(in_runs)
    assert counted.holds == counted.checked - counted.violated
    assert counted.holds > 0
    assert counted.checked + counted.unknown == verdict.ledgers
    assert sum(counted.why.values()) == counted.unknown


def test_every_history_was_used(verdict: Verdict, runs: dict[str, RunResult]) -> None:
    stories = [plant.story for plant in (*PLANTS, *NEAR_MISSES)] + [honest_life()]
    accompanied = len(stories) - sum(plant.is_alone for plant in NEAR_MISSES)
    told = sum(len(story.events) for story in stories) + accompanied * len(bystander().events)
    assert verdict.histories == len(stories) + len(runs)
    assert verdict.ledgers >= len(stories) + accompanied + len(runs)
    assert verdict.events == told + sum(result.events for result in runs.values())
    assert verdict.rejected == ()
