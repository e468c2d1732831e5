"""What is particular to the store inside the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

import bkclient.metadata.memory as under_test
from bkclient.errors import ClientClosed, LedgerIdOverflow, MetadataSerializationError, MetadataStoreError
from bkclient.ledger import Fragment, LedgerMetadata
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.codec import decode_ledger_metadata, encode_ledger_metadata
from bkclient.metadata.memory import MemoryMetadataService, MemoryMetadataStore
from bkclient.metadata.opening import open_store
from bkclient.metadata.paths import LEDGER_ID_MAX

ADDRESS = BookieAddress("127.0.0.1", 3181)


def ledger(ledger_id: int) -> LedgerMetadata:
    return LedgerMetadata(ledger_id, 1, 1, 1, (Fragment(0, ("b:1",)),))


async def first_id(store: MemoryMetadataStore) -> int:
    async for ledger_id in store.list_ledgers():
        return ledger_id
    return -1


OPERATIONS: list[Callable[[MemoryMetadataStore], Coroutine[Any, Any, object]]] = [
    lambda store: store.generate_ledger_id(),
    lambda store: store.create_ledger(ledger(2)),
    lambda store: store.read_ledger(1),
    lambda store: store.write_ledger(ledger(1), 0),
    lambda store: store.delete_ledger(1),
    first_id,
    lambda store: store.bookies(),
    lambda store: store.bookie_address("b:1"),
    lambda store: store.register_bookie("b:1", ADDRESS),
    lambda store: store.unregister_bookie("b:1"),
]


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
async def test_every_operation_passes_control_to_the_loop_before_it_takes_effect(number: int) -> None:
    store = MemoryMetadataService().session(rng=Random(7))
    await store.create_ledger(ledger(1))
    await store.register_bookie("b:1", ADDRESS)
    order: list[str] = []
    asyncio.get_running_loop().call_soon(order.append, "loop")
    await OPERATIONS[number](store)
    assert order == ["loop"]


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
async def test_every_operation_of_a_closed_session_fails(number: int) -> None:
    store = MemoryMetadataService().session(rng=Random(7))
    await store.aclose()
    await store.aclose()
    with pytest.raises(ClientClosed):
        await OPERATIONS[number](store)
    with pytest.raises(ClientClosed):
        store.watch_ledger(1, print)
    with pytest.raises(ClientClosed):
        store.watch_bookies(print)


async def test_a_session_that_is_closed_meanwhile_takes_no_effect_any_more() -> None:
    service = MemoryMetadataService()
    store = service.session(rng=Random(7))
    creation = asyncio.ensure_future(store.create_ledger(ledger(1)))
    await asyncio.sleep(0)
    await store.aclose()
    with pytest.raises(ClientClosed, match="ledger 1"):
        await creation
    assert service.ledger_ids_above(0, 1) == []


async def test_a_cancelled_operation_leaves_nothing_behind() -> None:
    service = MemoryMetadataService()
    creation = asyncio.ensure_future(service.session(rng=Random(7)).create_ledger(ledger(1)))
    await asyncio.sleep(0)
    creation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creation
    assert service.ledger_ids_above(0, 1) == []


@pytest.mark.rule("MD-3")
async def test_what_zookeeper_could_not_keep_is_refused_here_too() -> None:
    service = MemoryMetadataService()
    with pytest.raises(MetadataSerializationError, match="ledger 1"):
        await service.session(rng=Random(7)).create_ledger(
            LedgerMetadata(1, 1, 1, 1, (Fragment(0, ("no/bookie",)),)),
        )
    assert service.ledger_ids_above(0, 1) == []


@pytest.mark.rule("DEL-6")
@pytest.mark.parametrize("number", [0, 1, 3, 4, 5])
async def test_ledgers_are_listed_range_by_range(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "LEDGERS_PER_RANGE", 2)
    store = MemoryMetadataService().session(rng=Random(7))
    for ledger_id in range(number):
        await store.create_ledger(ledger(ledger_id))
    assert [ledger_id async for ledger_id in store.list_ledgers()] == [*range(number)]


@pytest.mark.rule("DEL-6")
async def test_a_range_is_listed_as_it_is_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "LEDGERS_PER_RANGE", 2)
    store = MemoryMetadataService().session(rng=Random(7))
    for ledger_id in (1, 2, 3, 5):
        await store.create_ledger(ledger(ledger_id))
    seen: list[int] = []
    async for ledger_id in store.list_ledgers():
        if not seen:
            await store.delete_ledger(3)
            await store.create_ledger(ledger(4))
        seen.append(ledger_id)
    assert seen == [1, 2, 4, 5]


async def test_ids_end_at_the_greatest_that_64_bits_hold() -> None:
    store = MemoryMetadataService(first_ledger_id=LEDGER_ID_MAX).session(rng=Random(7))
    assert await store.generate_ledger_id() == LEDGER_ID_MAX
    with pytest.raises(LedgerIdOverflow):
        await store.generate_ledger_id()


async def test_two_stores_of_one_name_meet_until_the_name_is_forgotten() -> None:
    try:
        one, two = [await open_store("mem://meeting", rng=Random(seed)) for seed in (1, 2)]
        await one.create_ledger(ledger(1))
        assert (await two.read_ledger(1)).metadata.ledger_id == 1
        other = await open_store("mem://elsewhere", rng=Random(3))
        assert [ledger_id async for ledger_id in other.list_ledgers()] == []
        MemoryMetadataService.forget("meeting")
        MemoryMetadataService.forget("meeting")
        three = await open_store("mem://meeting", rng=Random(4))
        assert [ledger_id async for ledger_id in three.list_ledgers()] == []
        assert [ledger_id async for ledger_id in two.list_ledgers()] == [1]
    finally:
        MemoryMetadataService.forget("meeting")
        MemoryMetadataService.forget("elsewhere")


async def test_an_id_that_another_session_holds_is_refused_at_once() -> None:
    service = MemoryMetadataService()
    one, two = service.session(rng=Random(1)), service.session(rng=Random(2))
    await one.register_bookie("b:1", ADDRESS)
    with pytest.raises(MetadataStoreError, match="bookie b:1"):
        await two.register_bookie("b:1", ADDRESS)
    await two.unregister_bookie("b:1")
    assert (await two.bookies()).writable == ("b:1",)
    await one.aclose()
    await two.register_bookie("b:1", ADDRESS)


def test_listeners_of_a_loop_that_is_gone_are_not_called() -> None:
    service = MemoryMetadataService()
    heard: list[object] = []

    async def watch() -> None:
        store = service.session(rng=Random(7))
        store.watch_ledger(1, heard.append)
        store.watch_bookies(heard.append)

    async def change() -> None:
        store = service.session(rng=Random(7))
        await store.create_ledger(ledger(1))
        await store.register_bookie("b:1", ADDRESS)
        await asyncio.sleep(0)

    asyncio.run(watch())
    heard.clear()
    asyncio.run(change())
    assert heard == []


def test_creator_tokens_depend_on_the_random_source_alone() -> None:
    async def token(seed: int) -> int:
        async with MemoryMetadataService().session(rng=Random(seed)) as store:
            return (await store.create_ledger(ledger(1))).metadata.creator_token

    assert asyncio.run(token(1)) == asyncio.run(token(1)) != asyncio.run(token(2))


async def test_a_snapshot_shows_what_is_stored_and_who_watches() -> None:
    service = MemoryMetadataService(first_ledger_id=7)
    empty = service.snapshot()
    assert (empty.ledgers, empty.next_ledger_id, empty.bookies.writable) == ({}, 7, ())
    assert (empty.ledger_watches, empty.bookie_watches, empty.node_watches) == ({}, 0, {})
    async with service.session(rng=Random(1)) as store:
        created = await store.create_ledger(ledger(await store.generate_ledger_id()))
        await store.register_bookie("b", BookieAddress("localhost", 3181))
        ends = [store.watch_ledger(7, lambda _: None) for _ in range(2)]
        ends.append(store.watch_bookies(lambda _: None))
        ends.append(store.node_tree().watch("a/node", lambda: None))
        await store.node_tree().create("a/node", b"data")
        full = service.snapshot()
        assert full.ledgers == {7: (created.version, encode_ledger_metadata(created.metadata))}
        assert (full.next_ledger_id, full.bookies.writable) == (8, ("b",))
        assert (full.nodes["a/node"], full.nodes["a"]) == (b"data", b"")
        assert (full.ledger_watches, full.bookie_watches, full.node_watches) == ({7: 2}, 1, {"a/node": 1})
        assert full == service.snapshot()
        for end in ends:
            end()
        left = service.snapshot()
        assert (left.ledger_watches, left.bookie_watches, left.node_watches) == ({}, 0, {})


async def test_a_version_is_decoded_once_for_all_who_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = decode_ledger_metadata

    def counted(ledger_id: int, data: bytes) -> LedgerMetadata:
        decoded.append(ledger_id)
        return decode(ledger_id, data)

    monkeypatch.setattr(under_test, "decode_ledger_metadata", counted)
    store = MemoryMetadataService().session(rng=Random(7))
    created = await store.create_ledger(ledger(1))
    assert [await store.read_ledger(1) for _ in range(3)] == [created] * 3
    assert decoded == [1]
    written = await store.write_ledger(created.metadata.closed(5, 100), created.version)
    assert (await store.read_ledger(1)).metadata.last_entry_id == 5
    assert (await store.read_ledger(1)) == written
    assert decoded == [1, 1]
