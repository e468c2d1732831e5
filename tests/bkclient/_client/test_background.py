"""Background tasks that callbacks ask for: started in order, by a task, or refused; never left between the two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from bkclient._client.background import Background
from bkclient.ledger import LedgerState
from tests.bkclient.fakes import fake_cluster, in_virtual_time, writer_of
from tests.settling import settled


@pytest.fixture
async def demanding_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Task groups that start tasks for tasks only, as anyio's do where sniffio is installed."""
    async with anyio.create_task_group() as tasks:
        kind = type(tasks)
    start_soon: Callable[..., Any] = kind.start_soon

    def demanding(self: TaskGroup, *arguments: Any, **options: Any) -> Any:
        assert asyncio.current_task() is not None, "a callback started a task of the group"
        return start_soon(self, *arguments, **options)

    monkeypatch.setattr(kind, "start_soon", demanding)


@pytest.mark.usefixtures("demanding_groups")
async def test_a_ledger_is_recovered_by_the_answers_of_bookies_alone() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")

        async with asyncio.timeout(10):
            reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)

        assert reader.metadata.state is LedgerState.CLOSED


@pytest.mark.usefixtures("demanding_groups")
async def test_an_ensemble_is_changed_by_the_answer_of_a_bookie_alone() -> None:
    async with fake_cluster("abcd") as where, await writer_of(where) as writer:
        failing = writer.metadata.last_fragment.ensemble[0]
        where.transport.bookies[failing].code = -8

        async with asyncio.timeout(10):
            assert await writer.append(b"x") == 0
            await settled()

        assert failing not in writer.metadata.last_fragment.ensemble


@pytest.mark.usefixtures("demanding_groups")
async def test_callbacks_have_tasks_started_in_the_order_in_which_they_ask() -> None:
    started: list[int] = []

    def work(number: int) -> Callable[[], Any]:
        async def run() -> None:
            started.append(number)

        return run

    async with anyio.create_task_group() as tasks:
        background = Background(tasks)
        for number in range(3):
            asyncio.get_running_loop().call_soon(background.start, work(number), f"work {number}")
        background.start(work(3), "work 3")
        await settled()
        tasks.cancel_scope.cancel()

    assert started == [3, 0, 1, 2]


async def test_what_is_asked_for_at_the_last_moment_begins_and_is_cancelled() -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append("began")
        try:
            await asyncio.sleep(0)
            seen.append("went on")
        finally:
            seen.append("ended")

    async with anyio.create_task_group() as tasks:
        background = Background(tasks)
        await settled()
        assert background.start(work, "late work")
        tasks.cancel_scope.cancel()

    assert seen == ["began", "ended"]


async def test_nothing_is_started_after_the_end_and_the_caller_is_told() -> None:
    async with anyio.create_task_group() as tasks:
        background = Background(tasks)
        await settled()
        tasks.cancel_scope.cancel()

    assert not background.start(anyio.sleep_forever, "too late")


@in_virtual_time
async def test_tasks_have_names_that_say_what_they_do() -> None:
    async with anyio.create_task_group() as tasks:
        background = Background(tasks)
        background.start(anyio.sleep_forever, "a long sleep")
        await settled()
        assert {"a long sleep", "start of background tasks"} <= {task.get_name() for task in asyncio.all_tasks()}
        tasks.cancel_scope.cancel()
