"""Opening with recovery through the client: what travels, what an application and an observer are told."""

from __future__ import annotations

import asyncio

import pytest

from bkclient._backoff import Backoff
from bkclient._client.reading.reader import LedgerReader
from bkclient._client.writing.writer import LedgerWriter
from bkclient.config import ClientConfig, ReadingSettings
from bkclient.errors import (
    BookKeeperError,
    ClientClosed,
    Code,
    LedgerRecoveryFailed,
    MetadataOutcomeUnknown,
    MetadataStoreError,
    RequestTimeout,
    UnauthorizedAccess,
)
from bkclient.ledger import LedgerState, Versioned
from bkclient.protocol.recovery import EntryVerdict
from bkclient.wire.digest import master_key
from bkclient.wire.messages import LAST_ENTRY, AddRequest, ReadRequest
from tests.bkclient.fakes import FakeCluster, fake_cluster, writer_of
from tests.settling import settled, turns

SIZES = (3, 3, 2)


class Notebook:
    """An observer that writes down what it hears."""

    def __init__(self) -> None:
        self.started: list[Versioned] = []
        self.decided: list[tuple[int, int, EntryVerdict, int]] = []

    def recovery_started(self, metadata: Versioned) -> None:
        self.started.append(metadata)

    def entry_decided(self, ledger_id: int, entry_id: int, verdict: EntryVerdict, bookies: tuple[str, ...]) -> None:
        self.decided.append((ledger_id, entry_id, verdict, len(bookies)))


async def abandoned(where: FakeCluster, entries: int, sizes: tuple[int, int, int] = SIZES) -> LedgerWriter:
    """A ledger with confirmed entries whose writer will not come back; what was sent is forgotten."""
    writer = await writer_of(where, sizes)
    for entry_id in range(entries):
        await writer.append(b"%d" % entry_id)
    await settled()
    where.sent.clear()
    return writer


async def recovered(where: FakeCluster, writer: LedgerWriter) -> LedgerReader:
    return await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)


@pytest.mark.rule("REC-1")
@pytest.mark.rule("REC-33")
@pytest.mark.behaviour("T-118")
@pytest.mark.parametrize("entries", [0, 1, 100])
async def test_an_abandoned_ledger_is_closed_where_its_confirmations_end(entries: int) -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, entries)

        reader = await recovered(where, writer)

        payloads = [b"%d" % entry_id for entry_id in range(entries)]
        assert reader.is_closed
        assert reader.last_add_confirmed == entries - 1
        assert reader.length == sum(map(len, payloads))
        assert [entry.payload async for entry in reader] == payloads
        assert where.metadata(writer.ledger_id) == reader.metadata


@pytest.mark.rule("REC-6")
@pytest.mark.rule("REC-17")
@pytest.mark.rule("REC-23")
@pytest.mark.rule("W-12")
async def test_fences_reads_and_adds_carry_the_key_the_flags_and_high_priority() -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 2)
        await recovered(where, writer)

        key = master_key(b"secret")
        reads = [request for _, request in where.sent if isinstance(request, ReadRequest)]
        adds = [request for _, request in where.sent if isinstance(request, AddRequest)]
        assert [read.entry_id for read in reads] == [LAST_ENTRY] * 3 + [1] * 3 + [2] * 3 + [3] * 3
        assert {(read.fence_key, read.high_priority) for read in reads} == {(key, True)}
        assert {(add.entry_id, add.master_key, add.recovery, add.high_priority) for add in adds} == {
            (1, key, True, True)
        }


@pytest.mark.rule("W-12")
async def test_the_adds_of_a_writer_carry_no_flags() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        await writer.append(b"x")

        adds = [request for _, request in where.sent if isinstance(request, AddRequest)]
        assert {(add.recovery, add.high_priority, add.write_flags) for add in adds} == {(False, False, 0)}


@pytest.mark.rule("REC-14")
async def test_the_length_of_a_ledger_that_needed_no_write_back_is_read_without_fencing_again() -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 3)
        for bookie in where.transport.bookies.values():
            del bookie.entries[writer.ledger_id, 2]

        # Entry 2 was acknowledged and every copy of it is gone; recovery ends at the LAC that entry 1 told of.
        for bookie in where.transport.bookies.values():
            bookie.entries[writer.ledger_id, 3] = bookie.entries[writer.ledger_id, 1]
        reader = await recovered(where, writer)

        assert (reader.last_add_confirmed, reader.length) == (1, 2)


@pytest.mark.rule("REC-18")
@pytest.mark.behaviour("T-115")
@pytest.mark.behaviour("T-121")
@pytest.mark.parametrize("silent", [0, 1, 2])
async def test_one_bookie_that_never_answers_does_not_hold_up_the_recovery(silent: int) -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 5)
        where.transport.hold(writer.metadata.last_fragment.ensemble[silent])

        reader = await recovered(where, writer)

        assert reader.last_add_confirmed == 4


