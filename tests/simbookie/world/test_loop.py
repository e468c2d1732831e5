from __future__ import annotations

import asyncio
import gc
import itertools
import math
import sys
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anyio
import pytest

from simbookie.world.errors import (
    Deadlock,
    RealWorldRefused,
    StepLimitReached,
    TimeLimitReached,
    UnhandledErrors,
)
from simbookie.world.loop import LoopLimits, VirtualTimeLoop


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    yield loop
    loop.close()


def test_a_long_sleep_takes_no_time(loop: VirtualTimeLoop) -> None:
    started = time.monotonic()
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == 86_400
    assert time.monotonic() - started < 5


def test_the_clock_stands_still_while_anything_is_ready(loop: VirtualTimeLoop) -> None:
    async def main() -> None:
        loop.call_later(0.001, lambda: None)
        for _ in range(1000):
            await asyncio.sleep(0)
            assert loop.time() == 0

    loop.run_until_complete(main())


def test_ready_callbacks_run_first_in_first_out(loop: VirtualTimeLoop) -> None:
    log: list[int] = []

    async def main() -> None:
        for number in range(50):
            loop.call_soon(log.append, number)
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert log == list(range(50))


def test_timers_of_the_same_time_run_in_the_order_in_which_they_were_set(loop: VirtualTimeLoop) -> None:
    log: list[int] = []

    async def main() -> None:
        for number in range(50):
            loop.call_at(1.0, log.append, number)
        loop.call_at(0.5, log.append, -1)
        await asyncio.sleep(2)

    loop.run_until_complete(main())
    assert log == [-1, *range(50)]


def test_a_cancelled_timer_neither_runs_nor_moves_the_clock(loop: VirtualTimeLoop) -> None:
    async def main() -> None:
        loop.call_at(1.0, pytest.fail, "cancelled").cancel()
        await asyncio.sleep(0)
        loop.call_at(5.0, lambda: None)
        await asyncio.sleep(0.5)
        assert loop.time() == 0.5

    loop.run_until_complete(main())


def test_cancelled_timers_are_swept_out_and_the_others_keep_their_order(loop: VirtualTimeLoop) -> None:
    log: list[int] = []

    async def main() -> None:
        kept = [loop.call_at(1.0, log.append, number) for number in range(20)]
        for timer in [loop.call_at(2.0, pytest.fail, "cancelled") for _ in range(5000)]:
            timer.cancel()
        assert len(loop._timers) < 300
        kept[3].cancel()
        kept[3].cancel()
        await asyncio.sleep(3)

    loop.run_until_complete(main())
    assert log == [number for number in range(20) if number != 3]


def test_the_timers_to_come_can_be_seen(loop: VirtualTimeLoop) -> None:
    async def main() -> None:
        late, never, soon = (loop.call_later(delay, lambda: None) for delay in (2.0, 3.0, 1.0))
        never.cancel()
        assert loop.timers() == [soon, late]
        await asyncio.sleep(1.5)
        assert loop.timers() == [late]

    loop.run_until_complete(main())


def test_a_timer_in_the_past_runs_at_once_and_does_not_turn_the_clock_back(loop: VirtualTimeLoop) -> None:
    times: list[float] = []

    async def main() -> None:
        await asyncio.sleep(5)
        loop.call_at(1.0, lambda: times.append(loop.time()))
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        loop.run_until_complete(main())
    assert times == [5.0]
    assert loop.time() == 5.0


def test_a_timer_at_infinity_never_runs_and_one_at_nan_is_refused(loop: VirtualTimeLoop) -> None:
    async def main() -> None:
        loop.call_later(math.inf, pytest.fail, "never").cancel()
        loop.call_later(math.inf, pytest.fail, "never")
        with pytest.raises(ValueError, match="needs a time"):
            loop.call_at(math.nan, pytest.fail)
        await asyncio.sleep(1)

    loop.run_until_complete(main())


def test_waiting_for_what_cannot_happen_is_a_deadlock_that_names_who_waits(loop: VirtualTimeLoop) -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = loop.create_task(waits_for_ever(), name="the culprit")
        await asyncio.sleep(3)
        await task

    with pytest.raises(Deadlock) as caught:
        loop.run_until_complete(main())
    assert len(caught.value.pending) == 2
    assert waits_for_ever.__qualname__ + ") at Event.wait, line" in caught.value.pending[1]
    assert "at 3.000000 s" in str(caught.value)


def test_many_pending_tasks_do_not_make_an_endless_message(loop: VirtualTimeLoop) -> None:
    async def main() -> None:
        await asyncio.gather(*(asyncio.Event().wait() for _ in range(100)))

    with pytest.raises(Deadlock, match="and 81 more") as caught:
        loop.run_until_complete(main())
    assert len(caught.value.pending) == 101


