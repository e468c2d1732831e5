"""Applications cancel their calls.

Appends are cancelled while they are in flight, and so are a flush, a recovery and a close, which are then called
again. Cancellation ends only the wait: the entry keeps its id, is sent and counted like any other, and may be in the
ledger or not. Entry ids may be those of the application, in any order.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

import anyio

from bkclient import AdvancedLedgerWriter, AppendFuture, BookKeeper, LedgerWriter
from bkclient.errors import BookKeeperError
from bkclient.wire.messages import AddRequest, Request
from scenarios.conditions import draw_varied_conditions
from scenarios.library.parts import is_add, pick_confirmers
from scenarios.liveness import ADD_RESOLVES, StuckError
from scenarios.model import Scenario
from scenarios.recording.client import each_entry
from scenarios.stage import LedgerSlot, Stage

__all__ = ["CANCELLED_CALLERS"]

Writer = LedgerWriter | AdvancedLedgerWriter

#: The longest time that appends may take after all faults have ended: a few timeouts.
_LONG_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Cancellations:
    """The first ``first`` entries are flushed, the next ``pending`` are held back for ``hold_s``, and ``more`` follow.

    The pending entries at the positions ``cancelled`` (modulo their number) are cancelled; with ``alone``, only these are
    held back.
    """

    first: int
    pending: int
    more: int
    cancelled: tuple[int, ...]
    alone: bool
    hold_s: float
    patience_s: float
    ids_given: bool
    closes: bool
    drops: bool

    @classmethod
    def draw(cls, rng: Random) -> Cancellations:
        """At least one cancelled append, and at least one after it."""
        pending = rng.randint(1, 8)
        return cls(
            first=rng.randint(0, 6),
            pending=pending,
            more=rng.randint(1, 3),
            cancelled=tuple(rng.sample(range(pending), rng.randint(1, pending))),
            alone=rng.random() < 0.5,
            hold_s=rng.choice((0.01, 0.1, 1.0)),
            patience_s=rng.choice((0.0, 0.001, 0.005)),
            ids_given=rng.random() < 0.4,
            closes=rng.random() < 0.6,
            drops=rng.random() < 0.3,
        )


async def play(stage: Stage) -> None:
    """Appends are cancelled in flight; later appends must still be acknowledged or fail."""
    plan = Cancellations.draw(stage.rng)
    ledger = stage.ledger()
    is_settled, is_held = anyio.Event(), anyio.Event()

    async def write(client: BookKeeper) -> None:
        create = ledger.create_advanced if plan.ids_given else ledger.create
        writer: Writer = await create(client)
        await _append(writer, range(plan.first))
        await stage.flush(writer)
        is_settled.set()
        await is_held.wait()
        await _append_and_cancel(writer, plan, numbers, cancelled)
        await stage.flush_for(writer, plan.patience_s)
        await _append(writer, range(numbers.stop, numbers.stop + plan.more))
        if not await stage.flush_for(writer, _LONG_S):
            raise StuckError(writer.ledger_id, f"appends did not end in {_LONG_S:g} seconds", ADD_RESOLVES)
        if plan.closes:
            with anyio.move_on_after(plan.patience_s), suppress(BookKeeperError):
                await writer.close()
            with suppress(BookKeeperError):
                await writer.close()

    room = min(plan.pending, stage.conditions.client.limits.max_in_flight_entries)
    numbers = range(plan.first, plan.first + room)
    cancelled = {plan.first + place % room for place in plan.cancelled}

    def is_held_up(request: Request) -> bool:
        return isinstance(request, AddRequest) and (not plan.alone or request.entry_id in cancelled)

    writer = stage.client("writer", write)
    await is_settled.wait()
    slow = pick_confirmers(stage, stage.rng, stage.ensemble(ledger))
    if plan.drops:
        stage.drop("writer", slow[:1], is_add)
    held = stage.hold("writer", slow, is_held_up)
    is_held.set()
    await stage.sleep(plan.hold_s, plan.hold_s)
    stage.heal()
    held.release()
    await writer.ended()
    await stage.client("recoverer", lambda client: _recover_impatiently(client, ledger, plan.patience_s)).ended()
    await stage.settle(ledger)


async def _append(writer: Writer, numbers: range) -> None:
    """Append in order, each entry as soon as the window has room, without waiting for outcomes."""
    for number in numbers:
        with suppress(BookKeeperError), anyio.move_on_after(_LONG_S):
            await _wait_for_room(writer, number)
            _start(writer, number)


def _start(writer: Writer, number: int) -> AppendFuture:
    payload = b"entry %d" % number
    if isinstance(writer, AdvancedLedgerWriter):
        return writer.append_nowait(number, payload)
    return writer.append_nowait(payload)


async def _wait_for_room(writer: Writer, number: int) -> None:
    if isinstance(writer, AdvancedLedgerWriter):
        await writer.wait_for_room(number)
    else:
        await writer.wait_for_room()


async def _append_and_cancel(writer: Writer, plan: Cancellations, numbers: range, cancelled: set[int]) -> None:
    """Append all (ids of the application in descending order), then cancel some of the appends."""
    started: dict[int, AppendFuture] = {}
    with suppress(BookKeeperError):
        for number in reversed(numbers) if plan.ids_given else numbers:
            started[number] = _start(writer, number)
    await anyio.sleep(plan.patience_s)
    for number in sorted(cancelled & started.keys()):
        started[number].cancel()


async def _recover_impatiently(client: BookKeeper, ledger: LedgerSlot, patience_s: float) -> None:
    """Open with recovery, cancel that soon, and open again."""
    ledger_id = await ledger.id()
    with anyio.move_on_after(10 * patience_s), suppress(BookKeeperError):
        await client.open_ledger(ledger_id, recover=True)
    with suppress(BookKeeperError):
        reader = await client.open_ledger(ledger_id, recover=True)
        async for _ in each_entry(reader):
            pass


CANCELLED_CALLERS = Scenario(
    name="cancelled-callers",
    summary="applications cancel appends, flushes, closes and recoveries in the middle",
    expected="a cancelled entry keeps its place; everything after it is acknowledged in order, or fails",
    play=play,
    meets=("cancelled-append",),
    draw=draw_varied_conditions,
)
