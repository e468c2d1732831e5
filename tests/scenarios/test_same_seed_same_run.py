"""The same seed makes the same run, here, again, and in any other process; and where it does not, that is found.

What ``bk-chaos determinism`` does is tested in test_determinism.py; here it looks at the real scenarios, and at real sources
of nondeterminism, planted from outside.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from bkclient.ledger import Ensemble
from bkclient.placement import LedgerShape, RandomPlacement
from scenarios.determinism import check_determinism
from scenarios.history import Kind
from scenarios.library import SCENARIOS
from scenarios.runner import run_scenario

ROOT = Path(__file__).parents[2]


def test_every_scenario_comes_out_the_same_here_again_and_elsewhere() -> None:
    """All in one process, one after the other; ``make determinism`` plays a hundred seeds of each."""
    seeds = range(1)
    result = check_determinism(seeds, list(SCENARIOS))
    assert result.runs == 3 * len(seeds) * len(SCENARIOS)
    assert result.diverged == ()


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_hundred_seeds_come_out_the_same_here_again_and_elsewhere(scenario: str) -> None:
    assert check_determinism(range(100), [scenario]).diverged == ()


@pytest.mark.deep
@pytest.mark.parametrize("mutant", ["recovery-reads-do-not-fence", "recovery-starts-below-last-fragment"])
def test_a_mutant_is_as_deterministic_as_what_it_was_made_of(mutant: str) -> None:
    assert check_determinism(range(2), ["lost-fence", "bookie-crash"], mutant=mutant).diverged == ()


def test_the_order_of_the_runs_does_not_matter() -> None:
    names = list(SCENARIOS)
    one = {name: run_scenario(name, 11).digest for name in names}
    other = {name: run_scenario(name, 11).digest for name in reversed(names)}
    assert one == other


@pytest.mark.deep
def test_neither_hash_seeds_nor_switches_of_the_interpreter_change_a_run() -> None:
    program = (
        "import json, sys\n"
        "from scenarios.runner import run_scenario\n"
        "print(json.dumps([run_scenario(name, 5).digest for name in sys.argv[1:]]))\n"
    )

    def digests(*switches: str, **environment: str) -> list[str]:
        finished = subprocess.run(
            [sys.executable, *switches, "-c", program, *SCENARIOS],
            env={**os.environ, **environment},
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        found: list[str] = json.loads(finished.stdout)
        return found

    here = [run_scenario(name, 5).digest for name in SCENARIOS]
    assert digests("-O", PYTHONHASHSEED="0") == here
    assert digests("-X", "dev", PYTHONHASHSEED="4000000000", PYTHONASYNCIODEBUG="1") == here


# Planted nondeterminism ---------------------------------------------------------------------------------------------


@pytest.fixture
def chance_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ensembles are drawn from the operating system's randomness instead of the seed's."""
    system = random.SystemRandom()

    def new_ensemble(placement: RandomPlacement, shape: LedgerShape, _excluded: frozenset[str]) -> Ensemble | None:
        return tuple(system.sample(placement._writable, shape.ensemble_size))

    monkeypatch.setattr(RandomPlacement, "new_ensemble", new_ensemble)


@pytest.mark.deep
@pytest.mark.usefixtures("chance_from_the_system")
def test_chance_that_does_not_come_from_the_seed_is_found_with_the_first_event_it_touches() -> None:
    result = check_determinism(range(3), ["calm-writes"], processes=1)  # what is planted is planted in this process
    assert result.diverged
    # the repetition that looks for the place may happen to draw the same
    located = [d.difference for d in result.diverged if d.difference is not None]
    assert located
    for difference in located:
        assert difference.one is not None
        assert difference.other is not None
        assert difference.one.kind == difference.other.kind == Kind.META_CAS
        assert difference.one.fields["cause"] == "create"
        assert difference.one.fields["fragments"] != difference.other.fields["fragments"]


_SET_OF_STRINGS = """
from bkclient.placement.random_choice import RandomPlacement

def update(placement, bookies):
    placement._writable = tuple(set(bookies.writable))

RandomPlacement.update = update
"""


@pytest.mark.deep
def test_walking_through_a_set_of_strings_is_found_by_the_other_hash_seed_alone(tmp_path: Path) -> None:
    """Planted in both processes, by a module that the interpreter imports when it starts."""
    (tmp_path / "sitecustomize.py").write_text(_SET_OF_STRINGS)
    program = (
        "import json\n"
        "from scenarios.determinism import check_determinism\n"
        "print(json.dumps(check_determinism(range(3), ['calm-writes']).as_json()))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    finished = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    diverged = json.loads(finished.stdout)["diverged"]
    assert diverged
    assert {divergence["where"] for divergence in diverged} == {"another process"}
    for divergence in diverged:
        one, other = divergence["difference"]["one"], divergence["difference"]["other"]
        assert one["kind"] == other["kind"] == "META_CAS"
        assert one["fragments"] != other["fragments"]