@pytest.mark.rule("REC-19")
@pytest.mark.rule("M41")
async def test_a_corrupt_copy_is_never_written_back() -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 2)
        first = writer.metadata.last_fragment.ensemble[1]
        good = where.transport.bookies[first].entries[writer.ledger_id, 1]
        where.transport.bookies[first].entries[writer.ledger_id, 1] = good[:-1] + b"?"

        reader = await recovered(where, writer)

        assert [entry.payload async for entry in reader] == [b"0", b"1"]
        assert {bookie.entries[writer.ledger_id, 1][-1:] for bookie in where.transport.bookies.values()} == {b"1"}


@pytest.mark.rule("REC-40")
@pytest.mark.behaviour("T-18")
@pytest.mark.behaviour("T-119")
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.TIMEOUT, RequestTimeout),
        (Code.UNAUTHORIZED, UnauthorizedAccess),
        (Code.BOOKIE_NOT_AVAILABLE, LedgerRecoveryFailed),
        (Code.DATA_UNKNOWN, LedgerRecoveryFailed),
    ],
)
async def test_a_recovery_that_cannot_decide_fails_with_the_ledgers_id_and_succeeds_when_bookies_are_back(
    code: Code, error: type[BookKeeperError]
) -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 3)
        for name in "ab":
            where.transport.bookies[name].code = code

        with pytest.raises(error) as caught:
            await recovered(where, writer)
        assert caught.value.ledger_id == writer.ledger_id
        assert where.metadata(writer.ledger_id).state is LedgerState.IN_RECOVERY

        for name in "ab":
            where.transport.bookies[name].code = None
        assert (await recovered(where, writer)).last_add_confirmed == 2


@pytest.mark.rule("REC-20")
@pytest.mark.rule("REC-40")
@pytest.mark.rule("R-3")
async def test_corruption_of_all_copies_fails_the_recovery_instead_of_ending_the_ledger() -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 2)
        for bookie in where.transport.bookies.values():
            bookie.entries[writer.ledger_id, 1] = b"rotten" * 20

        with pytest.raises(LedgerRecoveryFailed, match="DIGEST_MATCH"):
            await recovered(where, writer)
        assert where.metadata(writer.ledger_id).state is LedgerState.IN_RECOVERY


@pytest.mark.rule("REC-27")
@pytest.mark.rule("REC-34")
async def test_a_bookie_that_refuses_the_write_back_is_replaced() -> None:
    async with fake_cluster("abcd") as where:
        writer = await abandoned(where, 2, (3, 3, 3))
        victim = writer.metadata.last_fragment.ensemble[0]
        where.transport.bookies[victim].add_code = Code.WRITE_ON_READ_ONLY_BOOKIE

        reader = await recovered(where, writer)

        assert victim not in reader.metadata.last_fragment.ensemble
        assert [entry.payload async for entry in reader] == [b"0", b"1"]


@pytest.mark.rule("REC-40")
async def test_a_store_that_fails_fails_the_recovery() -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 1)
        where.store.write_errors = [MetadataStoreError("down")]

        with pytest.raises(LedgerRecoveryFailed, match="METADATA_STORE"):
            await recovered(where, writer)
        assert where.metadata(writer.ledger_id).state is LedgerState.OPEN


@pytest.mark.rule("M31")
async def test_marks_and_closes_whose_outcome_is_unknown_are_looked_up() -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 2)
        where.store.write_errors = [MetadataOutcomeUnknown("applied"), MetadataOutcomeUnknown("applied")]

        reader = await recovered(where, writer)

        assert reader.last_add_confirmed == 1
        assert where.store.writes == 2


@pytest.mark.rule("W-48")
async def test_reading_back_after_an_unknown_outcome_is_tried_several_times() -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 0)
        where.store.write_errors = [MetadataOutcomeUnknown("applied")]
        where.store.gate.clear()
        closing = asyncio.create_task(writer.close())
        await settled()
        where.store.read_errors = [MetadataStoreError("not yet")] * 2
        where.store.gate.set()

        await closing
        assert where.metadata(writer.ledger_id).is_closed
        assert where.store.read_errors == []


@pytest.mark.rule("W-49")
async def test_reading_back_is_given_up_on_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkclient._client.updates._READ_BACKOFF", Backoff(0.0, 0.0))
    async with fake_cluster() as where:
        writer = await abandoned(where, 0)
        where.store.write_errors = [MetadataOutcomeUnknown("applied")]
        where.store.gate.clear()
        closing = asyncio.create_task(writer.close())
        await settled()
        where.store.read_errors = [MetadataStoreError("still not")] * 6
        where.store.gate.set()

        with pytest.raises(MetadataStoreError, match="still not"):
            await closing
        assert where.store.read_errors == []


