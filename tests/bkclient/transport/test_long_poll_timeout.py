"""A long poll has the time to wait that it asks for, and the timeout of a read on top."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.errors import Code
from bkclient.wire.messages import LAST_ENTRY, LongPoll, ReadRequest
from tests.bkclient.transport.scripted_bookie import keep_silent, running
from tests.bkclient.transport.test_tcp import transport_to


def poll(timeout_ms: int | None) -> ReadRequest:
    return ReadRequest(1, LAST_ENTRY, long_poll=LongPoll(0, timeout_ms, piggyback=True))


@pytest.mark.rule("R-24")
@pytest.mark.rule("H-21")
async def test_a_poll_is_late_only_when_its_wait_and_the_timeout_of_a_read_have_passed() -> None:
    async with (
        running(keep_silent) as bookie,
        transport_to(bookie, protocol_version=3, read_timeout_s=0.05) as outcomes,
    ):
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcomes.submit(poll(500))
        outcomes.submit(poll(None))
        outcomes.submit(ReadRequest(1, 0))

        assert await outcomes.wait(2) == [Code.TIMEOUT, Code.TIMEOUT]
        assert all(request.wait_s == 0 for _, request, _, _ in outcomes.all if isinstance(request, ReadRequest))
        assert await outcomes.wait(3) == [Code.TIMEOUT] * 3
        assert loop.time() - began >= 0.55