def test_a_run_that_spins_without_time_passing_ends_at_the_step_limit() -> None:
    loop = VirtualTimeLoop(LoopLimits(steps=1000))

    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(StepLimitReached, match="main"):
        loop.run_until_complete(main())
    loop.close()


def test_a_run_that_goes_on_for_ever_ends_at_the_time_limit() -> None:
    loop = VirtualTimeLoop(LoopLimits(seconds=60))

    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with pytest.raises(TimeLimitReached, match="61"):
        loop.run_until_complete(main())
    assert loop.time() == 60
    loop.close()


@pytest.mark.parametrize("limits", [{"steps": 0}, {"seconds": 0.0}, {"seconds": math.nan}])
def test_limits_must_be_positive(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="limits must be > 0"):
        LoopLimits(**limits)


def test_a_callback_that_raises_ends_the_run(loop: VirtualTimeLoop) -> None:
    def breaks() -> None:
        raise KeyError("oops")

    async def main() -> None:
        loop.call_later(1, breaks)
        await asyncio.sleep(10)

    with pytest.raises(UnhandledErrors, match="breaks: KeyError") as caught:
        loop.run_until_complete(main())
    assert isinstance(caught.value.errors[0], KeyError)
    assert loop.time() == 1


def test_after_every_callback_the_run_may_be_looked_at_and_ended(loop: VirtualTimeLoop) -> None:
    log: list[object] = []

    def look(process: object) -> None:
        log.append(("after", process))
        if "wrong" in log:
            raise AssertionError("what is counted is what is there")

    async def main() -> None:
        loop.after_step = look
        await asyncio.sleep(0)
        loop.call_soon(log.append, "right")
        loop.call_soon(log.append, "wrong")
        await asyncio.sleep(1)

    with pytest.raises(UnhandledErrors, match="what is counted"):
        loop.run_until_complete(main())
    after = ("after", None)
    assert log[-4:] == ["right", after, "wrong", after]


def test_what_is_asked_for_is_called_once_after_the_callback_that_asked(loop: VirtualTimeLoop) -> None:
    log: list[str] = []

    def ask(name: str) -> None:
        log.append(name)
        loop.afterwards.append(lambda: log.append(f"after {name}"))

    async def main() -> None:
        loop.call_soon(ask, "a")
        loop.call_soon(log.append, "b")
        loop.call_soon(ask, "c")
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert log == ["a", "after a", "b", "c", "after c"]


def test_what_is_raised_after_a_callback_ends_the_run(loop: VirtualTimeLoop) -> None:
    def look() -> None:
        raise AssertionError("what is counted is what is there")

    async def main() -> None:
        loop.call_soon(loop.afterwards.append, look)
        await asyncio.sleep(1)

    with pytest.raises(UnhandledErrors, match="what is counted"):
        loop.run_until_complete(main())


def test_an_error_reported_to_the_loop_ends_the_run(loop: VirtualTimeLoop) -> None:
    async def main() -> None:
        loop.call_exception_handler({"message": "a handler raised", "exception": ValueError("oops")})
        await asyncio.sleep(10)

    with pytest.raises(UnhandledErrors, match="a handler raised"):
        loop.run_until_complete(main())


def test_what_a_forgotten_task_raised_is_noted_and_a_forgotten_future_is_not(loop: VirtualTimeLoop) -> None:
    async def fails() -> None:
        raise KeyError("oops")

    async def main() -> None:
        task = loop.create_task(fails(), name="forgotten")
        future = loop.create_future()
        future.set_exception(ValueError)
        await asyncio.sleep(1)
        del task, future

    loop.run_until_complete(main())
    assert [place for place, _ in loop.unretrieved] == ["world: forgotten"]


@pytest.mark.parametrize(
    "reach_out",
    [
        lambda loop: loop.run_in_executor(None, print),
        lambda loop: asyncio.to_thread(print),
        lambda loop: anyio.to_thread.run_sync(print),
        lambda loop: asyncio.open_connection("127.0.0.1", 1),
        lambda loop: asyncio.start_server(print, "127.0.0.1", 0),
        lambda loop: asyncio.create_subprocess_exec(sys.executable),
        lambda loop: loop.getaddrinfo("localhost", 1),
        lambda loop: loop.sock_recv(None, 1),
        lambda loop: loop.add_reader(0, print),
        lambda loop: loop.add_signal_handler(2, print),
        lambda loop: loop.call_soon_threadsafe(print),
        lambda loop: loop.set_task_factory(None),
    ],
)
def test_the_real_world_is_refused(loop: VirtualTimeLoop, reach_out: Callable[[Any], Any]) -> None:
    async def main() -> None:
        result = reach_out(loop)
        if asyncio.iscoroutine(result):
            await result

    with pytest.raises(RealWorldRefused, match="nothing real exists in a simulated world"):
        loop.run_until_complete(main())
    gc.collect()


