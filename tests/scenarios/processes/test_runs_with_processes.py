"""Runs with processes: verdicts, planted defects, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scenarios.cli.app import app
from scenarios.history import History, Kind
from scenarios.liveness import StuckError
from scenarios.model import Tier
from scenarios.plan import parse_plan
from scenarios.plan.library import library_names, library_plan
from scenarios.processes import problems_of, run_plan_with_processes, stage
from scenarios.processes.served import BookieWishes, OnEvent
from scenarios.processes.stage import ProcessPlan, ProcessStage
from scenarios.replaying import read_recorded
from scenarios.specification.histories.conformance import conform_history

#: What takes real processes is for ``make processes``: how long they take is up to the machine.
pytestmark = pytest.mark.timeout(300)

#: One bookie, which is killed and comes back, and a writer that dies; with time enough for a busy machine.
_PLAN = """plan short
expect safe
end a 4
meets recovery
patience 80s

cluster 1 1/1/1
  timeouts add=30s read=30s

client writer
  create a
  append a 5
  stay

client recoverer
  must open a recover
  must read a

when APP_ACK actor=writer entry=4: kill writer
when CLIENT_CRASH actor=writer: crash bookie-0
when BK_CRASH actor=bookie-0: restart bookie-0
when BK_RESTART actor=bookie-0: start recoverer
"""


def processes_of_runs() -> list[int]:
    """Everything on this machine that a run of this process has started and not ended."""
    found = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in found.splitlines()[1:]]
    return [int(pid) for pid, parent, args in rows if "scenarios.processes." in args and int(parent) == os.getpid()]


def states_of_children(parent: int) -> dict[int, str]:
    """The processes that a process has started, each with the first letter of its state."""
    found = subprocess.run(["ps", "-eo", "pid,ppid,stat"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in found.splitlines()[1:]]
    return {int(pid): state[0] for pid, its_parent, state in rows if int(its_parent) == parent}


def runs(pid: int) -> bool:
    """Whether a process is there, and not just its exit status."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(found.strip()) and not found.startswith("Z")


@pytest.mark.sweep
def test_what_processes_did_is_one_history_that_is_judged(tmp_path: Path) -> None:
    result = run_plan_with_processes(parse_plan(_PLAN), 3, record=tmp_path)
    assert (result.verdict, result.problem, result.transport) == ("ok", "", Tier.PROCESSES)
    recorded = read_recorded(Path(result.path))
    events = list(recorded.history.events())
    kinds = Counter((event.kind, event.actor) for event in events)
    assert kinds[Kind.APP_ACK, "writer"] == 5
    assert kinds[Kind.BK_STORE, "bookie-0"] >= 5
    assert kinds[Kind.BK_CRASH, "bookie-0"] == kinds[Kind.BK_RESTART, "bookie-0"] == 1
    assert kinds[Kind.META_CAS, "writer"] == 1
    assert kinds[Kind.READ_RESULT, "final-1"] == 5
    assert not any(kind == Kind.BK_LOSS for kind, _ in kinds), "what was acknowledged survives SIGKILL"
    assert {event.fields["source"] for event in events if event.kind == Kind.BK_RECV} <= {
        *("writer", "recoverer", "final-0", "final-1")
    }
    merged = recorded.history.header["merged"]
    assert merged["relations"] > 10
    assert merged["contradicted_by_clock"] == 0
    assert recorded.digest == result.digest
    assert not processes_of_runs()


@pytest.mark.sweep
def test_a_defect_planted_into_client_processes_is_found() -> None:
    result = run_plan_with_processes(parse_plan(_PLAN), 3, mutant="recovery-closes-at-found-lac")
    assert result.verdict == "violated"
    assert "E7" in {violation.clause for violation in result.violations}
    assert not processes_of_runs()


def test_a_client_that_is_late_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def begin(_stage: ProcessStage) -> None:
        return None

    async def play(_plan: ProcessPlan) -> None:
        raise StuckError(1, "it was not closed")

    monkeypatch.setattr(ProcessStage, "__aenter__", begin)
    monkeypatch.setattr(ProcessPlan, "play", play)
    result = run_plan_with_processes(parse_plan(_PLAN), 3)
    assert (result.verdict, result.violations) == ("unknown", ())
    assert result.problem == "not ended in the time there was (L1): it was not closed"


