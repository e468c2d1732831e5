from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from simbookie.storage.base import CrashMode
from simbookie.world.connection_end import ConnectionEnd
from simbookie.world.faults import Action, Delay, Duplicate, Fate, Interception
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig

PLAIN = NetworkConfig(latency_s=0.001, jitter_s=0.001)


def fail(*arguments: object) -> None:
    pytest.fail(f"called with {arguments}")


class Pair:
    """A client host and a server host that writes down what it gets; the server can talk back over ``server_end``."""

    def __init__(self, config: NetworkConfig = PLAIN, seed: int = 1) -> None:
        self.world = World(seed, network=config)
        self.network = self.world.network
        self.client = Host(self.world, "client")
        self.server = Host(self.world, "server")
        self.got: list[object] = []
        self.times: list[float] = []
        self.answers: list[object] = []
        self.lost: list[float] = []
        self.server_end: ConnectionEnd | None = None
        self.accepted = 0
        self.listen()

    def listen(self) -> None:
        self.network.listen(self.server.process, self.accept)

    def accept(self, end: ConnectionEnd) -> None:
        self.accepted += 1
        self.server_end = end
        end.on_message = self.receive

    def receive(self, message: object) -> None:
        self.got.append(message)
        self.times.append(self.world.loop.time())

    async def connect(self) -> ConnectionEnd:
        opened: asyncio.Future[ConnectionEnd] = self.world.loop.create_future()

        def refused() -> None:
            opened.set_exception(ConnectionRefusedError())

        self.network.connect(self.client.process, "server", opened.set_result, refused)
        end = await opened
        end.on_message = self.answers.append
        end.on_lost = lambda: self.lost.append(self.world.loop.time())
        return end

    def play(self, story: Callable[[Pair], Coroutine[Any, Any, None]]) -> Pair:
        with self.world:
            self.world.run(lambda: story(self))
        return self


async def send_numbers(pair: Pair, count: int = 200) -> None:
    end = await pair.connect()
    for number in range(count):
        end.send(number)
    await asyncio.sleep(1)


def is_number(*numbers: int) -> Callable[[str, str, object], bool]:
    return lambda source, destination, message: (source, destination) == ("client", "server") and message in numbers


def test_messages_arrive_after_latency_and_jitter_in_order() -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()
        sent = pair.world.loop.time()
        for number in range(100):
            end.send(number)
        await asyncio.sleep(1)
        assert pair.got == list(range(100))
        assert all(sent + 0.001 <= when <= sent + 0.002 for when in pair.times)
        assert len(set(pair.times)) > 1

    pair = Pair().play(story)
    assert pair.network.counters.sent == pair.network.counters.delivered == 100


def test_without_fifo_messages_overtake_each_other_and_all_arrive() -> None:
    pair = Pair(replace(PLAIN, fifo=False)).play(send_numbers)
    assert pair.got != sorted(pair.got, key=str)
    assert sorted(map(int, map(str, pair.got))) == list(range(200))


def test_loss_is_observable_and_counted() -> None:
    pair = Pair(replace(PLAIN, loss_probability=0.2)).play(send_numbers)
    assert 10 < pair.network.counters.lost < 80
    assert len(pair.got) == 200 - pair.network.counters.lost


def test_duplication_is_observable_and_counted() -> None:
    pair = Pair(replace(PLAIN, duplicate_probability=0.2)).play(send_numbers)
    assert 10 < pair.network.counters.duplicated < 80
    assert len(pair.got) == 200 + pair.network.counters.duplicated
    assert len(set(pair.got)) == 200


def test_copies_come_later_than_the_original_each_after_a_time_of_its_own() -> None:
    async def story(pair: Pair) -> None:
        pair.network.intercept(lambda *_: True, Duplicate())
        end = await pair.connect()
        for number in range(10):
            end.send(number)
            await asyncio.sleep(0.1)

    pair = Pair().play(story)
    gaps = [copy - original for original, copy in zip(pair.times[::2], pair.times[1::2], strict=True)]
    assert all(0.001 <= gap <= 0.002 for gap in gaps)
    assert len({round(gap, 6) for gap in gaps}) > 5


def test_loss_and_duplication_do_not_hide_each_other() -> None:
    counters = Pair(replace(PLAIN, loss_probability=0.2, duplicate_probability=0.2)).play(send_numbers).network.counters
    assert counters.lost > 10
    assert counters.duplicated > 10
    assert counters.delivered == 200 - counters.lost + counters.duplicated


