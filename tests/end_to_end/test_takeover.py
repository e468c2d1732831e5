"""Somebody else takes a ledger over: fencing and recovery over real TCP, while the writer lives or after it died."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bkclient import AppendFuture, BookKeeper, LedgerReader, LedgerState, LedgerWriter
from bkclient.errors import (
    BookKeeperError,
    LedgerClosed,
    LedgerFenced,
    LedgerRecoveryFailed,
    MetadataVersionConflict,
    UnauthorizedAccess,
)
from tests.end_to_end.loopback import NewLoopback


class Producer:
    """Appends until it is refused; remembers what it was told."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self.sent: list[bytes] = []
        self.acknowledged: dict[int, bytes] = {}
        self.error: BookKeeperError | None = None

    async def run(self) -> None:
        try:
            while True:
                await self.writer.wait_for_room()
                payload = b"entry %d" % len(self.sent)
                future = self.writer.append_nowait(payload)
                self.sent.append(payload)
                future.add_done_callback(self._told)
        except BookKeeperError as error:
            self.error = error

    def _told(self, future: AppendFuture) -> None:
        if future.exception() is None:
            self.acknowledged[future.result()] = self.sent[future.result()]

    async def until_acknowledged(self, count: int) -> None:
        while len(self.acknowledged) < count:  # noqa: ASYNC110  the moment does not matter
            await asyncio.sleep(0)


async def contents(reader: LedgerReader) -> list[bytes]:
    return [entry.payload async for entry in reader]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("sizes", [(3, 3, 2), (5, 3, 2), (3, 2, 2)])
def test_a_writer_that_goes_on_is_fenced_and_keeps_everything_it_was_told(
    new_loopback: NewLoopback,
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    version: int,
    sizes: tuple[int, int, int],
) -> None:
    async def story() -> None:
        async with new_loopback() as loopback:
            first = await loopback.client(
                connections={"protocol_version": version}, limits={"max_in_flight_entries": 100}
            )
            second = await loopback.client(connections={"protocol_version": version})
            ensemble_size, write_quorum_size, ack_quorum_size = sizes
            writer = await first.create_ledger(
                ensemble_size=ensemble_size, write_quorum_size=write_quorum_size, ack_quorum_size=ack_quorum_size
            )
            producer = Producer(writer)
            running = asyncio.create_task(producer.run())
            await producer.until_acknowledged(150)
            reader = await second.open_ledger(writer.ledger_id, recover=True)
            await running
            assert isinstance(producer.error, (LedgerFenced, LedgerClosed))
            payloads = await contents(reader)
            assert payloads == producer.sent[: len(payloads)]
            assert len(payloads) > max(producer.acknowledged)
            assert reader.length == sum(map(len, payloads))
            # what the ledger has and the writer was not told is ambiguous, no more than what was in flight
            assert len(payloads) - len(producer.acknowledged) <= 100
            with pytest.raises(BookKeeperError):
                await writer.append(b"again")
            assert await contents(await first.open_ledger(writer.ledger_id, recover=True)) == payloads

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(story())


async def assert_closed_elsewhere(writer: LedgerWriter, last_entry_id: int) -> None:
    """Closing is a success when the end is the writer's own, and says so when it is not."""
    if writer.last_add_confirmed == last_entry_id:
        await writer.close()
    else:
        with pytest.raises(MetadataVersionConflict):
            await writer.close()


