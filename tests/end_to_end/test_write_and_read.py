"""Ledgers written by one client and read by another, over real TCP, in every configuration that changes what is on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bkclient import DigestType
from bkclient.errors import (
    ArgumentError,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    ReadFailed,
    TooManyRequests,
    UnauthorizedAccess,
)
from simbookie.config import BookieConfig
from simbookie.server import ServerConfig
from tests.end_to_end.loopback import NewLoopback

#: What ``connect`` leaves for everything in a frame that is not payload.
FRAME_OVERHEAD_BYTES = 192
SMALL_FRAME_BYTES = 64 * 1024

SIZES = (0, 1, 7, 64, 1000, 20_000)


def payload_of(entry_id: int) -> bytes:
    """Sizes vary, contents differ."""
    size = SIZES[entry_id % len(SIZES)]
    return (b"%d." % entry_id * size)[:size]


@pytest.mark.behaviour("T-25")
@pytest.mark.behaviour("T-41")
@pytest.mark.behaviour("T-65")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("digest_type", list(DigestType), ids=lambda digest_type: digest_type.name)
async def test_what_one_client_writes_another_reads(
    new_loopback: NewLoopback, version: int, digest_type: DigestType
) -> None:
    async with new_loopback() as loopback:
        writing = await loopback.client(connections={"protocol_version": version})
        reading = await loopback.client(connections={"protocol_version": 5 - version})
        async with await writing.create_ledger(
            ensemble_size=5,
            write_quorum_size=3,
            ack_quorum_size=2,
            digest_type=digest_type,
            password=b"open sesame",
            custom_metadata={"kind": b"test"},
        ) as writer:
            for entry_id in range(60):
                assert await writer.append(payload_of(entry_id)) == entry_id
        for client in (writing, reading):
            reader = await client.open_ledger(writer.ledger_id, password=b"open sesame", recover=True)
            entries = [entry async for entry in reader]
            assert [entry.payload for entry in entries] == [payload_of(entry_id) for entry_id in range(60)]
            assert [entry.entry_id for entry in entries] == list(range(60))
            assert (
                entries[-1].ledger_length == reader.length == sum(len(payload_of(entry_id)) for entry_id in range(60))
            )
            assert all(entry.last_add_confirmed < entry.entry_id for entry in entries)
            assert (await reader.read_last_entry()).entry_id == 59
            assert [entry.entry_id async for entry in reader.read_range(17, 23)] == list(range(17, 24))
            assert reader.metadata.custom_metadata == {"kind": b"test"}


async def test_striped_entries_are_on_their_write_set_and_nowhere_else(new_loopback: NewLoopback) -> None:
    async with new_loopback() as loopback:
        client = await loopback.client()
        async with await client.create_ledger(ensemble_size=5, write_quorum_size=2, ack_quorum_size=2) as writer:
            futures = [writer.append_nowait(payload_of(entry_id)) for entry_id in range(50)]
        assert [future.result() for future in futures] == list(range(50))
        ensemble = writer.metadata.last_fragment.ensemble
        for position, bookie_id in enumerate(ensemble):
            stored = loopback.cluster.bookie(bookie_id).storage.entry_ids(writer.ledger_id)
            assert stored == [e for e in range(50) if (position - e) % 5 < 2]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("digest_type", list(DigestType), ids=lambda digest_type: digest_type.name)
async def test_the_largest_entry_of_a_frame_is_written_recovered_and_read(
    new_loopback: NewLoopback, version: int, digest_type: DigestType
) -> None:
    async with new_loopback(4, server=ServerConfig(max_frame_size=SMALL_FRAME_BYTES)) as loopback:
        options: dict[str, Any] = {
            "connections": {"protocol_version": version},
            "limits": {"max_frame_size_bytes": SMALL_FRAME_BYTES},
        }
        largest = bytes(range(256)) * 256
        largest = largest[: SMALL_FRAME_BYTES - FRAME_OVERHEAD_BYTES]
        writing, reading = await loopback.client(**options), await loopback.client(**options)
        writer = await writing.create_ledger(digest_type=digest_type, password=b"p" * 100)
        for entry_id in range(3):
            assert await writer.append(largest) == entry_id
        reader = await reading.open_ledger(writer.ledger_id, password=b"p" * 100, recover=True)
        assert [entry.payload for entry in [entry async for entry in reader]] == [largest] * 3


async def test_an_entry_over_the_limit_is_refused_before_anything_is_sent_and_the_writer_goes_on(
    new_loopback: NewLoopback,
) -> None:
    async with new_loopback() as loopback:
        client = await loopback.client(limits={"max_frame_size_bytes": SMALL_FRAME_BYTES})
        async with await client.create_ledger() as writer:
            await writer.append(b"before")
            over = bytes(SMALL_FRAME_BYTES - FRAME_OVERHEAD_BYTES + 1)
            with pytest.raises(
                ArgumentError, match=f"must be <= {len(over) - 1} bytes .*, got {len(over)} bytes"
            ) as refused:
                await writer.append(over)
            assert refused.value.ledger_id == writer.ledger_id
            with pytest.raises(ArgumentError):
                writer.append_nowait(over)
            with pytest.raises(ArgumentError, match="must be bytes-like, got str"):
                await writer.append("text")  # type: ignore[arg-type]
            assert (writer.last_add_pushed, writer.in_flight_entries, writer.length) == (0, 0, 6)
            assert await writer.append(b"after") == 1
        reader = await client.open_ledger(writer.ledger_id, recover=True)
        assert [entry.payload async for entry in reader] == [b"before", b"after"]


async def test_the_default_frame_takes_an_entry_of_nearly_five_mebibytes(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client()
        large = bytes(5 * 1024 * 1024 - FRAME_OVERHEAD_BYTES)
        async with await client.create_ledger() as writer:
            futures = [writer.append_nowait(large) for _ in range(4)]
            with pytest.raises(ArgumentError):
                writer.append_nowait(large + b"x")
        assert [future.result() for future in futures] == [0, 1, 2, 3]
        reader = await client.open_ledger(writer.ledger_id, recover=True)
        assert [len(entry.payload) async for entry in reader] == [len(large)] * 4


async def test_a_buffer_may_be_reused_as_soon_as_append_has_taken_it(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client()
        buffer = bytearray(b"first")
        async with await client.create_ledger() as writer:
            writer.append_nowait(buffer)
            buffer[:] = b"SECOND"
            writer.append_nowait(memoryview(buffer)[2:])
            buffer[:] = b"......"
        reader = await client.open_ledger(writer.ledger_id, recover=True)
        assert [entry.payload async for entry in reader] == [b"first", b"COND"]


@pytest.mark.parametrize("version", [2, 3])
def test_ten_thousand_entries_are_pipelined_on_either_loop(
    new_loopback: NewLoopback, loop_factory: Callable[[], asyncio.AbstractEventLoop], version: int
) -> None:
    async def story() -> None:
        async with new_loopback() as loopback:
            client = await loopback.client(connections={"protocol_version": version})
            in_flight_max = 0
            async with await client.create_ledger(ensemble_size=5, write_quorum_size=3, ack_quorum_size=2) as writer:
                futures = []
                for entry_id in range(10_000):
                    await writer.wait_for_room()
                    futures.append(writer.append_nowait(b"entry %d" % entry_id))
                    in_flight_max = max(in_flight_max, writer.in_flight_entries)
                await writer.flush()
                assert writer.last_add_confirmed == 9_999
            assert all(future.result() == entry_id for entry_id, future in enumerate(futures))
            assert 1 < in_flight_max <= 2000
            reader = await client.open_ledger(writer.ledger_id, recover=True)
            entry_id = 0
            async for entry in reader:
                assert entry.payload == b"entry %d" % entry_id
                entry_id += 1
            assert entry_id == 10_000
            assert len(writer.metadata.fragments) == 1

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(story())


async def test_a_window_wider_than_a_connection_takes_by_default_costs_no_bookie(new_loopback: NewLoopback) -> None:
    async with new_loopback(1, journal_sync_s=0.1, config=BookieConfig(pending_adds_max=30_000)) as loopback:
        client = await loopback.client(limits={"max_in_flight_entries": 25_000}, timeouts={"add_s": 60.0})
        async with await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1) as writer:
            futures = [writer.append_nowait(b"%d" % entry_id) for entry_id in range(25_000)]
            with pytest.raises(TooManyRequests, match="25000 entries"):
                writer.append_nowait(b"one more")
        assert futures[-1].result() == 24_999


async def test_a_full_window_refuses_nowait_and_holds_append_until_there_is_room(new_loopback: NewLoopback) -> None:
    async with new_loopback(3, journal_sync_s=0.01) as loopback:
        client = await loopback.client(limits={"max_in_flight_entries": 4, "max_in_flight_bytes": 1000})
        async with await client.create_ledger() as writer:
            for _ in range(4):
                writer.append_nowait(b"x")
            with pytest.raises(TooManyRequests, match="4 entries"):
                writer.append_nowait(b"x")
            ids = await asyncio.gather(*(writer.append(b"x") for _ in range(20)))
            assert ids == list(range(4, 24))
            writer.append_nowait(bytes(1000))
            with pytest.raises(TooManyRequests, match="1000 bytes"):
                writer.append_nowait(b"x")
            assert await writer.append(bytes(5000)) == 25


@pytest.mark.behaviour("T-15")
@pytest.mark.behaviour("T-53")
async def test_empty_ledgers_and_entries_outside_the_ledger(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client()
        async with await client.create_ledger() as writer:
            pass
        reader = await client.open_ledger(writer.ledger_id, recover=True)
        assert [entry async for entry in reader] == []
        assert (reader.last_add_confirmed, reader.length, reader.is_closed) == (-1, 0, True)
        with pytest.raises(NoSuchEntry):
            await reader.read_last_entry()
        with pytest.raises(ReadFailed, match="confirmed known here is -1"):
            await reader.read(0)
        for first, last in ((-1, 0), (1, 0)):
            with pytest.raises(ArgumentError):
                reader.read_range(first, last)
        with pytest.raises(NoSuchLedger):
            await client.open_ledger(writer.ledger_id + 1, recover=True)
        with pytest.raises(NoSuchLedger):
            await client.open_ledger(-1, recover=True)


@pytest.mark.rule("API-3")
@pytest.mark.rule("API-5")
@pytest.mark.behaviour("T-2")
@pytest.mark.behaviour("T-3")
@pytest.mark.behaviour("T-4")
@pytest.mark.behaviour("T-5")
@pytest.mark.behaviour("T-6")
@pytest.mark.behaviour("T-14")
async def test_sizes_that_cannot_be_are_refused_before_anything_is_written(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client()
        for sizes in ((3, 2, 3), (2, 3, 2), (3, 3, 0), (0, 0, 0), (0, 2, 2), (3, 0, 0), (3, 0, 2), (True, 1, 1)):
            ensemble_size, write_quorum_size, ack_quorum_size = sizes
            with pytest.raises(ArgumentError):
                await client.create_ledger(
                    ensemble_size=ensemble_size,
                    write_quorum_size=write_quorum_size,
                    ack_quorum_size=ack_quorum_size,
                )
        with pytest.raises(NotEnoughBookies):
            await client.create_ledger(ensemble_size=4)
        assert [ledger_id async for ledger_id in client.list_ledgers()] == []


@pytest.mark.rule("API-7")
async def test_a_wrong_password_opens_nothing_and_fences_nobody(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client, stranger = await loopback.client(), await loopback.client()
        async with await client.create_ledger(password=b"right") as writer:
            await writer.append(b"one")
            for password in (b"", b"wrong"):
                with pytest.raises(UnauthorizedAccess):
                    await stranger.open_ledger(writer.ledger_id, password=password, recover=True)
                with pytest.raises(UnauthorizedAccess):
                    await stranger.open_ledger(writer.ledger_id, password=password, recover=False)
            assert await writer.append(b"two") == 1
        reader = await stranger.open_ledger(writer.ledger_id, password=b"right", recover=True)
        assert [entry.payload async for entry in reader] == [b"one", b"two"]
