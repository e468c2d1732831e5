"""What a fence is worth, over TCP: it outlives restarts, repairs and the ledger itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from bkclient import BookKeeper, LedgerState, LedgerWriter
from bkclient.errors import BookKeeperError, Code, LedgerFenced, NotEnoughBookies, UnauthorizedAccess
from bkclient.ledger import DigestType, Fragment
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire.digest import master_key
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import LAST_ENTRY, AddRequest, ReadRequest, Request, Response
from simbookie.garbage import GarbageCollector
from simbookie.storage.base import CrashMode
from tests.end_to_end.loopback import Loopback, NewLoopback

BOTH_VERSIONS = pytest.mark.parametrize("version", [2, 3])


async def a_ledger(client: BookKeeper, entries: int, sizes: tuple[int, int, int] = (3, 3, 2)) -> LedgerWriter:
    """A new ledger with so many entries, one after the other, and its writer."""
    writer = await client.create_ledger(
        ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2], password=b"secret"
    )
    for i in range(entries):
        await writer.append(b"%d" % i)
    return writer


def store_of(loopback: Loopback) -> MetadataStore:
    return MemoryMetadataService.named(loopback.uri.removeprefix("mem://")).session(rng=Random(5))


async def contents(client: BookKeeper, ledger_id: int) -> list[bytes]:
    reader = await client.open_ledger(ledger_id, password=b"secret", recover=True)
    return [entry.payload async for entry in reader]


async def assert_fenced(writer: LedgerWriter) -> None:
    with pytest.raises(LedgerFenced):
        await writer.append(b"too late")


@pytest.mark.rule("REC-43")
@pytest.mark.behaviour("T-108")
@BOTH_VERSIONS
async def test_the_writer_is_fenced_and_agrees_with_whoever_recovered(new_loopback: NewLoopback, version: int) -> None:
    async with new_loopback(3) as loopback:
        first = await loopback.client(connections={"protocol_version": version})
        second = await loopback.client(connections={"protocol_version": version})
        writer = await a_ledger(first, 10)

        reader = await second.open_ledger(writer.ledger_id, password=b"secret", recover=True)

        await assert_fenced(writer)
        assert writer.last_add_confirmed == reader.last_add_confirmed == 9


@pytest.mark.rule("REC-8")
@pytest.mark.behaviour("T-115")
@pytest.mark.behaviour("T-121")
@BOTH_VERSIONS
@pytest.mark.parametrize("hung", [0, 1, 2])
async def test_one_hung_bookie_keeps_nobody_from_fencing(
    new_loopback: NewLoopback, monkeypatch: pytest.MonkeyPatch, version: int, hung: int
) -> None:
    async with new_loopback(3) as loopback:
        first = await loopback.client(connections={"protocol_version": version}, timeouts={"add_s": 60.0})
        second = await loopback.client(connections={"protocol_version": version}, timeouts={"read_s": 60.0})
        writer = await a_ledger(first, 3)
        bookie = loopback.cluster.bookie(writer.metadata.last_fragment.ensemble[hung])
        monkeypatch.setattr(bookie, "add", lambda *_: False)
        monkeypatch.setattr(bookie, "submit", lambda *_, **__: None)
        assert await writer.append(b"on two bookies") == 3

        async with asyncio.timeout(10):
            reader = await second.open_ledger(writer.ledger_id, password=b"secret", recover=True)

        assert reader.last_add_confirmed == 3
        await assert_fenced(writer)


@pytest.mark.rule("API-7")
@pytest.mark.behaviour("T-116")
@pytest.mark.behaviour("T-119")
@BOTH_VERSIONS
async def test_a_wrong_password_opens_nothing_and_fences_nobody(new_loopback: NewLoopback, version: int) -> None:
    async with new_loopback(3) as loopback:
        first = await loopback.client(connections={"protocol_version": version})
        second = await loopback.client(connections={"protocol_version": version})
        writer = await a_ledger(first, 1)

        with pytest.raises(UnauthorizedAccess):
            await second.open_ledger(writer.ledger_id, password=b"wrong", recover=True)

        assert await writer.append(b"still writing") == 1
        assert (await second.ledger_metadata(writer.ledger_id)).state is LedgerState.OPEN


@pytest.mark.rule("REC-44")
@pytest.mark.behaviour("T-117")
@BOTH_VERSIONS
@pytest.mark.parametrize("mode", list(CrashMode))
async def test_a_fence_outlives_the_restart_of_every_bookie(
    new_loopback: NewLoopback, version: int, mode: CrashMode
) -> None:
    async with new_loopback(3) as loopback:
        first = await loopback.client(connections={"protocol_version": version})
        second = await loopback.client(connections={"protocol_version": version})
        writer = await a_ledger(first, 5)
        reader = await second.open_ledger(writer.ledger_id, password=b"secret", recover=True)

        for bookie_id in loopback.cluster.bookie_ids:
            await loopback.cluster.kill(bookie_id, mode)
            await loopback.cluster.restart(bookie_id)

        # The client may need an attempt to notice that its connections are gone; what it may not do is to succeed.
        with pytest.raises(BookKeeperError):
            await writer.append(b"too late")
        answers = [
            await ask(loopback, version, bookie_id, add_of(writer, entry_id=99))
            for bookie_id in loopback.cluster.bookie_ids
        ]
        assert answers == [Code.LEDGER_FENCED] * 3
        assert reader.last_add_confirmed == 4
        assert await contents(second, writer.ledger_id) == [b"%d" % i for i in range(5)]


def add_of(writer: LedgerWriter, entry_id: int) -> AddRequest:
    """An ordinary add, as the writer itself would send it."""
    codec = EntryCodec(writer.ledger_id, DigestType.CRC32C, b"secret")
    header = codec.encode_header(entry_id, -1, 4, b"late")
    return AddRequest(writer.ledger_id, entry_id, codec.master_key, header, b"late")


def a_read_of(writer: LedgerWriter) -> ReadRequest:
    """An ordinary read of the last entry."""
    return ReadRequest(writer.ledger_id, LAST_ENTRY)


def fencing_read_of(writer: LedgerWriter) -> ReadRequest:
    """What a recovery asks first."""
    return ReadRequest(writer.ledger_id, LAST_ENTRY, fence_key=master_key(b"secret"), high_priority=True)


async def ask(loopback: Loopback, version: int, bookie_id: str, request: Request) -> int:
    """The code of one bookie's answer."""
    store = store_of(loopback)
    transport = TcpTransport(store.bookie_address, TcpTransportConfig(protocol_version=version), rng=Random(1))
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_reply(_bookie_id: str, _request: Request, code: int, _response: Response | None) -> None:
        answer.set_result(code)

    try:
        transport.submit(bookie_id, request, on_reply)
        return await answer
    finally:
        await transport.aclose()
        await store.aclose()


