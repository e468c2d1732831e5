"""Sweeps and hunts: what they add up to does not depend on who did the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scenarios.sweep
import scenarios.units
from scenarios.clauses import CLAUSES
from scenarios.history import History
from scenarios.hunting import hunt_mutants
from scenarios.library import SCENARIOS as ALL_SCENARIOS
from scenarios.model import RunResult, TransportKind, Violation
from scenarios.mutants import RUN_MUTANTS as MUTANTS
from scenarios.plan.named import plan_named, plan_names
from scenarios.plan.schedule import PlanSchedule
from scenarios.runner import run_scenario
from scenarios.situations import SITUATIONS
from scenarios.sweep import Failing, SweepInterruptedError, SweepResult, sweep
from scenarios.sweep_state import SweepState, SweepStateError

_TIMES = {
    "events_per_second",
    "seeds_per_second",
    "simulated_seconds_per_second",
    "seeds_per_cpu_hour",
    "wall_seconds",
    "cpu_seconds",
}


def figures(result: SweepResult) -> dict[str, Any]:
    return {name: value for name, value in result.as_json().items() if name not in _TIMES}


class Runs:
    """Stands in for the runner: seed and scenario decide what comes of a run."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []
        self.kept: list[tuple[str, int]] = []
        self.broken: dict[tuple[str, int], tuple[str, ...]] = {}
        self.broken_once: set[tuple[str, int]] = set()
        self.undecided: set[tuple[str, int]] = set()
        self.missing: set[tuple[str, int]] = set()
        self.raising: set[tuple[str, int]] = set()

    def __call__(
        self,
        name: str,
        seed: int,
        *,
        mutant: str | None = None,
        record: Path | None = None,
        transport: TransportKind = TransportKind.OBJECTS,
        schedule: PlanSchedule | None = None,
        with_digest: bool = True,
    ) -> RunResult:
        assert transport is TransportKind.OBJECTS
        assert schedule is None
        assert not with_digest, "a sweep shows none"
        run = (name, seed)
        self.made.append(run)
        if record is not None:
            self.kept.append(run)
        if run in self.raising:
            raise KeyError("a mistake in the scenario")
        is_other = run in self.broken_once and self.made.count(run) > 1
        violations = () if is_other else tuple(Violation(clause, 0, "seen") for clause in self.broken.get(run, ()))
        return RunResult(
            scenario=name,
            seed=seed,
            digest=f"{name}{seed}",
            events=10,
            simulated_seconds=2.0,
            wall_seconds=0.0,
            verdict="violated" if violations else "unknown" if run in self.undecided | self.missing else "ok",
            violations=violations,
            problem="too many steps" if run in self.undecided else "",
            mutant=mutant or "",
            path="" if record is None else str(record / f"{name}-{seed}.bkh"),
            missed=("unknown-answer",) if run in self.missing else (),
        )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr(scenarios.units, "run_scenario", made)
    return made


SCENARIOS = ("calm-writes", "dead-writer")


def test_every_scenario_runs_with_every_seed(runs: Runs) -> None:
    result = sweep(range(3, 6), SCENARIOS, processes=1)
    assert runs.made == [(scenario, seed) for seed in (3, 4, 5) for scenario in SCENARIOS]
    assert (result.runs, result.events, result.simulated_seconds) == (6, 60, 12.0)
    assert result.is_fine


def test_the_json_has_the_fields_other_programs_read(runs: Runs) -> None:
    runs.broken["dead-writer", 1] = ("A1", "A2", "A1")
    runs.undecided.add(("calm-writes", 0))
    shown = sweep(range(2), SCENARIOS, processes=1).as_json()
    assert {name: shown[name] for name in ("seeds", "scenarios", "violations", "unknown", "events", "failing")} == {
        "seeds": 2,
        "scenarios": 2,
        "violations": 2,
        "unknown": 1,
        "events": 40,
        "failing": [
            {"scenario": "dead-writer", "seed": 1, "invariant": "NoLacTruncation"},
            {"scenario": "dead-writer", "seed": 1, "invariant": "AckHasQuorum"},
        ],
    }
    assert all(shown[name] >= 0 for name in _TIMES)
    assert shown["undecided"] == [{"scenario": "calm-writes", "seed": 0, "problem": "too many steps"}]


