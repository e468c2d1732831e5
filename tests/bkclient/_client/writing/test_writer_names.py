"""What a writer sends, raises and logs names its ledger, the entry, and whose it is."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bkclient._client.arguments import LARGEST_ID
from bkclient._client.writing.writer import LedgerWriter
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    Code,
    DuplicateEntryId,
    LedgerClosed,
    LedgerTruncated,
    MetadataStoreError,
)
from bkclient.ledger import BookieId, Ensemble
from bkclient.observability import stats as names
from bkclient.observability.memory_stats import MemoryStats
from bkclient.placement import LedgerShape
from bkclient.placement.random_choice import RandomPlacement
from bkclient.wire.digest import master_key
from bkclient.wire.messages import AddRequest, WriteLacRequest
from tests.bkclient.fakes import FakeCluster, advanced_writer_of, fake_cluster, in_virtual_time, writer_of
from tests.settling import settled

# What is sent ---------------------------------------------------------------------------------------------------------


async def test_adds_and_explicit_lacs_carry_the_master_key_of_their_ledger() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        await writer.write_explicit_lac()
        await settled()

    keys = {type(request): request.master_key for _, request in where.sent if hasattr(request, "master_key")}
    assert keys == {AddRequest: master_key(b"secret"), WriteLacRequest: master_key(b"secret")}


class Noting(RandomPlacement):
    """Notes for which ledger a bookie is replaced."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.shapes: list[LedgerShape] = []

    def replace(
        self, shape: LedgerShape, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]
    ) -> BookieId | None:
        self.shapes.append(shape)
        return super().replace(shape, ensemble, position, excluded)


async def test_a_policy_that_replaces_a_bookie_knows_the_shape_of_the_ledger() -> None:
    policy = Noting()
    async with fake_cluster("abcdef", placement=policy) as where:
        writer = await writer_of(where, (4, 3, 2))
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.BOOKIE_NOT_AVAILABLE
        await writer.append(b"x")
        await settled()

    assert policy.shapes
    assert all(shape == LedgerShape(4, 3, 2, {}) for shape in policy.shapes)


# What is raised -------------------------------------------------------------------------------------------------------


async def test_a_writer_of_a_client_that_is_closed_names_its_ledger() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        pending = writer.append_nowait(b"x")

    with pytest.raises(ClientClosed) as failed:
        await pending
    assert (failed.value.ledger_id, failed.value.entry_id) == (writer.ledger_id, 0)
    with pytest.raises(ClientClosed) as refused:
        writer.append_nowait(b"y")
    assert refused.value.ledger_id == writer.ledger_id


async def test_an_idle_writer_of_a_client_that_is_closed_names_its_ledger() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)

    with pytest.raises(ClientClosed) as refused:
        await writer.append(b"x")
    assert refused.value.ledger_id == writer.ledger_id
    with pytest.raises(ClientClosed) as refused:
        await writer.close()
    assert refused.value.ledger_id == writer.ledger_id


@pytest.mark.parametrize("call", ["flush", "append", "close"])
async def test_the_error_of_a_writer_says_what_to_do_each_time_it_is_raised(call: str) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        await writer.append(b"1")
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(0, 1))
        for bookie in where.transport.bookies.values():
            bookie.code = Code.LEDGER_FENCED
        with pytest.raises(BookKeeperError):
            await writer.append(b"2")
        await settled()

        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "flush": writer.flush,
            "append": lambda: writer.append(b"3"),
            "close": writer.close,
        }
        with pytest.raises(LedgerTruncated) as caught:
            await calls[call]()

    assert caught.value.ledger_id == writer.ledger_id
    assert caught.value.advice == LedgerTruncated.advice
    assert str(caught.value).endswith(LedgerTruncated.advice)


@pytest.mark.rule("W-5")
@pytest.mark.parametrize(
    ("entry_id", "says"), [(True, "bool"), ("7", "str"), (None, "NoneType"), (LARGEST_ID + 1, "2**63")]
)
@pytest.mark.parametrize("waits", [True, False])
async def test_an_id_that_no_entry_can_have_is_refused_with_its_reason(entry_id: Any, says: str, waits: bool) -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        with pytest.raises(ArgumentError, match="entry_id must be") as caught:
            await (writer.append(entry_id, b"x") if waits else writer.append_nowait(entry_id, b"x"))

        assert says in caught.value.message
        assert caught.value.ledger_id == writer.ledger_id
        assert caught.value.entry_id == (entry_id if says == "2**63" else None)
        assert await writer.append(0, b"x") == 0


