"""Showing each of BookKeeper's defects in crash runs, or by its recipe, and that it is not there without its switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

from simbookie.crashes.invariants import StorageViolation
from simbookie.crashes.recipes import RECIPES, Recipe
from simbookie.crashes.runs import run_with
from simbookie.crashes.settings import RunSettings
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.worker_processes import default_processes, in_order, worker_processes

__all__ = ["SHOWN_BY_CHANCE", "SWITCHES", "UNWAITED_FENCES", "Hunt", "Shown", "Switch", "hunt", "hunt_all", "name_of"]

#: The switch of the one defect that is no quirk of a storage, but a setting of a bookie.
UNWAITED_FENCES: Final = "error_waits_for_fence=False"
Switch = Quirk | Literal["error_waits_for_fence=False"]
#: All of them.
SWITCHES: Final[tuple[Switch, ...]] = (*Quirk, UNWAITED_FENCES)


@dataclass(frozen=True, slots=True)
class Shown:
    """How crash runs show a defect: over which store, within how many runs, and what some of them violate."""

    kind: str
    runs: int
    invariants: tuple[str, ...]


#: Those that chance comes to. The others have a recipe (:mod:`simbookie.crashes.recipes`).
SHOWN_BY_CHANCE: Final[dict[Switch, Shown]] = {
    Quirk.IDLE_FLUSH_SKIPPED: Shown("interleaved", 200, ("I2", "I3", "I1")),
    Quirk.HEADERS_WITH_PAGES_ONLY: Shown("interleaved", 100, ("I2", "I3", "I1")),
    Quirk.HEADERS_UNSYNCED: Shown("interleaved", 100, ("I1", "I2", "I3")),
    Quirk.FOLDERS_UNSYNCED: Shown("interleaved", 100, ("I1", "I3", "I4")),
    Quirk.SHIFTED_AFTER_PARTIAL_WRITE: Shown("interleaved", 200, ("I1", "I3", "I9", "I10", "I12")),
    Quirk.COPIES_REPLACED_EARLY: Shown("interleaved", 1_500, ("I1", "I3")),
    Quirk.FAILED_SYNC_RETRIED: Shown("interleaved", 2_000, ("I1", "I3", "I10")),
    Quirk.EXPLICIT_LAC_REPLACED: Shown("sorted", 100, ("I1",)),
    Quirk.IDLE_CHECKPOINT_SKIPPED: Shown("db", 100, ("I2", "I3", "I1")),
    Quirk.END_OF_LOG_DENIES: Shown("db-direct", 100, ("I14",)),
    Quirk.EMPTY_MAP_BELIEVED: Shown("db-direct", 400, ("I10", "I12", "I1")),
    Quirk.KEYLESS_FENCES: Shown("sorted", 100, ("I2",)),
    Quirk.ROLLED_FILE_SYNCED_LATE: Shown("interleaved", 500, ("I1", "I3", "I5", "I14")),
    Quirk.FORCE_WITHOUT_SYNC: Shown("interleaved", 400, ("I1", "I3", "I4", "I10")),
    Quirk.EXPLICIT_LAC_UNWRITTEN: Shown("interleaved", 100, ("I1",)),
    Quirk.MARKS_IN_PLACE: Shown("interleaved", 200, ("I4",)),
    Quirk.MARK_ERRORS_IGNORED: Shown("interleaved", 300, ("I4",)),
    Quirk.ZERO_RECORDS_REPLAYED: Shown("interleaved", 2_000, ("I1",)),
    Quirk.REPLAYED_FILES_UNSYNCED: Shown("interleaved", 200, ("I4", "I5")),
    UNWAITED_FENCES: Shown("sorted", 200, ("I2", "I3")),
}


@dataclass(frozen=True, slots=True)
class Hunt:
    """What came of looking for a defect: the run of ``budget`` that showed it first, counted from 1, or 0 for none."""

    switch: Switch
    kind: str
    #: ``chance``, or ``recipe`` for a fixed one, whose budget is its only run.
    way: str
    budget: int
    run: int
    #: The invariants that this run violated.
    violated: tuple[str, ...]
    #: Whether the same run violates nothing without the defect, and answers what is right.
    is_absent_repaired: bool
    #: What a question is answered, with the defect and without it, where no invariant tells.
    answers: tuple[str, str] | None = None

    @property
    def is_shown(self) -> bool:
        """With its switch, and only with it."""
        return self.run > 0 and self.is_absent_repaired

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-sim crashes --quirks faithful --json`` prints."""
        return {
            "quirk": name_of(self.switch),
            "storage": self.kind,
            "way": self.way,
            "budget": self.budget,
            "run": self.run,
            "violated": list(self.violated),
            "answers": None if self.answers is None else dict(zip(("faithful", "repaired"), self.answers, strict=True)),
            "absent_repaired": self.is_absent_repaired,
        }


def name_of(switch: Switch) -> str:
    """What a switch is called."""
    return switch.value if isinstance(switch, Quirk) else switch


def hunt(switch: Switch, first_seed: int = 0, *, budget: int | None = None) -> Hunt:
    """Make runs with the defect, or those of its recipe, until it shows; then the same run without it."""
    if isinstance(switch, Quirk) and switch in RECIPES:
        return _by_recipe(switch, RECIPES[switch])
    shown = SHOWN_BY_CHANCE[switch]
    runs = budget if budget is not None else shown.runs
    for number in range(runs):
        settings = _settings(switch, shown.kind, first_seed + number)
        found = run_with(settings).violations
        if found:
            without = replace(settings, quirks=REPAIRED, error_waits_for_fence=True)
            is_absent = not run_with(without).violations
            return Hunt(switch, shown.kind, "chance", runs, number + 1, _names(found), is_absent)
    return Hunt(switch, shown.kind, "chance", runs, 0, (), is_absent_repaired=True)


def _settings(switch: Switch, kind: str, seed: int) -> RunSettings:
    if isinstance(switch, Quirk):
        return RunSettings.draw(kind, seed, frozenset({switch}))
    return replace(RunSettings.draw(kind, seed, REPAIRED), error_waits_for_fence=False)


def _by_recipe(quirk: Quirk, recipe: Recipe) -> Hunt:
    faithful, repaired = recipe.play(frozenset({quirk})), recipe.play(REPAIRED)
    violated, is_absent = _names(faithful.violations), not repaired.violations
    if recipe.answers is None:
        is_seen = bool(violated) and set(violated) <= set(recipe.violates)
        return Hunt(quirk, recipe.kind, "recipe", 1, int(is_seen), violated, is_absent)
    answers = "; ".join(faithful.answers), "; ".join(repaired.answers)
    is_seen = not violated and answers[0] == recipe.answers[0]
    is_absent = is_absent and answers[1] == recipe.answers[1]
    return Hunt(quirk, recipe.kind, "recipe", 1, int(is_seen), violated, is_absent, answers)


def _names(violations: tuple[StorageViolation, ...]) -> tuple[str, ...]:
    return tuple(sorted({violation.invariant for violation in violations}))


def hunt_all(
    switches: Sequence[Switch] = SWITCHES,
    first_seed: int = 0,
    *,
    budget: int | None = None,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Hunt]:
    """Look for the defects of ``switches``; ``progress`` is told how many are done, and how many were seen."""
    count = min(processes if processes is not None else default_processes(), len(switches))
    hunts: list[Hunt] = []
    with worker_processes(count, partial(hunt, first_seed=first_seed, budget=budget)) as hand_out:
        for each in in_order(hand_out(switches)):
            hunts.append(each)
            if progress is not None:
                progress(len(hunts), sum(one.is_shown for one in hunts))
    return hunts
