"""A connection that is given up at the moment at which it stands: it ends, and closing does not wait for it for ever.

Event loops differ here. asyncio tells a protocol of the end of every connection it was told the beginning of; uvloop does not, if
``create_connection`` is cancelled in between.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from bkclient.errors import Code
from bkclient.metadata.base import BookieAddress
from bkclient.observability.stats import BookieStats
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire.messages import ReadRequest
from tests.bkclient.transport.scripted_bookie import ScriptedBookie, keep_silent, running, until

LEVEL_UP = 1


def new_uvloop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    return loop


LOOPS = [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(new_uvloop, id="uvloop")]


class Given:
    """A transport to one bookie; ``when_it_stands`` is called as soon as a connection is known."""

    def __init__(self, bookie: ScriptedBookie, connect_timeout_s: float = 10.0) -> None:
        self.stands = 0
        self.codes: list[int] = []
        self.when_it_stands: Callable[[], object] = lambda: None
        stats = Mock(spec=BookieStats, now=time.monotonic, bookie_level=self._level)

        async def resolve(_: str) -> BookieAddress:
            return bookie.address

        config = TcpTransportConfig(connect_timeout_s=connect_timeout_s)
        self.transport = TcpTransport(resolve, config, rng=random.Random(1), stats=stats)

    def _level(self, _bookie_id: str, _name: str, change: int) -> None:
        self.stands += change
        if change == LEVEL_UP:
            self.when_it_stands()

    def submit(self) -> None:
        self.transport.submit(
            "b", ReadRequest(1, 0), lambda _bookie, _request, code, _response: self.codes.append(code)
        )


@pytest.mark.parametrize("loop", LOOPS)
def test_closing_at_the_moment_at_which_a_connection_stands_ends(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario() -> None:
        async with running(keep_silent) as bookie:
            given = Given(bookie)
            closing: list[asyncio.Task[None]] = []
            # It runs before the attempt to connect hears of its success, and cancels it.
            given.when_it_stands = lambda: closing.append(asyncio.ensure_future(given.transport.aclose()))
            given.submit()
            await until(lambda: len(closing) == 1)
            async with asyncio.timeout(5):
                await closing[0]
            assert given.codes == [Code.CLIENT_CLOSED]
            assert given.stands == 0
            await until(lambda: bookie.open == 0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_that_stands_as_the_time_to_connect_is_over_is_used_or_given_up(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        async with running() as bookie:
            given = Given(bookie, connect_timeout_s=0.2)
            given.when_it_stands = lambda: time.sleep(0.3)
            given.submit()
            async with asyncio.timeout(5):
                await until(lambda: len(given.codes) == 1)
                assert given.codes[0] in (Code.OK, Code.BOOKIE_NOT_AVAILABLE)
                await given.transport.aclose()
            assert given.stands == 0
            await until(lambda: bookie.open == 0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("loop", LOOPS)
def test_closing_in_whatever_turn_of_the_loop_while_connecting_ends(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        async with running(keep_silent) as bookie:
            stood = 0
            for turns in (*range(40), *range(40)):
                given = Given(bookie)
                given.submit()
                for _ in range(turns):
                    await asyncio.sleep(0)
                stood += given.stands
                async with asyncio.timeout(5):
                    await given.transport.aclose()
                assert given.codes == [Code.CLIENT_CLOSED]
                assert given.stands == 0
            assert 0 < stood < 80, "before and after a connection stood"
            await until(lambda: bookie.open == 0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())
