"""The client: creating, opening and deleting ledgers, wrong arguments, its own beginning and end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

import bkclient
from bkclient import BookKeeper
from bkclient.config import ClientConfig
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    LedgerExists,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
)
from bkclient.ledger import DigestType, LedgerMetadata, LedgerState, Versioned
from bkclient.metadata.base import BookieAddress, BookieSets
from bkclient.metadata.memory import MemoryMetadataService
from tests.bkclient.fakes import FakeStore, FakeTransport, fake_cluster, payloads_of, writer_of
from tests.settling import settled, turns

# Creating ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-5")
@pytest.mark.behaviour("T-1")
async def test_a_new_ledger_is_registered_and_no_bookie_is_asked() -> None:
    async with fake_cluster("abcde") as where:
        writer = await where.bk.create_ledger(
            ensemble_size=4, write_quorum_size=3, ack_quorum_size=2, password=b"p", custom_metadata={"owner": b"me"}
        )

        metadata = where.metadata(writer.ledger_id)
        assert metadata == writer.metadata
        assert (metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size) == (4, 3, 2)
        assert (metadata.state, metadata.password, metadata.digest_type) == (LedgerState.OPEN, b"p", DigestType.CRC32C)
        assert dict(metadata.custom_metadata) == {"owner": b"me"}
        assert len(set(metadata.last_fragment.ensemble)) == 4
        assert metadata.last_fragment.first_entry_id == 0
        assert where.sent == []


@pytest.mark.rule("API-5")
@pytest.mark.behaviour("T-14")
async def test_too_few_bookies_are_noticed_before_anything_is_written() -> None:
    async with fake_cluster("ab") as where:
        with pytest.raises(NotEnoughBookies, match="of 3 is wanted, the writable bookies are: a, b"):
            await where.bk.create_ledger()

        assert [ledger_id async for ledger_id in where.bk.list_ledgers()] == []
        assert await where.store.generate_ledger_id() == 0


@pytest.mark.rule("API-5")
async def test_without_any_bookie_the_error_says_so() -> None:
    async with fake_cluster("") as where:
        with pytest.raises(NotEnoughBookies, match="are: none"):
            await where.bk.create_ledger()


@pytest.mark.rule("API-5")
async def test_a_generated_id_that_is_taken_is_followed_by_another() -> None:
    async with fake_cluster() as where:
        taken = await writer_of(where)
        where.service._next_ledger_id = taken.ledger_id

        assert (await writer_of(where)).ledger_id == taken.ledger_id + 1


class StuckGenerator(FakeStore):
    """Generates one and the same id."""

    async def generate_ledger_id(self) -> int:
        return 0


@pytest.mark.rule("API-5")
async def test_a_generator_that_is_stuck_is_given_up_on() -> None:
    async with fake_cluster() as where:
        await writer_of(where)
        async with BookKeeper(StuckGenerator(where.service), FakeTransport(""), rng=Random(1)) as bk:
            with pytest.raises(LedgerExists, match="100 generated ledger ids") as caught:
                await bk.create_ledger()

    assert isinstance(caught.value.__cause__, LedgerExists)
    assert caught.value.__cause__.ledger_id == 0


@pytest.mark.behaviour("T-25")
@pytest.mark.behaviour("T-60")
@pytest.mark.parametrize("digest_type", list(DigestType))
async def test_every_digest_type_writes_and_reads_back(digest_type: DigestType) -> None:
    async with fake_cluster() as where:
        async with await where.bk.create_ledger(digest_type=digest_type, password=b"secret") as writer:
            await writer.append(b"payload")

        assert await payloads_of(where, writer.ledger_id) == [b"payload"]


@pytest.mark.rule("PL-1")
@pytest.mark.rule("PL-5")
async def test_bookies_that_come_and_go_and_turn_read_only_are_noticed() -> None:
    async with fake_cluster("abc") as where, where.service.session(rng=Random(5)) as newcomer:
        await newcomer.register_bookie("d", BookieAddress("localhost", 1))
        await settled()
        writer = await where.bk.create_ledger(ensemble_size=4)
        assert "d" in writer.metadata.last_fragment.ensemble
        assert await where.bk.bookies() == BookieSets(("a", "b", "c", "d"))

        await newcomer.register_bookie("d", BookieAddress("localhost", 1), read_only=True)
        await settled()
        with pytest.raises(NotEnoughBookies):
            await where.bk.create_ledger(ensemble_size=4)


class ChangingStore(FakeStore):
    """A bookie registers while the answer to the first look at the bookies is under way, and is announced before it."""

    async def bookies(self) -> BookieSets:
        before = await super().bookies()
        await self.register_bookie("late", BookieAddress("localhost", 1))
        await settled()
        return before


@pytest.mark.rule("PL-1")
async def test_a_bookie_that_registers_while_the_client_starts_is_not_overlooked() -> None:
    service = MemoryMetadataService()
    store = ChangingStore(service)
    async with BookKeeper(store, FakeTransport(""), rng=Random(1)) as bk:
        await settled()
        writer = await bk.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)

    assert writer.metadata.last_fragment.ensemble == ("late",)


# Wrong arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"connections": {"protocol_version": 1}},
        {"connections": {"protocol_version": "3"}},
        {"timeouts": {"add_s": 0}},
        {"timeouts": {"read_s": -1}},
        {"timeouts": {"connect_s": float("nan")}},
        {"limits": {"max_in_flight_entries": 0}},
        {"limits": {"max_in_flight_bytes": True}},
        {"limits": {"max_frame_size_bytes": 1023}},
        {"writing": {"max_ensemble_changes": None}},
        {"reading": {"read_ahead_entries": "64"}},
        {"timeouts": {"metadata_session_s": [1]}},
        {"timeouts": 5},
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused_when_the_configuration_is_made(settings: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        ClientConfig.of(settings)


async def test_a_metadata_uri_of_no_known_kind_is_refused() -> None:
    with pytest.raises(ArgumentError, match="nonsense"):
        await bkclient.connect("nonsense://somewhere").__aenter__()


# Opening -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("API-7")
@pytest.mark.behaviour("T-24")
@pytest.mark.behaviour("T-116")
@pytest.mark.parametrize("recover", [True, False])
async def test_a_wrong_password_is_refused_before_any_bookie_is_asked_and_fences_nothing(recover: bool) -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        await writer.append(b"0")
        await settled()
        where.sent.clear()

        for wrong in (b"wrong", b"", b"secret "):
            with pytest.raises(UnauthorizedAccess, match=f"ledger {writer.ledger_id}"):
                await where.bk.open_ledger(writer.ledger_id, password=wrong, recover=recover)

        assert where.sent == []
        assert where.metadata(writer.ledger_id).state is LedgerState.OPEN
        assert await writer.append(b"1") == 1


@pytest.mark.rule("API-7")
@pytest.mark.rule("REC-2")
@pytest.mark.parametrize("recover", [True, False])
async def test_a_closed_ledger_opens_without_asking_a_bookie(recover: bool) -> None:
    async with fake_cluster() as where:
        async with await writer_of(where) as writer:
            await writer.append(b"0")
        await settled()
        where.sent.clear()

        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=recover)

        assert (reader.is_closed, reader.last_add_confirmed) == (True, 0)
        assert where.sent == []


class OldLedgers(FakeStore):
    """Serves ledgers as metadata older than stored passwords tells of them."""

    async def read_ledger(self, ledger_id: int) -> Versioned:
        value = await super().read_ledger(ledger_id)
        old = LedgerMetadata(
            ledger_id,
            value.metadata.ensemble_size,
            value.metadata.write_quorum_size,
            value.metadata.ack_quorum_size,
            value.metadata.fragments,
            state=value.metadata.state,
            last_entry_id=value.metadata.last_entry_id,
            length=value.metadata.length,
            digest_type=None,
            has_password=False,
        )
        return Versioned(old, value.version)


@pytest.mark.rule("API-7")
async def test_a_ledger_older_than_stored_passwords_is_read_with_crc32_and_whatever_password() -> None:
    async with fake_cluster() as where:
        async with await where.bk.create_ledger(digest_type=DigestType.CRC32) as writer:
            await writer.append(b"old")
        transport = FakeTransport("")
        transport.bookies = where.transport.bookies
        async with BookKeeper(OldLedgers(where.service), transport, rng=Random(1)) as bk:
            reader = await bk.open_ledger(writer.ledger_id, password=b"anything", recover=True)
            assert (await reader.read(0)).payload == b"old"


# Deleting, listing -------------------------------------------------------------------------------------------------


@pytest.mark.rule("DEL-1")
@pytest.mark.rule("DEL-2")
@pytest.mark.rule("DEL-3")
@pytest.mark.rule("DEL-4")
async def test_deleting_needs_no_password_and_no_closed_ledger_and_may_be_repeated() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        await settled()
        where.sent.clear()

        await where.bk.delete_ledger(writer.ledger_id)
        await where.bk.delete_ledger(writer.ledger_id)

        assert where.sent == []
        with pytest.raises(NoSuchLedger):
            await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        assert await writer.append(b"1") == 1
        with pytest.raises(NoSuchLedger):
            await writer.close()


@pytest.mark.rule("DEL-6")
@pytest.mark.behaviour("T-54")
@pytest.mark.behaviour("T-55")
async def test_ledgers_are_listed_by_ascending_id_and_looked_up() -> None:
    async with fake_cluster() as where:
        assert [ledger_id async for ledger_id in where.bk.list_ledgers()] == []
        writers = [await writer_of(where) for _ in range(3)]

        assert [ledger_id async for ledger_id in where.bk.list_ledgers()] == [w.ledger_id for w in writers]
        assert await where.bk.ledger_metadata(writers[1].ledger_id) == writers[1].metadata


# Beginning and end -------------------------------------------------------------------------------------------------


async def use_everything(bk: BookKeeper) -> list[object]:
    calls: list[Callable[[], Awaitable[object]]] = [
        bk.create_ledger,
        lambda: bk.open_ledger(0, recover=True),
        lambda: bk.open_ledger(0, recover=False),
        lambda: bk.delete_ledger(0),
        lambda: bk.ledger_metadata(0),
        bk.bookies,
        lambda: anext(bk.list_ledgers()),
    ]
    outcomes: list[object] = []
    for call in calls:
        try:
            outcomes.append(await call())
        except BookKeeperError as error:
            outcomes.append(type(error))
    return outcomes


@pytest.mark.rule("API-17")
@pytest.mark.behaviour("T-16")
@pytest.mark.behaviour("T-17")
@pytest.mark.behaviour("T-51")
async def test_a_client_that_was_left_refuses_everything_as_closed() -> None:
    async with fake_cluster() as where:
        pass

    assert set(await use_everything(where.bk)) == {ClientClosed}


async def test_a_client_that_was_not_entered_says_how_to_use_it() -> None:
    bk = BookKeeper(FakeStore(MemoryMetadataService()), FakeTransport(""))

    with pytest.raises(ArgumentError, match="async with"):
        await bk.create_ledger()


async def test_a_client_is_entered_once() -> None:
    async with fake_cluster() as where:
        with pytest.raises(ArgumentError, match="entered once"):
            await where.bk.__aenter__()


async def test_a_client_that_cannot_start_leaves_nothing_behind() -> None:
    store, transport = FakeStore(MemoryMetadataService()), FakeTransport("")
    await store.aclose()

    with pytest.raises(ClientClosed):
        await BookKeeper(store, transport).__aenter__()

    assert transport.is_closed
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.rule("API-17")
async def test_leaving_closes_the_transport_and_leaves_the_store_to_its_owner() -> None:
    async with fake_cluster() as where:
        await writer_of(where)

    assert where.transport.is_closed
    assert where.service.snapshot().bookie_watches == 0
    assert await where.store.generate_ledger_id() == 1


async def an_open_cancelled_at(turn: int) -> bool:
    """Cancel a recovering open at that turn, then open again; tells whether there was something to cancel."""
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        for payload in (b"0", b"1", b"2"):
            await writer.append(payload)
        await settled()
        victim = writer.metadata.last_fragment.ensemble[0]
        opening = asyncio.ensure_future(where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True))
        await turns(turn)
        was_cancelled = opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        del where.transport.bookies[victim].entries[writer.ledger_id, 2]  # still on two others

        assert await payloads_of(where, writer.ledger_id) == [b"0", b"1", b"2"]
        metadata = where.metadata(writer.ledger_id)
        assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, 2, 3)
        return was_cancelled


@pytest.mark.rule("REC-39")
async def test_a_recovery_that_is_cancelled_at_any_point_can_be_repeated() -> None:
    turn = 0
    while await an_open_cancelled_at(turn):
        turn += 1

    assert turn > 5
