"""Parts that several scenarios share: predicates on requests, selections of bookies, programs of clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import anyio

from bkclient import BookKeeper, LedgerReader
from bkclient.errors import BookKeeperError
from bkclient.wire.messages import LAST_ENTRY, AddRequest, ReadRequest, Request
from scenarios.recording.client import each_entry
from scenarios.stage import LedgerSlot, Program, Stage

__all__ = [
    "Tail",
    "following",
    "is_add",
    "is_fence",
    "is_recovery_read",
    "is_write_back",
    "leave_tail",
    "pick_bookies",
    "pick_confirmers",
    "pick_deniers",
    "recovering",
    "write_sets",
]

#: Attempts of a client that recovers a ledger, and the pause between two attempts.
_ATTEMPTS: Final = 2
_PAUSE_S: Final = 1.0


# Requests ------------------------------------------------------------------------------------------------------------


def is_fence(request: Request) -> bool:
    """Whether it asks for the last entry, and to fence."""
    return isinstance(request, ReadRequest) and request.entry_id == LAST_ENTRY and request.fence_key is not None


def is_recovery_read(request: Request) -> bool:
    """Whether it asks for one entry, and to fence."""
    return isinstance(request, ReadRequest) and request.entry_id != LAST_ENTRY and request.fence_key is not None


def is_write_back(request: Request) -> bool:
    """Whether it brings an entry that a recovery found."""
    return isinstance(request, AddRequest) and request.recovery


def is_add(request: Request) -> bool:
    """Whether it brings an entry from the writer."""
    return isinstance(request, AddRequest) and not request.recovery


# Bookies -------------------------------------------------------------------------------------------------------------


def write_sets(stage: Stage, members: Sequence[str]) -> list[tuple[str, ...]]:
    """All write sets of an ensemble."""
    size = len(members)
    return [
        tuple(members[(first + i) % size] for i in range(stage.conditions.write_quorum_size)) for first in range(size)
    ]


def pick_bookies(rng: Random, members: Sequence[str], least: int = 1) -> list[str]:
    """At least ``least`` of them, in any order."""
    return rng.sample(members, rng.randint(min(least, len(members)), len(members)))


def pick_deniers(stage: Stage, rng: Random, members: Sequence[str]) -> list[str]:
    """So many that no entry can be ruled out without one of them: Qa of each write set."""
    return _pick_of_each(stage, rng, members, stage.conditions.ack_quorum_size)


def pick_confirmers(stage: Stage, rng: Random, members: Sequence[str]) -> list[str]:
    """Qw - Qa + 1 bookies of each write set: no entry can have an ack quorum without one of them."""
    conditions = stage.conditions
    return _pick_of_each(stage, rng, members, conditions.write_quorum_size - conditions.ack_quorum_size + 1)


def _pick_of_each(stage: Stage, rng: Random, members: Sequence[str], count: int) -> list[str]:
    chosen: list[str] = []
    sets = write_sets(stage, members)
    for candidate in rng.sample(members, len(members)):
        chosen.append(candidate)
        if all(sum(bookie in chosen for bookie in write_set) >= count for write_set in sets):
            break
    return chosen


# Clients -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tail:
    """A writer that crashes when entry ``acknowledged`` is acknowledged, with up to ``window`` of ``entries`` in flight."""

    entries: int
    window: int
    acknowledged: int

    @classmethod
    def draw(cls, rng: Random) -> Tail:
        """Any."""
        entries = rng.randint(2, 24)
        return cls(entries, rng.randint(1, 12), rng.randint(0, entries - 1))


async def leave_tail(stage: Stage, ledger: LedgerSlot, tail: Tail) -> None:
    """Let a writer write and crash. Its last adds may arrive at some bookies or at all; their answers are lost."""

    async def write(client: BookKeeper) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, tail.entries, window=tail.window)
        await anyio.sleep_forever()  # until it crashes

    writer = stage.client("writer", write)
    await stage.until_acknowledged(ledger, tail.acknowledged)
    writer.crash()


def recovering(ledger: LedgerSlot, *, attempts: int = _ATTEMPTS) -> Program:
    """A client that recovers the ledger and reads all of it, in at most ``attempts`` attempts."""

    async def recover(client: BookKeeper) -> None:
        ledger_id = await ledger.id()
        for attempt in range(attempts):
            if attempt:
                await anyio.sleep(_PAUSE_S)
            try:
                reader = await client.open_ledger(ledger_id, recover=True)
                async for _ in each_entry(reader):
                    pass
            except BookKeeperError:
                continue  # the next attempt, or the final clients
            return

    return recover


def following(ledger: LedgerSlot) -> Program:
    """A client that opens the ledger without recovery and reads what is confirmed until the ledger is closed."""

    async def follow(client: BookKeeper) -> None:
        reader = await _opened(client, await ledger.id())
        next_entry = 0
        while True:
            is_closed = reader.is_closed
            try:
                while next_entry <= reader.last_add_confirmed:
                    await reader.read(next_entry)
                    next_entry += 1
                if is_closed:
                    return
                await anyio.sleep(0.05)
                await reader.read_last_add_confirmed()
            except BookKeeperError:
                await anyio.sleep(0.5)

    return follow


async def _opened(client: BookKeeper, ledger_id: int) -> LedgerReader:
    while True:
        try:
            return await client.open_ledger(ledger_id, recover=False)
        except BookKeeperError:
            await anyio.sleep(_PAUSE_S)
