from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from simbookie.world.errors import Deadlock, WorldError
from simbookie.world.loop import VirtualTimeLoop
from simbookie.world.process import Process, current_process

Story = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    yield loop
    loop.close()


def test_whatever_code_schedules_belongs_to_its_process(loop: VirtualTimeLoop) -> None:
    process = Process("a")
    owners: list[Process | None] = []

    def note() -> None:
        owners.append(current_process.get())

    async def child() -> None:
        note()

    async def program() -> None:
        loop.call_soon(note)
        loop.call_later(1, note)
        future = loop.create_future()
        future.add_done_callback(lambda _: note())
        future.set_result(None)
        async with anyio.create_task_group() as group:
            group.start_soon(child)
        await asyncio.ensure_future(child())

    async def main() -> None:
        await loop.create_task(program(), context=process.context())
        await asyncio.sleep(2)
        note()

    loop.run_until_complete(main())
    assert owners == [process] * 5 + [None]


def test_a_killed_process_executes_nothing_more_not_even_finally_blocks(loop: VirtualTimeLoop) -> None:
    process = Process("a")
    log: list[str] = []

    async def program() -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(child)
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(10)
        except BaseException:
            log.append("except")
            raise
        finally:
            log.append("finally")

    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            log.append("child finally")

    async def main() -> None:
        loop.create_task(program(), context=process.context())
        loop.call_later(5, log.append, "world timer")
        process.context().run(loop.call_later, 5, log.append, "timer of the dead")
        process.context().run(loop.call_soon, log.append, "alive")
        await asyncio.sleep(1)
        process.context().run(loop.call_soon, log.append, "ready when it died")
        loop.kill(process)
        loop.kill(process)
        gc.collect()
        await asyncio.sleep(20)

    loop.run_until_complete(main())
    gc.collect()
    assert log == ["alive", "world timer"]


def test_what_a_killed_process_left_behind_stays_silent_when_the_last_reference_goes(loop: VirtualTimeLoop) -> None:
    process = Process("a")
    log: list[str] = []
    shared: list[asyncio.Future[None]] = []

    async def waits_for_another() -> None:
        future: asyncio.Future[None] = loop.create_future()
        shared.append(future)
        try:
            await future
        finally:
            log.append("finally")

    @contextmanager
    def noting() -> Iterator[None]:
        try:
            yield
        finally:
            log.append("context manager")

    async def generate() -> Any:
        with noting():
            try:
                yield 1
            finally:
                log.append("generator finally")

    generators: list[Any] = []

    async def abandons() -> None:
        generators.append(generate())
        await anext(generators[0])

    async def main() -> None:
        for _ in range(2):
            loop.create_task(waits_for_another(), context=process.context())
        loop.create_task(abandons(), context=process.context())
        await asyncio.sleep(1)
        loop.kill(process)
        shared.pop().set_result(None)
        shared.clear()
        generators.clear()
        gc.collect()
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert log == []


def test_a_task_of_a_killed_process_never_finishes_and_is_not_counted_as_pending(loop: VirtualTimeLoop) -> None:
    process = Process("a")

    async def main() -> None:
        task = loop.create_task(asyncio.sleep(1), context=process.context())
        await asyncio.sleep(0)
        loop.kill(process)
        await task

    with pytest.raises(Deadlock) as caught:
        loop.run_until_complete(main())
    assert len(caught.value.pending) == 1
    assert loop.time() == 0, "a timer of the dead does not move the clock"


def test_a_killed_process_does_not_outlive_the_loop() -> None:
    loop = VirtualTimeLoop()
    process = Process("a")

    class Something:
        pass

    kept = Something()
    reference = weakref.ref(kept)

    async def holds(something: Something) -> None:
        await asyncio.sleep(100)
        del something

    async def main() -> None:
        await asyncio.sleep(1)
        loop.kill(process)
        await asyncio.sleep(1)

    loop.create_task(holds(kept), context=process.context())
    del kept
    loop.run_until_complete(main())
    assert reference() is not None
    loop.close()
    gc.collect()
    assert reference() is None


def test_a_paused_process_runs_everything_at_its_resumption_in_the_order_in_which_it_came_due(
    loop: VirtualTimeLoop,
) -> None:
    process = Process("a")
    log: list[tuple[str, float]] = []

    def note(text: str) -> None:
        log.append((text, loop.time()))

    async def main() -> None:
        inside = process.context()
        inside.run(loop.call_later, 2.0, note, "timer at 2")
        inside.run(loop.call_later, 1.0, note, "timer at 1")
        inside.run(loop.call_later, 9.0, note, "timer at 9")
        loop.pause(process)
        loop.call_later(1.5, loop.enter, process, note, "arrived at 1.5")
        await asyncio.sleep(5)
        assert log == []
        inside.run(loop.call_soon, note, "made ready at 5")
        loop.resume(process)
        await asyncio.sleep(5)

    loop.run_until_complete(main())
    assert [text for text, _ in log] == ["timer at 1", "arrived at 1.5", "timer at 2", "made ready at 5", "timer at 9"]
    assert [when for _, when in log] == [5, 5, 5, 5, 9]


def test_what_is_cancelled_while_deferred_does_not_run(loop: VirtualTimeLoop) -> None:
    process = Process("a")

    async def main() -> None:
        timer = loop.call_later(1.0, pytest.fail, "cancelled", context=process.context())
        loop.pause(process)
        await asyncio.sleep(2)
        timer.cancel()
        loop.resume(process)
        await asyncio.sleep(1)

    loop.run_until_complete(main())


def test_a_process_killed_while_paused_runs_nothing(loop: VirtualTimeLoop) -> None:
    process = Process("a")

    async def main() -> None:
        loop.call_later(1.0, pytest.fail, "dead", context=process.context())
        loop.pause(process)
        await asyncio.sleep(2)
        loop.kill(process)
        loop.enter(process, pytest.fail, "dead")
        await asyncio.sleep(1)
        with pytest.raises(WorldError, match="not paused"):
            loop.resume(process)
        with pytest.raises(WorldError, match="cannot be paused"):
            loop.pause(process)

    loop.run_until_complete(main())


def test_code_on_the_stack_of_a_process_that_kills_itself_runs_to_its_next_wait(loop: VirtualTimeLoop) -> None:
    process = Process("a")
    log: list[str] = []

    async def other() -> None:
        log.append("started after death")

    async def program() -> None:
        loop.kill(process)
        log.append("still on the stack")
        loop.call_soon(log.append, "scheduled after death")
        loop.create_task(other())
        await asyncio.sleep(0)
        log.append("after a wait")

    async def main() -> None:
        loop.create_task(program(), context=process.context())
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert log == ["still on the stack"]


def test_a_deadlock_tells_which_processes_are_paused(loop: VirtualTimeLoop) -> None:
    process = Process("a")

    async def main() -> None:
        task = loop.create_task(asyncio.sleep(1), name="sleeper", context=process.context())
        await asyncio.sleep(0)
        loop.pause(process)
        await task

    with pytest.raises(Deadlock, match=r"a \(paused\): sleeper"):
        loop.run_until_complete(main())
