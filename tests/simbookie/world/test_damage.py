"""Copies rot and get lost wherever a bookie of the world has them, and the bookie does not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

import pytest

from simbookie.storage.base import CrashMode, LedgerStorage
from simbookie.storage.entry_logs.format import EntryLogDamaged
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.kinds import StoreKind
from simbookie.storage.memory import MemoryStorage, RecordLog
from simbookie.world.damage import alter_entries, lose_entries
from simbookie.world.files import FilesConfig, storage_in_files
from tests.simbookie.storage.stores import entry, outcome, read_by

Virtually = Callable[[Callable[[], Any]], None]
Story = Callable[[LedgerStorage], Coroutine[Any, Any, None]]

LEDGER, OTHER = 7, 8
#: What an entry of these tests has behind its header.
PAYLOAD = b"payload of forty bytes, more or less: 40"
#: What is flushed, what only memory and a journal have, and what was stored once more.
FLUSHED, FRESH, AGAIN = 0, 4, 5


@pytest.fixture(params=[None, *StoreKind], ids=lambda kind: "memory" if kind is None else kind.name.lower())
def storage(request: pytest.FixtureRequest) -> LedgerStorage:
    if request.param is None:
        return MemoryStorage(disk=RecordLog())
    return storage_in_files(request.param, FilesConfig(sync_s=0.0, flush_interval_s=1000.0), Random(1))


def body(entry_id: int, ledger_id: int = LEDGER) -> bytes:
    return entry(ledger_id, entry_id, PAYLOAD)


def flipped(entry_id: int, byte: int) -> bytes:
    altered = bytearray(body(entry_id))
    altered[byte] ^= 1
    return bytes(altered)


async def opened(storage: LedgerStorage) -> None:
    done = asyncio.get_running_loop().create_future()
    storage.open(lambda: done.set_result(None), lambda _: None)
    await done
    await asyncio.sleep(1)


async def stored(storage: LedgerStorage) -> None:
    """Ledger 7 has entries 0 to 5, of which 0 to 2 and a copy of 5 are flushed; ledger 8 has entry 0."""
    await opened(storage)
    for ledger_id in (LEDGER, OTHER):
        storage.set_master_key(ledger_id, b"key")
        storage.add_entry(ledger_id, 0, body(0, ledger_id), None, None)
    for entry_id in (1, 2, AGAIN):
        storage.add_entry(LEDGER, entry_id, body(entry_id), None, None)
    await asyncio.sleep(1)
    if isinstance(storage, JournaledStorage):
        assert await outcome(storage.store.flush) is None
    for entry_id in (3, FRESH, AGAIN):
        storage.add_entry(LEDGER, entry_id, body(entry_id), None, None)
    await asyncio.sleep(1)


def read(storage: LedgerStorage, entry_id: int, ledger_id: int = LEDGER) -> Any:
    return read_by(partial(storage.read_entry, ledger_id, entry_id))


async def others(storage: LedgerStorage) -> list[bytes]:
    """What is left alone."""
    return [*[await read(storage, entry_id) for entry_id in (1, 2, 3)], await read(storage, 0, OTHER)]


GOOD = [*(body(entry_id) for entry_id in (1, 2, 3)), body(0, OTHER)]


@pytest.mark.parametrize("entry_id", [FLUSHED, FRESH, AGAIN])
@pytest.mark.parametrize("mode", [None, *CrashMode])
@pytest.mark.parametrize("byte", [40, 16, 40 + 32 + len(PAYLOAD)])
def test_every_copy_of_an_entry_is_altered_for_good(
    virtually: Virtually, storage: LedgerStorage, entry_id: int, mode: CrashMode | None, byte: int
) -> None:
    """Bytes are counted round and round."""

    async def story() -> None:
        await stored(storage)
        assert await read(storage, entry_id) == body(entry_id)
        alter_entries(storage, LEDGER, [entry_id], byte)
        altered = flipped(entry_id, byte % len(body(0)))
        assert await read(storage, entry_id) == altered
        if mode is not None:
            storage.crash(mode)
            await opened(storage)
            assert await read(storage, entry_id) == altered
        assert await others(storage) == GOOD
        assert storage.entry_ids(LEDGER) == [0, 1, 2, 3, FRESH, AGAIN]

    virtually(story)


def test_what_is_altered_once_more_is_as_it_was(virtually: Virtually, storage: LedgerStorage) -> None:
    async def story() -> None:
        await stored(storage)
        for _ in range(2):
            alter_entries(storage, LEDGER, range(6), 50)
        assert [await read(storage, entry_id) for entry_id in range(6)] == [body(entry_id) for entry_id in range(6)]

    virtually(story)


def test_a_bookie_with_files_notices_where_an_entry_says_which_one_it_is(
    virtually: Virtually, storage: LedgerStorage
) -> None:
    async def story() -> None:
        await stored(storage)
        alter_entries(storage, LEDGER, [FLUSHED], 15)
        found = await read(storage, FLUSHED)
        if isinstance(storage, MemoryStorage):
            assert found == flipped(FLUSHED, 15)
        else:
            assert isinstance(found, EntryLogDamaged)
            storage.crash(CrashMode.POWER_LOSS)
            await opened(storage)
            assert storage.ledger_ids() == [LEDGER, OTHER], "a journal that was altered would tell of another ledger"
        assert await others(storage) == GOOD

    virtually(story)


@pytest.mark.parametrize("entry_id", [FLUSHED, FRESH, AGAIN])
def test_an_entry_is_lost_wherever_it_is(virtually: Virtually, storage: LedgerStorage, entry_id: int) -> None:
    async def story() -> None:
        await stored(storage)
        assert storage.count_runs(LEDGER) >= 1  # what is known of runs has to be forgotten
        lose_entries(storage, LEDGER, [entry_id])
        assert await read(storage, entry_id) is None
        left = [number for number in range(6) if number != entry_id]
        assert storage.entry_ids(LEDGER) == left
        firsts, lasts = storage.entry_runs(LEDGER)
        assert [number for run in zip(firsts, lasts, strict=True) for number in range(run[0], run[1] + 1)] == left
        assert await read(storage, -1) == body(max(left))
        assert await others(storage) == GOOD
        if isinstance(storage, JournaledStorage):
            assert await outcome(storage.store.flush) is None
            assert await read(storage, entry_id) is None
        storage.add_entry(LEDGER, entry_id, body(entry_id), None, None)
        assert await read(storage, entry_id) == body(entry_id)

    virtually(story)


def test_what_a_journal_has_is_back_after_a_restart(virtually: Virtually, storage: LedgerStorage) -> None:
    async def story() -> None:
        await stored(storage)
        lose_entries(storage, LEDGER, [FRESH])
        storage.crash(CrashMode.PROCESS)
        await opened(storage)
        assert await read(storage, FRESH) == body(FRESH)

    virtually(story)
