"""What reads, batches, long polls and reads of the LAC make of every outcome of every request they send."""

from __future__ import annotations

import pytest

from bkclient._client.reading.reader import LedgerReader
from bkclient.config import ClientConfig, ConnectionSettings, ReadingSettings
from bkclient.errors import ClientClosed, Code, NoSuchEntry
from bkclient.ledger import BookieId
from bkclient.wire.messages import ReadResponse, Status
from tests.bkclient._client.reading.ledgers import reader_of, tail_of, written
from tests.bkclient.fakes import fake_cluster, in_virtual_time
from tests.bkclient.outcomes import DENIALS, FAILURES, Kind, fails, is_answer, name_of, script, told
from tests.settling import settled

V2, V3 = (
    ClientConfig(connections=ConnectionSettings(protocol_version=2)),
    ClientConfig(connections=ConnectionSettings(protocol_version=3)),
)
#: One replica after the other, and no order that depends on earlier reads.
IN_ORDER = ClientConfig(reading=ReadingSettings(speculative_first_s=0, reorder=False))
ENDS_AT_ONCE = [Code.UNAUTHORIZED, Code.CLIENT_CLOSED]
SPECIFIC = [code for code in FAILURES if code not in DENIALS and code != Code.BOOKIE_NOT_AVAILABLE]


def replicas_of(reader: LedgerReader, entry_id: int) -> list[BookieId]:
    ensemble = reader.metadata.ensemble_at(entry_id)
    return [*ensemble[entry_id % 3 :], *ensemble[: entry_id % 3]]


# Single entries ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-7")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_a_replica_that_fails_an_entry_is_followed_by_the_next(
    code: int, health: list[tuple[BookieId, int]]
) -> None:
    async with fake_cluster(config=IN_ORDER) as where:
        reader = await reader_of(where, 3)
        first, second, _ = replicas_of(reader, 1)
        script(where, Kind.READ, code, first)
        if code == Code.CLIENT_CLOSED:
            await fails(reader.read(1), code)
            assert health == []
            return
        entry = await reader.read(1)
        assert (entry.ledger_id, entry.entry_id, entry.payload) == (reader.ledger_id, 1, b"1")
        assert [bookie_id for bookie_id, _ in where.sent] == [first, second]
        assert health == [(first, code)]


@pytest.mark.rule("R-13")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_an_entry_that_no_replica_gives_tells_why(code: int) -> None:
    async with fake_cluster(config=IN_ORDER) as where:
        reader = await reader_of(where, 3)
        script(where, Kind.READ, code, "abc")
        error = await fails(reader.read(1), code)
        assert (error.ledger_id, error.entry_id) == (reader.ledger_id, 1)
        assert error.bookie_id in replicas_of(reader, 1)


@pytest.mark.rule("R-13")
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("code", SPECIFIC, ids=name_of)
async def test_a_failure_outranks_denials_so_that_nobody_takes_the_entry_for_missing(code: int, *, last: bool) -> None:
    async with fake_cluster(config=IN_ORDER) as where:
        reader = await reader_of(where, 3)
        replicas = replicas_of(reader, 1)
        script(where, Kind.READ, Code.NO_SUCH_ENTRY, replicas)
        script(where, Kind.READ, code, replicas[2 if last else 0])
        error = await fails(reader.read(1), code)
        assert error.bookie_id == replicas[2 if last else 0]


@pytest.mark.rule("R-3")
async def test_a_copy_whose_digest_is_wrong_is_no_copy(health: list[tuple[BookieId, int]]) -> None:
    async with fake_cluster(config=IN_ORDER) as where:
        reader = await reader_of(where, 3)
        first = replicas_of(reader, 1)[0]
        entries = where.transport.bookies[first].entries
        entries[reader.ledger_id, 1] = entries[reader.ledger_id, 1][:-1] + b"?"
        assert (await reader.read(1)).payload == b"1"
        assert health == [(first, Code.DIGEST_MATCH)]


