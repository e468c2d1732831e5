"""Creating ledgers: everything that can be asked for is stored, and nothing is stored of what cannot be."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from bkclient import BookKeeper
from bkclient.config import ClientConfig, ConnectionSettings, MetadataSettings, WritingSettings
from bkclient.errors import (
    ArgumentError,
    IllegalOperation,
    LedgerExists,
    MetadataOutcomeUnknown,
    NotEnoughBookies,
    WriteOnReadOnlyBookie,
)
from bkclient.ledger import BookieId, DigestType, Ensemble, LedgerMetadata, LedgerState, Versioned
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.placement import LedgerShape
from bkclient.placement.random_choice import RandomPlacement
from tests.bkclient.fakes import FakeCluster, FakeStore, FakeTransport, fake_cluster
from tests.cancellation import Cancel, cancel_everywhere
from tests.settling import settled


async def ledgers_of(where: FakeCluster) -> list[int]:
    return [ledger_id async for ledger_id in where.bk.list_ledgers()]


@pytest.mark.rule("API-3")
@pytest.mark.behaviour("T-1")
@pytest.mark.behaviour("T-12")
@pytest.mark.behaviour("T-65")
async def test_everything_asked_for_is_stored() -> None:
    async with fake_cluster("abcde") as where:
        writer = await where.bk.create_ledger(
            ensemble_size=5,
            write_quorum_size=4,
            ack_quorum_size=3,
            password=b"open sesame",
            digest_type=DigestType.HMAC,
            custom_metadata={"application": b"test", "empty": b""},
            ledger_id=4711,
        )

        metadata = where.metadata(4711)
        assert writer.ledger_id == 4711
        assert (metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size) == (5, 4, 3)
        assert (metadata.password, metadata.digest_type) == (b"open sesame", DigestType.HMAC)
        assert metadata.custom_metadata == {"application": b"test", "empty": b""}
        assert (metadata.state, metadata.format_version, metadata.ctime_ms) == (LedgerState.OPEN, 3, None)
        reader = await where.bk.open_ledger(4711, password=b"open sesame", recover=True)
        assert reader.metadata.custom_metadata == metadata.custom_metadata


@pytest.mark.rule("H-35")
@pytest.mark.behaviour("T-7")
async def test_the_password_is_empty_unless_one_is_chosen_and_there_is_no_ledger_without_one() -> None:
    async with fake_cluster() as where:
        writer = await where.bk.create_ledger()

        assert (where.metadata(writer.ledger_id).password, where.metadata(writer.ledger_id).has_password) == (b"", True)
        await where.bk.open_ledger(writer.ledger_id, recover=True)
        with pytest.raises(ArgumentError, match="password must be bytes, got NoneType"):
            await where.bk.create_ledger(password=None)  # type: ignore[arg-type]


@pytest.mark.behaviour("T-9")
@pytest.mark.parametrize("detects", [True, False])
async def test_a_digest_type_is_needed_whether_or_not_types_are_detected(detects: bool) -> None:
    async with fake_cluster(config=ClientConfig(metadata=MetadataSettings(digest_type_autodetection=detects))) as where:
        with pytest.raises(ArgumentError, match="digest_type must be a DigestType, got None"):
            await where.bk.create_ledger(digest_type=None)  # type: ignore[arg-type]
        assert await ledgers_of(where) == []


@pytest.mark.behaviour("T-64")
async def test_a_chosen_id_can_be_used_once_and_again_after_a_deletion() -> None:
    async with fake_cluster() as where:
        for _ in range(3):
            async with await where.bk.create_ledger(ledger_id=7) as writer:
                await writer.append(b"x")
            with pytest.raises(LedgerExists, match="ledger 7") as caught:
                await where.bk.create_ledger(ledger_id=7)
            assert caught.value.ledger_id == 7
            await where.bk.delete_ledger(7)
        assert await ledgers_of(where) == []


async def test_generated_ids_step_over_chosen_ones() -> None:
    async with fake_cluster() as where:
        await where.bk.create_ledger(ledger_id=1)

        assert [(await where.bk.create_ledger()).ledger_id for _ in range(2)] == [0, 2]


@pytest.mark.rule("API-5")
@pytest.mark.behaviour("T-13")
async def test_opportunistic_striping_takes_as_many_bookies_as_there_are() -> None:
    async with fake_cluster("abcd", config=ClientConfig(writing=WritingSettings(opportunistic_striping=True))) as where:
        writer = await where.bk.create_ledger(ensemble_size=15, write_quorum_size=4, ack_quorum_size=2)

        assert where.metadata(writer.ledger_id).ensemble_size == 4
        assert sorted(writer.metadata.last_fragment.ensemble) == ["a", "b", "c", "d"]
        assert [await writer.append(b"x") for _ in range(5)] == list(range(5))


@pytest.mark.rule("API-5")
async def test_opportunistic_striping_does_not_go_below_the_write_quorum() -> None:
    async with fake_cluster("abcd", config=ClientConfig(writing=WritingSettings(opportunistic_striping=True))) as where:
        with pytest.raises(NotEnoughBookies, match="of 5 is wanted"):
            await where.bk.create_ledger(ensemble_size=15, write_quorum_size=5, ack_quorum_size=2)

        assert await ledgers_of(where) == []


@pytest.mark.rule("API-5")
@pytest.mark.parametrize(("read_only", "advises"), [("", False), ("de", False), ("def", True), ("defg", True)])
async def test_too_few_writable_bookies_are_told_apart_from_too_many_that_only_read(
    read_only: str, advises: bool
) -> None:
    async with fake_cluster("ab") as where, where.service.session(rng=Random(5)) as others:
        for bookie_id in read_only:
            await others.register_bookie(bookie_id, BookieAddress("localhost", 1), read_only=True)

        with pytest.raises(NotEnoughBookies) as caught:
            await where.bk.create_ledger(ensemble_size=3)

    message = str(caught.value)
    assert "of 3" in message
    assert "a, b" in message
    if read_only:
        assert f"read-only are: {', '.join(read_only)}" in message
    else:
        assert "read-only" not in message
    assert (WriteOnReadOnlyBookie.advice in (caught.value.advice or "")) == advises


class Noting(RandomPlacement):
    """Notes the shapes of the ledgers for which bookies are chosen."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.shapes: list[LedgerShape] = []

    def new_ensemble(self, shape: LedgerShape, excluded: frozenset[BookieId]) -> Ensemble | None:
        self.shapes.append(shape)
        return super().new_ensemble(shape, excluded)


