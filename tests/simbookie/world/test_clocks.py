"""Wall clocks of hosts jump and drift; the loop's clock, which timeouts use, does not."""

from __future__ import annotations

import asyncio

import pytest

from simbookie.world.clocks import EPOCH_S, WallClock
from simbookie.world.hosts import Host, World


class Time:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def shown(clock: WallClock) -> float:
    return round(clock() - EPOCH_S, 6)


def test_a_clock_is_right_until_it_jumps_or_drifts() -> None:
    time = Time()
    clock = WallClock(time)
    time.now_s = 5.0
    assert shown(clock) == 5
    clock.jump(60)
    assert shown(clock) == 65
    clock.jump(-100)
    assert shown(clock) == -35
    clock.run_at(2)
    time.now_s = 8.0
    assert shown(clock) == -29
    clock.run_at(0)
    time.now_s = 10.0
    assert shown(clock) == -29
    clock.run_at(1)
    time.now_s = 11.0
    assert shown(clock) == -28


def test_no_clock_shows_a_time_before_1970_or_runs_back() -> None:
    clock = WallClock(Time())
    clock.jump(-1e12)
    assert clock() == 0
    with pytest.raises(ValueError, match="rate >= 0, got -1"):
        clock.run_at(-1)


def test_each_host_has_a_clock_of_its_own_which_outlives_its_process() -> None:
    with World(seed=1) as world:
        one, other = Host(world, "one"), Host(world, "other")
        world.wall_clock("one").jump(3600)

        async def main() -> None:
            await asyncio.sleep(1)
            one.crash()
            one.restart()
            assert shown(one.wall_clock) == 3601
            assert shown(other.wall_clock) == 1
            assert world.loop.time() == 1

        world.run(main)
