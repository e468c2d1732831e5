"""What a long poll does not believe: a bookie that is wrong, a placement policy that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from bkclient.entry import LastConfirmedAndEntry
from bkclient.errors import Code, DigestMismatch, UnexpectedCondition
from bkclient.ledger import BookieId, DigestType, LedgerMetadata
from bkclient.placement.base import BookieHealth
from bkclient.placement.random_choice import RandomPlacement
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import ReadRequest, ReadResponse, Request, Status
from tests.bkclient.fakes import Answer, FakeBookie, FakeCluster, fake_cluster, writer_of
from tests.settling import settled


class Fickle(RandomPlacement):
    """Orders replicas until it is told to fail."""

    fails = False

    def read_order(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
        if self.fails:
            raise ZeroDivisionError("no order today")
        return tuple(write_set)


def moved(metadata: LedgerMetadata) -> LedgerMetadata:
    return metadata.with_ensemble(5, tuple(reversed(metadata.last_fragment.ensemble)))


class Liar(FakeBookie):
    """Gives every long poll the same answer."""

    response: ReadResponse

    def answer(self, request: Request) -> Answer:
        if isinstance(request, ReadRequest) and request.long_poll is not None:
            return Code.OK, self.response
        return super().answer(request)


def answer_polls(where: FakeCluster, response: ReadResponse) -> None:
    """Every bookie gives this answer to long polls."""
    for bookie_id, bookie in where.transport.bookies.items():
        liar = where.transport.bookies[bookie_id] = Liar(bookie.entries)
        liar.response = response


@pytest.mark.rule("RO-1")
async def test_a_policy_that_fails_when_the_ensemble_changes_fails_the_polls_and_nothing_else() -> None:
    policy = Fickle(Random(1))
    async with fake_cluster(placement=policy) as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        await settled()
        where.transport.hold("abc")
        polls = [asyncio.ensure_future(reader.read_last_add_confirmed_and_entry(9, 60)) for _ in range(2)]
        end = asyncio.ensure_future(reader.wait_closed())
        await settled()
        policy.fails = True
        where.edit(writer.ledger_id, moved)
        await settled()

        for poll in polls:
            with pytest.raises(UnexpectedCondition, match="no order today") as caught:
                await poll
            assert (caught.value.ledger_id, caught.value.entry_id) == (writer.ledger_id, 9)
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(7, 8))
        await asyncio.wait_for(end, 1)
        await reader.aclose()


@pytest.mark.rule("RO-1")
async def test_a_policy_that_cannot_order_replicas_fails_the_read_with_the_ledger_and_the_entry() -> None:
    policy = Fickle(Random(1))
    async with fake_cluster(placement=policy) as where:
        async with await writer_of(where) as writer:
            await writer.append(b"x")
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        policy.fails = True
        with pytest.raises(UnexpectedCondition, match="no order today") as caught:
            await reader.read(0)
        assert (caught.value.ledger_id, caught.value.entry_id) == (writer.ledger_id, 0)


@pytest.mark.rule("R-43")
@pytest.mark.parametrize("entry_id", [3, 7])
async def test_a_writer_is_not_told_by_a_bookie_what_it_has_confirmed(entry_id: int) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        for _ in range(3):
            await writer.append(b"x")
        codec = EntryCodec(writer.ledger_id, DigestType.CRC32C, b"secret")
        body = codec.encode_header(entry_id, entry_id, 99, b"y") + b"y"
        answer_polls(where, ReadResponse(Status.OK, writer.ledger_id, entry_id, body, entry_id))

        poll = writer.reader.read_last_add_confirmed_and_entry(entry_id, 1.0)
        assert await asyncio.wait_for(poll, 5) == LastConfirmedAndEntry(2, None)


@pytest.mark.rule("R-3")
@pytest.mark.rule("R-42")
async def test_a_lac_that_is_told_of_another_ledger_is_a_corrupt_answer() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        for _ in range(3):
            await writer.append(b"x")
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        before = reader.last_add_confirmed
        answer_polls(where, ReadResponse(Status.OK, writer.ledger_id + 1, 9, None, 9))

        with pytest.raises(DigestMismatch):
            await reader.read_last_add_confirmed_and_entry(9, 1.0)
        assert reader.last_add_confirmed == before
        await reader.aclose()