def test_one_run_in_twenty_may_miss_what_its_scenario_is_about(runs: Runs) -> None:
    runs.missing |= {("calm-writes", 3), ("calm-writes", 30)}
    result = sweep(range(40), SCENARIOS, processes=1)
    assert (len(result.missed), result.undecided, result.beside_the_point) == (2, [], [])
    assert result.is_fine
    runs.missing.add(("calm-writes", 31))
    result = sweep(range(40), SCENARIOS, processes=1)
    assert (len(result.missed), result.beside_the_point) == (3, ["calm-writes"])
    assert not result.is_fine
    shown = result.as_json()
    assert (shown["unknown"], shown["missed"], shown["beside_the_point"]) == (0, 3, ["calm-writes"])


def test_a_run_that_breaks_a_clause_and_misses_its_point_is_a_violation_only(runs: Runs) -> None:
    runs.missing.add(("calm-writes", 0))
    runs.broken["calm-writes", 0] = ("A1",)
    result = sweep(range(1), ("calm-writes",), processes=1)
    assert (len(result.failing), result.missed, result.undecided) == (1, [], [])


def test_a_run_that_raises_is_undecided_and_the_others_go_on(runs: Runs) -> None:
    runs.raising.add(("calm-writes", 1))
    result = sweep(range(3), SCENARIOS, processes=1)
    assert result.runs == 6
    assert result.undecided == [("calm-writes", 1, "KeyError: 'a mistake in the scenario'")]
    assert not result.is_fine


@pytest.mark.parametrize("stop_at_first", [False, True])
def test_stopping_at_the_first_failure_stops_at_the_first_in_order(runs: Runs, stop_at_first: bool) -> None:
    for seed in (7, 30):
        runs.broken["calm-writes", seed] = ("A3",)
    result = sweep(range(100), ["calm-writes"], processes=1, stop_at_first=stop_at_first)
    assert result.failing[0] == Failing("calm-writes", 7, "AcksInOrder")
    assert result.runs == (8 if stop_at_first else 100)
    assert len(result.failing) == (1 if stop_at_first else 2)
    assert len(runs.made) == 8 if stop_at_first else 100


def test_histories_are_kept_of_all_runs_or_of_failing_ones_only(runs: Runs, tmp_path: Path) -> None:
    runs.broken["calm-writes", 1] = ("A3",)
    result = sweep(range(3), ["calm-writes"], processes=1, record=tmp_path)
    assert runs.kept == [("calm-writes", seed) for seed in range(3)]
    assert result.failing[0].path == str(tmp_path / "calm-writes-1.bkh")
    runs.kept.clear()
    sweep(range(3), ["calm-writes"], processes=1, record=tmp_path, failing_only=True)
    assert runs.kept == [("calm-writes", 1)]


def test_seeds_that_are_kept_anyway_are_run_once(runs: Runs, tmp_path: Path) -> None:
    runs.broken["calm-writes", 3] = runs.broken["calm-writes", 4] = ("A3",)
    sweep(range(7), ["calm-writes"], processes=1, record=tmp_path, failing_only=True, keep_every=3)
    assert runs.kept == [("calm-writes", seed) for seed in (0, 3, 4, 6)]
    assert [seed for _, seed in runs.made] == [0, 1, 2, 3, 4, 4, 5, 6], "only what turns out to be broken is run again"


def test_a_broken_run_that_is_another_one_when_it_is_kept_is_told(runs: Runs, tmp_path: Path) -> None:
    runs.broken["calm-writes", 4] = runs.broken["calm-writes", 5] = ("A3",)
    runs.broken_once = {("calm-writes", 4)}
    result = sweep(range(7), ["calm-writes"], processes=1, record=tmp_path, failing_only=True)
    assert [failing.seed for failing in result.failing] == [4, 5], "what was found once is not lost"
    assert [(scenario, seed) for scenario, seed, _ in result.undecided] == [("calm-writes", 4)]
    assert result.undecided[0][2] == (
        "broke AcksInOrder after 10 events, and not when it was made again to keep its history (10 events): "
        "it is not deterministic"
    )


