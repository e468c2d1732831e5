"""The simulated transport matches answers of version 2 as connections do, so that runs can see them mixed up."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.errors import BookKeeperError, Code
from bkclient.wire.messages import ReadRequest, ReadResponse, Request, Response, Status
from bkclient.wire.outstanding import Outstanding
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.faults import Delay, Duplicate, Fate
from tests.bkclient.virtual_cluster import VirtualCluster, run_in_cluster
from tests.simbookie.world.test_transport import Bench, add, read

FENCING = ReadRequest(1, 0, fence_key=b"k" * 20)


def is_answer(message: object, *, fencing: bool) -> bool:
    if not isinstance(message, ResponseMessage) or not isinstance(message.request, ReadRequest):
        return False
    return message.request.entry_id == 0 and (message.request.fence_key is not None) == fencing


class Answering(Bench):
    """A server that denies what is read without fencing."""

    def __init__(self, **config: float) -> None:
        super().__init__(protocol_version=2, read_timeout_s=2.0, **config)
        self.connections = 0

    def accept(self, end: object) -> None:
        self.connections += 1
        super().accept(end)  # type: ignore[arg-type]

    def answer_to(self, request: Request) -> Response:
        if isinstance(request, ReadRequest) and request.fence_key is None:
            return ReadResponse(Status.NO_ENTRY, request.ledger_id, request.entry_id)
        return super().answer_to(request)


def test_a_late_answer_settles_no_other_request_of_its_key() -> None:
    async def program(bench: Bench) -> None:
        ordinary = bench.network.intercept(lambda _s, _d, m: is_answer(m, fencing=False), Fate.HOLD)
        fencing = bench.network.intercept(lambda _s, _d, m: is_answer(m, fencing=True), Delay(1.0))
        bench.submit(read())
        await asyncio.sleep(3)
        assert bench.codes == [Code.TIMEOUT]
        bench.submit(FENCING)
        await asyncio.sleep(0.5)
        assert ordinary.release() == 1
        await asyncio.sleep(3)
        assert bench.codes == [Code.TIMEOUT, Code.OK]
        assert fencing.hits == 1
        ordinary.remove()
        bench.submit(read())
        await asyncio.sleep(1)
        assert bench.codes[2:] == [Code.NO_SUCH_ENTRY]
        assert isinstance(bench, Answering)
        assert bench.connections == 2

    Answering().play(program)


def test_answers_that_overtake_each_other_settle_their_own_requests() -> None:
    async def program(bench: Bench) -> None:
        bench.network.intercept(lambda _s, _d, m: is_answer(m, fencing=False), Delay(1.0))
        bench.submit(read())
        bench.submit(FENCING)
        await asyncio.sleep(3)
        assert [(request, code) for _, request, code, _ in bench.outcomes] == [
            (FENCING, Code.OK),
            (bench.outcomes[1][1], Code.NO_SUCH_ENTRY),
        ]

    Answering().play(program)


def test_copies_of_an_answer_settle_nothing() -> None:
    async def program(bench: Bench) -> None:
        bench.network.intercept(lambda _s, _d, m: is_answer(m, fencing=False), Duplicate(2))
        bench.submit(read())
        await asyncio.sleep(0)
        while not bench.outcomes:  # noqa: ASYNC110 - the first answer, and not yet its copies
            await asyncio.sleep(0.0001)
        bench.submit(FENCING)
        await asyncio.sleep(1)
        assert bench.codes == [Code.NO_SUCH_ENTRY, Code.OK]

    Answering().play(program)


def test_lanes_are_bounded_and_closed_when_idle() -> None:
    async def program(bench: Bench) -> None:
        assert isinstance(bench, Answering)
        held = bench.network.intercept(lambda _s, _d, m: is_answer(m, fencing=False), Fate.HOLD)
        for _ in range(5):
            bench.submit(read())
        await asyncio.sleep(0.5)
        assert (bench.connections, held.held) == (2, 2)
        assert bench.transport.pending_requests("b0") == 5
        held.remove()
        held.release()
        await asyncio.sleep(0.5)
        assert bench.codes == [Code.NO_SUCH_ENTRY] * 5
        await asyncio.sleep(60)
        bench.submit(add())
        await asyncio.sleep(1)
        assert bench.connections == 2

    Answering(lanes_max=2).play(program)


def test_what_waits_for_a_lane_times_out_and_ends_with_the_client() -> None:
    async def program(bench: Bench) -> None:
        bench.network.intercept(lambda _s, _d, m: isinstance(m, RequestMessage), Fate.DROP)
        for _ in range(4):
            bench.submit(read())
        await asyncio.sleep(10)
        assert bench.codes == [Code.TIMEOUT] * 4
        for _ in range(4):
            bench.submit(read())
        await asyncio.sleep(0.1)
        await bench.transport.aclose()
        assert bench.codes[4:] == [Code.CLIENT_CLOSED] * 4
        assert bench.transport.pending_requests("b0") == 0

    Answering(lanes_max=2).play(program)


async def takeover_after_a_late_denial(cluster: VirtualCluster) -> None:
    """A read times out at a bookie, whose denial leaves it right before it serves the fencing read of that entry."""
    network = cluster.world.network
    async with cluster.client() as writing, cluster.client(connections={"protocol_version": 2}) as other:
        writer = await writing.create_ledger(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2)
        first, second = writer.metadata.last_fragment.ensemble
        late = network.intercept(lambda s, _d, m: s == first and is_answer(m, fencing=False), Fate.HOLD)
        network.intercept(lambda s, _d, m: s == first and is_answer(m, fencing=True), Delay(1.0))
        network.intercept(lambda s, _d, m: s == second and is_answer(m, fencing=True), Delay(2.0))
        tail = await other.open_ledger(writer.ledger_id, recover=False)
        network.block("client", second)
        with pytest.raises(BookKeeperError):
            await tail.read(0, unconfirmed=True)
        network.unblock("client", second)
        assert late.held == 1
        assert await writer.append(b"promised") == 0
        recovering = asyncio.ensure_future(other.open_ledger(writer.ledger_id, recover=True))
        await asyncio.sleep(0.5)
        late.release()
        assert (await recovering).last_add_confirmed == 0, "an acknowledged entry is gone"


def test_a_late_denial_ends_no_ledger() -> None:
    run_in_cluster(takeover_after_a_late_denial, bookies=2)


def test_a_run_sees_a_transport_that_uses_a_key_again_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def frees_at_once(self: Outstanding[object], key: bytes) -> None:
        del self.entries[key]

    monkeypatch.setattr(Outstanding, "give_up", frees_at_once)
    with pytest.raises(AssertionError, match="an acknowledged entry is gone"):
        run_in_cluster(takeover_after_a_late_denial, bookies=2)
