"""Runs over objects and over bytes come to the same, and what does not is told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

import scenarios.comparing
from scenarios.comparing import compare_transports
from scenarios.history import Event
from scenarios.model import TransportKind, Violation
from scenarios.specification.histories.conformance import ConformedHistory, NotSpecified
from scenarios.units import Unit, UnitOutcome
from scenarios.units import work as work_here
from tests.scenarios.test_cli import bk_chaos

BYTES = TransportKind.BYTES


@pytest.mark.deep
def test_runs_come_to_the_same() -> None:
    result = compare_transports(range(2), ["dead-writer", "swarm-live"], processes=1)
    assert (result.pairs, result.differences, result.is_fine) == (4, [], True)


def altered(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Let runs over bytes come to something else."""

    def work(unit: Unit) -> UnitOutcome:
        outcome = work_here(unit)
        if unit.transport is not BYTES:
            return outcome
        return replace(outcome, results=tuple(replace(one, **fields) for one in outcome.results))

    monkeypatch.setattr(scenarios.comparing, "work", work)


@pytest.mark.deep
def test_another_verdict_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    altered(monkeypatch, verdict="violated", violations=(Violation("A1", 0, "a witness"),))
    (found,) = compare_transports(range(1), ["dead-writer"], processes=1).differences
    assert (found.over_objects, found.over_bytes) == ("ok", "violated (A1)")
    shown = bk_chaos("transports", "dead-writer", "--seeds", 1, "--first-seed", 0, "--processes", 1)
    assert shown.exit_code == 1
    assert "dead-writer, seed 0\n  over objects: ok\n  over bytes:   violated (A1)" in shown.output
    told = json.loads(
        bk_chaos("transports", "dead-writer", "--seeds", 1, "--first-seed", 0, "--processes", 1, "--json").output
    )
    assert told["differences"] == [{"scenario": "dead-writer", "seed": 0, "objects": "ok", "bytes": "violated (A1)"}]


def test_a_run_that_ended_at_a_limit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    altered(monkeypatch, verdict="unknown", problem="a limit")
    (found,) = compare_transports(range(1), ["dead-writer"], processes=1).differences
    assert found.over_bytes == "unknown (a limit)"


def test_a_run_that_missed_what_it_is_about_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    altered(monkeypatch, verdict="unknown", problem="never met", missed=("fenced-writer",))
    result = compare_transports(range(1), ["dead-writer"], processes=1)
    assert (result.differences, result.missed) == ([], 1)


def test_an_event_that_is_not_specified_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where no clause is broken."""
    wrong = NotSpecified(7, "writer", "ADD_SEND", 0, "something else")

    def conform_history(events: Iterable[Event]) -> ConformedHistory:
        kept.append(list(events))
        return ConformedHistory(wrong=[wrong] * (len(kept) > 1))

    kept: list[list[Event]] = []
    monkeypatch.setattr(scenarios.comparing, "conform_history", conform_history)
    (found,) = compare_transports(range(1), ["dead-writer"], processes=1).differences
    assert (found.over_objects, found.over_bytes) == ("ok", "ok; something else")


@pytest.mark.deep
def test_an_interrupt_ends_it_with_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Unit] = []

    def work(unit: Unit) -> UnitOutcome:
        calls.append(unit)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return work_here(unit)

    monkeypatch.setattr(scenarios.comparing, "work", work)
    result = compare_transports(range(9), ["calm-writes"], processes=1)
    assert (result.is_interrupted, result.pairs) == (True, 8)


def test_a_run_that_could_not_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    altered(monkeypatch, verdict="unknown", problem="KeyError: x", path="")
    (found,) = compare_transports(range(1), ["dead-writer"], processes=1).differences
    assert found.over_bytes == "unknown (KeyError: x)"
