"""Actions on a running cluster: what each does, what is refused and how, and the same by lines of a terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simbookie.development import control as control_module
from simbookie.development.control import ACTIONS, ClusterControl, ControlError
from simbookie.development.page_server import STREAMS_MAX
from simbookie.development.snapshot import LEDGERS_SHOWN_MAX
from simbookie.development.terminal import HELP, LINE_BYTES_MAX, lines_of, obey, run_commands
from tests.simbookie.development.bench import FakeProcesses, controlled


@pytest.fixture
async def world() -> AsyncIterator[tuple[ClusterControl, FakeProcesses]]:
    control, processes = controlled()
    await control.start()
    yield control, processes
    await control.aclose()


async def test_every_action_does_what_it_says(world: tuple[ClusterControl, FakeProcesses]) -> None:
    control, processes = world
    first = processes.bookies[0]
    states = []
    for action in ("pause", "resume", "partition", "heal", "crash", "restart", "pause", "restart"):
        done = await control.act(action, "bookie-0")
        assert (done.action, done.bookie, done.error) == (action, "bookie-0", "")
        states.append(control.state(first))  # type: ignore[arg-type]
    assert first.done == ["pause", "resume", "kill", "restart", "pause", "restart"]
    assert states == ["paused", "running", "partitioned", "running", "crashed", "running", "paused", "running"]
    assert (await control.act("add")).bookie == "bookie-2"
    await control.act("partition", "2")  # it has a relay, too
    assert [done.number for done in control.done] == list(range(1, 11))


@pytest.mark.parametrize(
    ("before", "action", "bookie", "says"),
    [
        ([], "burn", "bookie-0", "no action is called 'burn'; there are: crash, restart, pause"),
        ([], "crash", "", "crash needs a bookie: crash bookie-0"),
        ([], "crash", "bookie-7", "no bookie is called 'bookie-7'; there are: bookie-0, bookie-1"),
        ([], "crash", "2", "no bookie is called '2'"),
        ([], "crash", "²", "no bookie is called"),
        ([], "add", "bookie-0", "add takes no bookie, got 'bookie-0'"),
        (["crash"], "crash", "0", "bookie-0 is not running: restart bookie-0"),
        (["crash"], "pause", "0", "bookie-0 is not running: restart bookie-0"),
        (["pause"], "pause", "0", "bookie-0 is paused already: resume bookie-0"),
        ([], "resume", "0", "bookie-0 is not paused"),
        (["partition"], "partition", "0", "bookie-0 is partitioned already: heal bookie-0"),
        ([], "heal", "0", "bookie-0 is not partitioned"),
    ],
)
async def test_what_cannot_be_done_is_refused_and_changes_nothing(
    world: tuple[ClusterControl, FakeProcesses], before: list[str], action: str, bookie: str, says: str
) -> None:
    control, processes = world
    for each in before:
        await control.act(each, "0")
    done = list(processes.bookies[0].done)
    with pytest.raises(ControlError) as caught:
        await control.act(action, bookie)
    assert str(caught.value).startswith(says)
    assert processes.bookies[0].done == done
    assert control.done[-1].error == str(caught.value)


async def test_a_bookie_that_does_not_start_is_told(world: tuple[ClusterControl, FakeProcesses]) -> None:
    control, processes = world
    processes.bookies[1].fails = processes.fails = True
    with pytest.raises(ControlError, match="bookie-1: it did not serve"):
        await control.act("restart", "1")
    with pytest.raises(ControlError, match="no memory"):
        await control.act("add")


async def test_a_cluster_has_so_many_bookies_at_most(
    world: tuple[ClusterControl, FakeProcesses], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "BOOKIES_MAX", 3)
    await world[0].act("add")
    with pytest.raises(ControlError, match="3 bookies at most"):
        await world[0].act("add")


async def test_lines_are_commands(world: tuple[ClusterControl, FakeProcesses]) -> None:
    control, _ = world
    assert await obey(control, "  ") == ""
    assert await obey(control, "pause 1\n") == "pause: bookie-1"
    assert await obey(control, "list") == "  0  bookie-0  running\n  1  bookie-1  paused"
    assert await obey(control, "help") == HELP
    assert all(name in HELP for name in ACTIONS)
    assert (await obey(control, "burn")).endswith("add, list, help")
    assert await obey(control, "pause 1 now") == "one action and one bookie, got 3 words; help lists the commands"
    assert await obey(control, "x" * (LINE_BYTES_MAX + 1)) == f"a command has at most {LINE_BYTES_MAX} characters"


async def test_lines_come_from_a_descriptor_to_its_end_and_long_ones_are_cut(
    world: tuple[ClusterControl, FakeProcesses],
) -> None:
    reading, writing = os.pipe()
    said: list[str] = []
    running = asyncio.create_task(run_commands(world[0], lines_of(reading), said.append))
    os.write(writing, b"par")
    os.write(writing, b"tition 0\n" + b"y" * 20_000 + b"\nheal 0")
    os.close(writing)
    await running
    os.close(reading)
    assert said == ["partition: bookie-0", f"a command has at most {LINE_BYTES_MAX} characters", "heal: bookie-0"]


def test_the_page_of_development_clusters_lists_every_action() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "using" / "development-cluster.md").read_text(
        encoding="utf-8"
    )
    for each in ACTIONS.values():
        assert f"| `{each.name}{' BOOKIE' if each.to_bookie else ''}` | {each.meaning} |" in page
    assert (
        f"Limits: {control_module.BOOKIES_MAX} bookies, {STREAMS_MAX} open pages, the newest {LEDGERS_SHOWN_MAX} ledgers"
        in page
    )