def test_progress_is_told_after_every_unit(runs: Runs) -> None:
    runs.broken["calm-writes", 9] = ("A3",)
    told: list[tuple[int, int, int, float]] = []

    def tell(so_far: SweepResult, in_all: int) -> None:
        assert so_far.runs_per_second > 0
        told.append((so_far.runs, in_all, len(so_far.failing), so_far.simulated_seconds))

    sweep(range(20), ["calm-writes"], processes=1, progress=tell)
    assert told == [(8, 20, 0, 16.0), (16, 20, 1, 32.0), (20, 20, 1, 40.0)]


def test_unknown_names_are_refused_before_anything_runs(runs: Runs) -> None:
    with pytest.raises(KeyError):
        sweep(range(3), ["nothing"], processes=1)
    with pytest.raises(KeyError):
        sweep(range(3), ["calm-writes"], mutant="nothing", processes=1)
    with pytest.raises(KeyError):
        hunt_mutants(["nothing"], range(3), ["calm-writes"], processes=1)
    assert runs.made == []


def test_no_seeds_make_an_empty_sweep(runs: Runs) -> None:
    assert figures(sweep(range(0), SCENARIOS))["runs"] == 0
    assert not runs.made


def test_workers_come_to_what_one_process_comes_to(tmp_path: Path) -> None:
    alone = sweep(range(9), ["calm-writes"], processes=1, record=tmp_path / "alone")
    together = sweep(range(9), ["calm-writes"], processes=2, record=tmp_path / "together")
    assert figures(alone) == figures(together)
    assert alone.cpu_seconds > 0
    names = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "together").iterdir())
    assert "calm-writes-8.bkh" in names
    digests = []
    for folder in ("alone", "together"):
        history = History(tmp_path / folder / names[0])
        assert list(history.events())
        digests.append(history.digest)
    assert digests[0] == digests[1]


