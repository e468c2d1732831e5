"""Runs and their events, for tests of scenarios, stage and recorders."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scenarios.conditions import Conditions, draw_conditions
from scenarios.history import Event, HistoryWriter, Kind, read_history
from scenarios.model import RunResult
from scenarios.recording.recorders import Recorder
from scenarios.runner import run_scenario
from scenarios.stage import Stage
from simbookie.world.hosts import World

__all__ = ["Played", "perform", "play", "seeds_with", "where"]


@dataclass(frozen=True)
class Played:
    """One run of a scenario and everything that was recorded of it."""

    result: RunResult
    events: tuple[Event, ...]

    def of(self, kind: Kind, **fields: Any) -> list[Event]:
        """Its events of one kind with these field values."""
        return list(where(self.events, kind, **fields))


@cache
def play(scenario: str, seed: int, mutant: str | None = None) -> Played:
    """Run a scenario; the same run is made once for all tests of a process."""
    with tempfile.TemporaryDirectory() as folder:
        result = run_scenario(scenario, seed, mutant=mutant, record=Path(folder))
        _, events = read_history(result.path)
    return Played(result, tuple(events))


def where(events: Iterable[Event], kind: Kind, **fields: Any) -> Iterator[Event]:
    """The events of one kind with these values of fields, of common ones too."""
    for event in events:
        if event.kind == kind and all(
            (getattr(event, name) if name in {"actor", "ledger"} else event.fields[name]) == value
            for name, value in fields.items()
        ):
            yield event


def seeds_with(scenario: str, seeds: Iterable[int], holds: Callable[[Played], object]) -> list[int]:
    """The seeds whose run of the scenario has what is looked for."""
    return [seed for seed in seeds if holds(play(scenario, seed))]


def perform(
    story: Callable[[Stage], Awaitable[None]], *, seed: int = 0, conditions: Conditions | None = None
) -> list[Event]:
    """Let ``story`` direct a stage of its own, bookies started; returns what was recorded."""
    conditions = conditions if conditions is not None else draw_conditions(seed)
    events: list[Event] = []
    with World(seed, network=conditions.network, metadata=conditions.metadata, limits=conditions.limits) as world:
        history = HistoryWriter({}, world.clock_us)
        history.listeners.append(events.append)
        stage = Stage(world, Recorder(history), conditions)

        async def direct() -> None:
            await stage.start_bookies()
            await story(stage)

        world.run(direct)
    return events
