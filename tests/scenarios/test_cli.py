"""``bk-chaos``: what it prints, for people and for programs, and how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgpack
import pytest
import typer.main
from typer.testing import CliRunner, Result

import scenarios.cli.determinism
import scenarios.cli.runs
import scenarios.cli.sweeps
import scenarios.units
from scenarios.cli.app import app
from scenarios.determinism import DeterminismResult, Difference, Divergence
from scenarios.history import Event, HistoryWriter, Kind
from scenarios.library import SCENARIOS
from scenarios.machines.worlds import PREPARED, WORLDS
from scenarios.model import RunResult, Violation
from scenarios.mutants import MUTANTS, RUN_MUTANTS
from scenarios.plan.library import library_text
from scenarios.plan.named import plan_names
from scenarios.situations import SITUATIONS
from scenarios.sweep import Failing, SweepInterruptedError, SweepResult
from tests.scenarios.stories import Story

MUTANT = "recovery-reads-do-not-fence"


def bk_chaos(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def as_json(*arguments: object, code: int = 0) -> Any:
    """The one JSON object on standard output; anything else there fails."""
    result = bk_chaos(*arguments, "--json")
    assert result.exit_code == code, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def result_of(name: str, seed: int, **fields: Any) -> RunResult:
    known: dict[str, Any] = {
        "digest": "d",
        "events": 1,
        "simulated_seconds": 0.0,
        "wall_seconds": 0.0,
        "verdict": "ok",
    }
    return RunResult(scenario=name, seed=seed, **known | fields)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A history in which a close truncates an acknowledged entry."""
    path = tmp_path / "broken.bkh"
    writer = HistoryWriter({"scenario": "calm-writes", "seed": 3, "mutant": ""}, lambda: 5000, path)
    story = Story("2/2/2")
    story.create()
    story.write_all(0, 2)
    story.close(1)
    for event in story.events:
        writer.record(event.kind, event.actor, event.ledger, **event.fields)
    writer.close()
    return path


# All commands ------------------------------------------------------------------------------------------------------

GROUP: Any = typer.main.get_command(app)
COMMANDS = sorted(GROUP.commands)


