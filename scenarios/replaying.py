"""Runs again what a history recorded, and tells whether the same happened.

The header of a history holds what its run came from: seed, planted defect, and the plan, in full; or the name of a scenario that
draws everything else from the seed, and the transport. A run depends on nothing else, so the program that recorded it makes the
same events at the same times. Another version of the program may not, and then what matters is whether the run still ends as it
did. A history recorded before an event had all the fields that it has now is compared in those it has.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios.checker import OnlineChecker
from scenarios.determinism import Difference, first_difference
from scenarios.history import KINDS, History, HistoryError, HistoryWriter
from scenarios.library import SCENARIOS
from scenarios.model import RunResult, Tier, TransportKind, Violation
from scenarios.mutants import RUN_MUTANTS
from scenarios.plan import Plan, PlanError, parse_plan
from scenarios.plan.schedule import ChosenSchedule, parse_strand
from scenarios.runner import run_plan, run_scenario

__all__ = ["Origin", "Recorded", "Replay", "origin_of", "read_recorded", "replay_history"]


@dataclass(frozen=True, slots=True)
class Origin:
    """What a run came from; ``mutant`` is "" where no defect was planted, ``plan`` None where a scenario drew everything."""

    scenario: str
    seed: int
    mutant: str
    transport: TransportKind
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A history, read to its end and judged.

    ``digest`` is that of its events as this version writes them. ``checked`` says for each invariant how often it had something
    to judge. What only the run itself could tell, that something never happened, is not among the ``violations``.
    """

    history: History
    digest: str
    events: int
    simulated_seconds: float
    violations: tuple[Violation, ...]
    checked: dict[str, int]

    @property
    def is_older(self) -> bool:
        """Whether some of its events have fewer fields than this version records."""
        return any(tuple(names) != KINDS.get(kind) for kind, names in self.history.header["kinds"])

    @property
    def version(self) -> str:
        """The version of the program that recorded it; "" if it does not say."""
        return str(self.history.header.get("package_version", ""))


@dataclass(frozen=True, slots=True)
class Replay:
    """A recorded run and the same run made again. ``difference`` is the first event that differs, None if none does."""

    recorded: Recorded
    result: RunResult
    difference: Difference | None

    @property
    def is_same(self) -> bool:
        """Whether the same happened, event by event, as far as the history tells."""
        is_older = self.recorded.is_older and self.difference is None
        return is_older or self.result.digest == self.recorded.digest

    @property
    def ends_alike(self) -> bool:
        """Whether the clauses broken in the one are those broken in the other, in the same ledgers."""
        return self.is_same or _broken(self.recorded.violations) == _broken(self.result.violations)


def _broken(violations: tuple[Violation, ...]) -> set[tuple[str, int]]:
    return {(violation.clause, violation.ledger) for violation in violations}


def read_recorded(path: Path) -> Recorded:
    """Read a history through once and judge it. Raises :class:`~scenarios.history.HistoryError` if anything is wrong with it."""
    now = 0
    copy = HistoryWriter({}, lambda: now)
    checker = OnlineChecker()
    history = History(path)
    try:
        for event in history.events():
            now = event.time_us
            unknown = dict.fromkeys(KINDS[event.kind])
            copy.record(event.kind, event.actor, event.ledger, **(unknown | dict(event.fields)))
            checker.feed(event)
        violations = tuple(checker.finish())
    except (KeyError, TypeError) as error:
        raise HistoryError(path, "holds events that this version does not know") from error
    return Recorded(history, copy.digest, checker.events, now / 1_000_000, violations, dict(checker.checked))


def origin_of(history: History) -> Origin:
    """What a history says it came from; :class:`~scenarios.history.HistoryError` if this version cannot run that."""
    header = history.header
    name, seed, mutant = header.get("scenario"), header.get("seed"), header.get("mutant") or ""
    if not isinstance(name, str) or not isinstance(seed, int) or not isinstance(mutant, str):
        raise HistoryError(history.path, "its header names no scenario and seed to run again")
    plan = _plan_of(history)
    if plan is None and "replay" in header:
        raise HistoryError(history.path, f"was recorded by a test; what makes it again is: {header['replay']}")
    if plan is None and name not in SCENARIOS:
        raise HistoryError(history.path, f"was recorded in the scenario {name}, which this version does not have")
    if mutant and mutant not in RUN_MUTANTS:
        raise HistoryError(history.path, f"was recorded with the defect {mutant}, which this version does not have")
    transport = header.get("transport", TransportKind.OBJECTS.value)  # there was no other one once
    if transport == Tier.PROCESSES:
        raise HistoryError(history.path, "was recorded with processes, which never do the same again")
    if transport not in set(TransportKind):
        raise HistoryError(history.path, "its header names no transport that this version knows")
    return Origin(name, seed, mutant, TransportKind(transport), plan)


def _plan_of(history: History) -> Plan | None:
    """The plan in the header, None if there is none; :class:`~scenarios.history.HistoryError` if this version cannot play it."""
    text = history.header.get("plan")
    if text is None:
        return None
    try:
        return parse_plan(str(text), "plan")
    except PlanError as error:
        raise HistoryError(history.path, f"holds a plan that this version cannot play ({error})") from error


def _as_chosen(origin: Origin, history: History) -> Origin:
    """With what the schedule chose in place of its policy, so that nothing is drawn again. The history was read to its end."""
    if origin.plan is None or origin.plan.schedule is None:
        return origin
    try:
        late = tuple(turn for line in history.choices for turn in parse_strand(line.split()))
        return replace(origin, plan=replace(origin.plan, schedule=ChosenSchedule(late) if late else None))
    except PlanError as error:
        raise HistoryError(history.path, f"holds choices of a schedule that cannot be made again ({error})") from error


def replay_history(path: Path) -> Replay:
    """Make the run again that ``path`` recorded, and compare.

    Raises :class:`~scenarios.history.HistoryError` for a file that is no whole history, or of a run that this version does not
    have. A run that differs is made a second time, with its history recorded, to find the first event that does.
    """
    recorded = read_recorded(path)
    origin = _as_chosen(origin_of(recorded.history), recorded.history)
    result = _made(origin)
    if result.digest == recorded.digest:
        return Replay(recorded, result, None)
    with tempfile.TemporaryDirectory(prefix="bk-chaos-") as scratch:
        again = _made(origin, Path(scratch))
        return Replay(recorded, result, first_difference(path, Path(again.path)))


def _made(origin: Origin, record: Path | None = None) -> RunResult:
    if origin.plan is not None:
        return run_plan(
            origin.plan, origin.seed, mutant=origin.mutant or None, record=record, transport=origin.transport
        )
    return run_scenario(
        origin.scenario, origin.seed, mutant=origin.mutant or None, record=record, transport=origin.transport
    )