@pytest.mark.rule("REC-41")
@pytest.mark.behaviour("T-111")
@pytest.mark.behaviour("T-139")
async def test_many_clients_that_open_a_ledger_at_once_agree_with_each_other_and_with_its_writer() -> None:
    async with fake_cluster("abcde") as where:
        writer = await abandoned(where, 10)

        async def open_elsewhere() -> tuple[int, int]:
            async with where.another_client() as other:
                reader = await other.open_ledger(writer.ledger_id, password=b"secret", recover=True)
                return reader.last_add_confirmed, reader.length

        ends = await asyncio.gather(*(open_elsewhere() for _ in range(10)))

        assert set(ends) == {(9, 10)}


@pytest.mark.rule("API-17")
@pytest.mark.parametrize("turn", range(0, 30, 3))
async def test_closing_the_client_during_a_recovery_ends_the_open(turn: int) -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 2)
        opening = asyncio.create_task(recovered(where, writer))
        await turns(turn)

    async with asyncio.timeout(5):
        (outcome,) = await asyncio.gather(opening, return_exceptions=True)
    assert isinstance(outcome, ClientClosed | LedgerReader)


@pytest.mark.rule("API-17")
@pytest.mark.parametrize("phase", ["marking", "fencing"])
async def test_closing_the_client_while_a_recovery_waits_ends_the_open_as_closed(phase: str) -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 2)
        if phase == "marking":
            where.store.gate.clear()
        else:
            where.transport.hold("abc")
        opening = asyncio.create_task(recovered(where, writer))
        await settled()
        assert not opening.done()

    async with asyncio.timeout(5):
        with pytest.raises(ClientClosed):
            await opening


@pytest.mark.rule("API-17")
async def test_an_open_that_was_reading_the_metadata_when_the_client_closed_starts_no_recovery() -> None:
    async with fake_cluster() as where:
        writer = await abandoned(where, 2)
        where.store.read_gate.clear()
        opening = asyncio.create_task(recovered(where, writer))
        await settled()
    where.store.read_gate.set()

    with pytest.raises(ClientClosed, match=f"ledger {writer.ledger_id}"):
        await opening
    assert where.metadata(writer.ledger_id).state is LedgerState.OPEN


# Reading ahead -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-3")
@pytest.mark.rule("REC-16")
@pytest.mark.behaviour("T-125")
@pytest.mark.behaviour("T-135")
@pytest.mark.parametrize("read_ahead", [1, 3, 13])
@pytest.mark.parametrize("marked_meanwhile", [False, True])
async def test_with_any_read_ahead_and_another_client_that_marks_the_ledger_the_end_is_right(
    read_ahead: int, *, marked_meanwhile: bool
) -> None:
    async with fake_cluster(
        config=ClientConfig(reading=ReadingSettings(recovery_read_ahead_entries=read_ahead))
    ) as where:
        writer = await writer_of(where)
        for entry_id in range(30):  # without waiting, so that no entry tells of a LAC and recovery begins at the first
            writer.append_nowait(b"entry %d" % entry_id)
        await writer.flush()
        where.store.gate.clear()
        opening = asyncio.create_task(recovered(where, writer))
        await settled()
        if marked_meanwhile:
            where.edit(writer.ledger_id, lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
        where.sent.clear()
        where.store.gate.set()

        reader = await opening

        payloads = [b"entry %d" % entry_id for entry_id in range(30)]
        assert (reader.last_add_confirmed, reader.length) == (29, sum(map(len, payloads)))
        adds = [request.entry_id for _, request in where.sent if isinstance(request, AddRequest)]
        reads = [request.entry_id for _, request in where.sent if isinstance(request, ReadRequest)]
        assert adds == [entry_id for entry_id in range(30) for _ in range(3)]
        assert reads == [LAST_ENTRY] * 3 + [entry_id for entry_id in range(reads[-1] + 1) for _ in range(3)]
        assert 30 <= reads[-1] < 30 + read_ahead
        assert [entry.payload async for entry in reader] == payloads


# Observing ---------------------------------------------------------------------------------------------------------


async def test_an_observer_hears_what_a_recovery_works_on_and_what_it_decides() -> None:
    notebook = Notebook()
    async with fake_cluster(observer=notebook) as where:
        writer = await abandoned(where, 3)
        await recovered(where, writer)

        (started,) = notebook.started
        assert (started.metadata.state, started.version) == (LedgerState.IN_RECOVERY, 1)
        assert notebook.decided == [
            (writer.ledger_id, 2, EntryVerdict.POSITIVE, 1),
            (writer.ledger_id, 3, EntryVerdict.NEGATIVE, 2),
        ]


async def test_an_observer_hears_nothing_of_a_recovery_that_had_nothing_to_do() -> None:
    notebook = Notebook()
    async with fake_cluster(observer=notebook) as where:
        writer = await abandoned(where, 1)
        opening = asyncio.create_task(recovered(where, writer))
        where.store.gate.clear()
        await settled()
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(0, 1))
        where.store.gate.set()

        assert (await opening).last_add_confirmed == 0
        assert (notebook.started, notebook.decided) == ([], [])
