"""The relations that invariants share: derived once, by several threads that ask at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from unittest.mock import Mock

import pytest

from spark_analysis.invariants import by_kind, relations
from spark_analysis.invariants.facts import Facts


def facts_of(monkeypatch: pytest.MonkeyPatch, events: str) -> Facts:
    """Facts of events that nobody looks at."""
    monkeypatch.setattr(by_kind, "is_kind", Mock())
    return Facts(Mock(name=events, columns=["history", "kind"]))


def test_a_relation_is_derived_once_whichever_threads_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, derived = Barrier(2), []

    def derive(events: object) -> object:
        derived.append(events)
        return Mock(name=f"relation {len(derived)}")

    monkeypatch.setattr(relations, "ledgers", derive)
    facts = facts_of(monkeypatch, "events")

    def ask(_: int) -> object:
        begun.wait(10)
        return facts.ledgers

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ask, range(2))
    assert first is second
    assert len(derived) == 1


def test_facts_of_other_events_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "ledgers", lambda events: ("ledgers", events))
    assert facts_of(monkeypatch, "a").ledgers is not facts_of(monkeypatch, "b").ledgers