def test_slow_messages_are_a_tail() -> None:
    pair = Pair(replace(PLAIN, slow_probability=0.1, slow_s=0.5, fifo=False)).play(send_numbers)
    slow = [when for when in pair.times if when > pair.times[0] + 0.01]
    assert 5 < len(slow) < 40
    assert max(slow) < pair.times[0] + 0.51


def test_a_fault_shifts_no_other_chance_of_its_link() -> None:
    plain = Pair(replace(PLAIN, loss_probability=0.1, fifo=False)).play(send_numbers)

    async def with_fault(pair: Pair) -> None:
        pair.network.intercept(is_number(7, 8), Duplicate(3))
        pair.network.intercept(is_number(30), Fate.DROP)
        await send_numbers(pair)

    faulty = Pair(replace(PLAIN, loss_probability=0.1, fifo=False)).play(with_fault)
    untouched = {7, 8, 30}
    assert [m for m in plain.got if m not in untouched] == [m for m in faulty.got if m not in untouched]


def test_a_blocked_link_carries_nothing_in_one_direction_only() -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()
        assert pair.server_end is not None
        end.send("under way")
        pair.network.block("client", "server")
        end.send("while blocked")
        pair.server_end.send("the other way")
        await asyncio.sleep(1)
        assert pair.got == []
        assert pair.answers == ["the other way"]
        pair.network.unblock("client", "server")
        end.send("after")
        await asyncio.sleep(1)
        assert pair.got == ["after"]
        assert pair.lost == []

    assert Pair().play(story).network.counters.blocked == 2


def test_a_block_that_keeps_delivers_in_order_once_it_is_lifted() -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()
        end.send(0)
        pair.network.block("client", "server", keep=True)
        for number in range(1, 20):
            end.send(number)
        await asyncio.sleep(1)
        assert pair.got == []
        pair.network.heal()
        end.send(20)
        await asyncio.sleep(1)
        assert sorted(map(int, map(str, pair.got))) == list(range(21))
        assert [m for m in pair.got if m not in (0, 20)] == list(range(1, 20))

    Pair().play(story)


def test_a_partition_separates_groups_both_ways_and_nobody_else() -> None:
    world = World(1)
    world.network.partition(("a", "b"), ("c",), ("d",))
    names = "abcde"
    blocked = {s + d for s in names for d in names if s != d and world.network.link(s, d).blocked}
    assert blocked == {"ac", "bc", "ca", "cb", "ad", "bd", "da", "db", "cd", "dc"}
    world.network.heal()
    assert not any(world.network.link(s, d).blocked for s in names for d in names)
    world.close()


@pytest.mark.parametrize(
    ("action", "got"),
    [
        (Fate.DROP, [1, 3]),
        (Fate.DELIVER, [1, 2, 3]),
        (Delay(0.1), [1, 3, 2]),
        (Duplicate(2), [1, 2, 2, 2, 3]),
        (Fate.HOLD, [1, 3]),
    ],
)
@pytest.mark.parametrize("at_arrival", [False, True])
def test_single_messages_are_intercepted(action: Action, got: list[int], at_arrival: bool) -> None:
    async def story(pair: Pair) -> None:
        interception = pair.network.intercept(is_number(2), action, at_arrival=at_arrival)
        end = await pair.connect()
        for number in (1, 2, 3):
            end.send(number)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert pair.got == got
        assert interception.hits == 1

    Pair().play(story)


def test_an_explicit_delivery_beats_chance() -> None:
    async def story(pair: Pair) -> None:
        pair.network.intercept(lambda *_: True, Fate.DELIVER)
        await send_numbers(pair)

    assert Pair(replace(PLAIN, loss_probability=0.5)).play(story).got == list(range(200))


def test_held_messages_travel_on_when_released_even_past_the_death_of_their_sender() -> None:
    async def story(pair: Pair) -> None:
        interception = pair.network.intercept(lambda *_: True, Fate.HOLD)
        end = await pair.connect()
        for number in range(10):
            end.send(number)
        pair.client.crash()
        await asyncio.sleep(1)
        assert (pair.got, interception.held) == ([], 10)
        interception.remove()
        pair.network.intercept(lambda *_: True, Fate.DROP, at_arrival=True)
        assert interception.release() == 10
        assert interception.release() == 0
        await asyncio.sleep(1)
        assert pair.got == list(range(10))

    assert Pair().play(story).network.counters.held == 10


