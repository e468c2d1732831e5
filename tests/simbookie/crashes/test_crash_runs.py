"""Random crashes violate nothing, are the same every time, and see BookKeeper's defects."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from simbookie.cli.app import app
from simbookie.crashes.hunts import SHOWN_BY_CHANCE, SWITCHES, UNWAITED_FENCES, Switch, hunt, name_of
from simbookie.crashes.invariants import INVARIANTS
from simbookie.crashes.kinds import STORE_KINDS
from simbookie.crashes.recipes import RECIPES, Life, Recipe
from simbookie.crashes.runs import CrashRun, play_life, run_with
from simbookie.crashes.settings import RunSettings
from simbookie.crashes.subject import Subject
from simbookie.crashes.sweep import sweep
from simbookie.storage.base import CrashMode
from simbookie.storage.quirks import REPAIRED, Quirk
from tests.simbookie.crashes.stories import OTHER_LOGS, SHARED_LOGS

pytestmark = pytest.mark.deep  # hundreds of runs

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "crash-matrix.md"

SLOTS = st.integers(0, 3)
SHARES = st.floats(0, 0.99)
ADDS = st.tuples(
    st.just("add"), SLOTS, st.sampled_from([0, 100, 400, 900]), st.sampled_from(["ordinary", "deferred", "recovery"])
)
OPERATIONS = st.one_of(
    ADDS,
    ADDS,
    ADDS,
    st.tuples(st.sampled_from(["fence", "lac", "force", "read", "read_last", "delete", "add_again"]), SLOTS, SHARES),
    st.tuples(st.just("collect"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.0005, 0.003, 0.05])),
)
LIVES = st.lists(
    st.tuples(st.lists(OPERATIONS, max_size=25), st.integers(1, 120), st.sampled_from(list(CrashMode)), st.booleans()),
    min_size=1,
    max_size=4,
)


@pytest.mark.rule("I1")
@pytest.mark.rule("I2")
@pytest.mark.rule("I3")
@pytest.mark.rule("I4")
@pytest.mark.rule("I5")
@pytest.mark.rule("I6")
@pytest.mark.rule("I7")
@pytest.mark.rule("I8")
@pytest.mark.rule("I9")
@pytest.mark.rule("I10")
@pytest.mark.rule("I11")
@pytest.mark.rule("I12")
@pytest.mark.rule("I13")
@pytest.mark.rule("I14")
@pytest.mark.rule("I15")
@pytest.mark.rule("I16")
@pytest.mark.rule("I17")
@pytest.mark.rule("I18")
@pytest.mark.rule("I19")
@SHARED_LOGS
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(lives=LIVES, seed=st.integers(0, 1_000), in_transactions=st.booleans(), covers_names=st.booleans())
def test_no_schedule_violates_an_invariant(
    kind: str, lives: list[Any], seed: int, *, in_transactions: bool, covers_names: bool
) -> None:
    subject = Subject(RunSettings(kind, seed, syncs_cover_names=covers_names, in_transactions=in_transactions))
    for operations, crash_at, mode, ends_in_order in lives:
        play_life(subject, operations, crash_at=crash_at, mode=mode, ends_in_order=ends_in_order)
    play_life(subject, [], is_last=True)
    assert subject.violations == []


@pytest.mark.deep
@SHARED_LOGS
def test_runs_of_seeds_violate_nothing_and_do_not_depend_on_workers(kind: str) -> None:
    alone = sweep(kind, range(20), processes=1)
    assert alone.violated == {}
    assert alone.runs == 20
    assert len(alone.seen) > 15
    shared = sweep(kind, range(20), processes=2)
    assert (shared.digest, shared.seen) == (alone.digest, alone.seen)
    assert sweep(kind, range(1, 21), processes=1).digest != alone.digest


def as_found(kind: str, seed: int, quirks: frozenset[Quirk] = REPAIRED) -> CrashRun:
    """A run that was found before some runs had ledgers that are deleted soon."""
    return run_with(replace(RunSettings.draw(kind, seed, quirks), is_dropping=False))


@pytest.mark.parametrize("seed", [5_472, 10_273, 15_258])
def test_what_an_entry_that_was_sent_again_left_behind_is_no_violation(seed: int) -> None:
    """A location that leads nowhere since a power loss, and a copy whose sync failed, which the power loss then tore."""
    assert as_found("interleaved", seed).violations == ()


def test_a_torn_key_is_seen_and_replaces_none() -> None:
    """Found by one run in 20,000: the third life tears the key that the second one journalled again."""
    replaced = as_found("db", 10_880, frozenset({Quirk.ZERO_RECORDS_REPLAYED})).violations
    assert {violation.invariant for violation in replaced} == {"I7", "I19"}
    assert as_found("db", 10_880).violations == ()


@OTHER_LOGS
def test_runs_over_other_entry_logs_violate_nothing(kind: str) -> None:
    found = sweep(kind, range(8), processes=1)
    assert found.violated == {}
    assert len(found.seen) > 5


@pytest.mark.parametrize(
    ("switch", "first_seed"),
    [
        (Quirk.COPIES_REPLACED_EARLY, 330),
        (Quirk.KEYLESS_FENCES, 0),
        (Quirk.ROLLED_FILE_SYNCED_LATE, 90),
        (Quirk.MARKS_IN_PLACE, 10),
        (Quirk.FORCE_WITHOUT_SYNC, 60),
        (Quirk.EXPLICIT_LAC_UNWRITTEN, 0),
        (Quirk.EXPLICIT_LAC_REPLACED, 0),
        (Quirk.EMPTY_MAP_BELIEVED, 60),
        (Quirk.IDLE_CHECKPOINT_SKIPPED, 0),
        (Quirk.END_OF_LOG_DENIES, 0),
        (UNWAITED_FENCES, 0),
        *((quirk, 0) for quirk in RECIPES),
    ],
)
def test_defects_of_bookkeeper_are_seen_and_the_same_run_is_right_without_them(switch: Switch, first_seed: int) -> None:
    found = hunt(switch, first_seed)
    assert found.is_shown, found
    expected = RECIPES[switch].violates if isinstance(switch, Quirk) and switch in RECIPES else None
    assert set(found.violated) <= set(expected if expected is not None else SHOWN_BY_CHANCE[switch].invariants)
    assert found.violated or found.answers, "it shows in one way or the other"


def test_each_defect_is_shown_in_one_way() -> None:
    assert not SHOWN_BY_CHANCE.keys() & RECIPES.keys()
    assert SHOWN_BY_CHANCE.keys() | RECIPES.keys() == set(SWITCHES)
    assert {UNWAITED_FENCES, *Quirk} == set(SWITCHES)
    assert {shown.kind for shown in SHOWN_BY_CHANCE.values()} <= STORE_KINDS.keys()
    for recipe in RECIPES.values():
        assert bool(recipe.violates) is not bool(recipe.answers), "an invariant or an answer"
        assert recipe.answers is None or recipe.answers[0] != recipe.answers[1]


def test_a_quirk_that_the_budget_is_too_small_for_is_not_shown() -> None:
    found = hunt(Quirk.ZERO_RECORDS_REPLAYED, budget=2)
    assert (found.run, found.is_shown, found.budget) == (0, False, 2)


LAC_ASKED = (Life((("ask", "lac", 0),)),)


@pytest.mark.parametrize(
    ("recipe", "run", "is_absent"),
    [
        (Recipe("sorted", (Life(),), violates=("I1",)), 0, True),
        (replace(RECIPES[Quirk.OLD_COPIES_CACHED], violates=("I1",)), 0, True),
        (replace(RECIPES[Quirk.OLD_COPIES_CACHED], answers=("", "")), 0, True),
        (Recipe("sorted", LAC_ASKED, answers=("there is no ledger", "the LAC is 0")), 1, False),
        (Recipe("sorted", LAC_ASKED, answers=("the LAC is 0", "there is no ledger")), 0, True),
    ],
    ids=["nothing shows", "another invariant", "violations and no answer", "the same without", "another answer"],
)
def test_a_recipe_that_shows_something_else_than_it_says_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, recipe: Recipe, run: int, *, is_absent: bool
) -> None:
    monkeypatch.setitem(RECIPES, Quirk.OLD_COPIES_CACHED, recipe)
    found = hunt(Quirk.OLD_COPIES_CACHED)
    assert (found.run, found.is_absent_repaired, found.is_shown) == (run, is_absent, False)


def test_every_check_that_an_invariant_names_is_there() -> None:
    for invariant in INVARIANTS.values():
        module, _, name = invariant.check.partition(".")
        loaded = importlib.import_module(f"simbookie.crashes.{module}")
        owner = loaded.Watch if module == "watch" else loaded
        assert callable(getattr(owner, name)), invariant


def test_the_page_has_the_statements_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (I\d+) \| ([^|]+) \| pinned \|$", page, re.MULTILINE))
    assert rows == {invariant.name: invariant.statement for invariant in INVARIANTS.values()}


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["crashes", *arguments])


def test_the_command_tells_what_it_did() -> None:
    result = invoke("--runs", "10", "--storage", "interleaved", "--processes", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "10 runs over the interleaved store, quirks: repaired" in result.stdout
    assert "no invariant was violated" in result.stdout
    told = json.loads(invoke("--runs", "10", "--storage", "interleaved", "--processes", "1", "--json").stdout)
    assert told["digest"] in result.stdout
    assert (told["runs"], told["violated"]) == (10, {})


def test_the_command_ends_with_1_if_something_is_violated() -> None:
    result = invoke("--runs", "20", "--quirks", "explicit-lac-unwritten", "--processes", "1")
    assert result.exit_code == 1
    assert "I1" in result.stdout


@pytest.mark.deep
def test_the_command_tells_of_each_defect_of_bookkeeper_how_it_is_shown_and_within_what() -> None:
    result = invoke("--quirks", "faithful", "--runs", "1", "--processes", "1")
    assert result.exit_code == 1, "one run does not show all"
    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[1:]}
    assert rows.keys() == {name_of(switch) for switch in SWITCHES}
    assert rows["last-entry-of-newest"] == ["sorted", "recipe", "1", "1", "I14"]
    assert rows["zero-records-replayed"] == ["interleaved", "chance", "1", "-", "NOT", "SEEN"]
    assert " ".join(rows["explicit-lac-unloaded"]) == "sorted recipe 1 1 the LAC is 1 (the LAC is 2)"
    told = json.loads(invoke("--quirks", "faithful", "--runs", "1", "--processes", "2", "--json").stdout)["hunts"]
    hunts = {each["quirk"]: each for each in told}
    assert hunts.keys() == rows.keys()
    assert hunts["explicit-lac-unloaded"]["answers"] == {"faithful": "the LAC is 1", "repaired": "the LAC is 2"}
    assert hunts["zero-records-replayed"]["answers"] is None


def test_the_command_shows_one_defect_alone() -> None:
    result = invoke("--quirks", "faithful", "--only", "replay-gives-up")
    assert result.exit_code == 0
    (row,) = result.stdout.splitlines()[1:]
    assert row.split() == ["replay-gives-up", "db", "recipe", "1", "1", "I1"]
    told = json.loads(invoke("--quirks", "faithful", "--only", "error_waits_for_fence=False", "--json").stdout)
    ((found,)) = told["hunts"]
    assert (found["quirk"], found["absent_repaired"], found["run"] > 0) == ("error_waits_for_fence=False", True, True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "replay-gives-up"], "needs --quirks faithful"),
        (["--quirks", "faithful", "--only", "sloppy"], "must be one of checkpoints-compared-by-first, "),
        (["--storage", "tape"], " or ".join(STORE_KINDS)),
        (["--quirks", "sloppy"], "must be repaired, faithful or one of"),
        (["--runs", "0"], "--runs"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], complaint: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.replace("│", " ").split())