@pytest.mark.rule("R-1")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_a_range_ends_at_the_entry_that_nobody_gives(code: int) -> None:
    async with fake_cluster(config=IN_ORDER) as where:
        reader = await reader_of(where, 3)
        script(where, Kind.READ, code, "abc")

        assert (await fails(anext(reader.read_range(0, 2)), code)).entry_id == 0
        assert (await fails(reader.read_entries(0, 2), code)).entry_id == 0


@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_results_tell_of_each_entry_what_became_of_it(code: int) -> None:
    async with fake_cluster(config=IN_ORDER) as where:
        reader = await reader_of(where, 3)
        script(where, Kind.READ, code, "abc")
        if code == Code.CLIENT_CLOSED:
            with pytest.raises(ClientClosed):
                _ = [result async for result in reader.read_results(0, 2)]
            return
        results = [result async for result in reader.read_results(0, 2)]
        assert [(result.entry_id, result.entry, type(result.error)) for result in results] == [
            (entry_id, None, told(code)) for entry_id in range(3)
        ]


# Batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-31")
@pytest.mark.rule("R-32")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_a_batch_that_every_replica_fails_fails_unless_they_may_know_no_batches(
    code: int, health: list[tuple[BookieId, int]]
) -> None:
    async with fake_cluster(config=V2) as where:
        reader = await reader_of(where, 3)
        replicas = replicas_of(reader, 0)
        script(where, Kind.BATCH, code, "abc")
        if code == Code.BOOKIE_NOT_AVAILABLE:
            assert [entry.payload for entry in await reader.read_batch(0, 3)] == [b"0", b"1", b"2"]
        else:
            error = await fails(reader.read_batch(0, 3), code)
            assert (error.ledger_id, error.entry_id) == (reader.ledger_id, 0)
            assert error.bookie_id in replicas
        asked = 1 if code == Code.CLIENT_CLOSED else 3
        noted = [] if code == Code.CLIENT_CLOSED else [(bookie_id, code) for bookie_id in replicas[:asked]]
        assert health == noted


@pytest.mark.rule("R-31")
@pytest.mark.parametrize("code", [code for code in FAILURES if code != Code.CLIENT_CLOSED], ids=name_of)
async def test_a_batch_goes_on_to_the_replica_that_knows_it(code: int) -> None:
    async with fake_cluster(config=V2) as where:
        reader = await reader_of(where, 3)
        replicas = replicas_of(reader, 0)
        script(where, Kind.BATCH, code, replicas[:2])
        script(where, Kind.BATCH, Code.NO_SUCH_ENTRY, replicas[2:])
        if code == Code.BOOKIE_NOT_AVAILABLE:  # outranks a denial, and is tried entry by entry
            assert len(await reader.read_batch(0, 3)) == 3
        else:
            await fails(reader.read_batch(0, 3), Code.NO_SUCH_ENTRY if code in DENIALS else code)


# The last add confirmed --------------------------------------------------------------------------------------------


def lac_kind(config: ClientConfig) -> Kind:
    return Kind.LAST_ENTRY if config is V2 else Kind.LAC


@pytest.mark.rule("R-34")
@pytest.mark.rule("R-37")
@pytest.mark.parametrize("config", [V2, V3], ids=["v2", "v3"])
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
@in_virtual_time
async def test_one_bookie_may_fail_to_tell_the_lac_and_two_may_not(
    code: int, config: ClientConfig, health: list[tuple[BookieId, int]]
) -> None:
    async with fake_cluster(config=config) as where:
        writer = await written(where, 1)
        reader = await tail_of(where, writer)
        assert reader.last_add_confirmed == -1
        await writer.append(b"1")
        await settled()
        ensemble = reader.metadata.last_fragment.ensemble
        ends_at_once = is_answer(code, ENDS_AT_ONCE)
        script(where, lac_kind(config), code, ensemble[:1])
        if ends_at_once:
            await fails(reader.read_last_add_confirmed(), code)
        else:
            assert await reader.read_last_add_confirmed() == 0
        noted = [] if code == Code.CLIENT_CLOSED else [(ensemble[0], code)]
        assert health == noted

        script(where, lac_kind(config), code, ensemble[:2])
        if code in DENIALS:
            assert await reader.read_last_add_confirmed() == 0
        else:
            error = await fails(reader.read_last_add_confirmed(), code)
            assert (error.ledger_id, error.entry_id) == (reader.ledger_id, None)
            assert error.bookie_id in ensemble[:2]
            assert "last add confirmed" in error.message


