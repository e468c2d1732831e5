"""What repairs wait for, and how many things they do at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from bkclient.errors import ClientClosed, MetadataStoreError, ReplicationFailed
from bkclient.repair.concurrency import first_of, for_each
from bkclient.repair.events import EventKind, RepairEvent
from bkclient.repair.patience import farewell, until_enabled
from simbookie.world.metadata_service import MetadataFault
from tests.bkclient.repair.repair_cluster import RepairCluster, run_in_repair_cluster


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


def test_all_are_done_a_bounded_number_at_a_time() -> None:
    async def program(cluster: RepairCluster) -> None:
        done: list[int] = []
        running = most = 0

        async def work(number: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await anyio.sleep(1)
            running -= 1
            done.append(number)

        started = cluster.world.loop.time()
        await for_each(numbers(10), 3, work)
        assert sorted(done) == list(range(10))
        assert (most, running) == (3, 0)
        assert cluster.world.loop.time() - started == pytest.approx(4.0)

    run_in_repair_cluster(program, bookies=0)


def test_the_first_failure_ends_the_others_and_is_what_the_caller_gets() -> None:
    async def program(cluster: RepairCluster) -> None:
        ended: list[int] = []

        async def work(number: int) -> None:
            try:
                await anyio.sleep(10 if number else 1)
                raise ReplicationFailed(ledger_id=number)
            finally:
                ended.append(number)

        with pytest.raises(ReplicationFailed) as failure:
            await for_each(numbers(5), 5, work)
        assert failure.value.ledger_id == 0
        assert sorted(ended) == [0, 1, 2, 3, 4]

    run_in_repair_cluster(program, bookies=0)


def test_waiting_for_a_turn_has_an_end_if_one_is_wanted() -> None:
    async def program(cluster: RepairCluster) -> None:
        with pytest.raises(TimeoutError):
            await for_each(numbers(3), 2, lambda _: anyio.sleep_forever(), wait_s=30)

        async def work(_: int) -> None:
            await anyio.sleep(20)

        await for_each(numbers(5), 2, work, wait_s=30)

    run_in_repair_cluster(program, bookies=0)


def test_the_first_of_nested_groups_is_found() -> None:
    inner = ExceptionGroup("inner", [ValueError("first"), KeyError("second")])
    assert isinstance(first_of(ExceptionGroup("outer", [inner, OSError()])), ValueError)


@pytest.mark.behaviour("T-264")
def test_whoever_waits_for_the_switch_goes_on_when_it_is_set() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            marks = cluster.marks(bk)
            started = cluster.world.loop.time()
            await until_enabled(marks)
            assert cluster.world.loop.time() - started < 0.1
            await marks.disable()
            went_on: list[float] = []

            async def wait() -> None:
                await until_enabled(marks)
                went_on.append(cluster.world.loop.time())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.sleep(100)
                assert went_on == []
                await marks.enable()
                started = cluster.world.loop.time()
            assert cluster.world.loop.time() - started < 0.1

    run_in_repair_cluster(program, bookies=0)


def test_a_check_that_hangs_is_given_up_and_comes_again() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            for _ in range(3):
                await cluster.written_ledger(bk, 1)
            held = cluster.world.metadata.intercept(
                lambda call: call.host == "auditor" and call.operation == "read_ledger", MetadataFault.HOLD
            )
            cluster.world.metadata.config = type(cluster.world.metadata.config)(timeout_s=10_000)
            cluster.auto_recovery(
                "auditor",
                with_worker=False,
                bookie_check_interval_s=0.0,
                ledger_check_interval_s=500.0,
                max_concurrent_ledger_checks=1,
                ledger_check_wait_s=60.0,
            )
            await cluster.until(lambda: cluster.told(EventKind.FAILED))
            (event,) = cluster.told(EventKind.FAILED)
            assert "given up" in event.detail
            held.remove()
            await cluster.until(lambda: cluster.told(EventKind.CHECKED))

    run_in_repair_cluster(program)


def test_a_farewell_is_said_although_its_program_is_cancelled_and_does_not_keep_it_for_long() -> None:
    async def program(cluster: RepairCluster) -> None:
        said: list[float] = []

        async def leave() -> None:
            await anyio.sleep(1)
            said.append(cluster.world.loop.time())
            await anyio.sleep(3600)

        began = cluster.world.loop.time()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await farewell(leave, lambda event: pytest.fail(str(event)))
        assert said == [began + 1]
        assert cluster.world.loop.time() == began + 2

    run_in_repair_cluster(program, bookies=0)


@pytest.mark.parametrize(("error", "told"), [(MetadataStoreError("away"), 1), (ClientClosed(), 0)])
def test_a_farewell_that_fails_is_told_unless_the_session_has_ended_anyway(error: Exception, told: int) -> None:
    async def program(_: RepairCluster) -> None:
        events: list[RepairEvent] = []

        async def leave() -> None:
            raise error

        await farewell(leave, events.append)
        assert [event.kind for event in events] == [EventKind.FAILED] * told

    run_in_repair_cluster(program, bookies=0)
