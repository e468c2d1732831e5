"""Readers that follow a ledger while it is being written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import bkclient
from bkclient import BookKeeper, LedgerReader
from bkclient.errors import ClientClosed, ReadFailed
from tests.end_to_end.loopback import NewLoopback


async def follow(reader: LedgerReader, *, pause_s: float = 0.001) -> list[bytes]:
    """Everything up to the close, as an application would follow it."""
    payloads: list[bytes] = []
    while True:
        # before looking how far it is confirmed: what is confirmed at the close is all there will ever be
        is_closed = reader.is_closed
        if len(payloads) <= reader.last_add_confirmed:
            async for entry in reader.read_range(len(payloads), reader.last_add_confirmed):
                assert entry.entry_id == len(payloads)
                payloads.append(entry.payload)
        elif is_closed:
            return payloads
        else:
            await asyncio.sleep(pause_s)
            await reader.read_last_add_confirmed()


async def write(client: BookKeeper, started: asyncio.Future[int], kill: Callable[[str], object] | None = None) -> None:
    async with await client.create_ledger(ensemble_size=4, write_quorum_size=3, ack_quorum_size=2) as writer:
        started.set_result(writer.ledger_id)
        for i in range(600):
            await writer.append(b"entry %d" % i) if i % 7 == 0 else writer.append_nowait(b"entry %d" % i)
            if i == 300 and kill is not None:
                kill(writer.metadata.last_fragment.ensemble[0])


@pytest.mark.parametrize("version", [2, 3])
def test_a_tailing_reader_follows_to_the_close_and_disturbs_nobody(
    new_loopback: NewLoopback, loop_factory: Callable[[], asyncio.AbstractEventLoop], version: int
) -> None:
    async def story() -> None:
        async with new_loopback() as loopback:
            writing, tailing = [await loopback.client(connections={"protocol_version": version}) for _ in range(2)]
            started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(write(writing, started))
            async with await tailing.open_ledger(await started, recover=False) as reader:
                assert not reader.is_closed
                assert reader.length == 0
                payloads = await follow(reader)
                await task
                assert payloads == [b"entry %d" % i for i in range(600)]
                assert reader.length == sum(map(len, payloads))
                assert reader.metadata.last_entry_id == 599

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(story())


async def test_a_tailing_reader_follows_through_an_ensemble_change(new_loopback: NewLoopback) -> None:
    async with new_loopback(6) as loopback:
        writing, tailing = await loopback.client(), await loopback.client()
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        kills: list[asyncio.Task[None]] = []
        task = asyncio.create_task(
            write(writing, started, lambda victim: kills.append(asyncio.create_task(loopback.cluster.kill(victim))))
        )
        async with await tailing.open_ledger(await started, recover=False) as reader:
            payloads = await follow(reader)
            assert payloads == [b"entry %d" % i for i in range(600)]
            assert len(reader.metadata.fragments) == 2
        await asyncio.gather(task, *kills)


async def test_several_readers_follow_one_ledger(new_loopback: NewLoopback) -> None:
    async with new_loopback() as loopback:
        writing = await loopback.client()
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(write(writing, started))
        ledger_id = await started
        readers = [await (await loopback.client()).open_ledger(ledger_id, recover=False) for _ in range(5)]
        outcomes = await asyncio.gather(*(follow(reader) for reader in readers))
        await task
        assert all(payloads == outcomes[0] for payloads in outcomes)
        assert len(outcomes[0]) == 600
        for reader in readers:
            await reader.aclose()


@pytest.mark.rule("R-19")
async def test_what_is_not_confirmed_is_not_readable_until_it_is(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        writing, tailing = await loopback.client(), await loopback.client()
        writer = await writing.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
        await writer.append(b"zero")
        reader = await tailing.open_ledger(writer.ledger_id, recover=False)
        # the newest entry is confirmed to its writer only; the next one carries the news
        assert reader.last_add_confirmed == -1
        with pytest.raises(ReadFailed):
            await reader.read(0)
        await writer.append(b"one")
        assert await reader.read_last_add_confirmed() == 0
        assert (await reader.read(0)).payload == b"zero"
        await writer.append(b"two")
        assert (await reader.read(0)).last_add_confirmed == -1
        # an answer to any read tells in passing how far the bookie knows the ledger to be confirmed
        assert reader.last_add_confirmed == 1
        await writer.close()
        async with asyncio.timeout(10):
            while not reader.is_closed:  # noqa: ASYNC110  the news of the close come by themselves
                await asyncio.sleep(0)
        assert [entry.payload async for entry in reader] == [b"zero", b"one", b"two"]
        await reader.aclose()
        await reader.aclose()


async def test_a_tailing_reader_sees_a_recovery_close_the_ledger(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        writing, tailing, taking = [await loopback.client() for _ in range(3)]
        writer = await writing.create_ledger()
        for i in range(10):
            await writer.append(b"%d" % i)
        reader = await tailing.open_ledger(writer.ledger_id, recover=False)
        assert reader.last_add_confirmed == 8
        await taking.open_ledger(writer.ledger_id, recover=True)
        payloads = await follow(reader)
        assert payloads == [b"%d" % i for i in range(10)]
        await reader.aclose()


async def test_opening_to_tail_leaves_a_writer_and_the_metadata_alone(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        writing, tailing = await loopback.client(), await loopback.client()
        writer = await writing.create_ledger()
        for i in range(5):
            await writer.append(b"%d" % i)
            reader = await tailing.open_ledger(writer.ledger_id, recover=False)
            assert reader.metadata_version == 0
            await reader.aclose()
        assert await writing.ledger_metadata(writer.ledger_id) == writer.metadata
        await writer.close()


async def test_closing_its_client_ends_a_tailing_reader(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        writing = await loopback.client()
        writer = await writing.create_ledger()
        await writer.append(b"one")
        async with bkclient.connect(loopback.uri) as tailing:
            reader = await tailing.open_ledger(writer.ledger_id, recover=False)
        with pytest.raises(ClientClosed):
            await reader.read_last_add_confirmed()
        with pytest.raises(ClientClosed):
            await follow(reader)
        await writer.append(b"two")


# Tails -------------------------------------------------------------------------------------------------------------


async def tailed(reader: LedgerReader, first: int = 0) -> list[bytes]:
    """Everything from an entry on, by a tail."""
    payloads: list[bytes] = []
    async with reader.tail(first) as tail:
        async for entry in tail:
            assert entry.entry_id == first + len(payloads)
            payloads.append(entry.payload)
    return payloads


@pytest.mark.parametrize("version", [2, 3])
def test_a_tail_follows_through_an_ensemble_change_to_the_close(
    new_loopback: NewLoopback, loop_factory: Callable[[], asyncio.AbstractEventLoop], version: int
) -> None:
    async def story() -> None:
        async with new_loopback(6) as loopback:
            writing, tailing = [await loopback.client(connections={"protocol_version": version}) for _ in range(2)]
            started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            kills: list[asyncio.Task[None]] = []
            task = asyncio.create_task(
                write(writing, started, lambda victim: kills.append(asyncio.create_task(loopback.cluster.kill(victim))))
            )
            async with await tailing.open_ledger(await started, recover=False) as reader:
                outcomes = await asyncio.gather(tailed(reader), tailed(reader, 100))
                assert outcomes[0] == [b"entry %d" % i for i in range(600)]
                assert outcomes[1] == outcomes[0][100:]
                assert reader.length == sum(map(len, outcomes[0]))
            await asyncio.gather(task, *kills)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(story())


@pytest.mark.rule("R-40")
@pytest.mark.behaviour("T-150")
async def test_a_long_poll_brings_the_entry_and_the_close_ends_it(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        writing, tailing = await loopback.client(), await loopback.client()
        writer = await writing.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        await writer.append(b"zero")
        async with await tailing.open_ledger(writer.ledger_id, recover=False) as reader:
            polling = asyncio.create_task(reader.read_last_add_confirmed_and_entry(0, 30.0))
            await asyncio.sleep(0.01)
            await writer.append(b"one")
            result = await polling
            assert result.entry is not None
            assert (result.last_add_confirmed, result.entry.payload) == (0, b"zero")

            polling = asyncio.create_task(reader.read_last_add_confirmed_and_entry(5, 30.0))
            closing = asyncio.create_task(reader.wait_closed())
            await asyncio.sleep(0.01)
            await writer.close()
            result = await polling
            assert (result.last_add_confirmed, result.entry) == (1, None)
            await closing


async def test_a_tail_sees_a_recovery_close_the_ledger(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        writing, tailing, taking = [await loopback.client() for _ in range(3)]
        writer = await writing.create_ledger()
        for i in range(10):
            await writer.append(b"%d" % i)
        async with await tailing.open_ledger(writer.ledger_id, recover=False) as reader:
            following = asyncio.create_task(tailed(reader))
            await asyncio.sleep(0.01)
            await taking.open_ledger(writer.ledger_id, recover=True)
            assert await following == [b"%d" % i for i in range(10)]
