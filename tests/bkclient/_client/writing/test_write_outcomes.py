"""What a writer makes of every outcome of every request it sends: adds, forces and explicit LACs."""

from __future__ import annotations

import asyncio

import pytest

from bkclient._client.writing.base import BaseWriter
from bkclient.errors import Code, LedgerFenced, NotEnoughBookies, Refusal
from bkclient.ledger import BookieId, LedgerState
from tests.bkclient._client.reading.ledgers import written
from tests.bkclient.fakes import advanced_writer_of, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.outcomes import FAILURES, Kind, fails, is_answer, name_of, script, well_stored
from tests.settling import settled

ENDS_THE_WRITER = [Code.CLIENT_CLOSED, Code.ILLEGAL_OPERATION, Code.LEDGER_FENCED, Code.UNAUTHORIZED]
LEAVES_THE_LEDGER_OPEN = Code.CLIENT_CLOSED


def told_by(error: BaseException | None) -> str:
    """What an error and those behind it say."""
    return "" if error is None else f"{error} {told_by(error.__cause__)}"


# Adds --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-17")
@pytest.mark.rule("W-24")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
def test_a_bookie_that_fails_an_add_is_replaced_unless_the_answer_is_about_the_ledger(
    code: int, health: list[tuple[BookieId, int]]
) -> None:
    @in_virtual_time
    async def play() -> None:
        async with fake_cluster("abcd") as where:
            writer = await written(where, 1)
            ensemble = writer.metadata.last_fragment.ensemble
            script(where, Kind.ADD, code, ensemble[1])  # the first of the write set of entry 1
            adds = [writer.append_nowait(b"1"), writer.append_nowait(b"2")]
            if is_answer(code, ENDS_THE_WRITER):
                for entry_id, add in enumerate(adds, start=1):
                    error = await fails(add, code)
                    assert (error.ledger_id, error.entry_id, error.bookie_id) == (
                        writer.ledger_id,
                        entry_id,
                        ensemble[1],
                    )
                assert writer.last_add_confirmed == 0
                if code == LEAVES_THE_LEDGER_OPEN:
                    assert where.metadata(writer.ledger_id).state is LedgerState.OPEN
                    return
                await settled()
            else:
                assert [await add for add in adds] == [1, 2]
                await asyncio.sleep(3)
                assert ensemble[1] not in writer.metadata.last_fragment.ensemble
                await writer.close()
            metadata = where.metadata(writer.ledger_id)
            assert metadata.last_entry_id == (0 if is_answer(code, ENDS_THE_WRITER) else 2)
            assert well_stored(where, metadata)

    play()
    assert health[0][1] == code


@pytest.mark.rule("W-21")
@pytest.mark.rule("W-31")
@pytest.mark.parametrize("given", [False, True], ids=["counted", "given"])
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
def test_an_add_that_failed_is_not_taken_for_stored(code: int, *, given: bool) -> None:
    @in_virtual_time
    async def play() -> None:
        async with fake_cluster() as where:
            writer: BaseWriter
            if given:
                writer = advanced = await advanced_writer_of(where)
                script(where, Kind.ADD, code, writer.metadata.last_fragment.ensemble[:2])
                add = advanced.append_nowait(0, b"0")
            else:
                writer = plain = await writer_of(where)
                script(where, Kind.ADD, code, writer.metadata.last_fragment.ensemble[:2])
                add = plain.append_nowait(b"0")
            if is_answer(code, ENDS_THE_WRITER):
                await fails(add, code)
            else:
                with pytest.raises(NotEnoughBookies) as caught:
                    await add
                if isinstance(code, Refusal):  # the reason why a bookie was of no use arrives
                    assert code.reason in told_by(caught.value)
            assert writer.last_add_confirmed == -1

    play()


@pytest.mark.rule("W-16")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
def test_a_failure_after_the_ack_quorum_fails_no_entry_and_the_bookie_is_replaced(code: int) -> None:
    @in_virtual_time
    async def play() -> None:
        async with fake_cluster("abcd") as where:
            writer = await written(where, 1)
            late = writer.metadata.last_fragment.ensemble[0]  # the last of the write set of entry 1
            script(where, Kind.ADD, code, late)
            assert await writer.append(b"1") == 1
            await asyncio.sleep(3)
            assert late not in writer.metadata.last_fragment.ensemble
            assert await writer.append(b"2") == 2
            await writer.close()
            assert well_stored(where, where.metadata(writer.ledger_id))

    play()


@pytest.mark.rule("W-41")
@pytest.mark.parametrize("code", [code for code in FAILURES if is_answer(code, ENDS_THE_WRITER)], ids=name_of)
async def test_flush_tells_what_the_first_entry_that_failed_was_told(code: int) -> None:
    async with fake_cluster() as where:
        writer = await written(where, 1)
        script(where, Kind.ADD, code, "abc")
        writer.append_nowait(b"1")
        writer.append_nowait(b"2")
        assert (await fails(writer.flush(), code)).entry_id == 1
        assert (await fails(writer.flush(), code)).entry_id == 1


async def test_a_fence_names_the_takeover() -> None:
    async with fake_cluster() as where:
        writer = await written(where, 1)
        script(where, Kind.ADD, Code.LEDGER_FENCED, "abc")
        with pytest.raises(LedgerFenced, match="taken over"):
            await writer.append(b"1")


# Forces ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LAC-12")
@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_a_force_that_one_bookie_fails_moves_nothing_and_may_be_repeated(
    code: int, position: int, health: list[tuple[BookieId, int]]
) -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where, deferred_sync=True)
        await writer.append(0, b"0")
        await settled()
        failing = writer.metadata.last_fragment.ensemble[position]
        script(where, Kind.FORCE, code, failing)
        error = await fails(writer.force(), code)
        assert (error.ledger_id, error.bookie_id) == (writer.ledger_id, failing)
        assert writer.last_add_confirmed == -1
        assert health == [(failing, code)]

        script(where, Kind.FORCE, None, failing)
        await writer.force()
        assert writer.last_add_confirmed == 0


# Explicit LACs -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("LAC-7")
@pytest.mark.rule("LAC-9")
@pytest.mark.parametrize("code", FAILURES, ids=name_of)
async def test_an_explicit_lac_needs_an_ack_quorum_and_harms_nobody(
    code: int, health: list[tuple[BookieId, int]]
) -> None:
    async with fake_cluster() as where:
        writer = await written(where, 1)
        ensemble = writer.metadata.last_fragment.ensemble
        script(where, Kind.WRITE_LAC, code, ensemble[0])
        assert await writer.write_explicit_lac() == 0
        assert health == [(ensemble[0], code)]
        script(where, Kind.WRITE_LAC, code, ensemble[:2])
        error = await fails(writer.write_explicit_lac(), code)
        assert error.ledger_id == writer.ledger_id
        assert error.bookie_id in ensemble[:2]
        assert "explicit LAC 0" in error.message
        assert await writer.append(b"1") == 1
        await writer.close()