def test_an_interrupt_ends_a_sweep_with_its_workers(tmp_path: Path) -> None:
    """As Ctrl-C does: the whole group gets the signal, the workers leave it to the parent, and nobody is left behind."""
    script = textwrap.dedent(
        """
        from scenarios.sweep import SweepInterruptedError, sweep

        if __name__ == "__main__":
            try:
                sweep(range(10**6), ["calm-writes"], processes=2, progress=lambda *_: print("going", flush=True))
            except SweepInterruptedError as interrupted:
                print("interrupted after", interrupted.result.runs > 0, flush=True)
        """
    )
    path = tmp_path / "sweeping.py"
    path.write_text(script)
    root = Path(scenarios.sweep.__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "going\n"
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert out.splitlines()[-1] == "interrupted after True"
    assert "Traceback" not in err
    deadline = time.monotonic() + 20
    while _group_lives(child.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _group_lives(child.pid)


def test_what_an_interrupted_sweep_found_is_not_lost(runs: Runs) -> None:
    runs.broken["calm-writes", 3] = ("A3",)

    def interrupt(so_far: SweepResult, _in_all: int) -> None:
        if so_far.runs == 16:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(SweepInterruptedError) as raised:
        sweep(range(100), ["calm-writes"], processes=1, progress=interrupt)
    result = raised.value.result
    assert (result.runs, result.events, result.is_interrupted) == (16, 160, True)
    assert result.failing == [Failing("calm-writes", 3, "AcksInOrder")]
    assert result.as_json()["interrupted"] is True


# State -------------------------------------------------------------------------------------------------------------


def opened(path: Path, first_seed: int = 5, names: tuple[str, ...] = SCENARIOS, **more: Any) -> SweepState:
    return SweepState.open(path, first_seed=first_seed, scenarios=names, **more)


def test_a_sweep_goes_on_where_an_interrupted_one_was_ended_and_comes_to_the_same(runs: Runs, tmp_path: Path) -> None:
    runs.broken["dead-writer", 9] = ("A1",)
    runs.undecided.add(("calm-writes", 6))
    runs.missing.add(("calm-writes", 30))
    whole = sweep(range(5, 35), SCENARIOS, processes=1)
    runs.made.clear()

    def interrupt(_so_far: SweepResult, _in_all: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    path = tmp_path / "state.json"
    with pytest.raises(SweepInterruptedError):
        sweep(range(5, 35), SCENARIOS, processes=1, state=opened(path), progress=interrupt)
    assert len(runs.made) == 8
    rest = sweep(range(5, 35), SCENARIOS, processes=1, state=opened(path))
    assert figures(rest) == figures(whole)
    assert (rest.missed, rest.runs_of) == (whole.missed, whole.runs_of)
    assert sorted(runs.made) == sorted((name, seed) for seed in range(5, 35) for name in SCENARIOS)
    assert rest.cpu_seconds >= 0
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_sweep_of_more_seeds_goes_on_behind_those_that_are_finished(runs: Runs, tmp_path: Path) -> None:
    def swept(seeds: int) -> SweepResult:
        state = opened(tmp_path / "state", in_turn=True)
        return sweep(range(5, 5 + seeds), SCENARIOS, processes=1, in_turn=True, state=state)

    assert swept(7).runs == 7
    result = swept(20)
    in_turn = [(SCENARIOS[number % 2], 5 + number) for number in range(20)]
    assert runs.made == in_turn
    assert (result.runs, result.seeds) == (20, 20)
    assert swept(20).runs == 20
    assert runs.made == in_turn


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"first_seed": 6}, "first_seed"),
        ({"names": ("calm-writes",)}, "scenarios"),
        ({"mutant": "recovery-reads-do-not-fence"}, "mutant"),
        ({"transport": TransportKind.BYTES}, "transport"),
        ({"in_turn": True}, "in_turn"),
        ({"plans": {"one.scn": plan_named("happy-path", 0)}}, "plans"),
    ],
)
def test_a_state_is_not_used_for_another_sweep(runs: Runs, tmp_path: Path, more: dict[str, Any], named: str) -> None:
    sweep(range(5, 6), SCENARIOS, processes=1, state=opened(tmp_path / "state"))
    with pytest.raises(SweepStateError, match=rf"another sweep, which differs in {named};"):
        opened(tmp_path / "state", **more)
    assert SweepState.first_seed_of(tmp_path / "state") == 5
    assert SweepState.first_seed_of(tmp_path / "none") is None


@pytest.mark.parametrize(
    "content", [b"\xff", b"", b"[]", b"{}", b'{"format": 9, "sweep": {"first_seed": 1}, "finished": {"runs": 1}}']
)
def test_a_file_that_holds_no_state_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(SweepStateError, match="holds no state of a sweep"):
        opened(tmp_path / "state")


def test_a_file_with_a_plan_is_swept_under_its_own_name(tmp_path: Path) -> None:
    plan = replace(plan_named("add-loss-one", 0), name="of-mine")
    result = sweep(range(2), ["mine.scn"], processes=2, plans={"mine.scn": plan}, record=tmp_path)
    assert (result.runs, result.failing, result.runs_of) == (2, [], {"mine.scn": 2})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["of-mine-0.bkh", "of-mine-1.bkh"]
    assert result.met["something-wrong"] == 2
    with pytest.raises(KeyError):
        sweep(range(2), ["mine.scn"], processes=1)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# Hunts -------------------------------------------------------------------------------------------------------------

MUTANT = "recovery-reads-do-not-fence"


