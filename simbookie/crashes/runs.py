"""One run: a bookie that lives a few times, each life to a step that chance chose, and is held to its promises after each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from simbookie.bookie import BookieState
from simbookie.crashes import after
from simbookie.crashes.invariants import StorageViolation
from simbookie.crashes.model import KEY
from simbookie.crashes.schedule import (
    Operation,
    Player,
    draw_compaction,
    draw_drops,
    draw_operations,
    draw_roll,
    draw_stall,
)
from simbookie.crashes.settings import RunSettings
from simbookie.crashes.subject import Subject
from simbookie.storage.base import CrashMode, StorageError
from simbookie.storage.quirks import REPAIRED, Quirk

__all__ = ["CrashRun", "Refused", "crash_run", "play_life", "repeated", "run_with"]

_STEPS_MAX: Final = 110
#: Steps that few lives come to by themselves: a part of the lives end where they come to one of them.
_RARE_STEPS: Final = (
    "memtable.write",
    "memtable.written",
    "memtable.roll",
    "log.roll",
    "log.remove",
    "index.remove",
    "journal.remove",
    "flush.copies",
    "flush.logs",
    "compaction.flush",
    "compaction.remove",
    "move.locations",
    "move.index",
    "transaction.flush",
    "transaction.compacted",
    "transaction.available",
    "transaction.finish",
)
#: Those of direct logs.
_DIRECT_STEPS: Final = ("log.map",)
#: Where runs that are about compaction have most of their lives end.
_COMPACTION_STEPS: Final = tuple(step for step in _RARE_STEPS if step.startswith(("compaction", "move", "transaction")))
#: Where most lives with the quirk that only these steps show have to end.
_LATE_SYNCS: Final = ("journal.rolled",)
#: How long after such a step a life ends: before it, or while what it began is under way. A sync takes a millisecond.
_LAGS_S: Final = (0.0, 0.0, 0.0, 0.0003, 0.0008, 0.002)
#: The part of lives with faults in which a sync of a journal takes long, so that files are rolled behind it.
_STALLED: Final = 0.4
#: One run in so many is made twice, and one has its disk damaged in the end.
_REPEATED: Final = 50


@dataclass(frozen=True, slots=True)
class CrashRun:
    """What came of a run."""

    seed: int
    digest: str
    #: The steps that lives ended before.
    crashes: tuple[str, ...] = ()
    violations: tuple[StorageViolation, ...] = ()
    settings: RunSettings = field(default_factory=lambda: RunSettings("", 0))


class Refused(Exception):
    """The bookie does not start any more."""


async def _life(
    subject: Subject,
    operations: list[Operation],
    rng: Random,
    *,
    before: list[Operation],
    first: list[Operation],
    ends_in_order: bool,
    is_last: bool,
) -> None:
    await after.before_start(subject)
    if is_last:
        await after.replay_is_idempotent(subject)
        await after.damage_is_told(subject, rng)
    player = Player(subject, KEY)
    await player.play(before, is_alive=False)
    try:
        await subject.start()
    except StorageError as error:
        invariant = "I4" if "is missing" in str(error) else "I1"
        subject.violated(invariant, f"the bookie does not start: {error}")
        raise Refused from error
    await player.play(first)
    await after.promises_kept(subject)
    await player.play(operations)
    await player.end()
    may_stop = not subject.must_lose_power and subject.bookie.state is BookieState.RUNNING
    if ends_in_order and may_stop:
        await subject.stop()


def play_life(
    subject: Subject,
    operations: list[Operation],
    *,
    crash_at: int = 0,
    until: str = "",
    lag_s: float = 0.0,
    mode: CrashMode = CrashMode.PROCESS,
    before: list[Operation] | None = None,
    first: list[Operation] | None = None,
    ends_in_order: bool = False,
    is_last: bool = False,
) -> str | None:
    """One life of ``subject``: it starts, is held to its promises, does ``operations``, and ends at a step, or thereafter.

    ``before`` is done before it starts, ``first`` before it is held to anything.
    """
    rng = Random(subject.settings.seed)  # noqa: S311
    story = partial(
        _life,
        subject,
        operations,
        rng,
        before=before or [],
        first=first or [],
        ends_in_order=ends_in_order,
        is_last=is_last,
    )
    return subject.live(story, crash_at=crash_at, until=until, lag_s=lag_s, mode=mode)


def crash_run(
    kind: str,
    seed: int,
    quirks: frozenset[Quirk] = REPAIRED,
    planted: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> CrashRun:
    """The run of a seed. ``planted`` has a defect while its context lasts."""
    with planted():
        return run_with(RunSettings.draw(kind, seed, quirks))


def run_with(settings: RunSettings) -> CrashRun:
    """The run of a seed with other settings than it draws."""
    rng = Random(f"run {settings.seed}")  # noqa: S311
    stalls, rolls = Random(f"stalls {settings.seed}"), Random(f"rolls {settings.seed}")  # noqa: S311
    drops = Random(f"dropped {settings.seed}")  # noqa: S311
    subject = Subject(settings)
    reached: str | None = None
    aims = _COMPACTION_STEPS if settings.is_compacting else _RARE_STEPS
    if settings.kind == "db-direct":
        aims += _DIRECT_STEPS
    if Quirk.ROLLED_FILE_SYNCED_LATE in settings.quirks:
        aims = _LATE_SYNCS
    aimed = 0.8 if settings.is_compacting or aims is _LATE_SYNCS else 0.3
    try:
        for _ in range(rng.randint(1, 5)):
            is_aimed = rng.random() < aimed
            operations = draw_operations(rng, has_faults=settings.has_faults)
            if settings.is_compacting:
                operations += draw_compaction(rng)
            if settings.has_faults and stalls.random() < _STALLED:
                operations.insert(stalls.randint(0, len(operations)), draw_stall(stalls))
            if settings.is_rolling:
                operations += draw_roll(rolls)
            if settings.is_dropping:
                operations += draw_drops(drops)
            if reached is not None and reached.partition(".")[0] in ("transaction", "compaction", "move"):
                operations[:0] = [("collect", True), ("wait", 0.05)]  # takes up what was interrupted
            reached = play_life(
                subject,
                operations,
                crash_at=0 if is_aimed else rng.randint(1, _STEPS_MAX),
                until=rng.choice(aims) if is_aimed else "",
                lag_s=rng.choice(_LAGS_S),
                mode=rng.choice(list(CrashMode)),
                ends_in_order=rng.random() < 0.2,
            )
            if subject.violations:
                break
        else:
            play_life(subject, [], is_last=True)
    except Refused:
        pass
    except Exception as error:  # noqa: BLE001  a run that breaks is a finding, whatever broke it
        subject.violations.append(StorageViolation("error", f"{type(error).__name__}: {error}"))
    subject.note(sorted(subject.violations))
    return CrashRun(
        settings.seed,
        subject.digest.hexdigest(),
        tuple(subject.seen.elements()),
        tuple(sorted(subject.violations)),
        settings,
    )


def repeated(run: CrashRun) -> list[StorageViolation]:
    """I15, for one run in some: made again, it is the same."""
    if run.seed % _REPEATED:
        return []
    again = run_with(run.settings)
    return (
        [] if again.digest == run.digest else [StorageViolation("I15", f"run {run.seed} was another the second time")]
    )
