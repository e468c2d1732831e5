"""Asking bookies for their free disk space, over the one exchange that all questions use."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.config import ClientConfig, PlacementSettings
from bkclient.errors import Code
from bkclient.transport.base import ReplyHandler
from bkclient.wire.messages import BookieInfoRequest, BookieInfoResponse, ErrorResponse, Request, Response, Status
from tests.bkclient.fakes import FakeCluster, FakeTransport, fake_cluster, in_virtual_time, writer_of

WEIGHTED = ClientConfig(
    placement=PlacementSettings(
        disk_weighted=True, max_weight_multiple=0, bookie_info_interval_s=1000, bookie_info_retry_interval_s=60
    )
)


class Disks:
    """What bookies say of their disks, by the code and the response."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, tuple[int, Response | None]] = {}
        self.asked: list[str] = []
        ordinary = FakeTransport.submit

        def submit(transport: FakeTransport, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
            if not isinstance(request, BookieInfoRequest):
                ordinary(transport, bookie_id, request, reply_to)
                return
            assert request.requested == 2, "free space, and nothing else"
            self.asked.append(bookie_id)
            code, response = self.answers[bookie_id]
            asyncio.get_running_loop().call_soon(reply_to, bookie_id, request, code, response)

        monkeypatch.setattr(FakeTransport, "submit", submit)


async def chosen(where: FakeCluster, ledgers: int = 200) -> dict[str, int]:
    """How often each bookie is chosen for a ledger of one bookie."""
    counts: dict[str, int] = {}
    for _ in range(ledgers):
        writer = await writer_of(where, (1, 1, 1))
        (bookie_id,) = writer.metadata.last_fragment.ensemble
        counts[bookie_id] = counts.get(bookie_id, 0) + 1
    return counts


def test_ledgers_go_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    disks = Disks(monkeypatch)
    disks.answers = {
        "a": (Code.OK, BookieInfoResponse(Status.OK, free_disk_space=1)),
        "b": (Code.OK, BookieInfoResponse(Status.OK, free_disk_space=1000)),
        "c": (Code.OK, BookieInfoResponse(Status.OK)),
    }

    @in_virtual_time
    async def play() -> None:
        async with fake_cluster(config=WEIGHTED) as where:
            await asyncio.sleep(1)
            assert sorted(disks.asked) == ["a", "b", "c"]
            assert (await chosen(where))["b"] > 150

    play()


@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.BOOKIE_NOT_AVAILABLE, Code.UNAUTHORIZED])
def test_a_bookie_that_does_not_tell_is_asked_again(monkeypatch: pytest.MonkeyPatch, code: Code) -> None:
    disks = Disks(monkeypatch)
    disks.answers = dict.fromkeys("ab", (Code.OK, BookieInfoResponse(Status.OK, free_disk_space=1)))
    disks.answers["c"] = (code, ErrorResponse(BookieInfoRequest.operation, Status.IO_ERROR))

    @in_virtual_time
    async def play() -> None:
        async with fake_cluster(config=WEIGHTED):
            await asyncio.sleep(130)
            assert sorted(disks.asked) == ["a", "b", "c", "c", "c"]

    play()


async def test_an_answer_of_another_kind_is_reported_and_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    disks = Disks(monkeypatch)
    disks.answers = dict.fromkeys("abc", (Code.OK, None))
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    async with fake_cluster(config=WEIGHTED) as where:
        async with asyncio.timeout(5):
            while len(reported) < 3:  # noqa: ASYNC110 - the exception handler is no coroutine
                await asyncio.sleep(0.001)
        writer = await writer_of(where)
        assert await writer.append(b"x") == 0
    assert set(reported) == {"a handler of asking for disk space raised"}
