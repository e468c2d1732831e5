"""Ledgers to read: numbered entries, written one by one, by the client that reads them."""

from __future__ import annotations

from bkclient._client.reading.reader import LedgerReader
from bkclient._client.writing.writer import LedgerWriter
from bkclient.config import ClientConfig, ConnectionSettings
from tests.bkclient.fakes import FakeCluster, writer_of
from tests.settling import settled

__all__ = ["BOTH_VERSIONS", "reader_of", "tail_of", "written"]

BOTH_VERSIONS = [
    ClientConfig(connections=ConnectionSettings(protocol_version=2)),
    ClientConfig(connections=ConnectionSettings(protocol_version=3)),
]


async def written(
    where: FakeCluster, entries: int, sizes: tuple[int, int, int] = (3, 3, 2), *, form: bytes = b"%d"
) -> LedgerWriter:
    """A writer that has appended its entries, of the payloads 0, 1, 2, ... in a ``form``, and all bookies have them."""
    writer = await writer_of(where, sizes)
    for entry_id in range(entries):
        await writer.append(form % entry_id)
    await settled()
    return writer


async def reader_of(
    where: FakeCluster, entries: int = 1, sizes: tuple[int, int, int] = (3, 3, 2), *, form: bytes = b"%d"
) -> LedgerReader:
    """A reader of a closed ledger of such entries; what was sent so far is forgotten."""
    async with await written(where, entries, sizes, form=form) as writer:
        pass
    reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
    where.sent.clear()
    return reader


async def tail_of(where: FakeCluster, writer: LedgerWriter) -> LedgerReader:
    """A reader of the ledger as far as it is confirmed, which does not disturb the writer."""
    return await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
