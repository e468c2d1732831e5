"""What a client keeps for a bookie that does not answer is bounded as configured, though the entries are acknowledged."""

from __future__ import annotations

from typing import Any

import pytest

from bkclient.transport.tcp import TcpTransport
from bkclient.wire.messages import AddRequest, Request
from tests.end_to_end.loopback import NewLoopback

MIB = 1024 * 1024
FRAME = 65 * 1024


@pytest.mark.parametrize(("bound", "at_most"), [(2 * MIB, 2 * MIB), (None, 128 * MIB)])
async def test_a_bookie_that_does_not_answer_costs_no_more_than_configured(
    new_loopback: NewLoopback, bound: int | None, at_most: int
) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client(
            limits={"max_in_flight_bytes": MIB, "max_client_in_flight_bytes": MIB, "max_unanswered_bytes": bound},
            writing={"delay_ensemble_change": True},
            timeouts={"add_s": 60.0},
        )
        transport = client._transport
        assert isinstance(transport, TcpTransport)
        writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        slow = writer.metadata.last_fragment.ensemble[0]
        serve = loopback.cluster.bookie(slow).submit
        loopback.cluster.bookie(slow).add = lambda *_: False  # type: ignore[method-assign]  # all comes in by submit()

        def keep_adds(request: Request, respond: Any, *, source: str = "") -> None:
            if not isinstance(request, AddRequest):
                serve(request, respond, source=source)

        loopback.cluster.bookie(slow).submit = keep_adds  # type: ignore[method-assign]
        most = 0
        for _ in range(100):
            await writer.append(bytes(64 * 1024))
            most = max(most, transport._links[3][slow].load.bytes)
        assert writer.last_add_confirmed == 99
        assert most <= at_most + FRAME
        if bound is None:
            assert most > 6 * MIB, "without a bound of its own all of it is kept"
