"""Runs one plan with processes, merges what they recorded into one history, and checks it."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bkclient import __version__
from scenarios.ending import Judgement, RunEnding, Witnesses, ending_of, history_name
from scenarios.history import Event, HistoryWriter, Kind
from scenarios.liveness import StuckError
from scenarios.model import RunResult, Tier
from scenarios.plan import Plan, print_plan
from scenarios.processes.channel import clock_since
from scenarios.processes.links import check_addresses
from scenarios.processes.merging import Merged, merge
from scenarios.processes.our_bookie import OurBookies
from scenarios.processes.served import BookieMaker
from scenarios.processes.stage import ProcessPlan, ProcessStage
from scenarios.processes.suitable import check_suitable
from scenarios.recording.recorders import Recorder

__all__ = ["run_plan_with_processes"]

#: Clauses that conclude from what happens inside bookies.
_INSIDE: Final = ("A4", "A5", "B4", "D1", "D2", "D3", "D5", "D7", "D10", "D11", "D12", "E5", "M2")


def run_plan_with_processes(
    plan: Plan, seed: int, *, mutant: str | None = None, record: Path | None = None, bookies: BookieMaker | None = None
) -> RunResult:
    """Run a plan with processes, over TCP and in real time; with ``record``, a folder, keep its history there.

    ``bookies`` makes the bookies, by default those of ``bk-sim``. Nothing is left behind, however this ends.

    :class:`~scenarios.processes.suitable.UnsuitablePlanError` for a plan that asks for what processes cannot do, before anything
    is started; ``KeyError`` for an unknown mutant. Nothing that happens in the run is raised but ``KeyboardInterrupt``.
    """
    maker = bookies if bookies is not None else OurBookies()
    check_suitable(plan, records=maker.records)
    check_addresses()
    path = None if record is None else record / history_name(plan.name, seed, mutant, Tier.PROCESSES)
    header = {
        "scenario": plan.name,
        "seed": seed,
        "mutant": mutant or "",
        "transport": Tier.PROCESSES.value,
        "bookies": maker.kind,
        "package_version": __version__,
        **plan.cluster.conditions().as_header(),
        "plan": print_plan(plan, full=True),
    }
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="bk-chaos-") as folder:
        try:
            made = asyncio.run(_interruptible(_Run(plan, seed, mutant or "", maker, Path(folder)).play()))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
    digest, judgement = _checked(header, made, plan.meets, path)
    return RunResult(
        scenario=plan.name,
        seed=seed,
        digest=digest,
        events=len(made.merged.events),
        simulated_seconds=made.merged.events[-1].time_us / 1e6,
        wall_seconds=time.perf_counter() - started,
        verdict=judgement.verdict,
        violations=judgement.violations,
        problem=judgement.problem,
        mutant=mutant or "",
        path="" if path is None else str(path),
        transport=Tier.PROCESSES,
        met=judgement.met,
        missed=judgement.missed,
        unseen=() if maker.records else _INSIDE,
    )


async def _interruptible(work: Any) -> Any:
    """``work``, cancelled by SIGTERM as it is by SIGINT, so that its processes end in order."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class _Made:
    merged: Merged
    how: RunEnding


class _Run:
    """One run."""

    def __init__(self, plan: Plan, seed: int, mutant: str, maker: BookieMaker, folder: Path) -> None:
        self._plan = plan
        started_ns = time.monotonic_ns()
        self._events: list[Event] = []
        history = HistoryWriter({}, clock_since(started_ns))
        self._recorder = Recorder(history)
        history.listeners.append(self._events.append)
        self._stage = ProcessStage(plan, seed, mutant, self._recorder, started_ns, folder, maker)

    async def play(self) -> _Made:
        """Play the plan, and merge what was recorded."""
        stage = self._stage
        try:
            async with stage:
                how = await self._ended(ProcessPlan(self._plan, stage))
        except Exception as error:  # noqa: BLE001 - whatever keeps a process from starting proves nothing
            how = RunEnding(
                completed=False, problem=f"the processes could not be started: {type(error).__name__}: {error}"
            )
        if stage.problems and not how.problem:
            how = RunEnding(completed=False, problem="; ".join(stage.problems))
        self._recorder.record(Kind.RUN_END, "run", completed=how.completed)
        own = [event for event in self._events if event.seq >= 0]
        return _Made(merge(stage.parts(own), stage.sources), how)

    @staticmethod
    async def _ended(played: ProcessPlan) -> RunEnding:
        try:
            await played.play()
        except StuckError as error:
            # Real time has no bound that a busy machine keeps, so what is late is not proven to be stuck.
            return RunEnding(
                completed=False, problem=f"not ended in the time there was ({error.clause}): {error.problem}"
            )
        except Exception as error:  # noqa: BLE001 - whatever a process or a client raises proves nothing
            return ending_of(error, 0)
        return RunEnding()


def _checked(header: Mapping[str, Any], made: _Made, meets: Sequence[str], path: Path | None) -> tuple[str, Judgement]:
    """The digest of the merged history, which is written if there is a path, and what it proves."""
    now = 0
    merged = made.merged
    relations = {"relations": merged.relations, "contradicted_by_clock": merged.contradicted}
    history = HistoryWriter({**header, "merged": relations}, lambda: now, path)
    witnesses = Witnesses(history)
    for event in merged.events:
        now = event.time_us
        history.record(event.kind, event.actor, event.ledger, **event.fields)
    history.close()
    return history.digest, witnesses.judge(made.how, meets)
