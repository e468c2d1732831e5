"""One Spark session for all tests of a process, and one verification that most of them look at, since that is what costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scenarios.model import RunResult
from simbookie.java import JavaRuntime
from spark_analysis.jobs import judging, planning
from spark_analysis.jobs.verify import Verdict, WitnessedViolation, verify
from spark_analysis.session import open_session
from tests.spark_analysis.plan_text import noting
from tests.spark_analysis.plants import HONEST, NEAR_MISSES, PLANTS, honest_life
from tests.spark_analysis.recorded import bystander, record, record_runs


@pytest.fixture(scope="session")
def spark(java: JavaRuntime) -> Iterator[SparkSession]:
    """A local session, which tests must not stop. Mark its users ``spark``."""
    session = open_session("local[2]", app_name="bk-verify-tests", java=java)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to which the fixtures below add, each below a folder of its own."""
    return tmp_path_factory.mktemp("histories")


@pytest.fixture(scope="session")
def runs(histories: Path) -> dict[str, RunResult]:
    """What the online checker made of the recorded runs, by the names of their histories."""
    return {f"runs/{Path(result.path).name}": result for result in record_runs(histories / "runs")}


@pytest.fixture(scope="session")
def planned() -> list[str]:
    """How events were kept apart for ``verdict`` and judged, as it was planned; there once ``verdict`` is."""
    return []


@pytest.fixture(scope="session")
def whole_corpus(histories: Path, runs: dict[str, RunResult]) -> Path:
    """The folder of all plants, near misses, an honest life and the recorded runs."""
    assert runs
    for seed, plant in enumerate((*PLANTS, *NEAR_MISSES)):
        others = () if plant.is_alone else (bystander(),)
        record(histories / plant.file, plant.story, *others, scenario=plant.invariant, seed=seed)
    record(histories / HONEST, honest_life(), bystander())
    return histories


@pytest.fixture(scope="session")
def verdict(spark: SparkSession, whole_corpus: Path, planned: list[str]) -> Verdict:
    """Spark's verdict on the whole corpus, by all invariants: a minute of CPU, so no deep test asks for it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(judging, "Kept", noting(planned))
        # Half of the corpus are headers; to compile hundreds of questions for what they hold takes longer than to interpret them.
        patched.setattr(planning, "INTERPRETED_BYTES", 1 << 30)
        return verify(spark, whole_corpus)


@pytest.fixture(scope="session")
def accused(verdict: Verdict) -> dict[str, dict[str, list[WitnessedViolation]]]:
    """What was found in each history that anything was found in, by the names of invariants: of each ledger one for a clause."""
    found: dict[str, dict[str, list[WitnessedViolation]]] = {}
    for violation in verdict.violations:
        findings = found.setdefault(violation.history, {}).setdefault(violation.invariant, [])
        told = [(other.ledger, other.clause) for other in findings]
        assert (violation.ledger, violation.clause) not in told, "each ledger is accused once by a clause"
        findings.append(violation)
    return found
