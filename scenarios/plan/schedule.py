"""Schedules of plans: which policy says what is late, or what was chosen before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final

from scenarios.plan.errors import PlanError
from simbookie.world.policies import MOMENT_S, Chosen, DelayBounded, Pct, Uniform
from simbookie.world.schedule import LATE_MAX_S, Choices, SchedulePolicy

__all__ = [
    "SCHEDULES",
    "ChosenSchedule",
    "DelaySchedule",
    "LateTurn",
    "PctSchedule",
    "PlanSchedule",
    "UniformSchedule",
    "late_turns",
    "parse_schedule",
    "parse_strand",
    "schedule_word",
    "strand_lines",
]

_TURNS: Final = 1_000
_TURNS_MAX: Final = 1_000_000
_DIGITS_MAX: Final = 7


@dataclass(frozen=True, slots=True)
class PlanSchedule:
    """What all schedules have in common."""

    verb: ClassVar[str]

    def policy(self, rng: Random) -> SchedulePolicy:
        """The policy, with its chances from ``rng``."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class UniformSchedule(PlanSchedule):
    """Everything lets any number of the things pass that come within ``moment_s``, each number with the same chance."""

    verb: ClassVar[str] = "uniform"
    moment_s: float = MOMENT_S

    def __post_init__(self) -> None:
        _check(moment=self.moment_s)

    def policy(self, rng: Random) -> SchedulePolicy:
        """See the base."""
        return Uniform(rng, self.moment_s)


@dataclass(frozen=True, slots=True)
class PctSchedule(PlanSchedule):
    """Strands have random priorities within ``moment_s``; ``depth`` less one fall below all, within the first ``turns``."""

    verb: ClassVar[str] = "pct"
    depth: int
    turns: int = _TURNS
    moment_s: float = MOMENT_S

    def __post_init__(self) -> None:
        _check(depth=self.depth, turns=self.turns, moment=self.moment_s)

    def policy(self, rng: Random) -> SchedulePolicy:
        """See the base."""
        return Pct(rng, self.depth, self.turns, self.moment_s)


@dataclass(frozen=True, slots=True)
class DelaySchedule(PlanSchedule):
    """So many ``delays`` within the first ``turns``, each by ``moment_s`` or longer; all else comes when it is due."""

    verb: ClassVar[str] = "delay"
    delays: int
    turns: int = _TURNS
    moment_s: float = MOMENT_S

    def __post_init__(self) -> None:
        _check(delays=self.delays, turns=self.turns, moment=self.moment_s)

    def policy(self, rng: Random) -> SchedulePolicy:
        """See the base."""
        return DelayBounded(rng, self.delays, self.turns, self.moment_s)


@dataclass(frozen=True, slots=True)
class LateTurn:
    """The turn with this number in a strand lets ``passes`` things pass."""

    strand: str
    number: int
    passes: int

    def __post_init__(self) -> None:
        if not self.strand or self.strand.split() != [self.strand]:
            raise PlanError(f"expected a strand in one word, found {self.strand!r}")
        if self.number < 0 or self.passes < 1:
            raise PlanError(
                f"expected NUMBER:PASSES with a number >= 0 and passes >= 1, found {self.number}:{self.passes}"
            )


@dataclass(frozen=True, slots=True)
class ChosenSchedule(PlanSchedule):
    """What the indented lines below say, a strand each: the numbers of turns, and how many things each lets pass."""

    verb: ClassVar[str] = "choices"
    late: tuple[LateTurn, ...] = ()

    def policy(self, rng: Random) -> SchedulePolicy:  # noqa: ARG002  nothing is drawn
        """See the base."""
        choices: dict[str, dict[int, int]] = {}
        for turn in self.late:
            choices.setdefault(turn.strand, {})[turn.number] = turn.passes
        return Chosen(choices)


def parse_schedule(word: str) -> PlanSchedule:
    """The policy that ``uniform``, ``pct:DEPTH`` or ``delay:DELAYS`` stands for; :class:`PlanError` for anything else."""
    verb, _, number = word.partition(":")
    wanted = "expected uniform, pct:DEPTH or delay:DELAYS, found"
    if verb == UniformSchedule.verb and word == verb:
        return UniformSchedule()
    if verb not in {PctSchedule.verb, DelaySchedule.verb} or not number.isdecimal() or len(number) > _DIGITS_MAX:
        raise PlanError(f"{wanted} {word!r}")
    return PctSchedule(int(number)) if verb == PctSchedule.verb else DelaySchedule(int(number))


def schedule_word(schedule: PlanSchedule | None) -> str:
    """What :func:`parse_schedule` makes a policy of; "" for none."""
    if schedule is None:
        return ""
    number = getattr(schedule, "depth", getattr(schedule, "delays", None))
    return schedule.verb if number is None else f"{schedule.verb}:{number}"


def late_turns(choices: Choices) -> tuple[LateTurn, ...]:
    """What was chosen, in a definite order."""
    return tuple(
        LateTurn(strand, number, passes)
        for strand, turns in sorted(choices.items())
        for number, passes in sorted(turns.items())
    )


def strand_lines(late: Iterable[LateTurn]) -> list[str]:
    """What a schedule chose as lines, one for each strand: ``writer>bookie-0 3:12,9:1``."""
    by_strand: dict[str, list[str]] = {}
    for turn in late:
        by_strand.setdefault(turn.strand, []).append(f"{turn.number}:{turn.passes}")
    return [f"{strand} {','.join(turns)}" for strand, turns in by_strand.items()]


def parse_strand(words: list[str]) -> tuple[LateTurn, ...]:
    """The turns of a line; :class:`PlanError` if it is none."""
    found: list[LateTurn] = []
    wanted = "expected STRAND NUMBER:PASSES,..., found"
    if len(words) != 2:
        raise PlanError(f"{wanted} {' '.join(words)!r}")
    for turn in words[1].split(","):
        number, colon, passes = turn.partition(":")
        if not (colon and number.isdecimal() and passes.isdecimal() and len(turn) <= 20):
            raise PlanError(f"{wanted} {turn!r}")
        found.append(LateTurn(words[0], int(number), int(passes)))
    return tuple(found)


def _check(moment: float, **counts: int) -> None:
    for name, count in counts.items():
        if not 1 <= count <= _TURNS_MAX:
            raise PlanError(f"expected {name} from 1 to {_TURNS_MAX}, found {count}")
    if not 0 < moment <= LATE_MAX_S:
        raise PlanError(f"expected moment > 0s and at most {LATE_MAX_S:g}s, found {moment}")


SCHEDULES: Final[dict[str, type[PlanSchedule]]] = {
    cls.verb: cls for cls in (UniformSchedule, PctSchedule, DelaySchedule, ChosenSchedule)
}
"""Every schedule by its word."""
