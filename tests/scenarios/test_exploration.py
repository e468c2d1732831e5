"""Worlds of machines are explored by name; what breaks a clause is told by a schedule with nothing superfluous in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from scenarios.cli.app import app
from scenarios.exploration import Bounds, explore_world
from scenarios.machines.broken import BrokenAssertion, BrokenClause
from scenarios.machines.explore import EVERY_ORDER, explore
from scenarios.machines.options_world import OptionsWorld
from scenarios.machines.walks import Move, narrated, repeat, shrunk, walk
from scenarios.machines.world import Configuration, MachineWorld
from scenarios.machines.worlds import PREPARED, WORLDS
from scenarios.mutants import MACHINE_MUTANTS, MUTANTS

UNFENCED = "recovery-reads-do-not-fence"
LIMITS = Bounds(walks=5000)
SETTLING = "everything in flight arrives"
#: Found by one of the first few hundred walks in their worlds; enough of each file of mutants.
QUICKLY_FOUND = (
    "recovery-takes-silence-for-denial",
    "recovery-starts-below-last-fragment",
    "recovery-lac-advances",
    "acks-during-ensemble-change",
    "change-ignores-takeover",
    "nothing-resent-after-change",
    "force-covers-what-came-meanwhile",
    "only-first-entry-retried",
)


def explored(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["explore", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout


def as_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(explored(*arguments, "--json", code=code))
    return shown


def broken_by(make: Callable[[], MachineWorld], schedule: list[Move]) -> str | None:
    try:
        repeat(make(), schedule)
    except BrokenClause as broken:
        return broken.clause
    return None


# Schedules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_what_a_walk_finds_is_shrunk_to_a_schedule_that_breaks_the_same_clause(name: str) -> None:
    mutant = MACHINE_MUTANTS[name]
    named = WORLDS[mutant.world]
    found = explore_world(named, LIMITS, mutant)
    assert found.broken is not None
    assert found.broken.clause in mutant.clauses
    assert found.seed is not None
    with mutant.applied():
        assert broken_by(named.make, found.schedule) == found.broken.clause
        made: list[Move] = []
        with pytest.raises(BrokenClause):
            walk(named.make(), found.seed, LIMITS.moves, made).settle()
        assert broken_by(named.make, made) == found.broken.clause
        assert len(found.schedule) <= len(made)
        assert set(found.story) <= {*narrated(named.make, made), SETTLING}, (
            "what is left happens to what it happened to"
        )
    assert broken_by(named.make, found.schedule) is None, "the shipped machines break nothing"


def test_no_move_of_a_shrunk_schedule_can_be_left_out() -> None:
    mutant = MUTANTS["recovery-lac-advances"]
    named = WORLDS[mutant.world]
    found = explore_world(named, LIMITS, mutant)
    assert len(found.schedule) > 3
    with mutant.applied():
        again, broken = shrunk(named.make, found.schedule)
        assert (again, broken.clause) == (found.schedule, "D6")


def test_a_schedule_that_breaks_nothing_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="breaks no clause"):
        shrunk(WORLDS["one-copy"].make, [Move("append", 0)])


def test_an_assertion_of_a_machine_is_told_as_what_it_is() -> None:
    world = WORLDS["one-copy"].make()
    world.move("append", 0)
    world.writer.machine.adds.last_add_pushed = -1
    world.move("request arrives", 0)
    with pytest.raises(BrokenAssertion) as caught:
        world.move("answer arrives", 0)
    assert caught.value.name == "an assertion of a machine"
    assert isinstance(caught.value.__cause__, AssertionError)


# Searches ----------------------------------------------------------------------------------------------------------


def test_a_search_finds_the_shortest_schedule() -> None:
    with MUTANTS[UNFENCED].applied():
        found = explore(PREPARED["add-under-way"].make, EVERY_ORDER, states=5000)
    assert found.broken is not None
    assert found.broken.clause == "E5"
    assert not found.is_whole
    assert len(found.schedule) == found.depth + 1


@pytest.mark.parametrize("bounds", [Bounds(states=50), Bounds(depth=5)])
def test_a_search_that_meets_a_bound_is_not_whole(bounds: Bounds) -> None:
    found = explore_world(PREPARED["two-recoveries"], bounds)
    assert not found.is_whole
    assert found.broken is None
    assert found.states <= 50
    assert bounds.depth is None or found.depth == bounds.depth


def test_only_worlds_that_can_be_copied_are_prepared_for_a_search() -> None:
    for named in PREPARED.values():
        assert named.make().copy().store.value == named.make().store.value
    with pytest.raises(TypeError, match="OptionsWorld"):
        OptionsWorld(Configuration(1, 1, 1, bookies=1, entries=1, recoveries=1)).copy()


def test_worlds_have_names_and_words() -> None:
    for name, named in {**PREPARED, **WORLDS}.items():
        assert named.name == name
        assert named.summary
        assert (named.prepare is not None) == (name in PREPARED)


# The command -------------------------------------------------------------------------------------------------------


def test_worlds_without_a_defect_hold() -> None:
    shown = as_json("two-recoveries", "one-copy", "--walks", 20)
    search, walks = shown["worlds"]
    assert (search["world"], search["how"], search["whole"], search["broken"]) == (
        "two-recoveries",
        "search",
        True,
        None,
    )
    assert (walks["world"], walks["how"], walks["broken"]) == ("one-copy", "walks", None)
    assert search["ends"] == {"0": search["ends"]["0"]}
    assert shown["states"] == search["states"] + walks["states"]
    assert shown["depth"] == max(search["depth"], walks["depth"])
    assert shown["states_per_second"] > 0
    assert shown["broken"] == 0
    text = explored("two-recoveries")
    assert "search" in text
    assert "holds" in text


def test_a_defect_is_found_in_its_world_and_told() -> None:
    shown = as_json("--mutant", "one-denial-decides", code=1)
    (found,) = shown["worlds"]
    assert found["world"] == MUTANTS["one-denial-decides"].world
    assert found["broken"]["clause"] == "E3"
    assert found["broken"]["invariant"] == "NegativeCoverage"
    assert len(found["broken"]["story"]) in {len(found["broken"]["schedule"]), len(found["broken"]["schedule"]) + 1}
    text = explored("--mutant", "one-denial-decides", code=1)
    assert f"NegativeCoverage (E3) in either-copy, seed {found['broken']['seed']}: " in text
    assert "   1 " in text


def test_a_walk_is_the_same_with_the_same_seed() -> None:
    first, second, third = (
        as_json("rivals-3-3-2", "--walks", 5, "--seed", seed)["worlds"][0]["states"] for seed in (7, 7, 8)
    )
    assert first == second != third


def test_a_search_that_is_not_whole_proves_nothing() -> None:
    assert not as_json("two-recoveries", "--states", 50, code=3)["worlds"][0]["whole"]
    assert "not whole" in explored("two-recoveries", "--depth", 3, code=3)


def test_waiting_answers_make_more_states() -> None:
    at_once, waiting = (as_json("changing-writer", *option)["states"] for option in ((), ("--answers-wait",)))
    assert waiting > at_once


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("two-recovery",), "no world is called two-recovery; did you mean two-recoveries?"),
        (("--mutant", "one-denial"), "no mutant is called one-denial; did you mean one-denial-decides?"),
        (("--mutant", "digests-are-not-verified"), "no world of machines shows digests-are-not-verified"),
    ],
)
def test_names_that_mean_nothing_here_are_refused(arguments: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(app, ["explore", *arguments])
    assert result.exit_code == 2
    assert told in result.stderr
    assert not result.stdout


def test_runs_refuse_a_defect_that_only_machines_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.mutants.RUN_MUTANTS", {})
    result = CliRunner().invoke(app, ["run", "calm-writes", "--mutant", "fault-domains-ignored"])
    assert result.exit_code == 2
    assert "bk-chaos explore --mutant fault-domains-ignored" in result.stderr
