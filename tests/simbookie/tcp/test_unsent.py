"""Clients that do not take their answers: what each of them holds is little, and what all of them hold is bounded."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import ReadRequest, Status
from simbookie.server import BookieServer, ServerConfig
from simbookie.tcp.connection import ServedConnection
from simbookie.tcp.unsent import Unsent
from tests.simbookie.tcp.loops import both_loops, run_on
from tests.simbookie.test_server import connected, served, until

WRITE_SIZE = 65_536


class Holder:
    def __init__(self, name: str, unsent_bytes: int, log: list[str]) -> None:
        self.name, self.unsent_bytes, self.log = name, unsent_bytes, log

    def close_as_unsent(self, limit: int) -> None:
        self.unsent_bytes = 0
        self.log.append(f"{self.name} above {limit}")


@contextmanager
def deaf_clients(server: BookieServer, count: int, reads: int, entries: int = 1) -> Iterator[list[socket.socket]]:
    """Clients that ask for one of the first ``entries`` of ledger 1 ``reads`` times and take no answer."""
    with ExitStack() as stack:
        clients = []
        for number in range(count):
            wire: ClientConnection[None] = ClientConnection(3)
            requests = b"".join(
                part for _ in range(reads) for part in wire.send(ReadRequest(1, number % entries), None)
            )
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((server.host, server.port))
            client.sendall(requests)
            clients.append(client)
        yield clients


def holding(server: BookieServer) -> int:
    """How many connections hold answers."""
    return sum(connection.unsent_bytes > 0 for connection in server._connections)


async def stalled(server: BookieServer, count: int) -> None:
    """Wait until ``count`` connections hold answers, and no further ones are made."""
    await until(lambda: holding(server) == count)
    for _ in range(100):
        await asyncio.sleep(0)


class Watch:
    """Looks at a server's connections in each turn of the loop."""

    def __init__(self, server: BookieServer) -> None:
        self._server = server
        #: Every connection that there has been.
        self.seen: set[ServedConnection] = set()
        #: What all of them held in the last turn, the most that it ever was, and for how many turns it has been the same.
        self.held = self.most = self.turns_unchanged = 0
        #: How many hold nothing.
        self.idle = 0

    async def run(self) -> None:
        while True:
            connections = self._server._connections
            self.seen |= set(connections)
            self.idle = sum(each.unsent_bytes == 0 for each in connections)
            # uvloop gives back what a broken connection holds when it tells that it is lost, a moment later
            held = sum(each.unsent_bytes for each in connections if not each._is_closing)
            self.turns_unchanged = self.turns_unchanged + 1 if held == self.held else 0
            self.held = held
            self.most = max(self.most, held)
            await asyncio.sleep(0)

    def is_settled(self, count: int) -> bool:
        """Whether ``count`` connections have come, and all but one of them are closed or can send nothing more."""
        return len(self.seen) == count and self.idle == 1 and self.turns_unchanged >= 100


@both_loops
@pytest.mark.rule("BK-27")
@pytest.mark.parametrize("size", [2_000, 20_000, 200_000])
def test_a_client_that_takes_no_answers_holds_one_write_and_one_answer(kit: Any, loop: str, size: int) -> None:
    async def story() -> None:
        async with served() as server, connected(server) as other:
            await other.ask(kit.add(1, 0, payload=bytes(size)))
            with deaf_clients(server, 5, 20_000_000 // size):
                await stalled(server, 5)
                for connection in server._connections:
                    assert connection.unsent_bytes <= WRITE_SIZE + size + 200
                assert server.unsent.total == sum(connection.unsent_bytes for connection in server._connections)
                assert await other.status(ReadRequest(1, 0)) is Status.OK, "others are served"
            await until(lambda: server.connections == 1)
            assert server.unsent.total == 0

    run_on(loop, story())


@both_loops
@pytest.mark.rule("BK-27")
def test_all_of_them_hold_no_more_than_the_limit_and_the_first_are_closed(
    kit: Any, caplog: pytest.LogCaptureFixture, loop: str
) -> None:
    caplog.set_level(logging.WARNING)
    limit = 2_500_000
    # What the kernel does not take of an answer is held, and that may be little of any one size.
    sizes = [1_000_000 - 70_001 * entry for entry in range(8)]

    async def story() -> None:
        config = ServerConfig(max_frame_size=1_100_000, unsent_bytes_max=limit)
        async with served(config) as server, connected(server) as other:
            await other.ask(*(kit.add(1, entry, payload=bytes(size)) for entry, size in enumerate(sizes)))
            watch = Watch(server)
            watching = asyncio.create_task(watch.run())
            with deaf_clients(server, 30, 20, len(sizes)):
                # One that takes its answers may be closed, too, if many others begin to hold theirs in the same moment.
                await until(lambda: bool(caplog.messages) and watch.is_settled(31))
                statuses = [status for status, _ in await other.ask(*(ReadRequest(1, 0) for _ in range(20)))]
                assert statuses == [Status.OK] * 20, "who takes answers is served"
            watching.cancel()
            await until(lambda: server.connections == 1)
            assert server.unsent.total == 0
        assert watch.most <= limit

    run_on(loop, story())
    assert [f"more than {limit} bytes of answers wait" in message for message in caplog.messages] == [True], "once"


@both_loops
def test_a_client_that_is_slow_to_take_many_answers_gets_them_all(kit: Any, loop: str) -> None:
    async def story() -> None:
        async with served() as server, connected(server) as client:
            await client.ask(kit.add(1, 0, payload=bytes(100_000)))
            tokens = client.send(*(ReadRequest(1, 0) for _ in range(200)))
            await stalled(server, 1)
            assert [status for status, _ in await client.outcomes(tokens)] == [Status.OK] * 200
            assert server.unsent.total == 0

    run_on(loop, story())


def test_above_the_limit_the_first_that_took_nothing_is_closed() -> None:
    log: list[str] = []
    unsent = Unsent(100)
    a, b, c, d = (Holder(name, 30, log) for name in "abcd")
    for holder in (a, b, c):
        unsent.hold(holder)
    assert unsent.total == 90
    a.unsent_bytes = 29  # a is slow, b is deaf
    unsent.hold(d)
    assert log == ["b above 100"]
    assert unsent.total == 29 + 30 + 30


def test_those_that_take_something_are_closed_only_if_that_is_not_enough() -> None:
    log: list[str] = []
    unsent = Unsent(100)
    slow = [Holder(name, 25, log) for name in "abcd"]
    for holder in slow:
        unsent.hold(holder)
        holder.unsent_bytes -= 5
    unsent.hold(Holder("e", 20, log))
    assert log == []
    assert unsent.total == 100
    unsent.hold(Holder("f", 20, log))
    assert log == ["e above 100"], "all others have been seen to take something since it began"
    assert unsent.total == 100


def test_one_that_holds_more_is_counted_once_and_one_that_lets_go_not_at_all() -> None:
    unsent = Unsent(100)
    holder = Holder("a", 10, [])
    unsent.hold(holder)
    holder.unsent_bytes = 40
    unsent.hold(holder)
    assert unsent.total == 40
    unsent.release(holder)
    unsent.release(holder)
    assert unsent.total == 0


def test_one_that_holds_more_than_the_limit_by_itself_is_closed() -> None:
    log: list[str] = []
    unsent = Unsent(100)
    unsent.hold(Holder("a", 101, log))
    assert log == ["a above 100"]
    assert unsent.total == 0