# A ledger that is gone ----------------------------------------------------------------------------------------------


async def fenced_deleted_and_collected(loopback: Loopback, version: int) -> LedgerWriter:
    """The writer of a ledger that another client recovered and deleted, and of which every bookie removed everything."""
    first = await loopback.client(connections={"protocol_version": version})
    second = await loopback.client(connections={"protocol_version": version})
    writer = await a_ledger(first, 3)
    await second.open_ledger(writer.ledger_id, password=b"secret", recover=True)
    await second.delete_ledger(writer.ledger_id)
    store = store_of(loopback)
    for bookie_id in loopback.cluster.bookie_ids:
        bookie = loopback.cluster.bookie(bookie_id)
        assert await GarbageCollector(bookie, store).collect() == [writer.ledger_id]
        assert bookie.ledger_ids() == []
    await store.aclose()
    return writer


@pytest.mark.rule("REC-43")
@pytest.mark.behaviour("T-109")
@BOTH_VERSIONS
async def test_a_writer_whose_ledger_was_deleted_and_collected_is_fenced_all_the_same(
    new_loopback: NewLoopback, version: int
) -> None:
    async with new_loopback(3) as loopback:
        writer = await fenced_deleted_and_collected(loopback, version)

        await assert_fenced(writer)
        assert all(loopback.cluster.bookie(bookie_id).ledger_ids() == [] for bookie_id in loopback.cluster.bookie_ids)


@pytest.mark.rule("REC-43")
@pytest.mark.behaviour("T-110")
@BOTH_VERSIONS
async def test_of_a_collected_ledger_fencing_reads_find_nothing_and_adds_are_refused(
    new_loopback: NewLoopback, version: int
) -> None:
    async with new_loopback(3) as loopback:
        writer = await fenced_deleted_and_collected(loopback, version)

        for bookie_id in loopback.cluster.bookie_ids:
            assert await ask(loopback, version, bookie_id, fencing_read_of(writer)) == Code.NO_SUCH_LEDGER_ON_BOOKIE
            assert await ask(loopback, version, bookie_id, add_of(writer, 3)) == Code.LEDGER_FENCED


# Repairs ------------------------------------------------------------------------------------------------------------


