from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import anyio
import pytest

from simbookie.world.errors import Deadlock, UnhandledErrors, WorldClosed, WorldError
from simbookie.world.hosts import Host, World
from simbookie.world.process import current_process


def test_a_run_returns_what_the_director_returns_and_may_go_on() -> None:
    with World(1) as world:

        async def main() -> float:
            assert current_process.get() is None
            await asyncio.sleep(2)
            return world.loop.time()

        assert world.run(main) == 2
        assert world.run(main) == 4
        assert world.clock_us() == 4_000_000


def test_the_director_need_not_wait_for_its_hosts() -> None:
    with World(1) as world:
        host = Host(world, "a")

        async def main() -> str:
            host.spawn(asyncio.sleep, 1000)
            await asyncio.sleep(1)
            return "done"

        assert world.run(main) == "done"


def test_joining_ends_with_the_task_or_with_its_process() -> None:
    with World(1) as world:
        first, second = Host(world, "a"), Host(world, "b")

        async def main() -> float:
            tasks = [first.spawn(asyncio.sleep, 3), second.spawn(asyncio.sleep, 1000), second.spawn(asyncio.sleep, 7)]
            world.loop.call_later(5, second.crash)
            await world.join(*tasks)
            await world.join(*tasks)
            assert [task.done() for task in tasks] == [True, False, False]
            return world.loop.time()

        assert world.run(main) == 5


def test_joining_raises_what_a_task_raised() -> None:
    async def fails() -> None:
        await asyncio.sleep(1)
        raise KeyError("oops")

    with World(1) as world:
        host = Host(world, "a")
        with pytest.raises(KeyError):
            world.run(lambda: world.join(host.spawn(fails)))


@pytest.mark.parametrize("keep", [True, False])
def test_a_spawned_task_that_fails_unnoticed_fails_the_run(keep: bool) -> None:
    async def fails() -> None:
        raise KeyError("oops")

    async def fails_inside() -> None:
        asyncio.ensure_future(fails()).set_name("inner")
        await asyncio.sleep(1)

    with World(1) as world:
        host = Host(world, "a")

        async def main() -> None:
            host.spawn(fails if keep else fails_inside, name="outer")
            await asyncio.sleep(2)

        with pytest.raises(UnhandledErrors, match=r"a: (outer|inner): KeyError"):
            world.run(main)


def test_a_task_of_a_crashed_host_that_failed_unnoticed_is_a_failure_too() -> None:
    async def fails() -> None:
        raise KeyError("oops")

    with World(1) as world:
        host = Host(world, "a")

        async def main() -> None:
            host.spawn(fails)
            await asyncio.sleep(1)
            host.crash()

        with pytest.raises(UnhandledErrors):
            world.run(main)


def test_a_host_lives_again_after_a_restart_and_its_old_life_stays_dead() -> None:
    log: list[tuple[str, int]] = []

    with World(1) as world:
        host = Host(world, "a")

        async def beats(name: str) -> None:
            while True:
                await asyncio.sleep(1)
                process = current_process.get()
                assert process is not None
                log.append((name, process.incarnation))

        async def main() -> None:
            world.spawn("a", beats, "first")
            await asyncio.sleep(2.5)
            world.crash("a")
            assert not host.is_alive
            with pytest.raises(WorldError, match="cannot run anything"):
                host.spawn(beats, "dead")
            world.crash(host)
            world.restart(host)
            with pytest.raises(WorldError, match="crash it first"):
                world.restart(host)
            world.spawn(host, beats, "second")
            await asyncio.sleep(2.5)

        world.run(main)
    assert log == [("first", 1), ("first", 1), ("second", 2), ("second", 2)]


def test_pause_and_resume_by_name() -> None:
    times: list[float] = []

    with World(1) as world:
        host = Host(world, "a")

        async def program() -> None:
            await asyncio.sleep(1)
            times.append(world.loop.time())

        async def main() -> None:
            host.spawn(program)
            await asyncio.sleep(0.5)
            world.pause("a")
            assert "PAUSED" in repr(host)
            await asyncio.sleep(5)
            world.resume("a")
            assert "RUNNING, incarnation 1" in repr(host)
            await asyncio.sleep(5)

        world.run(main)
    assert times == [5.5]


def test_crash_listeners_are_called_once_and_as_code_of_the_world() -> None:
    calls: list[object] = []

    with World(1) as world:
        host = Host(world, "a")

        async def main() -> None:
            host.on_crash(lambda: calls.append(current_process.get()))
            host.on_crash(lambda: calls.append("undone"))()
            host.crash()
            host.restart()
            host.crash()

        world.run(main)
    assert calls == [None]


def test_names_of_hosts_are_unique_and_the_metadata_service_has_one() -> None:
    with World(1) as world:
        Host(world, "a")
        for name in ("a", "metadata"):
            with pytest.raises(WorldError, match=name):
                Host(world, name)


def test_while_a_world_is_torn_down_its_clock_refuses_to_tell_the_time() -> None:
    log: list[object] = []

    with World(1) as world:
        host = Host(world, "a")

        async def program() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                try:
                    world.clock_us()
                except WorldClosed as error:
                    log.append(error)

        async def main() -> None:
            host.spawn(program)
            await asyncio.sleep(1)

        world.run(main)
        gc.collect()
        assert log == []
    assert len(log) == 1
    assert world.clock_us() == 1_000_000


def test_a_deadlock_of_the_director_names_the_tasks_of_the_hosts() -> None:
    with World(1) as world:
        host = Host(world, "a")

        with pytest.raises(Deadlock, match="a: stuck"):
            world.run(lambda: world.join(host.spawn(asyncio.Event().wait, name="stuck")))


def test_a_deadlock_because_a_task_had_failed_tells_of_the_failure() -> None:
    async def fails() -> None:
        raise KeyError("oops")

    with World(1) as world:
        host = Host(world, "a")

        async def main() -> None:
            host.spawn(fails, name="culprit")
            await asyncio.Event().wait()

        with pytest.raises(UnhandledErrors, match="a: culprit: KeyError"):
            world.run(main)


def test_a_closed_world_leaves_nothing_behind() -> None:
    class Kept:
        pass

    async def program(something: Kept) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            with anyio.CancelScope():
                await anyio.sleep_forever()
        del something

    def run() -> list[weakref.ref[Any]]:
        kept = Kept()
        references: list[weakref.ref[Any]] = [weakref.ref(kept)]
        with World(1) as world:
            host, other = Host(world, "a"), Host(world, "b")

            async def main() -> None:
                references.extend(weakref.ref(each.spawn(program, kept)) for each in (host, other))
                await asyncio.sleep(1)
                host.crash()

            world.run(main)
        return references

    references = run()
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_a_stream_of_chance_never_starts_again_and_depends_on_the_seed_alone() -> None:
    def draws(seed: int) -> list[float]:
        with World(seed) as world:
            return [world.rng(name).random() for name in ("session", "session", "session", "other")]

    first = draws(1)
    assert len(set(first)) == 4, "a session that is made anew does not meet the same chances once more"
    assert draws(1) == first
    assert not set(draws(2)) & set(first)
