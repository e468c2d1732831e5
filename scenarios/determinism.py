"""Checks that a run depends on its seed alone, and finds the first event that differs otherwise.

Each run is made three times: twice in this process, to detect state left by earlier runs, and once in a new process with
another ``PYTHONHASHSEED``, to detect a dependency on the order of sets or on addresses. Equal digests over all events mean that
the same events happened at the same times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from scenarios.history import Event, History
from scenarios.model import TransportKind
from scenarios.runner import run_scenario

__all__ = [
    "HAS_ENDED",
    "DeterminismResult",
    "Difference",
    "Divergence",
    "check_determinism",
    "event_line",
    "first_difference",
    "is_same_event",
]

#: Instead of an event, where a history has ended before.
HAS_ENDED: Final = "no such event, the history has ended"

_RUNS_PER_CHILD: Final = 64


@dataclass(frozen=True, slots=True)
class Difference:
    """The first position where two histories differ; an event is None if its history has ended before."""

    seq: int
    one: Event | None
    other: Event | None

    def as_json(self) -> dict[str, Any]:
        """Position and both events, None for one that does not exist."""
        return {"seq": self.seq, "one": _shown(self.one), "other": _shown(self.other)}


@dataclass(frozen=True, slots=True)
class Divergence:
    """A run with another digest than the first. ``where`` names the process it was made in."""

    scenario: str
    seed: int
    where: str
    difference: Difference | None

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos determinism --json`` prints."""
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "where": self.where,
            "difference": None if self.difference is None else self.difference.as_json(),
        }


@dataclass(frozen=True, slots=True)
class DeterminismResult:
    """``runs`` counts every run made, three for each seed and scenario."""

    seeds: int
    runs: int
    diverged: tuple[Divergence, ...]

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos determinism --json`` prints."""
        return {
            "seeds": self.seeds,
            "runs": self.runs,
            "diverged": [divergence.as_json() for divergence in self.diverged],
        }


def event_line(event: Event) -> str:
    """An event for people, in one line."""
    fields = " ".join(f"{name}={value}" for name, value in event.fields.items())
    return f"{event.time_us} us {event.actor} {event.kind} ledger={event.ledger} {fields}"


def first_difference(one: Path, other: Path) -> Difference | None:
    """The first event in which two recorded histories differ; None if they hold the same events.

    Headers are not compared, nor are fields that only one of the histories has, because another version recorded it.
    Raises :class:`~scenarios.history.HistoryError` for a file that cannot be read.
    """
    for seq, (left, right) in enumerate(zip_longest(History(one).events(), History(other).events())):
        if left is None or right is None or not is_same_event(left, right):
            return Difference(seq, left, right)
    return None


def is_same_event(one: Event, other: Event) -> bool:
    """Whether both tell the same, as far as both have the fields."""
    if one == other:
        return True
    shared = one.fields.keys() & other.fields.keys()
    return replace(one, fields={name: one.fields[name] for name in shared}) == replace(
        other, fields={name: other.fields[name] for name in shared}
    )


def check_determinism(
    seeds: Sequence[int],
    scenarios: Sequence[str],
    *,
    mutant: str | None = None,
    transport: TransportKind = TransportKind.OBJECTS,
    progress: Callable[[int, int, int], None] | None = None,
) -> DeterminismResult:
    """Make every run three times and compare. ``progress`` is told ``(done, in_all, diverged)``.

    A run that diverged is repeated with its history recorded, to find the first event that differs; if the repetition does not
    diverge, the divergence is reported without that event. Raises ``KeyError`` for an unknown scenario or mutant.
    """
    runs = [(scenario, seed) for seed in seeds for scenario in scenarios]
    diverged: list[Divergence] = []
    for start in range(0, len(runs), _RUNS_PER_CHILD):
        batch = runs[start : start + _RUNS_PER_CHILD]
        first, second = (
            [run_scenario(scenario, seed, mutant=mutant, transport=transport).digest for scenario, seed in batch]
            for _ in range(2)
        )
        third = _digests_elsewhere(batch, mutant, None, transport)
        for (scenario, seed), *digests in zip(batch, first, second, third, strict=True):
            for digest, repeat, where in (
                (digests[1], _record_here, "the same process"),
                (digests[2], _record_elsewhere, "another process"),
            ):
                if digest != digests[0]:
                    difference = _locate(scenario, seed, mutant, transport, repeat)
                    diverged.append(Divergence(scenario, seed, where, difference))
        if progress is not None:
            progress(start + len(batch), len(runs), len(diverged))
    return DeterminismResult(seeds=len(seeds), runs=3 * len(runs), diverged=tuple(diverged))


Repeat = Callable[[str, int, str | None, TransportKind, Path], Path]


def _locate(
    scenario: str, seed: int, mutant: str | None, transport: TransportKind, repeat: Repeat
) -> Difference | None:
    with tempfile.TemporaryDirectory(prefix="bk-chaos-") as folder:
        one = _record_here(scenario, seed, mutant, transport, Path(folder, "one"))
        other = repeat(scenario, seed, mutant, transport, Path(folder, "other"))
        return first_difference(one, other)


def _record_here(scenario: str, seed: int, mutant: str | None, transport: TransportKind, folder: Path) -> Path:
    return Path(run_scenario(scenario, seed, mutant=mutant, record=folder, transport=transport).path)


def _record_elsewhere(scenario: str, seed: int, mutant: str | None, transport: TransportKind, folder: Path) -> Path:
    _digests_elsewhere([(scenario, seed)], mutant, folder, transport)
    return next(folder.iterdir())


def _digests_elsewhere(
    runs: Sequence[tuple[str, int]],
    mutant: str | None,
    folder: Path | None,
    transport: TransportKind = TransportKind.OBJECTS,
) -> list[str]:
    """The digests of ``runs`` made in a fresh process that hashes strings differently."""
    ours = os.environ.get("PYTHONHASHSEED", "random")
    environment = {**os.environ, "PYTHONHASHSEED": "1" if ours != "1" else "2"}
    task = {
        "runs": list(runs),
        "mutant": mutant,
        "transport": transport.value,
        "folder": None if folder is None else str(folder),
    }
    child = subprocess.run(
        [sys.executable, "-m", "scenarios.determinism"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if child.returncode != 0:
        raise RuntimeError(f"the process for the repeated runs failed:\n{child.stderr.strip()}")
    digests: list[str] = json.loads(child.stdout)
    return digests


def _digests(task: dict[str, Any]) -> Iterator[str]:
    folder = None if task["folder"] is None else Path(task["folder"])
    for scenario, seed in task["runs"]:
        transport = TransportKind(task["transport"])
        yield run_scenario(scenario, seed, mutant=task["mutant"], record=folder, transport=transport).digest


def _shown(event: Event | None) -> dict[str, Any] | None:
    if event is None:
        return None
    return {
        "seq": event.seq,
        "time_us": event.time_us,
        "actor": event.actor,
        "kind": str(event.kind),
        "ledger": event.ledger,
        **event.fields,
    }


if __name__ == "__main__":
    json.dump(list(_digests(json.load(sys.stdin))), sys.stdout)