@pytest.mark.rule("API-5")
@pytest.mark.parametrize("custom", [None, {}, {"region": b"west"}])
async def test_a_policy_knows_the_shape_of_the_ledger_it_chooses_bookies_for(custom: dict[str, bytes] | None) -> None:
    policy = Noting()
    async with fake_cluster("abcde", placement=policy) as where:
        await where.bk.create_ledger(ensemble_size=5, write_quorum_size=4, ack_quorum_size=3, custom_metadata=custom)

    assert policy.shapes == [LedgerShape(5, 4, 3, custom or {})]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"custom_metadata": 7}, "custom_metadata must be a mapping, got int"),
        ({"custom_metadata": {"a": "b"}}, "custom_metadata must map str to bytes, got 'a' and 'b'"),
        ({"deferred_sync": 1}, "deferred_sync must be a bool, got 1"),
    ],
)
async def test_a_refused_argument_is_named_with_what_it_was(arguments: dict[str, Any], words: str) -> None:
    async with fake_cluster() as where:
        with pytest.raises(ArgumentError) as refused:
            await where.bk.create_ledger(**arguments)
    assert refused.value.message == words


@pytest.mark.behaviour("T-73")
@pytest.mark.parametrize("version", [2, 3])
async def test_metadata_is_stored_in_the_format_configured(version: int) -> None:
    async with fake_cluster(config=ClientConfig(metadata=MetadataSettings(format_version=version))) as where:
        async with await where.bk.create_ledger(password=b"p") as writer:
            await writer.append(b"x")

        assert where.metadata(writer.ledger_id).format_version == version
        assert (
            where.service.snapshot()
            .ledgers[writer.ledger_id][1]
            .startswith(b"BookieMetadataFormatVersion\t%d\n" % version)
        )
        assert (await where.bk.open_ledger(writer.ledger_id, password=b"p", recover=True)).last_add_confirmed == 0