async def test_an_idle_writer_learns_of_the_takeover_with_its_next_append(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        first, second = await loopback.client(), await loopback.client()
        writer = await first.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        await writer.append(b"one")
        await writer.append(b"two")
        reader = await second.open_ledger(writer.ledger_id, recover=True)
        with pytest.raises(LedgerFenced) as fenced:
            await writer.append(b"three")
        assert (fenced.value.ledger_id, fenced.value.entry_id) == (writer.ledger_id, 2)
        assert await contents(reader) == [b"one", b"two"]
        assert reader.metadata.state is LedgerState.CLOSED
        await assert_closed_elsewhere(writer, 1)


async def test_a_tail_that_reached_some_bookies_only_is_decided_once_and_for_all(
    new_loopback: NewLoopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_loopback(3) as loopback:
        first, second, third = (
            await loopback.client(timeouts={"add_s": 60.0}),
            await loopback.client(),
            await loopback.client(),
        )
        writer = await first.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
        for i in range(10):
            await writer.append(b"%d" % i)
        deaf = loopback.cluster.bookie(writer.metadata.last_fragment.ensemble[2])
        with monkeypatch.context() as patch:
            patch.setattr(deaf, "add", lambda *_: False)
            patch.setattr(deaf, "submit", lambda *_, **__: None)
            futures = [writer.append_nowait(b"%d" % i) for i in range(10, 15)]
            listening = loopback.cluster.bookie(writer.metadata.last_fragment.ensemble[0])
            async with asyncio.timeout(10):
                while len(listening.storage.entry_ids(writer.ledger_id)) < 15:  # noqa: ASYNC110  its storage tells nobody
                    await asyncio.sleep(0)
        one = await second.open_ledger(writer.ledger_id, recover=True)
        two = await third.open_ledger(writer.ledger_id, recover=True)
        payloads = await contents(one)
        assert payloads == [b"%d" % i for i in range(len(payloads))]
        assert 10 <= len(payloads) <= 15
        assert await contents(two) == payloads
        assert one.metadata == two.metadata
        assert not any(future.done() for future in futures)


@pytest.mark.behaviour("T-111")
@pytest.mark.behaviour("T-139")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("recoverers", [2, 10])
async def test_recoverers_at_the_same_time_come_to_the_same_end(
    new_loopback: NewLoopback, recoverers: int, version: int
) -> None:
    async with new_loopback() as loopback:
        first = await loopback.client(limits={"max_in_flight_entries": 200})
        # All of them share one processor, which may be busy with other things too.
        clients = [
            await loopback.client(connections={"protocol_version": version}, timeouts={"add_s": 60.0, "read_s": 60.0})
            for _ in range(recoverers)
        ]
        writer = await first.create_ledger(ensemble_size=5, write_quorum_size=3, ack_quorum_size=2)
        producer = Producer(writer)
        running = asyncio.create_task(producer.run())
        await producer.until_acknowledged(300)
        readers = await asyncio.gather(*(client.open_ledger(writer.ledger_id, recover=True) for client in clients))
        await running
        ends = {(reader.last_add_confirmed, reader.length, reader.metadata_version) for reader in readers}
        assert len(ends) == 1
        everything = [await contents(reader) for reader in readers]
        assert everything[1:] == everything[:-1]
        assert everything[0] == producer.sent[: len(everything[0])]
        assert len(everything[0]) > max(producer.acknowledged)


async def test_recovery_waits_for_nobody_but_needs_enough_answers(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        first, second = await loopback.client(), await loopback.client()
        writer = await first.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        for i in range(5):
            await writer.append(b"%d" % i)
        ensemble = writer.metadata.last_fragment.ensemble
        await loopback.cluster.kill(ensemble[0])
        await loopback.cluster.kill(ensemble[1])
        with pytest.raises(LedgerRecoveryFailed) as failed:
            await second.open_ledger(writer.ledger_id, recover=True)
        assert failed.value.ledger_id == writer.ledger_id
        assert (await second.ledger_metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
        await loopback.cluster.restart(ensemble[0])
        reader = await opened_once_reachable(second, writer.ledger_id)
        assert await contents(reader) == [b"%d" % i for i in range(5)]


async def opened_once_reachable(client: BookKeeper, ledger_id: int) -> LedgerReader:
    """The client backs off from bookies it could not reach."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await client.open_ledger(ledger_id, recover=True)
            except LedgerRecoveryFailed:
                await asyncio.sleep(0.05)


async def test_a_wrong_password_neither_fences_nor_recovers(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        first, second = await loopback.client(), await loopback.client()
        writer = await first.create_ledger(password=b"right")
        await writer.append(b"one")
        with pytest.raises(UnauthorizedAccess):
            await second.open_ledger(writer.ledger_id, password=b"left", recover=True)
        assert await writer.append(b"two") == 1
        assert await contents(await second.open_ledger(writer.ledger_id, password=b"right", recover=True)) == [
            b"one",
            b"two",
        ]


async def test_an_abandoned_recovery_leaves_the_ledger_to_the_next_one(new_loopback: NewLoopback) -> None:
    async with new_loopback(3, journal_sync_s=0.01) as loopback:
        first, second = await loopback.client(), await loopback.client()
        writer = await first.create_ledger()
        for i in range(20):
            writer.append_nowait(b"%d" % i)
        await writer.flush()
        for turns in range(0, 60, 3):
            opening = asyncio.create_task(second.open_ledger(writer.ledger_id, recover=True))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        reader = await (await loopback.client()).open_ledger(writer.ledger_id, recover=True)
        assert await contents(reader) == [b"%d" % i for i in range(20)]