async def repair(
    loopback: Loopback, client: BookKeeper, ledger_id: int, first_entry_id: int, lost: str, spare: str
) -> None:
    """What re-replication does: copy what ``lost`` had of a fragment to ``spare``, and replace it there in place."""
    metadata = await client.ledger_metadata(ledger_id)
    codec = EntryCodec(ledger_id, DigestType.CRC32C, b"secret")
    reader = await client.open_ledger(ledger_id, password=b"secret", recover=False)
    last = min(
        f.first_entry_id for f in (*metadata.fragments, Fragment(2**62, ())) if f.first_entry_id > first_entry_id
    )
    length = 0
    for entry_id in range(first_entry_id, min(last, reader.last_add_confirmed + 1)):
        entry = await reader.read(entry_id)
        length += len(entry.payload)
        header = codec.encode_header(entry_id, entry_id - 1, length, entry.payload)
        request = AddRequest(ledger_id, entry_id, codec.master_key, header, entry.payload, recovery=True)
        assert await ask(loopback, 3, spare, request) == Code.OK

    def replaced(fragment: Fragment) -> Fragment:
        if fragment.first_entry_id != first_entry_id:
            return fragment
        return replace(fragment, ensemble=tuple(spare if member == lost else member for member in fragment.ensemble))

    store = store_of(loopback)
    value = await store.read_ledger(ledger_id)
    fragments = tuple(map(replaced, value.metadata.fragments))
    assert fragments != value.metadata.fragments
    await store.write_ledger(replace(value.metadata, fragments=fragments), value.version)
    await store.aclose()


@pytest.mark.rule("REC-36")
@pytest.mark.rule("W-34")
@pytest.mark.behaviour("T-113")
async def test_repairing_an_older_fragment_does_not_disturb_the_writer_and_a_later_fence_does(
    new_loopback: NewLoopback,
) -> None:
    async with new_loopback(5) as loopback:
        first, second = await loopback.client(), await loopback.client()
        writer = await a_ledger(first, 10)
        before = writer.metadata.last_fragment.ensemble
        await loopback.cluster.kill(before[0])
        while len(writer.metadata.fragments) == 1:
            await writer.append(b"%d" % (writer.last_add_confirmed + 1))
        spare = next(
            b
            for b in loopback.cluster.bookie_ids
            if b not in before and b not in writer.metadata.last_fragment.ensemble
        )

        await repair(loopback, second, writer.ledger_id, 0, before[0], spare)
        # It does not mind another change of the ensemble either, for which it has to merge what the repair wrote.
        await loopback.cluster.restart(before[0])
        await loopback.cluster.kill(before[1])
        while before[1] in writer.metadata.last_fragment.ensemble:
            await writer.append(b"%d" % (writer.last_add_confirmed + 1))

        assert writer.metadata.fragments[0].ensemble[0] == spare
        await loopback.cluster.restart(before[1])
        payloads = await contents(second, writer.ledger_id)
        assert payloads == [b"%d" % i for i in range(writer.last_add_confirmed + 1)]
        await assert_fenced(writer)


@pytest.mark.rule("REC-44")
@pytest.mark.behaviour("T-114")
async def test_repairing_a_bookie_after_a_fence_does_not_lift_it(new_loopback: NewLoopback) -> None:
    async with new_loopback(4) as loopback:
        first, second = await loopback.client(), await loopback.client()
        writer = await a_ledger(first, 10)
        ensemble = writer.metadata.last_fragment.ensemble
        (spare,) = (b for b in loopback.cluster.bookie_ids if b not in ensemble)
        reader = await second.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        await loopback.cluster.kill(ensemble[1])

        await repair(loopback, second, writer.ledger_id, 0, ensemble[1], spare)

        await assert_fenced(writer)
        assert reader.last_add_confirmed == 9
        after = await second.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        assert after.metadata.last_fragment.ensemble[1] == spare
        assert [entry.payload async for entry in after] == [b"%d" % i for i in range(10)]


# A bookie without room ----------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-17")
@pytest.mark.rule("REC-23")
@pytest.mark.behaviour("T-140")
@BOTH_VERSIONS
async def test_a_full_work_queue_refuses_ordinary_requests_and_no_recovery(
    new_loopback: NewLoopback, version: int
) -> None:
    async with new_loopback(3) as loopback:
        writer = await a_ledger(await loopback.client(connections={"protocol_version": version}), 10)
        for bookie_id in loopback.cluster.bookie_ids:
            bookie = loopback.cluster.bookie(bookie_id)
            await loopback.cluster.stop(bookie_id)
            bookie.config = replace(bookie.config, pending_adds_max=0, pending_reads_max=0)
            await loopback.cluster.restart(bookie_id)
        client = await loopback.client(connections={"protocol_version": version})

        with pytest.raises(NotEnoughBookies):
            await a_ledger(client, 1)
        assert await ask(loopback, version, loopback.cluster.bookie_ids[0], a_read_of(writer)) == Code.TOO_MANY_REQUESTS
        reader = await client.open_ledger(writer.ledger_id, password=b"secret", recover=True)

        assert (reader.is_closed, reader.last_add_confirmed) == (True, 9)
