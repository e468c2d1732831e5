"""What is looked at when a bookie is dead, and when it has been started again.

Disks are looked at through copies: what a power loss would leave, what a store has without its journals, what a second replay
brings. The bookie never notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from bkclient.wire.messages import AddRequest, Response, Status
from simbookie.crashes.making import journal_folders, ledger_folders, storage_on, store_on
from simbookie.crashes.model import KEY
from simbookie.storage.base import CrashMode, StorageError
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.entry_logs.format import log_id_of, log_ids, log_name
from simbookie.storage.folders import Folder
from simbookie.storage.journal.mark import LogMark, mark_name, read_mark
from simbookie.storage.journal.reader import JournalScan
from simbookie.storage.journal.records import (
    JournalFormatError,
    JournalRecord,
    JournalRecordKind,
    file_name,
    parse_body,
)
from simbookie.storage.journal.replay import JournalReplay, file_ids
from simbookie.storage.known import PACKET_BYTES_MIN, lac_of_packet
from simbookie.storage.ledger_store import Checkpoint, LedgerStore

if TYPE_CHECKING:
    from simbookie.crashes.subject import Subject

__all__ = [
    "State",
    "before_start",
    "damage_is_told",
    "journal_order",
    "locations_lead_to_entries",
    "logs_durably_in_use",
    "marks_are_durable",
    "marks_cover_nothing_volatile",
    "marks_stand",
    "promises_kept",
    "read_entry",
    "replay_is_idempotent",
    "state_after_start",
]

_IDS: Final = Struct(">qq")
#: An entry id that no run reaches.
_BEYOND: Final = 5_000

State = dict[int, tuple[bytes | None, bool, bytes | None, tuple[tuple[int, bytes | str], ...]]]
"""By ledger: key, whether fenced, explicit LAC, and entries or the names of errors."""


class _NoOwner:
    """Owns a store that is only looked into."""

    def take_checkpoint(self) -> Checkpoint:
        return ()

    def request_checkpoint(self, checkpoint: Checkpoint) -> None:
        pass

    def room_was_made(self) -> None:
        pass

    def flush_failed(self, error: StorageError) -> None:
        pass


def _durable(disk: SimulatedDisk) -> SimulatedDisk:
    """What a power loss leaves for certain."""
    copy = disk.copy()
    copy.crash(CrashMode.POWER_LOSS)
    return copy


def _marks(subject: Subject, disk: SimulatedDisk) -> list[LogMark]:
    count = subject.settings.journals
    return [read_mark(ledger_folders(subject.settings, disk), mark_name(index, count)) for index in range(count)]


def _replayed(subject: Subject, disk: SimulatedDisk, marks: list[LogMark]) -> list[JournalRecord]:
    """What a start would replay; what is before a damage, if there is any."""
    records: list[JournalRecord] = []
    for folder, mark in zip(journal_folders(subject.settings, disk), marks, strict=True):
        try:
            records += list(JournalReplay(folder, mark, skip_invalid=True))
        except StorageError:
            continue
    return records


async def read_entry(store: Any, ledger_id: int, entry_id: int) -> bytes | StorageError | None:
    """What a read brings: the entry, None for its absence, or why that cannot be told."""
    future = asyncio.get_running_loop().create_future()

    def on_read(_token: object, body: bytes | None, error: StorageError | None) -> None:
        future.set_result(error if error is not None else body)

    store.read_entry(ledger_id, entry_id, on_read, None)
    found: bytes | StorageError | None = await future
    return found


# --------------------------------------------------------------------------------------------------- at the moment of death


def marks_are_durable(subject: Subject) -> None:
    """I5: up to the mark of a journal, its file is durable; and I4: so is a mark that counts as persisted."""
    storage = subject.storage
    durable = _durable(subject.disk)
    for journal in storage.journals if subject.settings.sync_data else ():
        name, mark = file_name(journal.mark.file_id), journal.mark
        if mark.file_id == 0 or not journal.folder.exists(name):
            continue
        live = _content(journal.folder, name, mark.offset)
        kept = Folder(durable, journal.folder.path)
        if not kept.exists(name) or _content(kept, name, mark.offset) != live:
            subject.violated("I5", f"the mark {tuple(mark)} is ahead of what is durable of {name}")
    for found, persisted in zip(_marks(subject, durable), subject.persisted, strict=False):
        if found < LogMark(*persisted):
            subject.violated("I4", f"the mark {persisted} is not durable, {tuple(found)} is")


def _content(folder: Folder, name: str, size: int) -> bytes:
    file = folder.open(name)
    data = file.read_now(0, size)
    file.close()
    return data.ljust(size, b"\0")


def logs_durably_in_use(subject: Subject) -> set[tuple[int, int]]:
    """Logs that durable locations of ledgers that exist lead to, where no journal would bring the entry again.

    With each is the part of the store that it is of.
    """
    durable = _durable(subject.disk)
    replayed = {(record.ledger_id, record.entry_id) for record in _replayed(subject, durable, _marks(subject, durable))}
    store = store_on(subject.settings, durable)
    store.open(_NoOwner())
    used: set[tuple[int, int]] = set()
    alive = subject.storage.store.collected
    for ledger_id in store.ledger_ids():
        if not any(part.has_ledger(ledger_id) for part in alive):
            continue
        for entry_id in store.entry_ids(ledger_id):
            key = (ledger_id, entry_id)
            if key not in replayed and key in subject.promises.entries:
                for number, part in enumerate(store.collected):
                    used.update((number, log_id_of(location)) for location in part.places(*key))
    return used


# ------------------------------------------------------------------------------------------------------ before a start


async def before_start(subject: Subject) -> None:
    """Everything that the disk of a dead bookie can be asked."""
    marks_stand(subject)
    subject.persisted = [(mark.file_id, mark.offset) for mark in _marks(subject, _durable(subject.disk))]
    journal_order(subject)
    await marks_cover_nothing_volatile(subject)


def marks_stand(subject: Subject) -> None:
    """I4: the marks are where they were, or further, and their files are there."""
    marks = _marks(subject, subject.disk)
    for found, persisted in zip(marks, subject.persisted, strict=False):
        if found < LogMark(*persisted):
            subject.violated("I4", f"the mark went back from {persisted} to {tuple(found)}")
    for folder, mark in zip(journal_folders(subject.settings, subject.disk), marks, strict=True):
        if mark.file_id > 0 and not folder.exists(file_name(mark.file_id)):
            subject.violated("I4", f"the mark {tuple(mark)} names a file that is not there")


def journal_order(subject: Subject) -> None:
    """I6: no ordinary add that was acknowledged is behind a fence."""
    for folder in journal_folders(subject.settings, subject.disk):
        fenced: set[int] = set()
        for record in _all_records(folder):
            if record.kind is JournalRecordKind.FENCE:
                fenced.add(record.ledger_id)
            elif not any(record.content[8:32]):
                continue  # what a kill left of a record; nobody sends zeros
            elif record.ledger_id in fenced and (record.ledger_id, record.entry_id) in subject.promises.ordinary:
                subject.violated("I6", f"entry {record.entry_id} of ledger {record.ledger_id} is behind its fence")


def _all_records(folder: Folder) -> Iterator[JournalRecord]:
    for file_id in file_ids(folder):
        file = folder.open(file_name(file_id))
        try:
            scan = JournalScan(file)
            for _, body in scan:
                yield parse_body(body, scan.version)
        except JournalFormatError:
            continue  # damaged, which its start will tell
        finally:
            file.close()


async def marks_cover_nothing_volatile(subject: Subject) -> None:
    """I3: what the journals do not bring again is in the store."""
    disk = subject.disk.copy()
    replayed = _replayed(subject, disk, _marks(subject, disk))
    entries = {(record.ledger_id, record.entry_id) for record in replayed}
    fences = {record.ledger_id for record in replayed if record.kind is JournalRecordKind.FENCE}
    store = store_on(subject.settings, disk)
    store.open(_NoOwner())
    for ledger_id, entry_id in subject.promises.entries:
        if (ledger_id, entry_id) in entries:
            continue
        found = await read_entry(store, ledger_id, entry_id) if store.ledger(ledger_id) is not None else None
        if not subject.promises.is_kept((ledger_id, entry_id), found):
            subject.violated("I3", f"entry {entry_id} of ledger {ledger_id} is in no journal, and not in the store")
    for ledger_id in subject.promises.fences:
        if ledger_id not in fences and not _is_fenced(store, ledger_id):
            subject.violated("I3", f"the fence of ledger {ledger_id} is in no journal, and not in the store")


def _is_fenced(store: LedgerStore, ledger_id: int) -> bool:
    info = store.ledger(ledger_id)
    return info is not None and info.fenced


# ------------------------------------------------------------------------------------------------------- after a start


async def promises_kept(subject: Subject) -> None:
    """I1, I2 and I19: everything acknowledged is there; also I9."""
    storage, promises = subject.storage, subject.promises
    for ledger_id, entry_id in promises.entries:
        found = await read_entry(storage, ledger_id, entry_id) if storage.ledger(ledger_id) is not None else None
        if not promises.is_kept((ledger_id, entry_id), found):
            subject.violated(
                "I1", f"entry {entry_id} of ledger {ledger_id} is not what was acknowledged: {_shown(found)}"
            )
    for ledger_id, lacs in promises.lacs.items():
        if lacs[0] >= 0:
            packet = storage.explicit_lac(ledger_id) if storage.ledger(ledger_id) is not None else None
            if packet is None or len(packet) < PACKET_BYTES_MIN or lac_of_packet(packet) not in lacs:
                subject.violated("I1", f"the explicit LAC {lacs[0]} of ledger {ledger_id} is gone")
    for ledger_id in list(promises.fences):
        if not await _refuses(subject, ledger_id):
            subject.violated("I2", f"ledger {ledger_id} is not fenced any more")
            promises.fences.pop(ledger_id)
    for ledger_id in sorted({ledger_id for ledger_id, _ in promises.entries} | promises.fences.keys()):
        info = storage.ledger(ledger_id)
        if info is not None and info.master_key != KEY:
            subject.violated("I19", f"ledger {ledger_id} has the key {info.master_key!r}")
    await locations_lead_to_entries(subject)


def _shown(found: object) -> str:
    if found is None:
        return "there is none"
    return f"{type(found).__name__}: {found}" if isinstance(found, StorageError) else "another body"


async def _refuses(subject: Subject, ledger_id: int) -> bool:
    """Whether an ordinary add is refused for the fence, by a bookie that may be read-only for lack of space."""
    body = _IDS.pack(ledger_id, _BEYOND) + _IDS.pack(-1, 0)
    answer = asyncio.get_running_loop().create_future()

    def respond(response: Response) -> None:
        if not answer.done():
            answer.set_result(response.status)

    subject.bookie.submit(AddRequest(ledger_id, _BEYOND, KEY, body, b""), respond)
    return await answer is Status.FENCED


async def locations_lead_to_entries(subject: Subject) -> None:
    """I9: whatever is stored is of the ids it is stored under, or an error if nobody was promised it."""
    storage, promises = subject.storage, subject.promises
    for ledger_id in storage.ledger_ids():
        if ledger_id not in promises.ledgers:
            continue
        for entry_id in storage.entry_ids(ledger_id):
            key = (ledger_id, entry_id)
            if key in promises.entries:
                continue
            found = await read_entry(storage, *key)
            if isinstance(found, bytes) and _IDS.unpack_from(found) != key:
                subject.violated(
                    "I9", f"entry {entry_id} of ledger {ledger_id} is another one: {_IDS.unpack_from(found)}"
                )


async def replay_is_idempotent(subject: Subject) -> None:
    """I7: on a copy of the disk, one start and two starts make the same state."""
    disk = subject.disk.copy()
    first = await state_after_start(subject, disk)
    second = await state_after_start(subject, disk)
    if first is not None and second is not None:
        one, two = _promised(subject, first), _promised(subject, second)
        differ = sorted(each for each in one.keys() | two.keys() if one.get(each) != two.get(each))
        if differ:
            subject.violated("I7", f"a second replay changed ledgers {differ}")


def _promised(subject: Subject, state: State) -> State:
    """Without what was not acknowledged, which may be torn, or lead nowhere."""
    promised = subject.promises.entries
    ledgers = {ledger_id for ledger_id, _ in promised} | subject.promises.fences.keys()
    return {
        ledger_id: (key, fenced, lac, tuple(entry for entry in entries if (ledger_id, entry[0]) in promised))
        for ledger_id, (key, fenced, lac, entries) in state.items()
        if ledger_id in ledgers
    }


async def state_after_start(subject: Subject, disk: SimulatedDisk) -> State | None:
    """By ledger: key, fence, explicit LAC, and entries; ``None`` if a bookie does not start on the disk."""
    storage = storage_on(subject.settings, disk)
    opened = asyncio.get_running_loop().create_future()
    try:
        storage.open(partial(opened.set_result, None), lambda _: None)
    except StorageError:
        return None  # told elsewhere
    await opened
    state: State = {}
    for ledger_id in storage.ledger_ids():
        info = storage.ledger(ledger_id)
        assert info is not None
        entries: list[tuple[int, bytes | str]] = []
        for entry_id in storage.entry_ids(ledger_id):
            found = await read_entry(storage, ledger_id, entry_id)
            entries.append((entry_id, found if isinstance(found, bytes) else type(found).__name__))
        state[ledger_id] = (info.master_key, info.fenced, storage.explicit_lac(ledger_id), tuple(entries))
    storage.crash(CrashMode.PROCESS)
    return state


async def damage_is_told(subject: Subject, rng: Random) -> None:
    """I14: on a copy of the disk one entry log is cut or removed, and no entry is denied for that."""
    disk = subject.disk.copy()
    folders = ledger_folders(subject.settings, disk)
    logs = [(log_id, number) for number, each in enumerate(folders) for log_id in log_ids(each.names())]
    if not logs:
        return
    log_id, number = rng.choice(sorted(logs))
    folder, name = folders[number], log_name(log_id)
    if rng.random() < 0.5:
        folder.remove(name)
    else:
        file = folder.open(name)
        file.truncate(rng.randrange(file.size + 1))
        file.close()
    replayed = {(each.ledger_id, each.entry_id) for each in _replayed(subject, disk, _marks(subject, disk))}
    store = store_on(subject.settings, disk)
    store.open(_NoOwner())
    for ledger_id, entry_id in subject.promises.entries:
        if (ledger_id, entry_id) in replayed or store.ledger(ledger_id) is None:
            continue
        found = await read_entry(store, ledger_id, entry_id)
        if not subject.promises.is_kept((ledger_id, entry_id), found) and not isinstance(found, StorageError):
            subject.violated("I14", f"entry {entry_id} of ledger {ledger_id} is denied for the damage of {name}")