def test_an_interception_ends_at_its_limit_or_when_removed_and_the_first_made_acts() -> None:
    async def story(pair: Pair) -> None:
        first = pair.network.intercept(lambda *_: True, Fate.DROP, limit=2)
        second = pair.network.intercept(lambda *_: True, Duplicate(1))
        end = await pair.connect()
        for number in range(4):
            end.send(number)
            await asyncio.sleep(0.01)
        second.remove()
        end.send(4)
        await asyncio.sleep(0.01)
        assert (first.hits, second.hits) == (2, 2)
        assert pair.got == [2, 2, 3, 3, 4]

    Pair().play(story)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Delay(-1),
        lambda: Duplicate(0),
        lambda: Interception(lambda: True, Fate.DROP, limit=0),
        lambda: NetworkConfig(latency_s=-1),
        lambda: NetworkConfig(loss_probability=1.5),
    ],
)
def test_senseless_faults_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"-1|0 times|limit of 0|1\.5"):
        wrong()


def test_a_connection_to_a_host_without_listener_is_refused() -> None:
    async def story(pair: Pair) -> None:
        pair.server.crash()
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()
        assert 0 < pair.world.loop.time() < 0.01

    assert Pair().play(story).network.counters.refused == 1


def test_a_connection_over_a_blocked_link_is_tried_until_the_link_works() -> None:
    async def story(pair: Pair) -> None:
        pair.network.block("server", "client")
        pair.world.loop.call_later(5, pair.network.heal)
        await pair.connect()
        assert 5 < pair.world.loop.time() < 8

    pair = Pair().play(story)
    assert (pair.network.counters.connected, pair.accepted) == (1, 1)


def test_a_connection_whose_acceptance_is_slow_stands_once() -> None:
    async def story(pair: Pair) -> None:
        pair.network.link("server", "client").config = replace(PLAIN, latency_s=3.0)
        end = await pair.connect()
        await asyncio.sleep(20)
        end.send("still standing")
        await asyncio.sleep(1)
        assert (pair.got, pair.lost) == (["still standing"], [])

    pair = Pair().play(story)
    assert (pair.network.counters.connected, pair.accepted) == (1, 1)


def test_a_server_learns_that_the_client_died_while_it_connected() -> None:
    async def story(pair: Pair) -> None:
        heard: list[str] = []
        pair.network.connect(pair.client.process, "server", fail, fail)
        await asyncio.sleep(0.002)  # there, but not back
        assert pair.server_end is not None
        pair.server_end.on_lost = lambda: heard.append("lost")
        pair.client.crash()
        await asyncio.sleep(1)
        assert heard == ["lost"]

    Pair().play(story)


def test_an_attempt_that_was_given_up_stays_silent() -> None:
    async def story(pair: Pair) -> None:
        give_up = pair.network.connect(pair.client.process, "server", fail, fail)
        give_up()
        pair.network.connect(pair.client.process, "server", fail, fail)
        pair.client.crash()
        await asyncio.sleep(10)

    Pair().play(story)


def test_a_killed_process_resets_its_connections_after_what_it_sent_before() -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()
        assert pair.server_end is not None
        heard_before: list[int] = []
        end.on_lost = lambda: heard_before.append(len(pair.answers))
        for _ in range(20):
            pair.server_end.send("last words")
        pair.server.crash()
        pair.server_end.send("from beyond")
        await asyncio.sleep(1)
        assert (pair.answers, heard_before) == (["last words"] * 20, [20])
        end.send("to the dead")
        await asyncio.sleep(1)
        assert pair.got == []

    assert Pair(replace(PLAIN, jitter_s=0.01)).play(story).network.counters.broken == 1


def test_a_machine_without_power_is_silent_until_it_is_back_and_then_resets_old_connections() -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()
        pair.server.crash(CrashMode.POWER_LOSS)
        end.send("into the dark")
        pair.network.connect(pair.client.process, "server", fail, fail)()
        await asyncio.sleep(10)
        assert pair.lost == []
        pair.server.restart()
        pair.listen()
        await asyncio.sleep(10)
        assert pair.lost == []
        end.send("on an old connection")
        await asyncio.sleep(1)
        assert len(pair.lost) == 1
        assert pair.got == []
        (await pair.connect()).send("anew")
        await asyncio.sleep(1)
        assert pair.got == ["anew"]

    Pair().play(story)


def test_what_arrives_for_a_dead_process_does_not_reach_its_successor() -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()
        held = pair.network.intercept(is_number(1), Fate.HOLD)
        end.send(1)
        pair.server.crash()
        pair.server.restart()
        pair.listen()
        held.release()
        await asyncio.sleep(1)
        assert pair.got == []

    assert Pair().play(story).network.counters.discarded == 1