def test_the_commands_are_these() -> None:
    names = "conform determinism diff exhaustive explore list mutants plan replay run show shrink sweep transports"
    assert " ".join(COMMANDS) == names


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_helps_with_examples_exit_codes_and_its_json(command: str) -> None:
    result = bk_chaos(command, "--help")
    assert result.exit_code == 0
    assert f"bk-chaos {command}" in result.stdout.split("Examples:")[1]
    assert "Exit codes: 0" in result.stdout
    assert "With --json: " in result.stdout
    assert "--json" in result.stdout.split("Options:")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_of_commands_has_the_first_line_of_the_help_of_each(command: str) -> None:
    help_text = GROUP.commands[command].loaded().help
    assert GROUP.commands[command].short_help == help_text.partition("\n")[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_in_the_help_is_a_command_line_that_parses(command: str) -> None:
    examples = [
        line.split()[1:]
        for line in bk_chaos(command, "--help").stdout.split("Examples:")[1].splitlines()
        if line.strip().startswith("bk-chaos ")
    ]
    assert examples
    for name, *arguments in examples:
        assert name == command
        GROUP.commands[name].make_context(name, list(arguments))


def test_without_a_command_it_says_what_there_is() -> None:
    assert "Commands:" in bk_chaos().output


def test_wrong_usage_is_wrong_usage() -> None:
    assert bk_chaos("sweep", "--seeds", "0").exit_code == 2
    assert bk_chaos("run").exit_code == 2


def test_the_console_script_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from scenarios.cli import main; main()", "list", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(json.loads(done.stdout)) == {"scenarios", "plans", "worlds", "mutants"}
    assert done.stderr == ""


def test_what_bookies_of_a_run_warn_of_is_not_mixed_with_what_is_told() -> None:
    """In a process without any logging, where Python writes warnings to standard error."""
    command = [sys.executable, "-m", "scenarios.cli", "run", "unclean-start-without-journal", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "unclean-start-without-journal, seed 1: ok" in done.stdout
    assert done.stderr == ""


# list --------------------------------------------------------------------------------------------------------------


def test_list_names_every_scenario_world_and_mutant() -> None:
    shown = as_json("list")
    assert [found["name"] for found in shown["scenarios"]] == list(SCENARIOS)
    assert all(set(found) == {"name", "summary", "expected"} for found in shown["scenarios"])
    assert [found["name"] for found in shown["mutants"]] == list(MUTANTS)
    assert [found["name"] for found in shown["worlds"]] == [*PREPARED, *WORLDS]
    shown_to_people = bk_chaos("list").stdout
    assert all(name in shown_to_people for name in (*SCENARIOS, *PREPARED, *WORLDS, *MUTANTS))


# run ---------------------------------------------------------------------------------------------------------------


def test_a_run_that_keeps_the_protocol_ends_well() -> None:
    shown = as_json("run", "calm-writes", "--seed", 3)
    contract = {
        "scenario",
        "seed",
        "transport",
        "digest",
        "events",
        "simulated_seconds",
        "wall_seconds",
        "verdict",
        "violations",
    }
    assert set(shown) == contract | {"met", "vacuous"}
    assert (shown["scenario"], shown["seed"], shown["verdict"], shown["violations"]) == ("calm-writes", 3, "ok", [])
    text = bk_chaos("run", "calm-writes", "--seed", 3).stdout
    assert shown["digest"] in text


def test_a_run_with_a_defect_breaks_an_invariant_and_says_which() -> None:
    shown = as_json("run", "lost-fence", "--mutant", MUTANT, code=1)
    assert shown["verdict"] == "violated"
    assert shown["mutant"] == MUTANT
    found = {violation["invariant"]: violation for violation in shown["violations"]}
    assert set(found["NoLacTruncation"]) == {"invariant", "clause", "ledger", "witness"}


def test_a_run_is_recorded_under_its_scenario_mutant_and_seed(tmp_path: Path) -> None:
    shown = as_json("run", "calm-writes", "--seed", 3, "--record", tmp_path / "new")
    assert shown["path"] == str(tmp_path / "new" / "calm-writes-3.bkh")
    bk_chaos("run", "lost-fence", "--mutant", MUTANT, "--record", tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        "calm-writes-3.bkh",
        f"lost-fence-{MUTANT}-0.bkh",
    }


def test_a_run_is_shown_as_a_timeline_without_leaving_a_history() -> None:
    result = bk_chaos("run", "lost-fence", "--mutant", MUTANT, "--timeline")
    assert result.exit_code == 1
    assert "acked e" in result.stdout
    assert "\n!" in result.stdout
    assert ".bkh" not in result.stdout


def test_a_run_without_verdict_has_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    undecided = result_of("calm-writes", 0, verdict="unknown", problem="LimitError: too many steps")
    monkeypatch.setattr(scenarios.cli.runs, "run_scenario", lambda *_args, **_options: undecided)
    result = bk_chaos("run", "calm-writes")
    assert result.exit_code == 3
    assert "no verdict: LimitError: too many steps" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "calm-rites"], "no scenario is called calm-rites; did you mean calm-writes?"),
        (["run", "zzz"], "bk-chaos list has them all"),
        (["run", "calm-writes", "--mutant", "recovery-read-does-not-fence"], f"did you mean {MUTANT}?"),
        (["sweep", "--scenario", "dead-riter"], "did you mean dead-writer?"),
        (["mutants", "--mutant", "none"], "no mutant is called none"),
        (["determinism", "--scenario", "x"], "no scenario is called x"),
        (["sweep", "--failing-only"], "--record says where"),
    ],
)
def test_names_that_do_not_exist_are_refused_with_the_nearest(arguments: list[str], says: str) -> None:
    for more in ([], ["--json"]):
        result = bk_chaos(*arguments, *more)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert says in result.stderr


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in (["run", "calm-writes"], ["sweep", "--seeds", 1]):
        result = bk_chaos(*command, "--record", tmp_path / "file" / "below")
        assert result.exit_code == 2
        assert "cannot be kept" in result.stderr


