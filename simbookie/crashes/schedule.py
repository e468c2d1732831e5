"""What clients and a garbage collector do to a bookie in one life, drawn by chance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from bkclient.wire.messages import (
    LAST_ENTRY,
    AddRequest,
    ForceLedgerRequest,
    ReadRequest,
    Response,
    Status,
    WriteFlags,
    WriteLacRequest,
)
from simbookie.bookie import BookieState
from simbookie.crashes import after
from simbookie.crashes.questions import QUESTIONS
from simbookie.storage.base import CrashMode, StorageError
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.steps import CrashPoint

if TYPE_CHECKING:
    from simbookie.crashes.subject import Subject

__all__ = ["Operation", "Player", "draw_compaction", "draw_drops", "draw_operations", "draw_roll", "draw_stall"]

Operation = tuple[Any, ...]
"""The name of a method of :class:`Player`, and its arguments."""

_HEADER: Final = Struct(">qqqq")
_SLOTS: Final = 4
_SIZES: Final = (0, 8, 100, 180, 400, 900)
_WAITS: Final = (0.0, 0.0005, 0.003, 0.05, 0.6)
_FAULTS: Final = (
    (DiskOperation.WRITE, DiskFaultKind.PARTIAL, "ledgers*.log"),
    (DiskOperation.WRITE, DiskFaultKind.ERROR, "ledgers*.idx"),
    (DiskOperation.SYNC, DiskFaultKind.ERROR, "ledgers*.log"),
    (DiskOperation.SYNC, DiskFaultKind.ERROR, "ledgers*.idx"),
    (DiskOperation.SYNC, DiskFaultKind.ERROR, "ledgers*lastMark*"),
    (DiskOperation.WRITE, DiskFaultKind.ERROR, "ledgers*lastMark*"),
    (DiskOperation.SYNC, DiskFaultKind.ERROR, "journal*"),
    (DiskOperation.CREATE, DiskFaultKind.FULL, "ledgers*"),
)
_RETRY_S: Final = 0.01


def draw_operations(rng: Random, *, has_faults: bool, is_read_only_test: bool = False) -> list[Operation]:
    """The operations of one life; ``is_read_only_test`` leaves out what would add something."""
    weights = {
        "add": 0 if is_read_only_test else 12,
        "add_again": 0 if is_read_only_test else 1,
        "fence": 2,
        "lac": 2,
        "read": 2,
        "read_last": 1,
        "force": 1,
        "wait": 6,
        "delete": 1,
        "collect": 3,
        "fault": 2 if has_faults else 0,
    }
    names = rng.choices(list(weights), list(weights.values()), k=rng.randrange(30))
    return [(name, *_arguments(name, rng)) for name in names]


def draw_stall(rng: Random, shortest_s: float = 0.01) -> Operation:
    """A sync of a journal takes long, and flushes gather behind it."""
    skip, seconds = rng.randrange(6), rng.choice((shortest_s, 0.05, 0.5))
    return "fault", DiskOperation.SYNC, DiskFaultKind.STALL, "journal*", skip, seconds


def draw_roll(rng: Random) -> list[Operation]:
    """A sync of a journal takes long, and meanwhile adds are flushed one by one, and fill a file or two."""
    operations = [draw_stall(rng, 0.02)]
    for _ in range(rng.choice((15, 30))):
        operations += [
            ("add", rng.randrange(_SLOTS), rng.choice(_SIZES[2:5]), "ordinary"),
            ("wait", rng.choice(_WAITS[:3])),
        ]
    return operations


def draw_compaction(rng: Random) -> list[Operation]:
    """The operations of a life in which there is something to compact: full logs, most of them of deleted ledgers."""
    operations: list[Operation] = []
    for _ in range(rng.randint(1, 3)):
        operations += [("add", rng.randrange(_SLOTS), rng.choice(_SIZES[2:]), "ordinary") for _ in range(12)]
        operations += [("wait", 0.6), *(("delete", slot, 0.0) for slot in range(_SLOTS) if rng.random() < 0.4)]
        operations += [("collect", True), ("wait", rng.choice(_WAITS)), ("wait", rng.choice(_WAITS))]
    return operations


def draw_drops(rng: Random) -> list[Operation]:
    """Ledgers that are deleted soon, one after the other, beside some that are kept."""
    operations: list[Operation] = []
    for _ in range(rng.randint(2, 6)):
        kept, *others = rng.sample(range(_SLOTS), 3)
        operations += [("add", kept, rng.choice(_SIZES[3:]), "ordinary") for _ in range(rng.randrange(6))]
        operations += [
            ("add", rng.choice(others), rng.choice(_SIZES[3:]), "ordinary") for _ in range(rng.randint(1, 5))
        ]
        operations += [("wait", 0.05), *(("delete", slot, 0.0) for slot in others)]
        operations += [("collect", True), ("wait", rng.choice(_WAITS))]
    return operations


def _arguments(name: str, rng: Random) -> tuple[Any, ...]:
    slot = rng.randrange(_SLOTS)
    if name == "add":
        return slot, rng.choice(_SIZES), rng.choice(("ordinary", "ordinary", "ordinary", "deferred", "recovery"))
    if name == "wait":
        return (rng.choice(_WAITS),)
    if name == "fault":
        return *rng.choice(_FAULTS), rng.randrange(3), rng.choice((0, 7, 100))
    if name == "collect":
        return (rng.random() < 0.5,)
    return slot, rng.random()


class Player:
    """Carries out operations on a subject that runs, and takes note of answers."""

    def __init__(self, subject: Subject, key: bytes) -> None:
        self._subject = subject
        self._promises = subject.promises
        self._key = key
        self._collecting: asyncio.Task[None] | None = None
        #: What this life took, acknowledged or not.
        self._stored: dict[tuple[int, int], bytes] = {}
        self._empty_disk: Callable[[], None] | None = None

    async def play(self, operations: list[Operation], *, is_alive: bool = True) -> None:
        """One after the other, as long as the bookie serves; without ``is_alive``, before it does."""
        for name, *arguments in operations:
            if is_alive and (self._subject.fatal is not None or self._subject.bookie.state is not BookieState.RUNNING):
                return
            await getattr(self, name)(*arguments)

    async def end(self) -> None:
        """Wait for what is under way, or give it up."""
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)

    def _ledger(self, slot: int) -> int:
        """The ledger that a slot writes to now: a new one after a fence, and after a deletion."""
        ledgers = [each for each in self._promises.ledgers if each % _SLOTS == slot and each not in self._fencing]
        if ledgers:
            return ledgers[-1]
        ledger_id = slot + _SLOTS * self._promises.next_ids[-1 - slot]
        self._promises.next_ids[-1 - slot] += 1
        self._promises.ledgers[ledger_id] = None
        return ledger_id

    @property
    def _fencing(self) -> dict[int, None]:
        return self._subject.fencing

    # ------------------------------------------------------------------------------------------------------- requests

    async def add(self, slot: int, size: int, kind: str) -> None:
        """A new entry."""
        ledger_id = self._ledger(slot)
        entry_id = self._promises.next_ids[ledger_id]
        self._promises.next_ids[ledger_id] += 1
        body = _HEADER.pack(ledger_id, entry_id, entry_id - 1, 0) + bytes([1 + entry_id % 200]) * size
        self._promises.sent[ledger_id, entry_id] = body
        await self._add(ledger_id, entry_id, body, kind)

    async def add_again(self, slot: int, share: float) -> None:
        """An entry that was sent before, as a recovery does."""
        ledger_id = self._ledger(slot)
        sent = [key for key in self._promises.sent if key[0] == ledger_id]
        if sent:
            key = sent[int(share * len(sent))]
            await self._add(*key, self._promises.sent[key], "recovery")

    async def add_other(self, slot: int, entry_id: int) -> None:
        """An entry that was sent before, with other bytes: two recoveries that found different copies."""
        ledger_id = self._ledger(slot)
        size = len(self._promises.sent[ledger_id, entry_id]) - _HEADER.size
        body = _HEADER.pack(ledger_id, entry_id, entry_id - 1, 0) + b"\xff" * size
        self._promises.sent[ledger_id, entry_id] = body
        await self._add(ledger_id, entry_id, body, "recovery")

    async def _add(self, ledger_id: int, entry_id: int, body: bytes, kind: str) -> None:
        loop, bookie, subject = asyncio.get_running_loop(), self._subject.bookie, self._subject
        is_recovery, is_deferred = kind == "recovery", kind == "deferred"
        is_soft = is_deferred or not (subject.settings.sync_data and subject.settings.write_data)
        key = (ledger_id, entry_id)
        if is_recovery:
            self._promises.ordinary.pop(key, None)
            self._promises.recovered[key] = None
            self._promises.resent[key] += 1
        statuses: list[Status] = []

        def respond(response: Response) -> None:
            statuses.append(response.status)
            subject.last_answer = response.status.name
            subject.note(key, response.status.name)
            if is_recovery:
                # One that could not be synced may be in the journal, torn.
                self._promises.resent[key] -= response.status not in (Status.TOO_MANY_REQUESTS, Status.IO_ERROR)
            if response.status is Status.OK and ledger_id in self._promises.ledgers:
                self._promises.added(key, body, is_recovery=is_recovery, is_soft=is_soft)
                subject.watch.lac_told(ledger_id)

        flags = int(WriteFlags.DEFERRED_SYNC) if is_deferred else 0
        request = AddRequest(
            ledger_id, entry_id, self._key, body[:32], body[32:], recovery=is_recovery, write_flags=flags
        )
        begun = loop.time()
        while bookie.state is BookieState.RUNNING:
            statuses.clear()
            bookie.submit(request, respond)
            if statuses != [Status.TOO_MANY_REQUESTS]:
                break
            if loop.time() - begun > 60:
                break
            await asyncio.sleep(_RETRY_S)
        if not statuses:
            self._stored[key] = body
        if not subject.has_failed_disk:
            subject.watch.add_waited(loop.time() - begun)

    async def fence(self, slot: int, _share: float) -> None:
        """A fencing read of the last entry; clients count a denial as fenced, too."""
        ledger_id = self._ledger(slot)
        self._fencing[ledger_id] = None

        def respond(response: Response) -> None:
            self._subject.note(ledger_id, "fence", response.status.name)
            if ledger_id in self._promises.ledgers and response.status in (
                Status.OK,
                Status.NO_ENTRY,
                Status.NO_LEDGER,
            ):
                self._promises.fences[ledger_id] = None

        request = ReadRequest(ledger_id, LAST_ENTRY, fence_key=self._key, high_priority=True)
        self._subject.bookie.submit(request, respond)

    async def lac(self, slot: int, _share: float) -> None:
        """An explicit LAC."""
        ledger_id = self._ledger(slot)
        lac = self._promises.lac_sent(ledger_id)

        def respond(response: Response) -> None:
            self._subject.note(ledger_id, "lac", response.status.name)
            if response.status is Status.OK:
                self._promises.lac_acknowledged(ledger_id, lac)

        packet = _HEADER.pack(ledger_id, lac, 0, 0)[:16]
        self._subject.bookie.submit(WriteLacRequest(ledger_id, lac, self._key, packet), respond)

    async def force(self, slot: int, _share: float) -> None:
        """Make durable what was acknowledged before."""
        ledger_id = self._ledger(slot)
        keys = [key for key in self._promises.soft if key[0] == ledger_id]

        def respond(response: Response) -> None:
            if response.status is Status.OK:
                self._promises.forced(keys)

        self._subject.bookie.submit(ForceLedgerRequest(ledger_id), respond)

    async def read(self, slot: int, share: float) -> None:
        """I12 and I14: what this life took is there, whether it was acknowledged or not."""
        ledger_id = self._ledger(slot)
        keys = [key for key in self._stored if key[0] == ledger_id]
        if keys:
            key = keys[int(share * len(keys))]
            found = await after.read_entry(self._subject.storage, *key)
            if found is None and self._is_there(key):
                self._subject.violated("I14", f"entry {key[1]} of ledger {ledger_id} is denied while the bookie runs")
            elif (
                isinstance(found, bytes)
                and found != self._stored[key]
                and self._is_there(key)
                and key not in self._promises.torn
            ):
                self._subject.violated("I12", f"entry {key[1]} of ledger {ledger_id} is another while the bookie runs")
            elif isinstance(found, StorageError) and not self._subject.has_failed_disk and self._is_there(key):
                self._subject.violated("I12", f"entry {key[1]} of ledger {ledger_id} cannot be read: {found}")

    async def read_last(self, slot: int, _share: float) -> None:
        """I14: the last entry is not below one that was acknowledged."""
        ledger_id = self._ledger(slot)
        last = max((key[1] for key in self._promises.entries if key[0] == ledger_id), default=-1)
        if last < 0 or self._subject.storage.ledger(ledger_id) is None:
            return
        found = await after.read_entry(self._subject.storage, ledger_id, LAST_ENTRY)
        if ledger_id not in self._promises.ledgers or isinstance(found, StorageError):
            return
        told = _HEADER.unpack_from(found)[1] if found is not None else -1
        if told < last:
            self._subject.violated("I14", f"the last entry of ledger {ledger_id} is said to be {told}, {last} is there")

    def _is_there(self, key: tuple[int, int]) -> bool:
        return key[0] in self._promises.ledgers

    # --------------------------------------------------------------------------------------------------- other events

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def arm(self, step: str, skips: int = 0) -> None:
        """From now on the bookie ends before this step, or before that of so many later."""
        self._subject.until, self._subject.skips = step, skips

    async def delete(self, slot: int, _share: float) -> None:
        """A client deletes the ledger."""
        ledger_id = self._ledger(slot)
        self._promises.delete(ledger_id)

    async def close(self, slot: int) -> None:
        """A client closes the ledger."""
        self._promises.closed[self._ledger(slot)] = None

    async def create_again(self, ledger_id: int) -> None:
        """A ledger that was deleted has metadata once more, and its entries count from now on."""
        self._promises.ledgers[ledger_id] = None
        self._stored = {key: body for key, body in self._stored.items() if key[0] != ledger_id}

    async def collect(self, is_forced: bool) -> None:  # noqa: FBT001  drawn
        """A run of the garbage collector, beside what follows."""
        collector = self._subject.collector
        assert collector is not None
        if self._collecting is not None and not self._collecting.done():
            return

        async def run() -> None:
            try:
                await collector.run_once(is_forced=is_forced)
            except CrashPoint as reached:
                point = reached
            else:
                self._subject.watch.collected(asyncio.get_running_loop().time())
                return
            asyncio.get_running_loop().call_soon(_raise, point)

        self._collecting = asyncio.create_task(run())

    async def collect_when_due(self) -> None:
        """From now on the garbage collector runs at its intervals."""
        assert self._subject.collector is not None
        self._collecting = asyncio.create_task(self._subject.collector.run())

    async def fill_disk(self, used: int, left: int) -> None:
        """Something else takes so many bytes of the disk, and so many are left, until the next :meth:`empty_disk`."""
        disk = self._subject.disk
        file = disk.create("other")
        file.write(0, bytes(used))
        file.close()
        self._empty_disk = disk.fill(left)

    async def empty_disk(self) -> None:
        """There is room again."""
        assert self._empty_disk is not None, "it was filled"
        self._empty_disk()
        self._subject.disk.remove("other")

    async def ask(self, question: str, *about: Any) -> None:
        """Have one of the :data:`~simbookie.crashes.questions.QUESTIONS` answered."""
        self._subject.answers.append(await QUESTIONS[question](self._subject, *about))

    async def fault(self, operation: DiskOperation, kind: DiskFaultKind, path: str, skip: int, amount: int) -> None:
        """The disk fails one operation soon."""
        self._subject.has_failed_disk = True
        if operation is DiskOperation.SYNC and path.startswith("journal"):
            # The page cache has what the device has not, and nobody could know that in the next life.
            self._subject.mode, self._subject.must_lose_power = CrashMode.POWER_LOSS, True
        self._subject.disk.faults.plant(DiskFault(operation, kind, path, skip=skip, amount=amount))


def _raise(error: Exception) -> None:
    raise error
