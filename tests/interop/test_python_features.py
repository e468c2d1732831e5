"""What the Python client offers beyond appending and reading, on Apache BookKeeper's own bookies."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from bkclient import BookKeeper
from bkclient.errors import IllegalOperation, LedgerExists, NoSuchEntry, RequestTimeout
from bkclient.ledger import DigestType
from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory, Note, PeerFactory
from tests.interop.java_peer import JavaPeer, pattern
from tests.interop.real_bookie import RealCluster
from tests.interop.test_python_client import payloads_of, written

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


#: What the oldest metadata format can express, and what takes a later one; the same for Java.
SIMPLE: dict[str, Any] = {"digest_type": DigestType.CRC32, "write_quorum_size": 2, "ack_quorum_size": 2}
RICH: dict[str, Any] = {
    "digest_type": DigestType.HMAC,
    "password": b"secret",
    "custom_metadata": {"k": b"v"},
    "write_quorum_size": 3,
    "ack_quorum_size": 2,
}
JAVA_SIMPLE: dict[str, Any] = {"digest": "CRC32", "write_quorum": 2, "ack_quorum": 2}
JAVA_RICH: dict[str, Any] = {
    "digest": "MAC",
    "password": b"secret",
    "custom": {"k": b"v"},
    "write_quorum": 3,
    "ack_quorum": 2,
}


def patterns(count: int) -> list[bytes]:
    return [pattern(entry_id) for entry_id in range(count)]


@pytest.mark.matrix("deferred sync and force")
async def test_deferred_sync_and_force(python: BookKeeper, java: JavaPeer, note: Note, wire: int) -> None:
    if wire == 2:
        note("refused")
        with pytest.raises(IllegalOperation):  # version 2 has no write flags
            await python.create_ledger(deferred_sync=True)
        return
    writer = await python.create_ledger(deferred_sync=True)
    for entry_id in range(10):
        await writer.append(pattern(entry_id))
    assert writer.last_add_confirmed == -1

    await writer.force()

    assert writer.last_add_confirmed == 9
    await writer.close()
    await java("open", writer.ledger_id)
    assert await java.payloads(writer.ledger_id) == patterns(10)


@pytest.mark.matrix("deferred sync: recovery finds what was not forced")
async def test_recovery_finds_what_was_acknowledged_and_not_forced(
    new_client: ClientFactory, real: RealCluster
) -> None:
    python: BookKeeper = await new_client(real.metadata_uri, timeouts=PATIENT)
    writer = await python.create_ledger(deferred_sync=True)
    for entry_id in range(10):
        await writer.append(pattern(entry_id))

    reader = await python.open_ledger(writer.ledger_id, recover=True)

    assert await payloads_of(reader) == patterns(10)


@pytest.mark.matrix("explicit LAC")
async def test_an_explicit_lac_reaches_readers_of_both_languages(python: BookKeeper, java: JavaPeer, wire: int) -> None:
    writer = await python.create_ledger()
    for entry_id in range(5):
        await writer.append(pattern(entry_id))
    reader = await python.open_ledger(writer.ledger_id, recover=False)
    await java("open", writer.ledger_id, recover=False)
    assert reader.last_add_confirmed == 3

    assert await writer.write_explicit_lac() == 4

    assert (await java("lac", writer.ledger_id, how="explicit"))["lac"] == 4
    if wire == 3:  # over version 2 a reader asks for the last entry, which carries an older one
        assert await reader.read_last_add_confirmed() == 4
        assert await payloads_of(reader) == patterns(5)


@pytest.mark.matrix("batch read")
@pytest.mark.parametrize("ensemble", [2, 3], ids=["unstriped", "striped"])
async def test_batch_reads(python: BookKeeper, ensemble: int) -> None:
    ledger_id = await written(python, 100, ensemble_size=ensemble, write_quorum_size=2, ack_quorum_size=2)
    reader = await python.open_ledger(ledger_id, recover=True)

    found: list[bytes] = []
    while len(found) < 100:
        found += [entry.payload for entry in await reader.read_batch(len(found), max_count=17, max_bytes=700)]

    assert found == patterns(100)
    assert [entry.payload for entry in await reader.read_batch(95, max_count=50)] == patterns(100)[95:]


@pytest.mark.matrix("read unconfirmed")
async def test_reading_what_is_not_confirmed_yet(python: BookKeeper) -> None:
    writer = await python.create_ledger()
    for entry_id in range(5):
        await writer.append(pattern(entry_id))
    reader = await python.open_ledger(writer.ledger_id, recover=False)

    assert (await reader.read(4, unconfirmed=True)).payload == pattern(4)
    with pytest.raises(NoSuchEntry):
        await reader.read(5, unconfirmed=True)


@pytest.mark.matrix("long poll")
@pytest.mark.parametrize("parallel", [False, True], ids=["one-by-one", "parallel"])
async def test_a_long_poll_returns_with_the_entry(
    python: BookKeeper,
    parallel: bool,
) -> None:
    writer = await python.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
    for entry_id in (0, 1):  # so that bookies know LAC 0: a LAC that is no news to a poll would use it up
        await writer.append(pattern(entry_id))
    reader = await python.open_ledger(writer.ledger_id, recover=False)

    poll = asyncio.create_task(reader.read_last_add_confirmed_and_entry(1, 20.0, parallel=parallel))
    await asyncio.sleep(0.05)
    await writer.append(pattern(2))  # carries the confirmation of entry 1

    async with asyncio.timeout(10):  # long before its time is up
        found = await poll
    assert found.last_add_confirmed >= 1
    assert found.entry is not None
    assert found.entry.payload == pattern(1)


@pytest.mark.matrix("long poll")
async def test_a_long_poll_without_news_ends_in_time(python: BookKeeper) -> None:
    writer = await python.create_ledger()
    await writer.append(pattern(0))
    reader = await python.open_ledger(writer.ledger_id, recover=False)

    async with asyncio.timeout(5):
        found = await reader.read_last_add_confirmed_and_entry(1, 0.3)

    assert found.entry is None
    assert found.last_add_confirmed in {-1, 0}, "the writer may have told its last add confirmed meanwhile"


@pytest.mark.matrix("tail")
async def test_tailing_a_python_writer(
    python: BookKeeper, new_client: ClientFactory, real: RealCluster, wire: int
) -> None:
    other: BookKeeper = await new_client(real.metadata_uri, connections={"protocol_version": wire}, timeouts=PATIENT)
    writer = await python.create_ledger()
    reader = await other.open_ledger(writer.ledger_id, recover=False)

    async def read_along() -> list[bytes]:
        return [entry.payload async for entry in reader.tail()]

    reading = asyncio.create_task(read_along())
    for entry_id in range(300):
        await writer.append(pattern(entry_id))
    await writer.close()

    async with asyncio.timeout(30):
        assert await reading == patterns(300)


@pytest.mark.matrix("Python tails Java's writer")
async def test_tailing_a_java_writer(python: BookKeeper, java: JavaPeer) -> None:
    ledger_id = (await java("create"))["ledger"]
    reader = await python.open_ledger(ledger_id, recover=False)

    async def read_along() -> list[bytes]:
        return [entry.payload async for entry in reader.tail()]

    reading = asyncio.create_task(read_along())
    await java("append", ledger_id, count=200, pause_ms=1)
    await java("close", ledger_id)

    async with asyncio.timeout(30):
        assert await reading == patterns(200)


@pytest.mark.matrix("given entry ids, chosen ledger id above 2^31")
async def test_a_chosen_ledger_id_and_given_entry_ids(
    python: BookKeeper, java: JavaPeer, build: Build, wire: int
) -> None:
    chosen = 2**40 + wire
    writer = await python.create_advanced_ledger(ledger_id=chosen)
    appends = [writer.append_nowait(entry_id, pattern(entry_id)) for entry_id in (3, 0, 2, 1)]
    await asyncio.gather(*appends)
    await writer.close()
    with pytest.raises(LedgerExists):
        await python.create_ledger(ledger_id=chosen)

    await java("open", chosen)

    assert await java.payloads(chosen) == patterns(4)
    assert chosen in [ledger_id async for ledger_id in python.list_ledgers()]
    if build.lists_large_ids:
        assert chosen in (await java("list"))["ledgers"]
    await java("delete", chosen)


@pytest.mark.matrix("metadata formats 1, 2 and 3")
@pytest.mark.parametrize("version", [1, 2, 3])
async def test_metadata_of_every_format(
    new_client: ClientFactory, java: JavaPeer, real: RealCluster, version: int, wire: int
) -> None:
    python: BookKeeper = await new_client(
        real.metadata_uri,
        connections={"protocol_version": wire},
        metadata={"format_version": version},
        timeouts=PATIENT,
    )
    ours, theirs = (SIMPLE, JAVA_SIMPLE) if version == 1 else (RICH, JAVA_RICH)
    ledger_id = await written(python, 20, **ours)

    info = await java("info", ledger_id)

    assert info["format"] == version
    assert (info["last_entry"], info["length"]) == (19, sum(map(len, patterns(20))))
    assert (info["ensemble"], info["write_quorum"], info["ack_quorum"]) == (
        3,
        theirs["write_quorum"],
        theirs["ack_quorum"],
    )
    assert info["custom"] == ({} if version == 1 else {"k": "dg=="})
    await java("open", ledger_id, digest=theirs["digest"], password=theirs.get("password", b""))
    assert await java.payloads(ledger_id) == patterns(20)


@pytest.mark.matrix("metadata formats 1, 2 and 3")
@pytest.mark.parametrize("version", [1, 2, 3])
async def test_metadata_of_every_format_written_by_java(
    new_peer: PeerFactory, python: BookKeeper, real: RealCluster, version: int, wire: int
) -> None:
    java: JavaPeer = new_peer(real.metadata_uri, wire, ledgerMetadataVersion=version)
    theirs = JAVA_SIMPLE if version == 1 else JAVA_RICH
    ledger_id = (await java("create", **theirs))["ledger"]
    await java("append", ledger_id, count=20)

    reader = await python.open_ledger(
        ledger_id, password=theirs.get("password", b""), recover=True
    )  # rewrites it twice

    assert await payloads_of(reader) == patterns(20)
    assert (await java("info", ledger_id))["format"] == version


@pytest.mark.matrix("a bookie that answers nothing")
async def test_a_read_times_out_when_every_replica_stands_still(
    new_client: ClientFactory, real: RealCluster, wire: int
) -> None:
    python: BookKeeper = await new_client(
        real.metadata_uri, connections={"protocol_version": wire}, timeouts={"read_s": 0.5}
    )
    ledger_id = await written(python, 3, ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
    reader = await python.open_ledger(ledger_id, recover=True)
    bookie = real.bookie(reader.metadata.fragments[0].ensemble[0])
    bookie.signal(signal.SIGSTOP)
    try:
        with pytest.raises(RequestTimeout):
            await reader.read(1)
    finally:
        bookie.signal(signal.SIGCONT)
        await asyncio.to_thread(real.wait_registered, bookie.bookie_id)