# replay ------------------------------------------------------------------------------------------------------------


def test_replaying_a_run_gives_the_same_run(tmp_path: Path) -> None:
    recorded = as_json("run", "calm-writes", "--seed", 3, "--record", tmp_path)
    shown = as_json("replay", recorded["path"])
    assert shown["same"] is True
    assert shown["digest"] == shown["recorded_digest"] == recorded["digest"]
    assert shown["difference"] is None
    assert "the same as recorded" in bk_chaos("replay", recorded["path"]).stdout


def test_replaying_a_run_with_a_defect_plants_it_again(tmp_path: Path) -> None:
    recorded = as_json("run", "lost-fence", "--mutant", MUTANT, "--record", tmp_path, code=1)
    shown = as_json("replay", recorded["path"], code=1)
    assert shown["same"] is True
    assert shown["verdict"] == "violated"
    assert shown["mutant"] == MUTANT


def test_a_replay_that_differs_says_where(broken: Path) -> None:
    shown = as_json("replay", broken, code=1)
    assert shown["same"] is False
    assert shown["difference"]["seq"] == 0
    result = bk_chaos("replay", broken)
    assert result.exit_code == 1
    assert "first difference at event 0" in result.stdout


@pytest.mark.parametrize("header", [{}, {"scenario": "gone", "seed": 1}, {"scenario": "calm-writes", "seed": "x"}])
def test_a_history_that_nothing_here_made_cannot_be_replayed(tmp_path: Path, header: dict[str, Any]) -> None:
    HistoryWriter({"mutant": ""} | header, lambda: 0, tmp_path / "alien.bkh").close()
    result = bk_chaos("replay", tmp_path / "alien.bkh")
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["replay", "show"])
def test_an_unreadable_history_is_refused(tmp_path: Path, broken: Path, command: str) -> None:
    missing = bk_chaos(command, tmp_path / "missing.bkh")
    assert missing.exit_code == 2
    assert "cannot be opened" in missing.stderr
    broken.write_bytes(broken.read_bytes()[:-20])
    truncated = bk_chaos(command, broken, "--json")
    assert truncated.exit_code == 2
    assert truncated.stdout == ""
    assert "truncated" in truncated.stderr


@pytest.mark.parametrize("command", ["replay", "show"])
def test_a_history_of_another_vocabulary_is_refused(tmp_path: Path, broken: Path, command: str) -> None:
    with broken.open("rb") as stream:
        header, *rest = msgpack.Unpacker(stream, strict_map_key=False)
    header["kinds"] = [[f"NEW_{kind}", names] for kind, names in header["kinds"]]
    renamed = tmp_path / "renamed.bkh"
    renamed.write_bytes(b"".join(msgpack.packb(part) for part in (header, *rest)))
    result = bk_chaos(command, renamed)
    assert result.exit_code == 2
    assert "events that this version does not know" in result.stderr


# show --------------------------------------------------------------------------------------------------------------


def test_show_judges_a_history_and_tells_the_violation_that_matters_most(broken: Path) -> None:
    shown = as_json("show", broken, code=1)
    assert (shown["scenario"], shown["seed"], shown["verdict"]) == ("calm-writes", 3, "violated")
    assert shown["simulated_seconds"] == 0.005
    assert shown["checked"]["NoLacTruncation"] > 0
    assert "NoLacTruncation" in [violation["invariant"] for violation in shown["violations"]]
    text = bk_chaos("show", broken).stdout
    assert text.splitlines()[1].startswith("NoLacTruncation (A1): entry 2 was acknowledged")
    assert "!      5.00" in text