def test_timeouts_of_asyncio_and_anyio_follow_the_virtual_clock(loop: VirtualTimeLoop) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(50)
        with anyio.move_on_after(5):
            await anyio.sleep(50)
        assert loop.time() == 10
        assert anyio.current_time() == 10

    loop.run_until_complete(main())


def test_tasks_and_futures_hash_to_numbers_of_their_loop() -> None:
    def hashes() -> list[int]:
        loop = VirtualTimeLoop()

        async def main() -> list[int]:
            tasks = [asyncio.ensure_future(asyncio.sleep(0)) for _ in range(5)]
            futures = [loop.create_future() for _ in range(5)]
            await asyncio.gather(*tasks)
            return [hash(item) for item in (*tasks, *futures)]

        result = loop.run_until_complete(main())
        loop.close()
        return result

    assert hashes() == hashes()
    assert len(set(hashes())) == 10


def test_tasks_are_named_by_the_loop_and_not_by_the_process() -> None:
    def name() -> str:
        loop = VirtualTimeLoop()

        async def main() -> str:
            return asyncio.ensure_future(asyncio.sleep(0)).get_name()

        result = loop.run_until_complete(main())
        loop.close()
        return result

    assert name() == name()


def test_garbage_is_not_collected_during_a_run(loop: VirtualTimeLoop) -> None:
    async def main() -> bool:
        return gc.isenabled()

    assert gc.isenabled()
    assert not loop.run_until_complete(main())
    assert gc.isenabled()


def test_an_abandoned_async_generator_is_closed_as_asyncio_does(loop: VirtualTimeLoop) -> None:
    log: list[str] = []

    async def numbers() -> Any:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            log.append("closed")

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(2)

    loop.run_until_complete(main())
    assert log == ["closed"]


def test_closing_with_everything_still_suspended_is_silent_and_affects_nobody() -> None:
    loop = VirtualTimeLoop()
    log: list[str] = []

    async def stubborn() -> None:
        me: object = asyncio.current_task()  # a cycle: only the collector could destroy it
        try:
            await asyncio.sleep(1000)
        finally:
            try:
                await asyncio.sleep(0)
            finally:
                try:
                    await asyncio.sleep(0)
                finally:
                    me = asyncio.create_task(asyncio.sleep(1))
                    log.append(f"never {me}")

    async def generates() -> Any:
        try:
            yield
            await asyncio.sleep(1000)
        finally:  # CPython 3.13 comes here when the coroutine that iterates is closed, older ones do not
            log.append(f"never {asyncio.create_task(asyncio.sleep(1))}")

    async def iterates() -> None:
        async for _ in generates():
            pass

    async def in_group() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 1000)
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()

    async def main() -> None:
        for program in (stubborn, iterates, in_group):
            loop.create_task(program())
        loop.create_task(stubborn()).cancel()
        await asyncio.sleep(1.5)
        loop.create_task(stubborn())
        loop.create_future().set_exception(ValueError("nobody looks"))

    loop.run_until_complete(main())
    with warnings.catch_warnings(record=True, action="always") as caught:
        loop.close()
        loop.close()
        gc.collect()
    assert (log, caught) == ([], [])
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)


async def test_what_is_unwound_does_not_find_the_loop_of_who_closes() -> None:
    found: list[object] = []

    async def suspended() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            try:
                found.append(asyncio.get_running_loop())
            except RuntimeError:
                found.append(None)

    def run() -> VirtualTimeLoop:
        loop = VirtualTimeLoop()

        async def main() -> None:
            loop.create_task(suspended())
            await asyncio.sleep(1)

        loop.run_until_complete(main())
        return loop

    loop = await asyncio.to_thread(run)  # here another loop runs
    loop.close()
    assert found == [None]
    assert asyncio.get_running_loop() is not loop


def test_a_loop_that_was_not_closed_says_so() -> None:
    loop = VirtualTimeLoop()
    with pytest.warns(ResourceWarning, match="unclosed simulated world"):
        loop.__del__()
    loop.close()


def test_it_serves_where_asyncio_takes_a_loop_factory() -> None:
    async def main() -> float:
        await asyncio.sleep(100)
        return asyncio.get_running_loop().time()

    story: Coroutine[Any, Any, float] = main()
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(story) == 100
