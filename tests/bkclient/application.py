"""A small application on the public names, for the type checker: tests/bkclient/test_types_of_the_face.py runs mypy over it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import assert_type

import bkclient
from bkclient import (
    AdvancedLedgerWriter,
    AppendFuture,
    BookieSets,
    BookKeeper,
    ClientConfig,
    DigestType,
    Entries,
    Entry,
    LedgerMetadata,
    LedgerReader,
    LedgerTail,
    LedgerWriter,
)
from bkclient.errors import BookKeeperError, Code, LedgerFenced
from bkclient.observability.memory_stats import MemoryStats
from bkclient.repair import LedgerReport, RepairAdmin


async def write(bk: BookKeeper) -> int:
    async with await bk.create_ledger(digest_type=DigestType.CRC32C) as writer:
        assert_type(writer, LedgerWriter)
        assert_type(await writer.append(b"first"), int)
        future = await writer.submit(memoryview(b"second"))
        assert_type(future, AppendFuture)
        assert_type(await future, int)
        await writer.flush()
    advanced = await bk.create_advanced_ledger()
    assert_type(advanced, AdvancedLedgerWriter)
    assert_type(await (await advanced.submit(0, b"zero")), int)
    await advanced.aclose()
    return writer.ledger_id


async def read(bk: BookKeeper, ledger_id: int) -> None:
    reader = await bk.open_ledger(ledger_id, recover=True)
    assert_type(reader, LedgerReader)
    assert_type(reader.metadata, LedgerMetadata)
    assert_type(await reader.read(0, unconfirmed=True), Entry)
    assert_type(await reader.read_entries(0, 1), Entries)
    assert_type(reader.read_range(0, 1), AsyncIterator[Entry])
    async for entry in reader:
        assert_type(entry.payload, bytes)
        assert_type(entry.ledger_length, int)
    async with reader.tail() as tail:
        assert_type(tail, LedgerTail)
        async for entry in tail:
            assert_type(entry, Entry)
    await reader.aclose()


async def main(uri: str) -> None:
    async with bkclient.connect(uri, config=ClientConfig(), stats=MemoryStats()) as bk:
        assert_type(bk, BookKeeper)
        try:
            await read(bk, await write(bk))
        except LedgerFenced as error:
            assert_type(error.ledger_id, int | None)
        except BookKeeperError as error:
            assert_type(error.code, Code)
        assert_type(await bk.bookies(), BookieSets)
        async for ledger_id in bk.list_ledgers():
            assert_type(await RepairAdmin(bk).check_ledger(ledger_id), LedgerReport)
    held = await bkclient.connect(uri)
    assert_type(held, BookKeeper)
    await held.aclose()