def test_show_tells_the_violation_and_the_ledger_asked_for(broken: Path) -> None:
    text = bk_chaos("show", broken, "--invariant", "VisibleLacBounded").stdout
    assert not text.splitlines()[1].startswith("NoLacTruncation")
    assert "ledger 7" in bk_chaos("show", broken, "--ledger", 7).stdout
    unknown = bk_chaos("show", broken, "--invariant", "NoLackTruncation")
    assert unknown.exit_code == 2
    assert "did you mean NoLacTruncation?" in unknown.stderr


def test_show_says_how_much_a_good_history_proves(tmp_path: Path) -> None:
    recorded = as_json("run", "calm-writes", "--record", tmp_path)
    result = bk_chaos("show", recorded["path"], "--width", 100)
    assert result.exit_code == 0
    assert "no violation; " in result.stdout
    assert max(map(len, result.stdout.splitlines()[4:])) <= 100


def test_show_of_an_empty_history_is_no_trouble(tmp_path: Path) -> None:
    HistoryWriter({}, lambda: 0, tmp_path / "empty.bkh").close()
    assert bk_chaos("show", tmp_path / "empty.bkh").exit_code == 0
    assert as_json("show", tmp_path / "empty.bkh")["events"] == 0


# sweep -------------------------------------------------------------------------------------------------------------


def test_a_sweep_counts_what_it_did() -> None:
    shown = as_json("sweep", "--seeds", 2, "--first-seed", 4, "--scenario", "calm-writes", "--processes", 1)
    assert (shown["seeds"], shown["scenarios"], shown["runs"], shown["violations"]) == (2, 1, 2, 0)
    assert shown["failing"] == []
    assert shown["events_per_second"] > 0


def test_a_sweep_that_finds_something_tells_how_to_see_it(tmp_path: Path) -> None:
    options = ["lost-fence", "--mutant", MUTANT, "--seeds", 20, "--first-seed", 0, "--processes", 1, "--stop-at-first"]
    shown = as_json("sweep", *options, "--record", tmp_path, "--failing-only", code=1)
    first = shown["failing"][0]
    assert Path(first["path"]).exists()
    assert len(list(tmp_path.iterdir())) == 1
    text = bk_chaos("sweep", *options).stdout
    assert f"bk-chaos run lost-fence --seed {first['seed']} --mutant {MUTANT} --timeline" in text


def test_a_sweep_for_marks_fails_if_a_situation_is_never_met() -> None:
    options = ("--scenario", "happy-path", "--seeds", 1, "--first-seed", 0, "--processes", 1)
    assert bk_chaos("sweep", *options).exit_code == 0
    result = bk_chaos("sweep", *options, "--marks")
    assert result.exit_code == 1
    assert "1 in which nothing went wrong" in result.stdout
    assert re.search(r"^  \d+ of \d+ situations met, the rarest in: ", result.stdout, re.MULTILINE)
    assert re.search(r"^  never met: .*forgotten-fence", result.stdout, re.MULTILINE)
    assert as_json("sweep", *options, "--marks", code=1)["vacuous"] == 1


def test_a_sweep_in_turn_plays_one_scenario_with_each_seed() -> None:
    names = ("happy-path", "log-zombie-wakes", "log-two-owners-race")
    found = as_json("sweep", *names, "--seeds", 4, "--first-seed", 0, "--processes", 1, "--in-turn")
    assert (found["scenarios"], found["seeds"], found["runs"]) == (3, 4, 4)
    assert (found["violations"], found["unknown"], found["missed"]) == (0, 0, 0)


