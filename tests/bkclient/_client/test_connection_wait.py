"""Waiting for connections: who goes on when, what a wait leaves behind, how often connections are asked."""

from __future__ import annotations

import asyncio

import pytest

from bkclient._client.connection_wait import ConnectionWait, WaitEnd
from bkclient.errors import UnexpectedCondition
from tests.bkclient.fakes import in_virtual_time

WAIT_S = 10.0
LEDGER = 7


class Connections:
    """Keys whose connections take no requests, and the waits for them."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self.full: set[str] = set()
        self.is_over = False
        self.asked: list[str] = []
        self.held = 0
        self.free_for_a_look = False
        self.error: Exception | None = None
        self.waits: ConnectionWait[str] = ConnectionWait(
            self.is_free, lambda: self.is_over, wait_s=wait_s, ledger_id=LEDGER, on_held=self.on_held
        )

    def is_free(self, key: str) -> bool:
        self.asked.append(key)
        if self.error is not None:
            raise self.error
        if self.free_for_a_look:
            self.free_for_a_look = False
            return True
        return key not in self.full

    def on_held(self) -> None:
        self.held += 1

    def start(self, key: str) -> asyncio.Task[WaitEnd]:
        return asyncio.create_task(self.waits.wait(key))


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_who_need_not_wait_does_not() -> None:
    connections = Connections()
    connections.full.add("another")
    assert await connections.waits.wait("one") is WaitEnd.FREE
    assert (now(), connections.held) == (0.0, 0)


@in_virtual_time
async def test_a_wait_ends_when_its_connections_take_requests_again() -> None:
    connections = Connections()
    connections.full |= {"one", "another"}
    one, another = connections.start("one"), connections.start("another")
    await asyncio.sleep(3.0)
    assert not one.done()
    connections.full.remove("one")
    assert await one is WaitEnd.FREE
    assert 3.0 <= now() <= 3.005, "they are asked every few milliseconds"
    await asyncio.sleep(1.0)
    assert not another.done(), "it waits for others"
    connections.full.clear()
    assert await another is WaitEnd.FREE


@in_virtual_time
async def test_connections_that_are_full_again_before_a_wait_goes_on_are_waited_for_on() -> None:
    connections = Connections()
    connections.full.add("one")
    waiting = connections.start("one")
    for _ in range(3):
        await asyncio.sleep(1.0)
        connections.free_for_a_look = True  # and then somebody else is faster
    await asyncio.sleep(1.0)
    assert not connections.free_for_a_look
    assert not waiting.done()
    assert connections.held == 1, "it is one wait"
    assert await waiting is WaitEnd.TIMED_OUT
    assert now() == pytest.approx(WAIT_S), "the time does not begin anew"


@pytest.mark.parametrize("wait_s", [0.0, 0.0005, 2.0])
def test_a_wait_in_vain_takes_no_longer_than_it_may(wait_s: float) -> None:
    @in_virtual_time
    async def play() -> None:
        connections = Connections(wait_s)
        connections.full.add("one")
        assert await connections.waits.wait("one") is WaitEnd.TIMED_OUT
        assert now() == pytest.approx(wait_s)
        assert connections.held == (1 if wait_s else 0)

    play()


@in_virtual_time
async def test_each_wait_has_its_own_time() -> None:
    connections = Connections()
    connections.full.add("one")
    first = connections.start("one")
    await asyncio.sleep(4.0)
    second = connections.start("one")
    assert await first is WaitEnd.TIMED_OUT
    assert now() == pytest.approx(10.0)
    assert await second is WaitEnd.TIMED_OUT
    assert now() == pytest.approx(14.0)


@in_virtual_time
async def test_nobody_waits_for_a_handle_that_takes_nothing_more() -> None:
    connections = Connections()
    connections.full.add("one")
    told, found_out = connections.start("one"), connections.start("one")
    await asyncio.sleep(1.0)
    connections.is_over = True
    assert await found_out is WaitEnd.OVER
    assert await told is WaitEnd.OVER
    assert now() == pytest.approx(1.0, abs=0.005)
    assert await connections.waits.wait("one") is WaitEnd.OVER
    assert connections.held == 2


@in_virtual_time
async def test_a_release_ends_waits_at_once() -> None:
    connections = Connections()
    connections.full.add("one")
    waiting = connections.start("one")
    await asyncio.sleep(1.0)
    connections.is_over = True
    connections.waits.release()
    assert await waiting is WaitEnd.OVER
    assert now() == 1.0


@in_virtual_time
async def test_a_wait_that_is_cancelled_disturbs_no_other_and_leaves_no_timer() -> None:
    connections = Connections()
    connections.full.add("one")
    cancelled, other = connections.start("one"), connections.start("one")
    await asyncio.sleep(1.0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    connections.full.clear()
    assert await other is WaitEnd.FREE
    connections.full.add("one")
    last = connections.start("one")
    await asyncio.sleep(1.0)
    last.cancel()
    with pytest.raises(asyncio.CancelledError):
        await last
    connections.asked.clear()
    await asyncio.sleep(1.0)
    assert connections.asked == [], "nobody waits, so nobody asks"


@in_virtual_time
async def test_a_wait_that_is_cancelled_as_it_ends_is_cancelled() -> None:
    connections = Connections()
    connections.full.add("one")
    waiting = connections.start("one")
    await asyncio.sleep(1.0)
    connections.is_over = True
    connections.waits.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@in_virtual_time
async def test_many_waits_share_one_look_and_one_question() -> None:
    connections = Connections()
    connections.full |= {"one", "another"}
    waiting = [connections.start(key) for key in ("one", "another") for _ in range(200)]
    await asyncio.sleep(1.0)
    connections.asked.clear()
    await asyncio.sleep(1.0)
    assert 2 * 190 <= len(connections.asked) <= 2 * 210, "two keys, 200 looks"
    connections.full.clear()
    assert set(await asyncio.gather(*waiting)) == {WaitEnd.FREE}


async def test_an_error_of_the_look_ends_all_waits_and_each_gets_its_own() -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    connections = Connections()
    connections.full.add("one")
    waiting = [connections.start("one") for _ in range(2)]
    async with asyncio.timeout(WAIT_S):
        await asyncio.sleep(0)
        connections.error = KeyError("planted")
        failures = await asyncio.gather(*waiting, return_exceptions=True)
    assert reported == ["a handler of the wait for connections raised"]
    for failure in failures:
        assert isinstance(failure, UnexpectedCondition)
        assert failure.ledger_id == LEDGER
        assert isinstance(failure.__cause__, KeyError)
    assert failures[0] is not failures[1]
