"""Repairs over real TCP: on demand and by auto-recovery."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import bkclient
from bkclient import BookKeeper, ClientConfig, PlacementSettings
from bkclient._client.writing.writer import LedgerWriter
from bkclient.repair import RepairAdmin, RepairConfig, run_auto_recovery
from bkclient.repair.events import EventKind, RepairEvent
from tests.end_to_end.loopback import Loopback, NewLoopback

NOW_MS = 1_700_000_000_000


@asynccontextmanager
async def auto_recovery(uri: str, name: str, **settings: Any) -> AsyncIterator[list[RepairEvent]]:
    """A program of auto-recovery, and what it tells."""
    events: list[RepairEvent] = []
    task = asyncio.ensure_future(
        run_auto_recovery(
            uri,
            config=RepairConfig(idle_poll_s=0.05, **settings),
            client_config=ClientConfig(placement=PlacementSettings(policy="random")),
            name=name,
            wall_clock_ms=lambda: NOW_MS,
            on_event=events.append,
        )
    )
    try:
        yield events
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is told by callbacks of any kind
            await asyncio.sleep(0.01)


def told(events: list[RepairEvent], kind: EventKind) -> list[RepairEvent]:
    return [event for event in events if event.kind is kind]


async def ledger(bk: BookKeeper, entries: int, sizes: tuple[int, int, int] = (3, 3, 2)) -> LedgerWriter:
    writer = await bk.create_ledger(
        ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2], password=b"secret"
    )
    await asyncio.gather(*(writer.append(b"%d" % number * 50) for number in range(entries)))
    await writer.flush()
    return writer


async def is_sound(bk: BookKeeper, ledger_id: int) -> bool:
    return (await RepairAdmin(bk).check_ledger(ledger_id, thorough=True)).is_sound


async def dies(place: Loopback, bookie_id: str) -> None:
    """It dies, and clients have heard."""
    await place.cluster.kill(bookie_id)
    await asyncio.sleep(0.05)


@pytest.mark.behaviour("T-235")
@pytest.mark.behaviour("T-252")
async def test_a_dead_bookie_is_recovered_on_demand(new_loopback: NewLoopback) -> None:
    async with new_loopback(4) as place:
        bk = await place.client()
        writers = [await ledger(bk, 200, sizes) for sizes in ((3, 3, 2), (4, 2, 2), (1, 1, 1))]
        for writer in writers:
            await writer.close()
        dead = next(b for b in place.cluster.bookie_ids if b not in writers[2].metadata.last_fragment.ensemble)
        await place.cluster.add()
        await dies(place, dead)
        admin = RepairAdmin(bk)
        assert not (await admin.check_ledger(writers[1].ledger_id)).is_sound
        report = await admin.recover_bookie([dead])
        assert report.bytes_copied > 0
        for writer in writers:
            assert await is_sound(bk, writer.ledger_id)
        assert [ledger_id async for ledger_id in admin.ledgers_on(dead)] == []


@pytest.mark.rule("AR-15")
@pytest.mark.behaviour("T-113")
@pytest.mark.behaviour("T-234")
async def test_a_living_writer_goes_on_while_its_older_fragment_is_repaired(new_loopback: NewLoopback) -> None:
    async with new_loopback(5) as place:
        bk = await place.client()
        async with auto_recovery(place.uri, "repairer") as events:
            await until(lambda: told(events, EventKind.ELECTED))
            writer = await ledger(bk, 50)
            dead = writer.metadata.last_fragment.ensemble[0]
            stop = asyncio.Event()

            async def go_on() -> int:
                appended = 0
                while not stop.is_set():
                    await writer.append(b"more")
                    appended += 1
                return appended

            going_on = asyncio.ensure_future(go_on())
            await dies(place, dead)
            await until(lambda: told(events, EventKind.REPLICATED))
            stop.set()
            appended = await going_on
            stored = await bk.ledger_metadata(writer.ledger_id)
            assert len(stored.fragments) >= 2
            assert all(dead not in fragment.ensemble for fragment in stored.fragments)
            await writer.append(b"and on")
            await writer.close()
        assert (await bk.ledger_metadata(writer.ledger_id)).last_entry_id == 50 + appended
        assert await is_sound(bk, writer.ledger_id)


@pytest.mark.behaviour("T-253")
@pytest.mark.behaviour("T-255")
async def test_two_programs_repair_the_ledgers_of_a_dead_bookie_together(new_loopback: NewLoopback) -> None:
    async with new_loopback(5) as place:
        bk = await place.client()
        writers = [await ledger(bk, 20) for _ in range(12)]
        for writer in writers[:10]:
            await writer.close()
        async with (
            auto_recovery(place.uri, "one", open_ledger_grace_s=0.1) as first,
            auto_recovery(place.uri, "two", open_ledger_grace_s=0.1) as second,
        ):
            await until(lambda: told(first, EventKind.ELECTED) or told(second, EventKind.ELECTED))
            dead = writers[-1].metadata.last_fragment.ensemble[1]
            await dies(place, dead)
            affected = [w.ledger_id for w in writers if dead in w.metadata.last_fragment.ensemble]

            def repaired() -> set[int]:
                return {event.ledger_id for event in told([*first, *second], EventKind.REPLICATED)}

            await until(lambda: repaired() == set(affected))
        for ledger_id in affected:
            assert await is_sound(bk, ledger_id)
            assert (await bk.ledger_metadata(ledger_id)).is_closed


async def test_programs_end_when_they_are_cancelled_and_may_be_started_again(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as place:
        bk = await place.client()

        async def once() -> None:
            async with auto_recovery(place.uri, "again") as events:
                await until(lambda: told(events, EventKind.ELECTED))
            assert await RepairAdmin(bk).auditor() is None

        await once()
        await once()


@pytest.mark.rule("AR-12")
async def test_entries_near_the_limit_of_a_frame_are_copied_one_by_one(new_loopback: NewLoopback) -> None:
    async with new_loopback(4) as place:
        bk = await place.client()
        writer = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
        for _ in range(5):
            await writer.append(bytes(1_000_000))
        await writer.close()
        admin = RepairAdmin(bk, RepairConfig(max_copy_bytes_in_flight=1_500_000))
        report = await admin.recover_bookie([writer.metadata.last_fragment.ensemble[0]])
        assert report.entries_copied == 5
        assert await is_sound(bk, writer.ledger_id)


@pytest.mark.parametrize("version", [2, 3])
async def test_both_protocol_versions_repair(new_loopback: NewLoopback, version: int) -> None:
    async with new_loopback(4) as place:
        bk = await place.client(connections={"protocol_version": version})
        writer = await ledger(bk, 20)
        await writer.close()
        await dies(place, writer.metadata.last_fragment.ensemble[2])
        assert (await RepairAdmin(bk).repair_ledger(writer.ledger_id)).is_sound
        assert bkclient.BookKeeper is type(bk)
