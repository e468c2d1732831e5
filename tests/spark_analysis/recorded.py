"""Histories written to files, for tests of what reads and judges them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from scenarios.history import Event, HistoryWriter
from tests.scenarios.stories import Story

__all__ = ["bystander", "record"]


def record(path: Path, *stories: Story, scenario: str = "story", seed: int = 0, events: Iterable[Event] = ()) -> Path:
    """Write the events of ``stories``, one after the other, and then ``events``, to one history file."""
    told = [*(event for story in stories for event in story.events), *events]
    times = iter(range(0, 1000 * len(told), 1000))
    writer = HistoryWriter({"scenario": scenario, "seed": seed}, lambda: next(times), path)
    for event in told:
        writer.record(event.kind, event.actor, event.ledger, **event.fields)
    writer.close()
    return path


def bystander(ledger: int = 8) -> Story:
    """A short, blameless ledger, to share a history with one that is not."""
    story = Story(ledger=ledger)
    story.create()
    story.write_all(0, 1)
    story.close(1)
    return story