def test_a_sweep_for_marks_plays_the_whole_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def swept(seeds: range, names: list[str], **options: Any) -> SweepResult:
        assert options["in_turn"]
        asked.extend(names)
        return SweepResult(len(seeds), tuple(names), met=Counter(SITUATIONS.keys()))

    monkeypatch.setattr(scenarios.cli.sweeps, "sweep", swept)
    assert bk_chaos("sweep", "--marks").exit_code == 0
    assert asked == [*SCENARIOS, *plan_names()]


def test_a_sweep_without_verdicts_has_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_args: Any, **_options: Any) -> RunResult:
        raise ValueError("a mistake")

    monkeypatch.setattr(scenarios.units, "run_scenario", raising)
    result = bk_chaos("sweep", "calm-writes", "--seeds", 1, "--first-seed", 0, "--processes", 1)
    assert result.exit_code == 3
    assert "no verdict: calm-writes --seed 0: ValueError: a mistake" in result.stdout


def test_what_sweeps_without_a_first_seed_has_other_seeds_each_day(monkeypatch: pytest.MonkeyPatch) -> None:
    today = int(datetime.now(UTC).strftime("%Y%m%d")) * 1_000_000
    asked: list[int] = []

    def swept(seeds: range, names: list[str], **_options: Any) -> SweepResult:
        asked.append(seeds[0])
        return SweepResult(len(seeds), tuple(names), first_seed=seeds[0])

    monkeypatch.setattr(scenarios.cli.sweeps, "sweep", swept)
    text = bk_chaos("sweep").stdout
    assert asked[-1] - today in {0, 1_000_000}  # it may be midnight
    assert f"seeds from {asked[-1]} on, which are those of today" in text
    assert as_json("sweep")["first_seed"] == asked[-1]
    assert "seeds from 7 on\n" in bk_chaos("sweep", "--first-seed", 7).stdout
    assert asked[-1] == 7


def test_a_sweep_plays_plans_of_files(tmp_path: Path) -> None:
    mine = tmp_path / "mine.scn"
    mine.write_text(library_text("fence-lost-late-add").replace("plan fence-lost-late-add", "plan mine"))
    options = (mine, "happy-path", "--mutant", MUTANT, "--seeds", 1, "--first-seed", 0, "--processes", 1)
    shown = as_json("sweep", *options, code=1)
    assert shown["scenario_names"] == [str(mine), "happy-path"]
    assert {found["scenario"] for found in shown["failing"]} == {str(mine)}
    assert f"bk-chaos run {mine} --seed 0 --mutant {MUTANT} --timeline" in bk_chaos("sweep", *options).stdout


def test_two_plans_of_one_name_are_refused(tmp_path: Path) -> None:
    copy = tmp_path / "copy.scn"
    copy.write_text(library_text("happy-path"))
    for command in ("sweep", "determinism"):
        result = bk_chaos(command, "happy-path", copy)
        assert result.exit_code == 2
        assert f"happy-path and {copy} are plans of one name, happy-path" in result.stderr
        assert bk_chaos(command, tmp_path / "none.scn").exit_code == 2