@pytest.mark.rule("R-36")
@pytest.mark.parametrize("config", [V2, V3], ids=["v2", "v3"])
async def test_a_lac_whose_digest_is_wrong_is_no_answer(
    config: ClientConfig, health: list[tuple[BookieId, int]]
) -> None:
    async with fake_cluster(config=config) as where:
        writer = await written(where, 2)
        reader = await tail_of(where, writer)
        ensemble = reader.metadata.last_fragment.ensemble
        for bookie_id in ensemble[:2]:
            entries = where.transport.bookies[bookie_id].entries
            entries[writer.ledger_id, 1] = entries[writer.ledger_id, 1][:-1] + b"?"
        await fails(reader.read_last_add_confirmed(), Code.DIGEST_MATCH)
        assert health == [(bookie_id, Code.DIGEST_MATCH) for bookie_id in ensemble[:2]]


@pytest.mark.rule("R-38")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_any_bookie_may_tell_of_progress_and_all_must_fail_for_an_error(code: int) -> None:
    async with fake_cluster() as where:
        writer = await written(where, 2)
        reader = await tail_of(where, writer)
        await writer.append(b"2")
        await settled()
        ensemble = reader.metadata.last_fragment.ensemble
        script(where, Kind.LAST_ENTRY, code, ensemble[:2])
        if is_answer(code, ENDS_AT_ONCE):
            await fails(reader.try_read_last_add_confirmed(), code)
        else:
            assert await reader.try_read_last_add_confirmed() == 1
        script(where, Kind.LAST_ENTRY, code, ensemble)
        if code in DENIALS:
            assert await reader.try_read_last_add_confirmed() == 1
        else:
            await fails(reader.try_read_last_add_confirmed(), code)


# Long polls --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-45")
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_a_poll_that_every_bookie_fails_tells_why(
    code: int, health: list[tuple[BookieId, int]], *, parallel: bool
) -> None:
    async with fake_cluster() as where:
        reader = await tail_of(where, await written(where, 2))
        script(where, Kind.POLL, code, "abc")
        poll = reader.read_last_add_confirmed_and_entry(2, 10.0, parallel=parallel)
        error = await fails(poll, code)
        assert (error.ledger_id, error.entry_id) == (reader.ledger_id, 2)
        assert error.bookie_id in set("abc")
        assert "long poll" in error.message
        ends_at_once = is_answer(code, ENDS_AT_ONCE)
        asked = 3 if parallel or not ends_at_once else 1
        if code != Code.CLIENT_CLOSED and not (parallel and code in DENIALS):
            assert len([told_code for _, told_code in health if told_code == code]) == asked
        assert reader.last_add_confirmed == 0


@pytest.mark.rule("R-41")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_a_poll_goes_on_to_the_bookie_that_knows(code: int) -> None:
    async with fake_cluster() as where:
        writer = await written(where, 2)
        reader = await tail_of(where, writer)
        await writer.append(b"2")
        await writer.append(b"3")
        await settled()
        ensemble = reader.metadata.last_fragment.ensemble
        knows = ensemble[1]  # the last of the write set of entry 2
        body = where.transport.bookies[knows].entries[reader.ledger_id, 2]

        script(where, Kind.POLL, code, "abc")
        script(where, Kind.POLL, Code.OK, knows, ReadResponse(Status.OK, reader.ledger_id, 2, body, 2))
        poll = reader.read_last_add_confirmed_and_entry(2, 10.0)
        if is_answer(code, ENDS_AT_ONCE):
            await fails(poll, code)
            return
        result = await poll
        assert result.entry is not None
        assert (result.last_add_confirmed, result.entry.entry_id, result.entry.payload) == (2, 2, b"2")
        assert reader.last_add_confirmed == 2


def test_denials_are_the_errors_that_say_so() -> None:
    assert {told(code).__name__ for code in DENIALS} == {NoSuchEntry.__name__, "NoSuchLedgerOnBookie"}
