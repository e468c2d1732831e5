"""Reads over real connections: many at a time, in batches, unconfirmed, and from bookies of which some are gone."""

from __future__ import annotations

import asyncio

import pytest

from bkclient import LedgerWriter
from bkclient.errors import BookieNotAvailable, NoSuchEntry
from bkclient.wire.messages import BatchReadRequest, BatchReadResponse, Request, Response
from tests.end_to_end.loopback import Loopback, NewLoopback


async def written(
    loopback: Loopback, entries: int, *, version: int = 3, sizes: tuple[int, int, int] = (3, 3, 2)
) -> LedgerWriter:
    client = await loopback.client(connections={"protocol_version": version})
    writer = await client.create_ledger(ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2])
    for entry_id in range(entries):
        writer.append_nowait(b"entry %d" % entry_id)
    await writer.flush()
    return writer


@pytest.mark.rule("R-9")
@pytest.mark.behaviour("T-45")
@pytest.mark.parametrize("version", [2, 3])
async def test_many_reads_of_one_entry_at_a_time_all_succeed(new_loopback: NewLoopback, version: int) -> None:
    async with new_loopback(3) as loopback:
        writer = await written(loopback, 3, version=version)
        await writer.close()
        reader = await (await loopback.client(connections={"protocol_version": version})).open_ledger(
            writer.ledger_id, recover=True
        )
        entries = await asyncio.gather(*(reader.read(1, parallel=number % 3 == 0) for number in range(300)))

        assert {entry.payload for entry in entries} == {b"entry 1"}


@pytest.mark.rule("R-25")
@pytest.mark.rule("R-26")
@pytest.mark.behaviour("T-42")
@pytest.mark.behaviour("T-43")
@pytest.mark.parametrize(("version", "sizes"), [(2, (3, 3, 2)), (3, (3, 3, 2)), (2, (3, 2, 2)), (3, (3, 2, 2))])
async def test_batches_cover_a_ledger_over_any_protocol_version(
    new_loopback: NewLoopback, version: int, sizes: tuple[int, int, int]
) -> None:
    async with new_loopback(3) as loopback:
        writer = await written(loopback, 200, version=version, sizes=sizes)
        reader = await (await loopback.client(connections={"protocol_version": version})).open_ledger(
            writer.ledger_id, recover=True
        )
        payloads: list[bytes] = []
        while len(payloads) < 200:
            batch = await reader.read_batch(len(payloads), 30, 1000)
            assert 1 <= len(batch) <= 30
            payloads += [entry.payload for entry in batch]
        assert payloads == [b"entry %d" % i for i in range(200)]
        with pytest.raises(NoSuchEntry):
            await reader.read_batch(200, unconfirmed=True)


@pytest.mark.rule("R-28")
@pytest.mark.behaviour("T-200")
async def test_a_bookie_of_a_striped_ledger_has_the_first_entry_of_a_batch_only(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        writer = await written(loopback, 9, version=2, sizes=(3, 1, 1))
        client = await loopback.client(connections={"protocol_version": 2})
        answered: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

        def reply(_bookie_id: str, _request: Request, _code: int, response: Response | None) -> None:
            answered.set_result(response)

        first = writer.metadata.last_fragment.ensemble[0]
        client._transport.submit(first, BatchReadRequest(writer.ledger_id, 3, 5, 100_000), reply)
        response = await answered
        assert isinstance(response, BatchReadResponse)
        assert len(response.bodies) == 1


@pytest.mark.rule("R-20")
@pytest.mark.behaviour("T-39")
@pytest.mark.behaviour("T-156")
@pytest.mark.behaviour("T-192")
@pytest.mark.parametrize("version", [2, 3])
async def test_unconfirmed_reads_and_reads_from_what_is_left(new_loopback: NewLoopback, version: int) -> None:
    async with new_loopback(3) as loopback:
        writer = await written(loopback, 0, version=version)
        for entry_id in range(5):
            await writer.append(b"entry %d" % entry_id)
        client = await loopback.client(connections={"protocol_version": version})
        async with await client.open_ledger(writer.ledger_id, recover=False) as reader:
            assert reader.last_add_confirmed == 3
            assert (await reader.read(4, unconfirmed=True)).payload == b"entry 4"
            assert reader.last_add_confirmed == 3
            ensemble = writer.metadata.last_fragment.ensemble
            for bookie_id in ensemble[:2]:
                await loopback.cluster.kill(bookie_id)
            assert (await reader.read_entries(0, 3)).entry(2).payload == b"entry 2"
            await loopback.cluster.kill(ensemble[2])
            with pytest.raises(BookieNotAvailable):
                await reader.read(0)
