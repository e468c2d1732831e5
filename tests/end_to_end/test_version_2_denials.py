"""Over protocol version 2 the answer to an ordinary read never passes for the answer to recovery's fencing read.

Such an answer denies an entry that the bookie stores right afterwards, because it was never fenced: the ledger would end below an
acknowledged entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bkclient import BookKeeper, LedgerWriter
from bkclient.errors import BookKeeperError
from bkclient.repair.admin import RepairAdmin
from bkclient.wire.messages import ReadRequest, Request, Response
from tests.end_to_end.loopback import Loopback, NewLoopback

PASSWORD = b"s"
Respond = Callable[[Response], None]


class LateAnswers:
    """The first bookie holds its answers to ordinary reads of entry 0 back; the second serves reads of it late.

    What is held leaves the first bookie right before it serves the fencing read of entry 0, or after it has answered that.
    """

    def __init__(
        self, loopback: Loopback, writer: LedgerWriter, *, overtaken: bool, second_after_s: float = 0.1
    ) -> None:
        first, second = (loopback.cluster.bookie(bookie_id) for bookie_id in writer.metadata.last_fragment.ensemble)
        self._serve_first, self._serve_second = first.submit, second.submit
        self._overtaken = overtaken
        self._second_after_s = second_after_s
        self._held: list[Callable[[], None]] = []
        first.submit, second.submit = self._first, self._second  # type: ignore[method-assign]

    def _first(self, request: Request, respond: Respond, *, source: str = "") -> None:
        if not isinstance(request, ReadRequest) or request.entry_id != 0:
            self._serve_first(request, respond, source=source)
        elif request.fence_key is None:
            self._serve_first(request, lambda answer: self._held.append(lambda: respond(answer)), source=source)
        elif self._overtaken:

            def answered(answer: Response) -> None:
                respond(answer)
                asyncio.get_running_loop().call_later(0.02, self._release)

            self._serve_first(request, answered, source=source)
        else:
            self._release()
            self._serve_first(request, respond, source=source)

    def _second(self, request: Request, respond: Respond, *, source: str = "") -> None:
        if isinstance(request, ReadRequest) and request.entry_id == 0:
            loop = asyncio.get_running_loop()
            loop.call_later(self._second_after_s, lambda: self._serve_second(request, respond, source=source))
        else:
            self._serve_second(request, respond, source=source)

    def _release(self) -> None:
        held, self._held = self._held, []
        for release in held:
            release()


async def written(loopback: Loopback, version: int) -> tuple[BookKeeper, LedgerWriter]:
    client = await loopback.client(connections={"protocol_version": version})
    writer = await client.create_ledger(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2, password=PASSWORD)
    return client, writer


async def end_after_a_takeover(client: BookKeeper, other: BookKeeper, writer: LedgerWriter) -> int:
    """Where ``other`` ends the ledger, as ``client`` finds it, with one entry acknowledged."""
    assert await writer.append(b"promised") == 0
    await other.open_ledger(writer.ledger_id, password=PASSWORD, recover=True)
    return (await client.open_ledger(writer.ledger_id, password=PASSWORD, recover=True)).last_add_confirmed


@pytest.mark.rule("H-45")
@pytest.mark.rule("REC-18")
@pytest.mark.parametrize("version", [3, 2])
@pytest.mark.parametrize("overtaken", [False, True])
@pytest.mark.parametrize("timed_out", [True, False])
async def test_a_late_denial_ends_no_ledger(
    new_loopback: NewLoopback, version: int, overtaken: bool, timed_out: bool
) -> None:
    async with new_loopback(2) as loopback:
        client, writer = await written(loopback, version)
        other = await loopback.client(
            connections={"protocol_version": version}, timeouts={"read_s": 0.5 if timed_out else 10.0}
        )
        LateAnswers(loopback, writer, overtaken=overtaken)
        tail = await other.open_ledger(writer.ledger_id, password=PASSWORD, recover=False)
        reading = asyncio.ensure_future(tail.read(0, unconfirmed=True))
        await asyncio.sleep(0.05)
        if timed_out:
            with pytest.raises(BookKeeperError):
                await reading
        assert await end_after_a_takeover(client, other, writer) == 0, "an acknowledged entry is gone"
        reading.cancel()


@pytest.mark.rule("H-45")
@pytest.mark.rule("REC-18")
@pytest.mark.parametrize("version", [3, 2])
async def test_auto_recovery_may_check_a_ledger_and_then_recover_it(new_loopback: NewLoopback, version: int) -> None:
    async with new_loopback(2) as loopback:
        client, writer = await written(loopback, version)
        other = await loopback.client(connections={"protocol_version": version}, timeouts={"read_s": 0.5})
        LateAnswers(loopback, writer, overtaken=False)
        await RepairAdmin(other).check_ledger(writer.ledger_id)
        assert await end_after_a_takeover(client, other, writer) == 0, "an acknowledged entry is gone"
