"""Proving runs deterministic, and finding where one is not."""

from __future__ import annotations

import itertools
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import scenarios.determinism
from scenarios.determinism import (
    Repeats,
    UnusablePythonError,
    check_determinism,
    digests_elsewhere,
    first_difference,
    other_hashes,
)
from scenarios.history import HistoryError, HistoryWriter, Kind
from scenarios.model import RunResult, TransportKind
from scenarios.plan.named import plan_named
from scenarios.runner import run_scenario


def elsewhere(name: str, seed: int) -> Repeats:
    (place,) = other_hashes(1)
    return Repeats(((name, seed),), None, TransportKind.OBJECTS, place=place)


def history(path: Path, lacs: list[int], **header: str) -> Path:
    writer = HistoryWriter(header, itertools.count().__next__, path)
    for lac in lacs:
        writer.record(Kind.BK_LAC, "b0", 1, lac=lac)
    writer.close()
    return path


def test_equal_events_are_no_difference_whatever_the_headers_say(tmp_path: Path) -> None:
    one = history(tmp_path / "one", [1, 2], package_version="1")
    other = history(tmp_path / "other", [1, 2], package_version="2")
    assert first_difference(one, other) is None


def test_the_first_event_that_differs_is_found(tmp_path: Path) -> None:
    one, other = history(tmp_path / "one", [1, 2, 3]), history(tmp_path / "other", [1, 5, 6])
    difference = first_difference(one, other)
    assert difference is not None
    assert difference.seq == 1
    assert difference.as_json()["one"]["lac"] == 2
    assert difference.as_json()["other"]["lac"] == 5


def test_a_history_that_ends_early_differs_where_it_ends(tmp_path: Path) -> None:
    one, other = history(tmp_path / "one", [1]), history(tmp_path / "other", [1, 2])
    difference = first_difference(one, other)
    assert difference is not None
    assert difference.one is None
    assert difference.seq == 1
    assert difference.as_json()["one"] is None


def test_a_history_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryError):
        first_difference(history(tmp_path / "one", [1]), tmp_path / "missing")


def test_runs_come_out_the_same_here_again_and_elsewhere() -> None:
    told: list[tuple[int, int, int]] = []
    result = check_determinism(range(2), ["calm-writes"], progress=lambda *steps: told.append(steps))
    assert result.as_json() == {"seeds": 2, "first_seed": 0, "runs": 6, "places": ["another process"], "diverged": []}
    assert told == [(2, 2, 0)]


@pytest.mark.deep
def test_plans_of_files_and_those_that_are_drawn_come_out_the_same_under_other_hash_seeds_and_by_an_interpreter() -> (
    None
):
    mine = {"mine.scn": replace(plan_named("add-loss-one", 0), name="mine")}
    result = check_determinism(
        range(4), ["mine.scn", "swarm"], in_turn=True, plans=mine, hash_seeds=2, pythons=[sys.executable], processes=2
    )
    assert (result.runs, result.diverged) == (5 * 4, ())
    assert result.places[0] == "another process"
    assert result.places[1].startswith("another process with hash seed ")
    assert result.places[2] == f"{platform.python_implementation()} {platform.python_version()}"


def test_an_interpreter_that_cannot_make_runs_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UnusablePythonError, match=r"none cannot be started: No such file"):
        check_determinism([0], ["calm-writes"], pythons=[str(tmp_path / "none")])
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\necho 'ModuleNotFoundError: no msgpack' >&2\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(UnusablePythonError, match=r"cannot make runs \(ModuleNotFoundError: no msgpack\)"):
        check_determinism([0], ["calm-writes"], pythons=[str(bare)])


def test_a_run_that_hangs_on_what_ran_before_it_is_found_with_its_first_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run in this process counts one further, as a forgotten global would; a fresh process starts at one."""
    made = itertools.count(1)

    def leaking(
        name: str, seed: int, *, mutant: str | None = None, record: Path | None = None, transport: TransportKind
    ) -> RunResult:
        assert (name, mutant, transport) == ("calm-writes", None, TransportKind.OBJECTS)
        writer = HistoryWriter({}, lambda: 0, None if record is None else record / "run.bkh")
        writer.record(Kind.BK_LAC, "b0", 1, lac=seed)
        writer.record(Kind.BK_LAC, "b0", 1, lac=next(made))
        writer.close()
        path = "" if record is None else str(record / "run.bkh")
        return RunResult(name, seed, writer.digest, 2, 0.0, 0.0, "ok", path=path)

    monkeypatch.setattr(scenarios.determinism, "run_scenario", leaking)
    result = check_determinism([3], ["calm-writes"], processes=1)
    here, elsewhere = result.diverged
    assert (here.scenario, here.seed, here.where) == ("calm-writes", 3, "the same process")
    assert here.difference is not None
    assert here.difference.seq == 1
    assert elsewhere.where == "another process"
    assert elsewhere.difference is not None
    assert elsewhere.difference.seq == 0
    assert result.as_json()["diverged"][0]["difference"]["seq"] == 1


def test_a_repetition_that_fails_outright_is_told() -> None:
    with pytest.raises(RuntimeError, match="no-such-scenario"):
        digests_elsewhere(elsewhere("no-such-scenario", 0))


def test_a_fresh_process_makes_the_run_this_one_makes(tmp_path: Path) -> None:
    """The digests compared are those of whole runs, not of something empty."""
    (digest,) = digests_elsewhere(elsewhere("calm-writes", 1), tmp_path)
    here = run_scenario("calm-writes", 1)
    assert digest == here.digest
    assert here.events > 100
    assert [path.name for path in tmp_path.iterdir()] == ["calm-writes-1.bkh"]
