"""Opening ledgers: who may, what digest type counts, what administrators may, and who follows the metadata."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bkclient import BookKeeper, LedgerReader
from bkclient.config import AdminSettings, ClientConfig, MetadataSettings
from bkclient.errors import ArgumentError, Code, DigestMismatch, NoSuchLedger, RequestTimeout, UnauthorizedAccess
from bkclient.ledger import DigestType, LedgerState, Versioned
from tests.bkclient.fakes import FakeCluster, FakeStore, FakeTransport, fake_cluster, payloads_of, writer_of
from tests.cancellation import Cancel, cancel_everywhere
from tests.settling import settled

STRICT = ClientConfig(metadata=MetadataSettings(digest_type_autodetection=False))


async def closed_ledger(where: FakeCluster, digest_type: DigestType) -> int:
    async with await where.bk.create_ledger(digest_type=digest_type, password=b"secret") as writer:
        await writer.append(b"payload")
    return writer.ledger_id


@pytest.mark.rule("API-7")
@pytest.mark.behaviour("T-26")
@pytest.mark.behaviour("T-35")
@pytest.mark.behaviour("T-56")
@pytest.mark.parametrize("digest_type", list(DigestType))
@pytest.mark.parametrize("recover", [True, False])
async def test_with_autodetection_the_digest_type_of_the_metadata_counts(
    digest_type: DigestType, recover: bool
) -> None:
    async with fake_cluster() as where:
        ledger_id = await closed_ledger(where, digest_type)

        for stated in (None, *DigestType):
            reader = await where.bk.open_ledger(ledger_id, password=b"secret", digest_type=stated, recover=recover)
            assert (await reader.read(0)).payload == b"payload"
        with pytest.raises(UnauthorizedAccess):
            await where.bk.open_ledger(ledger_id, password=b"wrong", digest_type=digest_type, recover=recover)


@pytest.mark.rule("API-7")
@pytest.mark.behaviour("T-26")
@pytest.mark.behaviour("T-35")
@pytest.mark.behaviour("T-56")
@pytest.mark.parametrize("recover", [True, False])
async def test_without_autodetection_a_wrong_digest_type_is_a_mismatch_before_any_bookie_is_asked(
    recover: bool,
) -> None:
    async with fake_cluster(config=STRICT) as where:
        writer = await where.bk.create_ledger(digest_type=DigestType.HMAC, password=b"secret")
        await writer.append(b"payload")
        await settled()
        where.sent.clear()

        with pytest.raises(DigestMismatch, match="with HMAC, not with CRC32C") as caught:
            await where.bk.open_ledger(
                writer.ledger_id, password=b"secret", digest_type=DigestType.CRC32C, recover=recover
            )
        assert caught.value.ledger_id == writer.ledger_id
        with pytest.raises(UnauthorizedAccess):
            await where.bk.open_ledger(writer.ledger_id, digest_type=DigestType.HMAC, recover=recover)
        with pytest.raises(ArgumentError, match=r"^digest_type .*digest_type_autodetection is off"):
            await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=recover)
        assert where.sent == []
        assert where.metadata(writer.ledger_id).state is LedgerState.OPEN

        await where.bk.open_ledger(writer.ledger_id, password=b"secret", digest_type=DigestType.HMAC, recover=recover)


@pytest.mark.rule("H-36")
@pytest.mark.behaviour("T-15")
@pytest.mark.parametrize(
    "call",
    [
        lambda bk: bk.open_ledger(-1, recover=True),
        lambda bk: bk.open_ledger(0, recover=True),
        lambda bk: bk.open_ledger(0, recover=False),
        lambda bk: bk.open_ledger_as_administrator(-1, recover=True),
        lambda bk: bk.ledger_metadata(-1),
        lambda bk: bk.is_closed(-7),
        lambda bk: anext(bk.watch_metadata(-1)),
        lambda bk: anext(bk.watch_metadata(0)),
    ],
)
async def test_ids_that_no_ledger_has_are_unknown_ledgers(call: Callable[[BookKeeper], Awaitable[object]]) -> None:
    async with fake_cluster() as where:
        with pytest.raises(NoSuchLedger):
            await call(where.bk)


@pytest.mark.rule("H-36")
async def test_a_negative_id_is_named_by_the_error_and_needs_no_store() -> None:
    async with fake_cluster() as where:
        where.store.read_gate.clear()
        with pytest.raises(NoSuchLedger, match="negative") as caught:
            await where.bk.ledger_metadata(-7)

        assert caught.value.ledger_id == -7


@pytest.mark.rule("API-8")
@pytest.mark.parametrize("config", [ClientConfig(), STRICT])
async def test_an_administrator_needs_neither_password_nor_digest_type(config: ClientConfig) -> None:
    async with fake_cluster(config=config) as where:
        writer = await where.bk.create_ledger(digest_type=DigestType.HMAC, password=b"nobody knows")
        await writer.append(b"payload")

        tail = await where.bk.open_ledger_as_administrator(writer.ledger_id, recover=False)
        assert not tail.is_closed
        reader = await where.bk.open_ledger_as_administrator(writer.ledger_id, recover=True)
        assert reader.is_closed
        assert (await reader.read(0)).payload == b"payload"


class OldLedgers(FakeStore):
    """Tells of ledgers as metadata older than stored passwords does."""

    async def read_ledger(self, ledger_id: int) -> Versioned:
        value = await super().read_ledger(ledger_id)
        old = replace(value.metadata, digest_type=None, password=b"", has_password=False)
        return Versioned(old, value.version)


@pytest.mark.rule("API-7")
@pytest.mark.rule("API-8")
@pytest.mark.parametrize("is_closed", [True, False])
async def test_ledgers_older_than_stored_passwords_take_the_keys_of_who_opens_them(is_closed: bool) -> None:
    async with fake_cluster() as where:
        writer = await where.bk.create_ledger(digest_type=DigestType.HMAC, password=b"remembered")
        await writer.append(b"old")
        if is_closed:
            await writer.close()
        transport = FakeTransport("")
        transport.bookies = where.transport.bookies
        config = ClientConfig(admin=AdminSettings(password=b"remembered", digest_type=DigestType.HMAC))
        async with BookKeeper(OldLedgers(where.service), transport, config=config, rng=Random(1)) as bk:
            opened = [
                await bk.open_ledger(
                    writer.ledger_id, password=b"remembered", digest_type=DigestType.HMAC, recover=True
                ),
                await bk.open_ledger_as_administrator(writer.ledger_id, recover=True),
            ]
            for reader in opened:
                assert (await reader.read(0)).payload == b"old"
            wrong = await bk.open_ledger(
                writer.ledger_id, password=b"forgotten", digest_type=DigestType.HMAC, recover=True
            )
            with pytest.raises(DigestMismatch):
                await wrong.read(0)


@pytest.mark.rule("NR-9")
@pytest.mark.behaviour("T-20")
@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_reader_of_a_closed_ledger_follows_re_replication_only_if_asked_to(is_closed: bool) -> None:
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        if is_closed:
            await writer.close()

        async def opened(**options: Any) -> LedgerReader:
            return await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True, **options)

        following, staying = await opened(keep_metadata_updated=True), await opened()
        assert where.service.snapshot().ledger_watches[writer.ledger_id] == 1
        moved = tuple(reversed(writer.metadata.last_fragment.ensemble))
        where.edit(writer.ledger_id, lambda metadata: metadata.with_ensemble(0, moved))
        await settled()

        assert following.metadata.last_fragment.ensemble == moved
        assert staying.metadata.last_fragment.ensemble != moved
        await following.aclose()
        assert writer.ledger_id not in where.service.snapshot().ledger_watches


@pytest.mark.behaviour("T-19")
@pytest.mark.parametrize("recover", [True, False])
@pytest.mark.parametrize("is_closed", [True, False])
async def test_ledgers_of_several_fragments_open_in_either_way(recover: bool, is_closed: bool) -> None:
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.WRITE
        for entry_id in (1, 2, 3):
            assert await writer.append(b"%d" % entry_id) == entry_id
        assert len(writer.metadata.fragments) == 2
        for bookie in where.transport.bookies.values():
            bookie.code = None
        if is_closed:
            await writer.close()

        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=recover)
        last = 3 if is_closed or recover else 2
        assert [entry.payload async for entry in reader] == [b"%d" % entry_id for entry_id in range(last + 1)]


@pytest.mark.behaviour("T-18")
@pytest.mark.parametrize("recover", [True, False])
async def test_opening_when_all_bookies_time_out_says_so(recover: bool) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        for bookie in where.transport.bookies.values():
            bookie.code = Code.TIMEOUT

        with pytest.raises(RequestTimeout):
            await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=recover)


@pytest.mark.parametrize(
    "options", [{"recover": True}, {"recover": False}, {"recover": True, "keep_metadata_updated": True}], ids=str
)
def test_an_open_that_is_cancelled_anywhere_leaves_no_watch_and_can_be_repeated(options: dict[str, Any]) -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            writer = await writer_of(where)
            for payload in (b"0", b"1"):
                await writer.append(payload)

            await cancel(where.bk.open_ledger(writer.ledger_id, password=b"secret", **options))

            if cancel.was_cancelled:
                assert writer.ledger_id not in where.service.snapshot().ledger_watches
            if options == {"recover": False}:
                assert await writer.append(b"2") == 2
                await writer.close()
            payloads = await payloads_of(where, writer.ledger_id)
            assert payloads[:2] == [b"0", b"1"]
            assert where.metadata(writer.ledger_id).is_closed

    cancel_everywhere(story, at_least=2)