@pytest.mark.rule("W-5")
async def test_the_largest_id_of_all_may_be_given() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        pending = writer.append_nowait(LARGEST_ID, b"x")
        await settled()
        assert writer.last_add_pushed == LARGEST_ID
        assert not pending.done()
        await writer.close()
        with pytest.raises(LedgerClosed):
            await pending


@pytest.mark.rule("H-3")
async def test_an_id_that_is_taken_costs_no_room() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        where.transport.hold("abc")
        writer.append_nowait(0, b"x")
        in_flight = (writer.in_flight_bytes, where.bk.in_flight_entries)
        with pytest.raises(DuplicateEntryId):
            writer.append_nowait(0, b"y")
        assert (writer.in_flight_bytes, where.bk.in_flight_entries) == in_flight == (1, 1)
        where.transport.release("abc")


@pytest.mark.rule("W-57")
async def test_a_block_that_ends_with_a_gap_names_the_ledger_and_what_is_cut_off() -> None:
    async with fake_cluster() as where:
        with pytest.raises(LedgerClosed, match="entry 0 was never appended") as caught:  # noqa: PT012 - the block is what is tested
            async with await advanced_writer_of(where) as writer:
                writer.append_nowait(5, b"x")
                await settled()

    assert (caught.value.ledger_id, caught.value.entry_id) == (writer.ledger_id, 5)


async def test_what_is_above_a_gap_when_the_writer_is_dropped_fails_with_the_ledger_named() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        ledger_id = writer.ledger_id
        pending = writer.append_nowait(5, b"x")
        await settled()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del writer
            gc.collect()
        (warning,) = (each for each in caught if "was dropped without close" in str(each.message))
        assert getattr(warning.source, "ledger_id", None) == ledger_id
        del warning, caught

        async with asyncio.timeout(10):
            with pytest.raises(
                LedgerClosed, match=r"^ledger 0, entry 5: the writer was dropped without close.* be filled "
            ) as failed:
                await pending
    assert (failed.value.ledger_id, failed.value.entry_id) == (ledger_id, 5)


# What is logged and counted -------------------------------------------------------------------------------------------


async def test_a_close_is_logged_with_its_ledger_and_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="bkclient.writer")
    async with fake_cluster() as where, await writer_of(where) as writer:
        await writer.append(b"x")

    assert f"closed ledger {writer.ledger_id} at entry 0" in caplog.messages


async def test_a_close_that_fails_is_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bkclient.writer")
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.store.write_errors = [MetadataStoreError("out of service")]
        with pytest.raises(MetadataStoreError) as caught:
            await writer.close()

    assert caught.value.ledger_id == writer.ledger_id
    (message,) = caplog.messages
    assert message == f"could not close ledger {writer.ledger_id}: out of service [{int(Code.METADATA_STORE)}]"


async def ended_by(code: Code, where: FakeCluster) -> LedgerWriter:
    writer = await writer_of(where)
    await writer.append(b"0")
    for bookie in where.transport.bookies.values():
        bookie.code = code
    with pytest.raises(BookKeeperError):
        await writer.append(b"1")
    return writer


async def test_a_takeover_is_logged_with_its_code(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bkclient.writer")
    async with fake_cluster() as where:
        await ended_by(Code.LEDGER_FENCED, where)

    (record,) = (each for each in caplog.records if getattr(each, "event", "") == "fenced")
    assert getattr(record, "code", None) == Code.LEDGER_FENCED


async def test_lost_entries_are_logged_with_the_code_of_the_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bkclient.writer")
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(-1, 0))
        for bookie in where.transport.bookies.values():
            bookie.code = Code.LEDGER_FENCED
        with pytest.raises(BookKeeperError):
            await writer.append(b"1")
        await settled()
        with pytest.raises(LedgerTruncated) as caught:
            await writer.append(b"2")

    (record,) = (each for each in caplog.records if getattr(each, "event", "") == "acknowledged_lost")
    assert getattr(record, "code", None) == caught.value.code


@in_virtual_time
async def test_the_latency_of_an_append_is_the_time_from_sending_to_the_acknowledgement() -> None:
    stats = MemoryStats()
    async with fake_cluster(stats=stats) as where:
        await asyncio.sleep(100)
        writer = await writer_of(where)
        where.transport.hold("abc")
        pending = writer.append_nowait(b"x")
        await asyncio.sleep(3)
        where.transport.release("abc")
        await pending

    latencies = stats.operations_of(names.ADD).succeeded
    assert latencies.count == 1
    assert latencies.sum_ms == pytest.approx(3000)
