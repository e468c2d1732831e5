"""Checks that a run depends on its seed alone, and finds the first event that differs otherwise.

Each run is made twice in one process, to detect state left by earlier runs, and once in each of some others: new processes with
other ``PYTHONHASHSEED``, to detect a dependency on the order of sets or on addresses, and other Pythons. Equal digests over all
events mean that the same events happened at the same times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from scenarios.history import Event, History
from scenarios.model import RunResult, TransportKind
from scenarios.plan import Plan, parse_plan, print_plan
from scenarios.runner import run_plan, run_scenario
from scenarios.units import Run, batched, check_names, planned_runs, processes_for
from simbookie.worker_processes import in_order, worker_processes

__all__ = [
    "HAS_ENDED",
    "DeterminismResult",
    "Difference",
    "Divergence",
    "Place",
    "Repeats",
    "UnusablePythonError",
    "check_determinism",
    "digests_elsewhere",
    "event_line",
    "first_difference",
    "is_same_event",
    "other_hashes",
]

#: Instead of an event, where a history has ended before.
HAS_ENDED: Final = "no such event, the history has ended"

#: A process is started for each unit at another place.
_RUNS_PER_UNIT: Final = 64


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
    """``runs`` counts every run made; ``places`` are the processes, besides the first, that a run was made in."""

    seeds: int
    runs: int
    diverged: tuple[Divergence, ...]
    places: tuple[str, ...] = ()
    first_seed: int = 0

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos determinism --json`` prints."""
        return {
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "runs": self.runs,
            "places": list(self.places),
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


class UnusablePythonError(ValueError):
    """An interpreter cannot make runs; the message says why."""


def check_determinism(
    seeds: Sequence[int],
    scenarios: Sequence[str],
    *,
    mutant: str | None = None,
    transport: TransportKind = TransportKind.OBJECTS,
    in_turn: bool = False,
    plans: Mapping[str, Plan] | None = None,
    hash_seeds: int = 1,
    pythons: Sequence[str] = (),
    processes: int | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> DeterminismResult:
    """Make every run twice in one process and once in each of some others, and compare.

    The others are ``hash_seeds`` processes that hash strings differently, and one for each of ``pythons``, interpreters with the
    dependencies of this package. With ``in_turn`` one scenario is run with each seed. ``plans`` has those of ``scenarios`` that
    are in no library, by the names that stand for them there. ``progress`` is told ``(done, in_all, diverged)``.

    A run that diverged is repeated with its history recorded, to find the first event that differs; if the repetition does not
    diverge, the divergence is reported without that event. Raises ``KeyError`` for an unknown scenario or mutant,
    :class:`UnusablePythonError` for an interpreter that cannot make runs.
    """
    check_names(scenarios, mutant, None, plans)
    places = (*other_hashes(hash_seeds), *map(_place_of, pythons))
    runs = list(planned_runs(seeds, scenarios, in_turn=in_turn))
    units = [
        Repeats(batch, mutant, transport, _of_batch(batch, plans or {}), place)
        for batch in batched(runs, _RUNS_PER_UNIT)
        for place in (None, *places)
    ]
    diverged: list[Divergence] = []
    done, last = 0, places[-1] if places else None
    first: list[str] = []
    with worker_processes(processes_for(len(units), processes), _digests_of) as hand_out:
        for unit, made in zip(units, in_order(hand_out(units)), strict=True):
            first = made[: len(unit.runs)] if unit.place is None else first
            for number, digest in enumerate(made):
                index = number % len(unit.runs)
                if digest != first[index]:
                    diverged.append(_divergence(unit, index))
            if unit.place is last:
                done += len(unit.runs)
                if progress is not None:
                    progress(done, len(runs), len(diverged))
    return DeterminismResult(
        seeds=len(seeds),
        runs=(2 + len(places)) * len(runs),
        diverged=tuple(diverged),
        places=tuple(place.name for place in places),
        first_seed=seeds[0] if seeds else 0,
    )


# Work --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A process of another kind to make runs in."""

    name: str
    python: str
    hash_seed: str


@dataclass(frozen=True, slots=True)
class Repeats:
    """A unit of work: some runs, to be made twice where the unit is worked on, or once at a ``place``."""

    runs: tuple[Run, ...]
    mutant: str | None
    transport: TransportKind
    plans: Mapping[str, Plan] = field(default_factory=dict)
    place: Place | None = None

    def only(self, index: int) -> Repeats:
        """With one of the runs."""
        return replace(self, runs=self.runs[index : index + 1])


def other_hashes(count: int) -> Iterator[Place]:
    """So many processes that hash strings differently, from this one and from each other."""
    ours = os.environ.get("PYTHONHASHSEED", "random")
    others = [str(number) for number in range(1, count + 2) if str(number) != ours][:count]
    for number, seed in enumerate(others):
        name = "another process" if number == 0 else f"another process with hash seed {seed}"
        yield Place(name, sys.executable, seed)


def _place_of(python: str) -> Place:
    """An interpreter, which is asked for its version and whether it has what runs need."""
    question = "import platform, scenarios.runner; print(platform.python_implementation(), platform.python_version())"
    try:
        told = subprocess.run(  # noqa: S603 - the interpreter that was asked for
            [python, "-c", question], capture_output=True, text=True, check=False, env=_environment(python, "1")
        )
    except OSError as error:
        raise UnusablePythonError(f"{python} cannot be started: {error.strerror}") from None
    if told.returncode != 0:
        reason = (told.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UnusablePythonError(f"{python} cannot make runs ({reason}); install the package with its extra sim there")
    return Place(told.stdout.strip(), python, "1")


def _environment(python: str, hash_seed: str) -> dict[str, str]:
    """That of a process; another interpreter takes this package from where this one does, unless it is installed there."""
    root = Path(__file__).resolve().parents[1]
    is_shared = python == sys.executable or root == Path(sysconfig.get_path("purelib"))
    more = {} if is_shared else {"PYTHONPATH": str(root)}
    return {**os.environ, "PYTHONHASHSEED": hash_seed, **more}


def _of_batch(batch: Sequence[Run], plans: Mapping[str, Plan]) -> dict[str, Plan]:
    return {name: plans[name] for name, _ in batch if name in plans}


def _digests_of(unit: Repeats) -> list[str]:
    """Of every run twice, first of all of them once and then again; or once where the unit wants it."""
    if unit.place is not None:
        return digests_elsewhere(unit)
    return [_run(unit, run).digest for _ in range(2) for run in unit.runs]


def _run(unit: Repeats, run: Run, folder: Path | None = None) -> RunResult:
    name, seed = run
    plan = unit.plans.get(name)
    if plan is None:
        return run_scenario(name, seed, mutant=unit.mutant, record=folder, transport=unit.transport)
    return run_plan(plan, seed, mutant=unit.mutant, record=folder, transport=unit.transport)


def _divergence(unit: Repeats, index: int) -> Divergence:
    (name, seed) = unit.runs[index]
    alone = unit.only(index)
    with tempfile.TemporaryDirectory(prefix="bk-chaos-") as scratch:
        one, other = Path(scratch, "one"), Path(scratch, "other")
        first = Path(_run(alone, alone.runs[0], one).path)
        if unit.place is None:
            then = Path(_run(alone, alone.runs[0], other).path)
        else:
            digests_elsewhere(alone, other)
            then = next(other.iterdir())
        difference = first_difference(first, then)
    return Divergence(name, seed, "the same process" if unit.place is None else unit.place.name, difference)


def digests_elsewhere(unit: Repeats, folder: Path | None = None) -> list[str]:
    """The digests of the runs of a unit, made in a fresh process at its place."""
    assert unit.place is not None
    task = {
        "runs": list(unit.runs),
        "mutant": unit.mutant,
        "transport": unit.transport.value,
        "plans": {name: print_plan(plan, full=True) for name, plan in unit.plans.items()},
        "folder": None if folder is None else str(folder),
    }
    child = subprocess.run(  # noqa: S603 - this module, in an interpreter that was asked for
        [unit.place.python, "-m", "scenarios.determinism"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
        env=_environment(unit.place.python, unit.place.hash_seed),
    )
    if child.returncode != 0:
        raise RuntimeError(f"the process for the repeated runs failed:\n{child.stderr.strip()}")
    digests: list[str] = json.loads(child.stdout)
    return digests


def _digests(task: dict[str, Any]) -> Iterator[str]:
    folder = None if task["folder"] is None else Path(task["folder"])
    plans = {name: parse_plan(text, name) for name, text in task["plans"].items()}
    unit = Repeats((), task["mutant"], TransportKind(task["transport"]), plans)
    for name, seed in task["runs"]:
        yield _run(unit, (name, seed), folder).digest


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
