"""The Python client on Apache BookKeeper's own bookies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import bkclient
from bkclient import BookKeeper, ClientConfig, ConnectionSettings, LedgerReader
from bkclient.errors import LedgerClosed, LedgerFenced, NoSuchLedger, ReadFailed, UnauthorizedAccess
from bkclient.ledger import DigestType
from tests.interop.java_peer import pattern
from tests.interop.real_bookie import RealCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

DIGESTS = list(DigestType)
PASSWORDS = [b"", b"secret"]
SIZES = [(1, 1, 1), (3, 3, 2), (3, 2, 2), (4, 2, 1), (4, 3, 3)]


async def payloads_of(reader: AsyncIterator[Any] | LedgerReader) -> list[bytes]:
    return [entry.payload async for entry in reader]


async def written(client: BookKeeper, count: int, **options: Any) -> int:
    """A closed ledger of ``count`` pattern entries."""
    async with await client.create_ledger(**options) as writer:
        for entry_id in range(count):
            await writer.wait_for_room()
            writer.append_nowait(pattern(entry_id))
    return writer.ledger_id


@pytest.mark.matrix("append and read, every digest")
@pytest.mark.parametrize("password", PASSWORDS, ids=["open", "password"])
@pytest.mark.parametrize("digest_type", DIGESTS, ids=lambda digest: digest.name.lower())
async def test_what_was_appended_is_read(python: BookKeeper, digest_type: DigestType, password: bytes) -> None:
    ledger_id = await written(python, 50, digest_type=digest_type, password=password)

    reader = await python.open_ledger(ledger_id, password=password, recover=True)

    assert await payloads_of(reader) == [pattern(entry_id) for entry_id in range(50)]
    assert reader.length == sum(len(pattern(entry_id)) for entry_id in range(50))


@pytest.mark.matrix("append and read, every digest")
async def test_handles_that_are_held_without_blocks(real: RealCluster, wire: int) -> None:
    held: BookKeeper = await bkclient.connect(
        real.metadata_uri, config=ClientConfig(connections=ConnectionSettings(protocol_version=wire))
    )
    writer = await held.create_ledger()
    futures = [await writer.submit(pattern(entry_id)) for entry_id in range(50)]
    await writer.aclose()
    assert [await future for future in futures] == list(range(50))
    given = await held.create_advanced_ledger()
    later = await given.submit(1, pattern(1))
    assert [await (await given.submit(0, pattern(0))), await later] == [0, 1]
    await given.aclose()

    reader = await held.open_ledger(writer.ledger_id)

    assert reader.is_closed
    assert await payloads_of(reader) == [pattern(entry_id) for entry_id in range(50)]
    await reader.aclose()
    await held.aclose()


@pytest.mark.matrix("append and read, every digest")
@pytest.mark.parametrize("write_quorum_size", [3, 2])
async def test_many_entries_by_one_call(python: BookKeeper, write_quorum_size: int) -> None:
    async with await python.create_ledger(write_quorum_size=write_quorum_size) as writer:
        ids = await writer.append_all(pattern(entry_id) for entry_id in range(3000))
    assert ids == list(range(3000))

    reader = await python.open_ledger(writer.ledger_id)

    assert await payloads_of(reader) == [pattern(entry_id) for entry_id in range(3000)]


@pytest.mark.matrix("striped ensembles")
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "-".join(map(str, sizes)))
async def test_striped_ensembles(python: BookKeeper, sizes: tuple[int, int, int]) -> None:
    ensemble, write_quorum, ack_quorum = sizes
    ledger_id = await written(
        python, 200, ensemble_size=ensemble, write_quorum_size=write_quorum, ack_quorum_size=ack_quorum
    )

    assert await payloads_of(await python.open_ledger(ledger_id, recover=True)) == [
        pattern(entry_id) for entry_id in range(200)
    ]


@pytest.mark.matrix("payloads up to the frame limit")
async def test_payloads_of_every_size(python: BookKeeper) -> None:
    sizes = [0, 1, 1023, 65_536, 1_000_000, 4_000_000]
    async with await python.create_ledger() as writer:
        for size in sizes:
            await writer.append(pattern(3, size))

    assert await payloads_of(await python.open_ledger(writer.ledger_id, recover=True)) == [
        pattern(3, size) for size in sizes
    ]


@pytest.mark.matrix("fencing and recovery")
async def test_opening_recovers_and_fences_a_living_writer(python: BookKeeper) -> None:
    writer = await python.create_ledger()
    for entry_id in range(30):
        await writer.append(pattern(entry_id))

    reader = await python.open_ledger(writer.ledger_id, recover=True)

    assert (reader.is_closed, reader.last_add_confirmed) == (True, 29)
    with pytest.raises((LedgerFenced, LedgerClosed)):
        await writer.append(b"too late")
    assert await payloads_of(reader) == [pattern(entry_id) for entry_id in range(30)]


@pytest.mark.matrix("recovery of an empty ledger")
async def test_recovering_a_ledger_nobody_wrote_to(python: BookKeeper) -> None:
    writer = await python.create_ledger()

    reader = await python.open_ledger(writer.ledger_id, recover=True)

    assert (reader.last_add_confirmed, reader.length) == (-1, 0)
    with pytest.raises(LedgerFenced):
        await writer.append(b"too late")


@pytest.mark.matrix("tail without recovery")
async def test_following_an_open_ledger(python: BookKeeper) -> None:
    writer = await python.create_ledger()
    for entry_id in range(10):
        await writer.append(pattern(entry_id))

    reader = await python.open_ledger(writer.ledger_id, recover=False)

    assert reader.last_add_confirmed == 8
    with pytest.raises(ReadFailed):
        await reader.read(9)
    await writer.append(pattern(10))
    assert await reader.read_last_add_confirmed() == 9
    assert await payloads_of(reader) == [pattern(entry_id) for entry_id in range(10)]
    await writer.close()
    async with asyncio.timeout(10):
        while not reader.is_closed:  # noqa: ASYNC110 - told by a watch
            await asyncio.sleep(0.02)
    assert reader.last_add_confirmed == 10


@pytest.mark.matrix("wrong password")
async def test_a_wrong_password_fences_nobody(python: BookKeeper) -> None:
    writer = await python.create_ledger(password=b"right")
    await writer.append(b"1")

    with pytest.raises(UnauthorizedAccess):
        await python.open_ledger(writer.ledger_id, password=b"wrong", recover=True)

    assert await writer.append(b"2") == 1
    await writer.close()


@pytest.mark.matrix("delete")
async def test_a_deleted_ledger_is_gone(python: BookKeeper) -> None:
    ledger_id = await written(python, 3)

    await python.delete_ledger(ledger_id)

    with pytest.raises(NoSuchLedger):
        await python.open_ledger(ledger_id, recover=True)


@pytest.mark.matrix("custom metadata")
async def test_custom_metadata_is_kept(python: BookKeeper) -> None:
    custom = {"application": b"py", "binary": bytes(range(256))}

    ledger_id = await written(python, 1, custom_metadata=custom)

    assert dict((await python.ledger_metadata(ledger_id)).custom_metadata) == custom
