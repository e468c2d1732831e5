"""Both languages on one ledger, stored by Apache BookKeeper's own bookies."""

from __future__ import annotations

import asyncio

import pytest

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError, LedgerClosed, LedgerFenced, NoSuchLedger
from bkclient.ledger import DigestType
from tests.interop.conftest import Note
from tests.interop.java_peer import JavaError, JavaPeer, pattern, sha256_of
from tests.interop.test_python_client import payloads_of, written

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

#: The Java client's names of the digests.
JAVA_DIGESTS = {
    DigestType.CRC32: "CRC32",
    DigestType.HMAC: "MAC",
    DigestType.CRC32C: "CRC32C",
    DigestType.DUMMY: "DUMMY",
}
FENCED, CLOSED = -101, -11
PASSWORD = b"secret"
#: Of entries whose lengths are to be counted: none is empty, so each of them counts.
SIZE = 40


def patterns(count: int, size: int = -1) -> list[bytes]:
    return [pattern(entry_id, size) for entry_id in range(count)]


@pytest.mark.matrix("Python writes, Java reads")
@pytest.mark.parametrize("password", [b"", b"secret"], ids=["open", "password"])
@pytest.mark.parametrize("digest_type", list(DigestType), ids=lambda digest: digest.name.lower())
async def test_java_reads_what_python_wrote(
    python: BookKeeper, java: JavaPeer, digest_type: DigestType, password: bytes
) -> None:
    ledger_id = await written(python, 60, digest_type=digest_type, password=password)

    opened = await java("open", ledger_id, digest=JAVA_DIGESTS[digest_type], password=password)

    assert (opened["lac"], opened["closed"]) == (59, True)
    assert opened["length"] == sum(map(len, patterns(60)))
    assert await java.payloads(ledger_id) == patterns(60)


@pytest.mark.matrix("Java writes, Python reads")
@pytest.mark.parametrize("password", [b"", b"secret"], ids=["open", "password"])
@pytest.mark.parametrize("digest_type", list(DigestType), ids=lambda digest: digest.name.lower())
async def test_python_reads_what_java_wrote(
    python: BookKeeper, java: JavaPeer, digest_type: DigestType, password: bytes
) -> None:
    custom = {"from": b"java"}
    ledger_id = (await java("create", digest=JAVA_DIGESTS[digest_type], password=password, custom=custom))["ledger"]
    await java("append", ledger_id, count=60)
    await java("close", ledger_id)

    reader = await python.open_ledger(ledger_id, password=password, recover=True)

    assert reader.metadata.digest_type is digest_type
    assert dict(reader.metadata.custom_metadata) == custom
    assert await payloads_of(reader) == patterns(60)
    assert reader.length == sum(map(len, patterns(60)))


#: One copy of each entry: no other bookie has it.
LONE_COPIES = [(3, 1, 1), (4, 1, 1)]


@pytest.mark.matrix("Python writes, Java reads")
@pytest.mark.parametrize("sizes", LONE_COPIES, ids=lambda sizes: "-".join(map(str, sizes)))
async def test_java_finds_each_entry_on_the_one_bookie_that_has_it(
    python: BookKeeper, java: JavaPeer, sizes: tuple[int, int, int]
) -> None:
    ensemble, write_quorum, ack_quorum = sizes
    quorums = {"ensemble_size": ensemble, "write_quorum_size": write_quorum, "ack_quorum_size": ack_quorum}
    ledger_id = await written(python, 60, **quorums)

    await java("open", ledger_id)

    assert await java.payloads(ledger_id) == patterns(60)


@pytest.mark.matrix("Java writes, Python reads")
@pytest.mark.parametrize("sizes", LONE_COPIES, ids=lambda sizes: "-".join(map(str, sizes)))
async def test_python_finds_each_entry_on_the_one_bookie_that_has_it(
    python: BookKeeper, java: JavaPeer, sizes: tuple[int, int, int]
) -> None:
    ensemble, write_quorum, ack_quorum = sizes
    created = await java("create", ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum)
    await java("append", created["ledger"], count=60)
    await java("close", created["ledger"])

    assert await payloads_of(await python.open_ledger(created["ledger"], recover=True)) == patterns(60)


