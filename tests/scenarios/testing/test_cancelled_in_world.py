"""Operations of a program are given up at their steps, with faults and without, and leave nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.testing.cancelled_operations import OPERATIONS
from tests.scenarios.testing.cancelling import Fault, Program, Way, given_up_at_steps, play


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_is_given_up_leaves_nothing(name: str) -> None:
    number = list(OPERATIONS).index(name)
    way = list(Way)[number % len(Way)]
    assert given_up_at_steps(OPERATIONS[name], way, Fault.NONE, first=3 + number % 17, every=41) >= 1


@pytest.mark.deep
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_is_given_up_during_a_fault_leaves_nothing(name: str, fault: Fault) -> None:
    number = list(OPERATIONS).index(name) + list(Fault).index(fault)
    way = list(Way)[number % len(Way)]
    assert given_up_at_steps(OPERATIONS[name], way, fault, first=1 + number % 3, every=37) >= 1


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_is_given_up_at_any_step_leaves_nothing(name: str, way: Way, fault: Fault) -> None:
    every = 1 if fault is Fault.NONE else 3
    assert given_up_at_steps(OPERATIONS[name], way, fault, every=every) >= 3


@pytest.mark.parametrize("way", [Way.TASK, Way.SCOPE])
def test_a_task_that_is_left_is_found(way: Way) -> None:
    async def leaves_a_task(program: Program) -> None:
        _ = program.world
        kept.append(asyncio.create_task(asyncio.sleep(1_000), name="kept"))
        await asyncio.sleep(1)

    kept: list[asyncio.Task[None]] = []
    with pytest.raises(AssertionError, match="tasks of what was given up are left") as caught:
        play(leaves_a_task, 1, way)
    assert caught.value.__notes__ == [f"step 1, {way.value}, nothing, seed 1"]


def test_a_handle_of_a_log_that_is_not_left_is_found() -> None:
    async def leaves_a_cursor(program: Program) -> None:
        await program.logs.cursor("log", "cursor").__aenter__()
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="cursor cursor of log log"):
        play(leaves_a_cursor, 10_000, Way.TASK)


def test_a_wait_that_does_not_hear_of_the_end_of_the_client_is_found() -> None:
    async def waits(program: Program) -> None:
        _ = program.world
        await asyncio.sleep(1_000)

    with pytest.raises(AssertionError, match="does not end although the client was closed"):
        play(waits, 1, Way.CLOSE)


def test_what_was_acknowledged_and_is_gone_is_found() -> None:
    async def lies(program: Program) -> None:
        program.acknowledged[program.writer.ledger_id].append(b"never written")

    with pytest.raises(AssertionError):
        play(lies, 0, Way.TASK)
