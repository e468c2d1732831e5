"""Findings of docs/reference/interop.md that no other test shows: real bookies that do otherwise than expected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from bkclient.ledger import DigestType
from bkclient.wire import bookkeeper_pb2 as pb
from bkclient.wire.entry import EntryCodec
from bkclient.wire.framing import DEFAULT_MAX_FRAME_SIZE
from bkclient.wire.messages import (
    AddRequest,
    EntryListRequest,
    ReadLacRequest,
    Request,
    StartTlsRequest,
    WriteLacRequest,
)
from simbookie.zookeeper import ZooKeeperServer
from tests.bkclient.wire.conversation import add_of_size, content_of
from tests.interop.builds import Build
from tests.interop.real_bookie import RealCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

#: The storage that keeps an index in RocksDB, made as small as it gets.
SETTINGS = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "dbStorage_rocksDB_blockCacheSize": "16777216",
}
CODEC = EntryCodec(1, DigestType.CRC32C, b"")
KEY = CODEC.master_key


@pytest.fixture(scope="module")
def port(build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real bookie with the other kind of storage."""
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("rocks"), SETTINGS) as cluster:
        yield cluster.start(1).bookies[0].port


async def answer_to(port: int, *contents: bytes, within_s: float = 10.0) -> pb.Response | None:
    """The answer to the last of some frames, None if the bookie closed the connection; :class:`TimeoutError` without any."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer: pb.Response | None = None
    try:
        async with asyncio.timeout(within_s):
            for content in contents:
                writer.write(len(content).to_bytes(4, "big") + content)
                answer = None
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    answer = pb.Response.FromString(await reader.readexactly(size))
    finally:
        writer.close()
    return answer


def frames(*requests: Request) -> list[bytes]:
    return [content_of(request, 3, txn_id) for txn_id, request in enumerate(requests, 1)]


async def test_the_list_of_the_entries_of_a_ledger_it_has_is_never_told_by_this_storage(port: int) -> None:
    unknown = await answer_to(port, *frames(EntryListRequest(404)))
    assert unknown is not None
    assert unknown.status == pb.ENOLEDGER
    header = CODEC.encode_header(0, -1, 5, b"hello")
    add = AddRequest(1, 0, KEY, header, b"hello")
    added = await answer_to(port, *frames(add))
    assert added is not None
    assert added.status == pb.EOK

    with pytest.raises(TimeoutError):
        await answer_to(port, *frames(EntryListRequest(1)), within_s=3.0)


@pytest.mark.parametrize(("operation", "field"), [(1, "readResponse"), (2, "addResponse"), (7, "readLacResponse")])
async def test_a_request_without_its_message(port: int, build: Build, operation: int, field: str) -> None:
    header = pb.BKPacketHeader(version=pb.VERSION_THREE, operation=operation, txnId=7)  # type: ignore[arg-type]

    answer = await answer_to(port, pb.Request(header=header).SerializeToString())

    if build.version.startswith("4.17."):
        assert answer is not None
        assert getattr(answer, field).ledgerId == 0
    else:
        assert answer is None, "the connection is closed"


async def test_a_frame_of_exactly_the_default_limit_is_taken_and_one_byte_more_closes_the_connection(port: int) -> None:
    taken = await answer_to(port, *frames(add_of_size(3, DEFAULT_MAX_FRAME_SIZE)))
    assert taken is not None
    assert taken.status == pb.EOK

    assert await answer_to(port, *frames(add_of_size(3, DEFAULT_MAX_FRAME_SIZE + 1))) is None


async def test_a_refusal_of_tls_has_no_priority(port: int) -> None:
    request = pb.Request.FromString(frames(StartTlsRequest())[0])
    request.header.priority = 100

    answer = await answer_to(port, request.SerializeToString())

    assert answer is not None
    assert (answer.status, answer.header.version, answer.header.HasField("priority")) == (
        pb.EBADREQ,
        pb.VERSION_THREE,
        False,
    )


async def test_an_explicit_lac_is_filed_under_the_ledger_its_body_names(port: int) -> None:
    body = EntryCodec(901, DigestType.CRC32C, b"").encode_lac(3)
    wrote = await answer_to(port, *frames(WriteLacRequest(900, 3, KEY, body)))

    assert wrote is not None
    assert (wrote.status, wrote.writeLacResponse.ledgerId) == (pb.EOK, 900)
    asked = await answer_to(port, *frames(ReadLacRequest(900)))
    assert asked is not None
    assert asked.status == pb.ENOENTRY
    assert not asked.readLacResponse.HasField("lacBody")


async def test_an_explicit_lac_without_entries_is_an_io_error_that_carries_it(port: int) -> None:
    body = EntryCodec(902, DigestType.CRC32C, b"").encode_lac(3)

    answer = await answer_to(port, *frames(WriteLacRequest(902, 3, KEY, body), ReadLacRequest(902)))

    assert answer is not None
    assert (answer.status, answer.readLacResponse.lacBody) == (pb.EIO, body)