def test_a_hunt_ends_with_the_first_seed_that_gives_the_mutant_away(runs: Runs) -> None:
    expected = MUTANTS[MUTANT].clauses
    runs.broken["dead-writer", 10] = (expected[1], expected[0])
    runs.broken["dead-writer", 20] = expected
    (hunt,) = hunt_mutants([MUTANT], range(100), SCENARIOS, processes=1)
    assert hunt.as_json() | {"cpu_seconds": 0} == {
        "name": MUTANT,
        "caught": True,
        "tier": "objects",
        "policy": None,
        "invariant": CLAUSES[expected[0]].invariant,
        "clause": expected[0],
        "scenario": "dead-writer",
        "seed": 10,
        "seeds_to_find": 11,
        "runs": 22,
        "cpu_seconds": 0,
        "shrunk_steps": None,
        "shrunk_operations": None,
        "shrunk_cpu_seconds": None,
    }
    assert len(runs.made) == 22


def test_another_broken_invariant_than_the_mutants_own_does_not_catch_it(runs: Runs) -> None:
    runs.broken["dead-writer", 0] = ("A3",)
    (hunt,) = hunt_mutants([MUTANT], range(5), SCENARIOS, processes=1)
    assert not hunt.caught
    assert hunt.as_json()["seeds_to_find"] is None
    assert hunt.runs == 10


def test_mutants_are_reported_in_the_order_they_were_named(runs: Runs) -> None:
    names = sorted(MUTANTS, reverse=True)
    runs.broken["calm-writes", 0] = tuple(clause for name in names for clause in MUTANTS[name].clauses)
    hunts = hunt_mutants(names, range(5), SCENARIOS, processes=1)
    assert [hunt.name for hunt in hunts] == names
    assert all(hunt.caught and hunt.seeds_to_find == 1 for hunt in hunts)


def test_hunters_tell_their_progress(runs: Runs) -> None:
    told: list[tuple[int, int, int]] = []
    runs.broken["calm-writes", 9] = MUTANTS[MUTANT].clauses
    hunt_mutants([MUTANT], range(30), ["calm-writes"], processes=1, progress=lambda *steps: told.append(steps))
    assert told == [(0, 1, 0), (1, 1, 1)]


def test_a_hunt_without_seeds_catches_nothing(runs: Runs) -> None:
    (hunt,) = hunt_mutants([MUTANT], range(0), SCENARIOS, processes=1)
    assert not hunt.caught
    assert not runs.made


def test_a_sweep_says_how_many_runs_met_what() -> None:
    result = sweep(range(3), ["hasty-close", "calm-writes"], processes=1)
    assert result.met["close-cuts-off"] == 3
    assert result.as_json()["met"] == dict(result.met)
    assert set(result.never_met) == SITUATIONS.keys() - result.met.keys()
    assert "forgotten-fence" in result.as_json()["never_met"]


def test_runs_in_which_nothing_went_wrong_are_counted_apart() -> None:
    result = sweep(range(2), ["happy-path", "add-loss-one"], processes=1)
    assert (result.runs, result.vacuous, result.is_fine) == (4, 2, True)
    assert result.as_json()["vacuous"] == 2
    assert run_scenario("happy-path", 0).is_vacuous
    assert not run_scenario("add-loss-one", 0).is_vacuous


def test_one_scenario_in_turn_plays_with_each_seed_and_what_is_drawn_plays_every_other_time(runs: Runs) -> None:
    result = sweep(range(10, 17), ["dead-writer", "swarm", "happy-path"], processes=1, in_turn=True)
    assert runs.made == [
        *(("dead-writer", 10), ("swarm", 11), ("happy-path", 12), ("swarm", 13)),
        *(("dead-writer", 14), ("swarm", 15), ("happy-path", 16)),
    ]
    assert (result.runs, result.seeds) == (7, 7)
    runs.made.clear()
    sweep(range(3), ["swarm", "swarm-live"], processes=1, in_turn=True)
    sweep(range(3), ["happy-path", "dead-writer"], processes=1, in_turn=True)
    assert [name for name, _ in runs.made] == [
        *("swarm", "swarm-live", "swarm"),
        *("happy-path", "dead-writer", "happy-path"),
    ]


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_a_sweep_of_the_whole_library_meets_every_situation() -> None:
    result = sweep(range(2_000), [*ALL_SCENARIOS, *plan_names()], in_turn=True)
    assert (result.never_met, result.failing, result.undecided) == ([], [], [])