#: The writer stands still as soon as it has written, and nothing ends by itself.
_WAITING = """plan waits
expect anything
patience 120s

cluster 1 1/1/1
  timeouts add=30s read=30s

client writer
  create a
  append a 1
  sleep 100s

when APP_ACK actor=writer entry=0: pause writer
"""


class NoClient:
    """Stands for a client process where none is needed."""

    part = Path("nothing was recorded")

    def __init__(self, name: str) -> None:
        self.name = name

    def discard(self) -> None:
        """There is nothing to end."""


class EndsBeforeItRegisters:
    """A bookie whose port answers, because somebody else has it; and what makes it."""

    kind = "none"
    records = is_alive = is_paused = False
    parts: Sequence[Path] = ()
    port = 1
    problem = "the address is in use"

    def __call__(self, wishes: BookieWishes, on_event: OnEvent) -> EndsBeforeItRegisters:
        del wishes, on_event
        return self

    def start(self) -> None:
        """It has ended already."""

    async def serves(self) -> None:
        """The port answers."""

    kill = pause = resume = start


@pytest.mark.timeout(20)
def test_a_bookie_that_ends_before_it_is_registered_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessStage, "_new_child", lambda _stage, name: NoClient(name))
    result = run_plan_with_processes(parse_plan(_PLAN), 3, bookies=EndsBeforeItRegisters())
    assert result.verdict == "unknown"
    assert result.problem == "the processes could not be started: RuntimeError: the address is in use"


def test_bookies_that_do_not_register_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessStage, "_new_child", lambda _stage, name: NoClient(name))
    monkeypatch.setattr(EndsBeforeItRegisters, "problem", "")
    monkeypatch.setattr(stage, "_REGISTRATION_TIMEOUT_S", 0.2)
    result = run_plan_with_processes(parse_plan(_PLAN), 3, bookies=EndsBeforeItRegisters())
    assert result.problem.endswith("RuntimeError: not registered within 0.2 s: bookie-0")


@pytest.mark.sweep
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_nothing_stays_behind_whatever_ends_the_command(tmp_path: Path, number: signal.Signals, code: int) -> None:
    plan = tmp_path / "waits.scn"
    plan.write_text(_WAITING)
    command = [
        sys.executable,
        "-c",
        "from scenarios.cli import main; main()",
        "run",
        str(plan),
        "--transport",
        "processes",
    ]
    command_line = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    try:
        while "T" not in (states := states_of_children(command_line.pid)).values():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(states) == 4, "a bookie, the writer, and two who read back"
        os.kill(command_line.pid, number)
        assert command_line.wait(100) == code
        while any(map(runs, states)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        command_line.kill()
        command_line.wait()


def test_the_command_says_what_it_cannot_play() -> None:
    ended = CliRunner().invoke(app, ["run", "change-lost", "--transport", "processes"])
    assert ended.exit_code == 2
    assert "step 'metadata call-lost" in ended.output
    ended = CliRunner().invoke(app, ["run", "zombie-writer", "--transport", "processes"])
    assert ended.exit_code == 2
    assert "processes play plans" in ended.output


@pytest.mark.sweep
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [name for name in library_names() if not list(problems_of(library_plan(name), records=True))]
)
def test_plans_of_the_library(name: str, tmp_path: Path) -> None:
    """``make processes``. No plan is violated; what chance does on a busy machine may leave one without a verdict.

    Whatever came of it, every event is an action of the published specification, or a listed difference.
    """
    result = run_plan_with_processes(library_plan(name), 0, record=tmp_path)
    assert result.verdict != "violated", [violation.as_json() for violation in result.violations]
    assert [str(one) for one in conform_history(History(Path(result.path)).events()).wrong] == []
    assert History(Path(result.path)).header["merged"]["contradicted_by_clock"] == 0
    assert not processes_of_runs()