def test_a_sweep_that_is_resumed_keeps_its_first_seed_and_makes_no_run_twice(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    options = ("calm-writes", "--processes", 1, "--resume", state)
    first = as_json("sweep", *options, "--seeds", 2, "--first-seed", 4)
    again = as_json("sweep", *options, "--seeds", 3)
    assert (first["runs"], again["runs"], again["first_seed"]) == (2, 3, 4)
    assert again["events"] > first["events"]
    assert again == again | as_json("sweep", *options, "--seeds", 3) | {
        name: again[name] for name in again if name.endswith(("_second", "_hour")) or name == "wall_seconds"
    }
    fewer = bk_chaos("sweep", *options, "--seeds", 1)
    assert (fewer.exit_code, "has 3 runs, more than the 1 of 1 seeds" in fewer.stderr) == (2, True)
    other = bk_chaos("sweep", "dead-writer", "--resume", state)
    assert (other.exit_code, "belongs to another sweep" in other.stderr) == (2, True)
    nowhere = bk_chaos("sweep", "calm-writes", "--resume", tmp_path / "none" / "state.json")
    assert (nowhere.exit_code, "there is no folder" in nowhere.stderr) == (2, True)
    state.write_text("not one")
    damaged = bk_chaos("sweep", *options)
    assert (damaged.exit_code, "holds no state of a sweep" in damaged.stderr) == (2, True)


def test_an_interrupted_sweep_prints_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def swept(seeds: range, names: list[str], **_options: Any) -> SweepResult:
        result = SweepResult(len(seeds), tuple(names), is_interrupted=True, runs=8)
        result.failing.append(Failing("dead-writer", 3, "AcksInOrder"))
        raise SweepInterruptedError(result)

    monkeypatch.setattr(scenarios.cli.sweeps, "sweep", swept)
    result = bk_chaos("sweep", "--seeds", 100)
    assert result.exit_code == 130
    assert result.stdout.startswith("interrupted\n8 runs of 100 seeds")
    assert "bk-chaos run dead-writer --seed 3 --timeline" in result.stdout
    assert as_json("sweep", code=130)["interrupted"] is True


def test_a_progress_bar_tells_thepace() -> None:
    result = SweepResult(10, ("calm-writes",), runs=30, wall_seconds=2.0, simulated_seconds=3 * 3600 + 17 * 60 + 5)
    assert scenarios.cli.sweeps.pace(result) == "15 seeds/s, 3 h 17 min simulated"
    result.simulated_seconds = 61.5
    assert scenarios.cli.sweeps.pace(result) == "15 seeds/s, 1 min 1 s simulated"


# mutants -----------------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_defects_are_hunted_in_all_plans_unless_scenarios_are_named() -> None:
    """No scenario shows a defect of logs."""
    options = ("--mutant", "log-trim-deletes-first", "--seeds", 1)
    (hunt,) = as_json("mutants", *options)["mutants"]
    assert (hunt["caught"], hunt["clause"], hunt["seed"]) == (True, "H6", 0)
    assert hunt["scenario"].startswith("log-")


def test_mutants_that_are_caught_are_reported_with_what_gave_them_away() -> None:
    shown = as_json("mutants", "--mutant", MUTANT, "--scenario", "lost-fence", "--seeds", 20, "--processes", 1)
    (hunt,) = shown["mutants"]
    contract = {"name", "caught", "invariant", "seeds_to_find", "cpu_seconds", "shrunk_steps"}
    assert contract <= set(hunt)
    assert hunt["caught"] is True
    assert hunt["invariant"] in MUTANTS[MUTANT].invariants
    assert hunt["shrunk_steps"] is None


def test_a_mutant_that_goes_free_is_a_finding() -> None:
    options = ["--mutant", MUTANT, "--scenario", "calm-writes", "--seeds", 1, "--processes", 1]
    assert as_json("mutants", *options, code=1)["mutants"][0]["caught"] is False
    assert "NO" in bk_chaos("mutants", *options).stdout


@pytest.mark.deep
def test_what_catches_a_mutant_is_shrunk_and_kept_as_a_plan(tmp_path: Path) -> None:
    options = [
        "--mutant",
        MUTANT,
        "--scenario",
        "fence-lost-late-add",
        "--processes",
        1,
        "--shrink",
        tmp_path / "defects",
    ]
    (hunt,) = as_json("mutants", *options)["mutants"]
    assert (hunt["caught"], hunt["scenario"]) == (True, "fence-lost-late-add")
    assert 1 <= hunt["shrunk_steps"] <= 6
    assert hunt["shrunk_operations"] >= 1
    assert hunt["shrunk_cpu_seconds"] > 0
    kept = tmp_path / "defects" / f"{MUTANT}.scn"
    assert as_json("run", kept, "--mutant", MUTANT, code=1)["verdict"] == "violated"
    assert as_json("run", kept)["verdict"] == "ok"
    assert "steps" in bk_chaos("mutants", *options).stdout


def test_only_plans_can_be_shrunk(tmp_path: Path) -> None:
    result = bk_chaos("mutants", "--scenario", "dead-writer", "--shrink", tmp_path)
    assert result.exit_code == 2
    assert "no plan is called dead-writer" in result.stderr


def test_a_mutant_that_is_not_caught_has_nothing_to_shrink(tmp_path: Path) -> None:
    options = ["--mutant", MUTANT, "--scenario", "happy-path", "--seeds", 2, "--processes", 1, "--shrink", tmp_path]
    (hunt,) = as_json("mutants", *options, code=1)["mutants"]
    assert (hunt["caught"], hunt["shrunk_steps"]) == (False, None)
    assert list(tmp_path.iterdir()) == []


def test_a_defect_that_no_run_shows_is_looked_for_in_its_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs show all there are, so one is said not to be shown."""
    in_runs_too = {name: mutant for name, mutant in RUN_MUTANTS.items() if name != "fault-domains-ignored"}
    monkeypatch.setattr("scenarios.cli.mutants.RUN_MUTANTS", in_runs_too)
    monkeypatch.setattr("scenarios.mutants.RUN_MUTANTS", in_runs_too)
    options = ("--mutant", "fault-domains-ignored", "--mutant", MUTANT, "--seeds", 60, "--processes", 1)
    shown = as_json("mutants", *options)["mutants"]
    assert [hunt["name"] for hunt in shown] == ["fault-domains-ignored", MUTANT]
    in_world, in_runs = shown
    assert (in_world["caught"], in_world["tier"], in_world["policy"]) == (True, "machines", "walks")
    assert (in_world["scenario"], in_world["clause"]) == ("fault-domains", "A13")
    assert 1 <= in_world["seeds_to_find"] <= 60
    assert 1 <= in_world["shrunk_steps"] <= 10
    assert (in_runs["caught"], in_runs["tier"], in_runs["policy"]) == (True, "objects", None)
    refused = bk_chaos("mutants", *options, "--scenario", "happy-path")
    assert (refused.exit_code, "no scenario shows fault-domains-ignored" in refused.stderr) == (2, True)


# determinism -------------------------------------------------------------------------------------------------------


def test_determinism_counts_its_runs() -> None:
    assert as_json("determinism", "calm-writes", "--seeds", 1, "--first-seed", 3) == {
        "seeds": 1,
        "first_seed": 3,
        "runs": 3,
        "places": ["another process"],
        "diverged": [],
    }


def test_runs_that_differ_are_a_finding_with_their_first_event(monkeypatch: pytest.MonkeyPatch) -> None:
    event = Event(4, 9, "b0", Kind.BK_LAC, 1, {"lac": 2})
    found = Divergence("calm-writes", 0, "another process", Difference(4, event, None))
    result = DeterminismResult(1, 3, (found,))
    monkeypatch.setattr(scenarios.cli.determinism, "check_determinism", lambda *_args, **_options: result)
    shown = as_json("determinism", code=1)
    assert shown["diverged"][0]["difference"]["one"]["kind"] == "BK_LAC"
    text = bk_chaos("determinism").stdout
    assert "calm-writes, seed 0: different in another process" in text
    assert "first: 9 us b0 BK_LAC ledger=1 lac=2" in text
    assert "then: no such event" in text


def test_violations_are_printed_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    violated = result_of("calm-writes", 0, verdict="violated", violations=(Violation("A3", 4, "seen"),))
    monkeypatch.setattr(scenarios.cli.runs, "run_scenario", lambda *_args, **_options: violated)
    result = bk_chaos("run", "calm-writes")
    assert result.exit_code == 1
    assert "AcksInOrder (A3), ledger 4: seen" in result.stdout
