"""What becomes late under a schedule, what keeps its order, and what is written down of it."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from simbookie.world.connection_end import ConnectionEnd
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig
from simbookie.world.policies import Chosen, DelayBounded, Pct, Uniform
from simbookie.world.schedule import LATE_MAX_S, Choices, Schedule, SchedulePolicy, Turn

STEADY = NetworkConfig(latency_s=0.001, jitter_s=0.0)


def told(policy: SchedulePolicy | None, *, fifo: bool = True) -> tuple[list[tuple[str, int]], Choices]:
    """Two senders with four messages each to one receiver, 0.1 ms apart: what arrives in which order, and what was chosen."""
    arrived: list[tuple[str, int]] = []
    with World(3, network=NetworkConfig(latency_s=0.001, jitter_s=0.0, fifo=fifo)) as world:
        hosts = {name: Host(world, name) for name in ("one", "two", "to")}

        def accept(end: ConnectionEnd) -> None:
            end.on_message = arrived.append

        world.network.listen(hosts["to"].process, accept)

        async def send(name: str) -> None:
            opened: asyncio.Future[ConnectionEnd] = asyncio.get_running_loop().create_future()
            world.network.connect(hosts[name].process, "to", opened.set_result, lambda: None)
            end = await opened
            for number in range(4):
                end.send((name, number))
                if fifo:  # otherwise all are under way at once: a late sender would not send the next
                    await asyncio.sleep(0.0001)

        schedule = None if policy is None else Schedule(policy)

        async def main() -> None:
            world.loop.schedule = schedule
            for name in ("one", "two"):
                hosts[name].spawn(send, name)
            await asyncio.sleep(10)

        world.run(main)
    return arrived, {} if schedule is None else schedule.choices


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(Uniform, id="uniform"),
        pytest.param(lambda rng: Pct(rng, 3, 20), id="pct"),
        pytest.param(lambda rng: DelayBounded(rng, 3, 20), id="delay"),
    ],
)
def test_a_policy_makes_other_orders_keeps_that_of_each_link_and_is_replayed_without_it(policy: type) -> None:
    usual, _ = told(None)
    orders = set()
    for seed in range(10):
        arrived, choices = told(policy(Random(seed)))
        assert sorted(arrived) == sorted(usual), "nothing is lost or doubled"
        for name in ("one", "two"):
            assert [number for sender, number in arrived if sender == name] == [0, 1, 2, 3]
        assert told(policy(Random(seed))) == (arrived, choices)
        assert told(Chosen(choices)) == (arrived, choices)
        orders.add(tuple(arrived))
    assert len(orders) > 2


def test_nothing_chosen_is_the_usual_run() -> None:
    assert told(Chosen({})) == (told(None)[0], {})


def test_messages_without_order_pass_each_other() -> None:
    arrived = [told(Uniform(Random(seed)), fifo=False)[0] for seed in range(10)]
    assert any([number for sender, number in found if sender == "one"] != [0, 1, 2, 3] for found in arrived)


def test_nothing_is_later_than_the_bound() -> None:
    class Never:
        def passes(self, turn: Turn) -> int:
            return len(turn.others) if turn.strand == "one>to" else 0

    times: list[float] = []
    with World(1, network=STEADY) as world:
        one, to = Host(world, "one"), Host(world, "to")

        def arrive(_message: object) -> None:
            times.append(world.loop.time())

        def accept(end: ConnectionEnd) -> None:
            end.on_message = arrive

        world.network.listen(to.process, accept)

        async def main() -> None:
            opened: asyncio.Future[ConnectionEnd] = asyncio.get_running_loop().create_future()
            world.network.connect(one.process, "to", opened.set_result, lambda: None)
            end = await opened
            world.loop.schedule = Schedule(Never())
            sent = world.loop.time()
            end.send("hello")
            for number in range(500):  # there is always something that could pass
                asyncio.get_running_loop().call_later(0.01 * number, bool)
            await asyncio.sleep(5)
            assert times
            assert LATE_MAX_S - 0.1 < times[0] - sent <= LATE_MAX_S + 0.011

        world.run(main)


def test_a_late_process_keeps_the_order_of_its_callbacks_and_dies_without_them() -> None:
    class Once:
        def passes(self, turn: Turn) -> int:
            return 1 if turn.strand == "slow" and turn.number == 0 else 0

    log: list[str] = []
    with World(1) as world:
        slow, doomed = Host(world, "slow"), Host(world, "other")

        async def program() -> None:
            log.append(f"begin {world.loop.time():g}")
            asyncio.get_running_loop().call_soon(log.append, "second")
            await asyncio.sleep(0)
            log.append("third")

        async def main() -> None:
            world.loop.schedule = Schedule(Once())
            slow.spawn(program)
            await asyncio.sleep(0.5)
            await asyncio.sleep(0.5)
            assert log == ["begin 0.5", "second", "third"]
            log.clear()
            world.loop.schedule = Schedule(Chosen({"other": {0: 2}}))
            doomed.spawn(program)
            asyncio.get_running_loop().call_later(0.1, doomed.crash)
            await asyncio.sleep(0.05)
            doomed.crash()
            await asyncio.sleep(1)
            assert log == []

        world.run(main)


def test_a_late_process_that_is_paused_goes_on_when_it_is_resumed() -> None:
    log: list[float] = []
    with World(1) as world:
        slow = Host(world, "slow")

        async def program() -> None:
            log.append(world.loop.time())

        async def main() -> None:
            world.loop.schedule = Schedule(Chosen({"slow": {0: 1}}))
            slow.spawn(program)
            await asyncio.sleep(0.1)
            slow.pause()
            await asyncio.sleep(1)
            assert log in ([], [0.1])
            slow.resume()
            await asyncio.sleep(0.1)
            assert len(log) == 1

        world.run(main)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Schedule(Chosen({}), 0.0),
        lambda: Pct(Random(0), 0, 10),
        lambda: DelayBounded(Random(0), 1, 0),
    ],
)
def test_bounds_that_make_no_sense_are_refused(make: type) -> None:
    with pytest.raises(ValueError, match="must be"):
        make()