@pytest.mark.parametrize("blocked_when", ["sent", "arriving"])
def test_news_of_a_broken_connection_do_not_cross_a_blocked_link(blocked_when: str) -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()
        if blocked_when == "sent":
            pair.network.block("server", "client")
            pair.server.crash()
            pair.network.heal()
        else:
            pair.server.crash()
            pair.network.block("server", "client")
        await asyncio.sleep(1)
        assert pair.lost == []
        pair.network.heal()
        end.send("anybody there?")
        await asyncio.sleep(1)
        assert len(pair.lost) == 1

    Pair().play(story)


def test_a_reset_on_the_way_breaks_both_ends_and_loses_what_is_under_way() -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()
        assert pair.server_end is not None
        heard: list[str] = []
        pair.server_end.on_lost = lambda: heard.append("server")
        end.send("under way")
        assert pair.network.reset_connections("server", "client") == 1
        await asyncio.sleep(1)
        assert (pair.got, heard, len(pair.lost)) == ([], ["server"], 1)
        assert pair.network.reset_connections("server", "client") == 0
        (await pair.connect()).send("anew")
        await asyncio.sleep(1)
        assert pair.got == ["anew"]

    Pair().play(story)


def test_closing_tells_the_other_end_only_and_what_was_sent_before_arrives() -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()
        assert pair.server_end is not None
        heard: list[str] = []
        pair.server_end.on_lost = lambda: heard.append("server")
        pair.server_end.send("crossing")
        end.send("before")
        end.close()
        end.close()
        end.send("after")
        await asyncio.sleep(1)
        assert (pair.got, pair.answers, heard, pair.lost) == (["before"], [], ["server"], [])

    Pair().play(story)


def test_a_paused_process_gets_its_messages_when_it_resumes_and_its_peers_notice_nothing() -> None:
    async def story(pair: Pair) -> None:
        pair.server.pause()
        end = await pair.connect()
        for number in range(5):
            end.send(number)
        await asyncio.sleep(60)
        assert (pair.got, pair.lost) == ([], [])
        pair.server.resume()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert pair.got == list(range(5))
        assert set(pair.times) == {pair.world.loop.time()}

    Pair().play(story)


def test_a_process_that_slept_learns_that_a_connection_stood_and_then_broke() -> None:
    async def story(pair: Pair) -> None:
        heard: list[str] = []

        def opened(end: ConnectionEnd) -> None:
            heard.append("opened")
            end.on_lost = lambda: heard.append("lost")

        pair.network.connect(pair.client.process, "server", opened, lambda: fail("refused"))
        pair.client.pause()
        await asyncio.sleep(1)
        assert pair.accepted == 1
        pair.server.crash()
        await asyncio.sleep(1)
        assert heard == []
        pair.client.resume()
        await asyncio.sleep(1)
        assert heard == ["opened", "lost"]

    Pair().play(story)


def test_what_a_process_sends_after_pausing_itself_leaves_at_its_resumption() -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()

        async def program() -> None:
            pair.client.pause()
            end.send("late")

        pair.client.spawn(program)
        await asyncio.sleep(5)
        assert pair.got == []
        pair.client.resume()
        await asyncio.sleep(1)
        assert pair.got == ["late"]

    Pair().play(story)


def test_what_a_process_sends_after_killing_itself_is_dropped() -> None:
    async def story(pair: Pair) -> None:
        end = await pair.connect()

        async def program() -> None:
            end.send("alive")
            pair.client.crash()
            end.send("dead")

        pair.client.spawn(program)
        await asyncio.sleep(5)
        assert pair.got == ["alive"]

    Pair().play(story)


def test_a_link_can_have_chances_of_its_own() -> None:
    async def story(pair: Pair) -> None:
        pair.network.link("client", "server").config = replace(PLAIN, loss_probability=1.0)
        end = await pair.connect()
        assert pair.server_end is not None
        end.send("lost")
        pair.server_end.send("not lost")
        await asyncio.sleep(1)
        assert (pair.got, pair.answers) == ([], ["not lost"])

    Pair().play(story)


@pytest.mark.parametrize(("victim", "at_arrival"), [("client", False), ("server", True)])
def test_a_crash_at_a_message_comes_before_the_message(victim: str, at_arrival: bool) -> None:
    async def story(pair: Pair) -> None:
        def crash(_source: str, _destination: str, message: object) -> bool:
            if message == 2:
                pair.world.crash(victim)
            return False

        pair.network.intercept(crash, Fate.DELIVER, at_arrival=at_arrival)
        end = await pair.connect()
        for number in range(5):
            end.send(number)
            await asyncio.sleep(0.01)
        assert pair.got == [0, 1]

    Pair().play(story)