@pytest.mark.behaviour("T-73")
async def test_the_oldest_format_takes_what_it_can_hold_and_nothing_else() -> None:
    async with fake_cluster(config=ClientConfig(metadata=MetadataSettings(format_version=1))) as where:
        for wrong in ({}, {"digest_type": DigestType.CRC32, "password": b"x"}, {"digest_type": DigestType.DUMMY}):
            with pytest.raises(
                ArgumentError, match=r"^metadata format 1 .*digest_type must be CRC32.* the write quorum"
            ):
                await where.bk.create_ledger(**wrong)
        with pytest.raises(ArgumentError, match="format 1"):
            await where.bk.create_ledger(digest_type=DigestType.CRC32, write_quorum_size=3, ack_quorum_size=2)
        with pytest.raises(ArgumentError, match="format 1"):
            await where.bk.create_ledger(digest_type=DigestType.CRC32, custom_metadata={"a": b""})
        assert await ledgers_of(where) == []

        async with await where.bk.create_ledger(digest_type=DigestType.CRC32) as writer:
            await writer.append(b"x")
        assert where.metadata(writer.ledger_id).format_version == 1
        assert (await (await where.bk.open_ledger(writer.ledger_id, recover=True)).read(0)).payload == b"x"


@pytest.mark.rule("API-5")
async def test_the_creation_time_is_stored_if_configured_and_survives_the_close() -> None:
    service = MemoryMetadataService()
    config = ClientConfig(metadata=MetadataSettings(store_creation_time=True))
    async with (
        fake_cluster() as where,
        BookKeeper(FakeStore(where.service), where.transport, config=config, wall_clock=lambda: 1_700_000_000.25) as bk,
    ):
        async with await bk.create_ledger() as writer:
            pass
        assert where.metadata(writer.ledger_id).ctime_ms == 1_700_000_000_250
        await bk.create_ledger(ledger_id=77)
        assert where.metadata(77).ctime_ms == 1_700_000_000_250

    with pytest.raises(ArgumentError, match="needs a wall_clock"):
        BookKeeper(FakeStore(service), FakeTransport(""), config=config)


async def test_without_the_setting_the_clock_is_not_asked() -> None:
    async with fake_cluster() as where:
        client = BookKeeper(FakeStore(where.service), where.transport, wall_clock=lambda: 1 / 0)
        async with client as bk:
            assert (await bk.create_ledger()).metadata.ctime_ms is None


@pytest.mark.rule("W-12")
async def test_deferred_sync_over_version_2_is_refused_before_anything_is_stored() -> None:
    async with fake_cluster(config=ClientConfig(connections=ConnectionSettings(protocol_version=2))) as where:
        with pytest.raises(IllegalOperation, match="version 3"):
            await where.bk.create_ledger(deferred_sync=True)

        assert await ledgers_of(where) == []


class ForgetfulStore(FakeStore):
    """Carries out the first creation and loses its answer; the driver below repeats it, as with ZooKeeper."""

    lost = 0

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned:
        from dataclasses import replace  # noqa: PLC0415 - only this store needs it

        with_token = replace(metadata, creator_token=99)
        if not self.lost:
            self.lost = 1
            await super().create_ledger(with_token)
        return await super().create_ledger(with_token)


@pytest.mark.rule("API-6")
@pytest.mark.behaviour("T-48")
async def test_a_creation_that_was_applied_although_its_answer_was_lost_succeeds_on_the_retry() -> None:
    async with fake_cluster() as where:
        store = ForgetfulStore(where.service)
        async with BookKeeper(store, where.transport) as bk:
            writer = await bk.create_ledger(ledger_id=5)

            assert (store.lost, writer.ledger_id) == (1, 5)
            assert await ledgers_of(where) == [5]


def test_a_cancelled_creation_leaves_an_empty_ledger_at_most_and_the_client_intact() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            await cancel(where.bk.create_ledger())

            assert where.sent == []
            for ledger_id in await ledgers_of(where):
                assert where.metadata(ledger_id).state is LedgerState.OPEN
            async with await where.bk.create_ledger() as writer:
                assert await writer.append(b"x") == 0
            await settled()

    cancel_everywhere(story, at_least=2)


async def test_a_store_that_fails_for_good_fails_the_creation() -> None:
    class FailingStore(FakeStore):
        async def create_ledger(self, metadata: LedgerMetadata) -> Versioned:
            raise MetadataOutcomeUnknown(ledger_id=metadata.ledger_id)

    async with fake_cluster() as where, BookKeeper(FailingStore(where.service), where.transport) as bk:
        with pytest.raises(MetadataOutcomeUnknown):
            await bk.create_ledger()
