"""The relations that invariants share: derived once, by several threads that ask at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from unittest.mock import Mock

import pytest

from spark_analysis.invariants import relations
from spark_analysis.invariants.facts import Facts


def test_a_relation_is_derived_once_whichever_threads_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, derived = Barrier(2), []

    def derive(events: object) -> object:
        derived.append(events)
        return Mock(name=f"relation {len(derived)}")

    monkeypatch.setattr(relations, "rare_events", derive)
    facts = Facts(Mock(name="events"))

    def ask(_: int) -> object:
        begun.wait(10)
        return facts.rare_events

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ask, range(2))
    assert first is second
    assert len(derived) == 1


def test_facts_of_other_events_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "rare_events", lambda events: ("rare", events))
    assert Facts(Mock(name="a")).rare_events is not Facts(Mock(name="b")).rare_events