@pytest.mark.matrix("Python's writer taken over by Java")
async def test_java_takes_over_from_python_in_mid_write(python: BookKeeper, java: JavaPeer) -> None:
    writer = await python.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=PASSWORD)
    acknowledged = 0
    error: BookKeeperError | None = None

    async def write() -> None:
        nonlocal acknowledged, error
        try:
            while True:
                await writer.append(pattern(acknowledged, SIZE))
                acknowledged += 1
        except (LedgerFenced, LedgerClosed) as raised:
            error = raised

    writing = asyncio.create_task(write())
    while acknowledged < 50:  # noqa: ASYNC110 - the writer is the clock
        await asyncio.sleep(0.01)
    opened = await java("open", writer.ledger_id, password=PASSWORD)
    await writing

    assert error is not None
    assert opened["lac"] >= acknowledged - 1
    assert opened["length"] == sum(map(len, patterns(opened["lac"] + 1, SIZE)))
    assert await java.payloads(writer.ledger_id) == patterns(opened["lac"] + 1, SIZE)
    reader = await python.open_ledger(writer.ledger_id, password=PASSWORD, recover=True)
    assert await payloads_of(reader) == patterns(opened["lac"] + 1, SIZE)


@pytest.mark.matrix("Java's writer taken over by Python")
async def test_python_takes_over_from_java_in_mid_write(python: BookKeeper, java: JavaPeer) -> None:
    ledger_id = (await java("create", ensemble=3, write_quorum=3, ack_quorum=2, password=PASSWORD))["ledger"]
    await java("append", ledger_id, count=50, size=SIZE)
    appending = asyncio.create_task(java("append", ledger_id, count=100_000, pause_ms=1, size=SIZE))
    await asyncio.sleep(0.2)

    reader = await python.open_ledger(ledger_id, password=PASSWORD, recover=True)

    with pytest.raises(JavaError) as fenced:
        await appending
    assert fenced.value.code in (FENCED, CLOSED)
    assert reader.last_add_confirmed >= 49
    assert reader.length == sum(map(len, patterns(reader.last_add_confirmed + 1, SIZE)))
    assert await payloads_of(reader) == patterns(reader.last_add_confirmed + 1, SIZE)
    opened = await java("open", ledger_id, password=PASSWORD)
    assert opened["lac"] == reader.last_add_confirmed


@pytest.mark.matrix("Python's writer taken over by Java")
async def test_java_recovers_what_an_idle_python_writer_left(python: BookKeeper, java: JavaPeer) -> None:
    # A writer that is fenced while it writes may close the ledger itself; this one says nothing more.
    writer = await python.create_ledger(password=PASSWORD)
    for payload in patterns(20, SIZE):
        await writer.append(payload)

    opened = await java("open", writer.ledger_id, password=PASSWORD)

    assert (opened["lac"], opened["length"]) == (19, 20 * SIZE)
    assert await java.payloads(writer.ledger_id) == patterns(20, SIZE)
    with pytest.raises(LedgerFenced):
        await writer.append(b"too late")


@pytest.mark.matrix("Java's writer taken over by Python")
async def test_python_recovers_what_an_idle_java_writer_left(python: BookKeeper, java: JavaPeer) -> None:
    ledger_id = (await java("create", password=PASSWORD))["ledger"]
    await java("append", ledger_id, count=20, size=SIZE)

    reader = await python.open_ledger(ledger_id, password=PASSWORD, recover=True)

    assert (reader.last_add_confirmed, reader.length) == (19, 20 * SIZE)
    assert await payloads_of(reader) == patterns(20, SIZE)
    with pytest.raises(JavaError) as fenced:
        await java("append", ledger_id, count=1)
    assert fenced.value.code in (FENCED, CLOSED)


