"""Long polls in the simulated world wait as they do over TCP."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.errors import Code
from bkclient.wire.messages import LAST_ENTRY, LongPoll, ReadRequest
from tests.simbookie.world.test_transport import Bench


def poll(timeout_ms: int) -> ReadRequest:
    return ReadRequest(1, LAST_ENTRY, long_poll=LongPoll(0, timeout_ms))


@pytest.mark.rule("H-21")
def test_each_poll_is_late_when_its_own_wait_and_the_timeout_of_a_read_have_passed() -> None:
    async def story(bench: Bench) -> None:
        bench.submit(ReadRequest(1, 0))
        await asyncio.sleep(0.5)
        bench.server.pause()
        began = bench.world.loop.time()
        for request in (poll(8000), poll(1000), ReadRequest(1, 1)):
            bench.submit(request)
        await asyncio.sleep(60)

        assert bench.codes == [Code.OK] + [Code.TIMEOUT] * 3
        # noticed up to a twentieth of a timeout late
        assert [round(at - began, 3) for at in bench.times[1:]] == [2.0, 3.0, pytest.approx(10.05, abs=0.05)]

    Bench(read_timeout_s=2.0).play(story)


def test_polls_end_once_whether_answered_cut_off_or_late() -> None:
    async def story(bench: Bench) -> None:
        bench.submit(poll(1000))
        await asyncio.sleep(0.5)
        bench.server.pause()
        bench.submit(poll(1000))
        bench.network.reset_connections("client", "b0")
        await asyncio.sleep(60)

        assert bench.codes == [Code.OK, Code.BOOKIE_NOT_AVAILABLE]

    Bench(read_timeout_s=2.0).play(story)


def test_a_timeout_that_comes_due_in_a_pause_and_the_answer_are_one_outcome() -> None:
    async def story(bench: Bench) -> None:
        bench.submit(ReadRequest(1, 0))
        await asyncio.sleep(0.5)
        bench.server.pause()
        bench.submit(poll(100))

    async def main(bench: Bench) -> None:
        await bench.world.join(bench.client.spawn(story, bench))
        bench.client.pause()
        bench.server.resume()
        await asyncio.sleep(60)
        bench.client.resume()
        await asyncio.sleep(1)
        assert len(bench.codes) == 2

    bench = Bench(read_timeout_s=2.0)
    with bench.world:
        bench.world.run(lambda: main(bench))


def test_protocol_version_2_has_no_long_polls() -> None:
    async def story(bench: Bench) -> None:
        bench.submit(poll(1000))
        await asyncio.sleep(1)
        assert bench.codes == [Code.ILLEGAL_OPERATION]

    Bench(protocol_version=2).play(story)