@pytest.mark.matrix("both recover at once")
@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2), (4, 2, 1)], ids=lambda sizes: "-".join(map(str, sizes)))
async def test_both_recover_at_once_and_agree(python: BookKeeper, java: JavaPeer, sizes: tuple[int, int, int]) -> None:
    ensemble, write_quorum, ack_quorum = sizes
    created = await java("create", ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum)
    await java("append", created["ledger"], count=120)

    # Either may lose the race to close; then it asks again, as the Java client's own test does.
    async def java_opens() -> int:
        for _ in range(10):
            try:
                return int((await java("open", created["ledger"]))["lac"])
            except JavaError as error:
                assert error.code in (-10, -17), error  # noqa: PT017 - only these are answers to try again after
        raise AssertionError("java could not open the ledger")

    reader, java_lac = await asyncio.gather(python.open_ledger(created["ledger"], recover=True), java_opens())

    assert reader.last_add_confirmed == java_lac == 119
    assert await payloads_of(reader) == await java.payloads(created["ledger"]) == patterns(120)


@pytest.mark.matrix("Java tails Python's writer")
async def test_java_tails_a_ledger_that_python_writes(
    python: BookKeeper, java: JavaPeer, note: Note, wire: int
) -> None:
    if wire == 2:
        note("no long polls in Java's version 2")
        writer = await python.create_ledger()
        await writer.append(pattern(0))
        await java("open", writer.ledger_id, recover=False)
        assert "entry" not in await java("poll", writer.ledger_id, entry=0, timeout_ms=200)
        return
    writer = await python.create_ledger()
    await writer.append(pattern(0))
    await java("open", writer.ledger_id, recover=False)
    tail = asyncio.create_task(java("tail", writer.ledger_id))
    for entry_id in range(1, 100):
        await writer.append(pattern(entry_id))
    await writer.close()

    read = await tail

    assert (read["entries"], read["sha256"]) == (100, sha256_of(patterns(100)))


@pytest.mark.matrix("deleted by the other")
async def test_each_notices_what_the_other_deleted(python: BookKeeper, java: JavaPeer) -> None:
    ours = await written(python, 3)
    theirs = (await java("create"))["ledger"]
    await java("delete", ours)
    await python.delete_ledger(theirs)

    with pytest.raises(NoSuchLedger):
        await python.open_ledger(ours, recover=True)
    with pytest.raises(JavaError) as gone:
        await java("open", theirs)
    assert gone.value.code == -25


@pytest.mark.matrix("listed by the other")
async def test_each_lists_what_the_other_created(python: BookKeeper, java: JavaPeer) -> None:
    ours = await written(python, 1)
    theirs = (await java("create"))["ledger"]

    listed_by_java = set((await java("list"))["ledgers"])
    listed_by_python = {ledger_id async for ledger_id in python.list_ledgers()}

    assert {ours, theirs} <= listed_by_java
    assert listed_by_java == listed_by_python


@pytest.mark.matrix("metadata read by the other")
async def test_java_shows_python_s_metadata_as_python_does(python: BookKeeper, java: JavaPeer) -> None:
    quorums = {"ensemble_size": 4, "write_quorum_size": 3, "ack_quorum_size": 2}
    ledger_id = await written(python, 7, custom_metadata={"k": b"v"}, **quorums)

    info = await java("info", ledger_id)
    metadata = await python.ledger_metadata(ledger_id)

    assert info["state"] == "CLOSED"
    assert (info["last_entry"], info["length"]) == (metadata.last_entry_id, metadata.length)
    assert info["fragments"] == {str(f.first_entry_id): list(f.ensemble) for f in metadata.fragments}
    assert (info["ensemble"], info["write_quorum"], info["ack_quorum"]) == (4, 3, 2)
    assert (info["digest"], info["custom"]) == ("CRC32C", {"k": "dg=="})
