"""What a writer does without being called: timing out entries, and replacing bookies that failed after the quorum."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from bkclient.config import ClientConfig, TimeoutSettings, WritingSettings
from bkclient.errors import Code, QuorumTimeout, WriteFailed
from tests.bkclient.fakes import advanced_writer_of, fake_cluster, in_virtual_time, payloads_of, writer_of
from tests.bkclient.inside import machine_of
from tests.settling import settled

TEN_SECONDS = ClientConfig(timeouts=TimeoutSettings(add_quorum_s=10.0))


def now() -> float:
    return asyncio.get_running_loop().time()


# The quorum timeout -------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-46")
@pytest.mark.rule("H-14")
@pytest.mark.behaviour("T-177")
@pytest.mark.behaviour("T-178")
@pytest.mark.behaviour("T-179")
@in_virtual_time
async def test_an_entry_without_its_quorum_ends_the_writer_with_all_that_is_in_flight() -> None:
    async with fake_cluster(config=TEN_SECONDS) as where:
        writer = await writer_of(where, (3, 3, 3))
        await writer.append(b"kept")
        await anyio.sleep(100)  # idle time does not count
        where.transport.hold("b")
        began = now()
        futures = [writer.append_nowait(b"lost") for _ in range(3)]
        with pytest.raises(QuorumTimeout) as caught:
            await futures[0]

        assert 10 <= now() - began <= 15
        assert (caught.value.ledger_id, caught.value.entry_id) == (writer.ledger_id, 1)
        assert {type(future.exception()) for future in futures} == {QuorumTimeout}
        with pytest.raises(QuorumTimeout):
            await writer.append(b"late")
        await writer.close()
        assert where.metadata(writer.ledger_id).last_entry_id == 0
        assert where.bk.in_flight_entries == 0


@pytest.mark.rule("H-14")
def test_there_is_a_quorum_timeout_by_default() -> None:
    assert ClientConfig().timeouts.add_quorum_s == 120.0


@pytest.mark.rule("W-46")
@in_virtual_time
async def test_a_slow_bookie_that_answers_in_time_costs_nothing_however_often() -> None:
    async with fake_cluster(config=TEN_SECONDS) as where, await writer_of(where, (3, 3, 3)) as writer:
        for number in range(10):
            where.transport.hold("b")
            future = writer.append_nowait(b"%d" % number)
            await anyio.sleep(8)
            where.transport.release("b")
            assert await future == number


@pytest.mark.behaviour("T-181")
@in_virtual_time
async def test_looking_after_what_is_done_or_closed_does_nothing() -> None:
    async with fake_cluster(config=TEN_SECONDS) as where:
        async with await writer_of(where) as writer:
            await writer.append(b"x")
        await anyio.sleep(100)

        assert await payloads_of(where, writer.ledger_id) == [b"x"]


@in_virtual_time
async def test_an_advanced_entry_that_waits_for_a_gap_is_not_timed_out() -> None:
    async with fake_cluster(config=TEN_SECONDS) as where, await advanced_writer_of(where) as writer:
        above = writer.append_nowait(1, b"1")
        await anyio.sleep(100)
        assert not above.done()
        assert await writer.append(0, b"0") == 0
        assert await above == 1


@in_virtual_time
async def test_without_a_timeout_a_writer_waits_and_sets_no_timer() -> None:
    async with fake_cluster(config=ClientConfig(timeouts=TimeoutSettings(add_quorum_s=None))) as where:
        writer = await writer_of(where, (3, 3, 3))
        where.transport.hold("b")
        future = writer.append_nowait(b"x")
        await anyio.sleep(8_000)
        assert not future.done()
        where.transport.release("b")
        assert await future == 0


# Failures after the quorum ------------------------------------------------------------------------------------------


@pytest.mark.rule("W-33")
@pytest.mark.rule("H-5")
@pytest.mark.behaviour("T-59")
@in_virtual_time
async def test_a_bookie_that_failed_after_the_quorum_is_replaced_although_the_writer_pauses() -> None:
    async with fake_cluster("abcd") as where, await writer_of(where) as writer:
        late = writer.metadata.last_fragment.ensemble[2]
        where.transport.hold(late)
        await writer.append(b"x")
        where.transport.release(late, Code.TIMEOUT)
        await settled()
        assert late in writer.metadata.last_fragment.ensemble  # nobody appends
        await anyio.sleep(2)

        assert late not in where.metadata(writer.ledger_id).last_fragment.ensemble
        assert [fragment.first_entry_id for fragment in writer.metadata.fragments] == [0, 1]
        assert await writer.append(b"y") == 1


@pytest.mark.rule("H-5")
@in_virtual_time
async def test_without_a_spare_bookie_a_pausing_writer_stays_as_it_is() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        where.transport.hold("c")
        await writer.append(b"x")
        where.transport.release("c", Code.TIMEOUT)
        await anyio.sleep(10)

        assert len(where.metadata(writer.ledger_id).fragments) == 1
        assert machine_of(writer).is_writable


@in_virtual_time
async def test_closing_does_not_wait_for_a_failure_that_is_to_be_acted_upon() -> None:
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        late = writer.metadata.last_fragment.ensemble[2]
        where.transport.hold(late)
        await writer.append(b"x")
        where.transport.release(late, Code.TIMEOUT)
        await writer.close()
        await anyio.sleep(10)

        assert len(where.metadata(writer.ledger_id).fragments) == 1  # a new one would hold nothing
        assert await payloads_of(where, writer.ledger_id) == [b"x"]


@pytest.mark.rule("W-26")
@in_virtual_time
async def test_while_changes_are_disabled_entries_are_sent_again_until_the_bookie_is_back() -> None:
    features: dict[str, bool] = {"disable_ensemble_change": True}
    async with (
        fake_cluster("abcd", features=lambda name: features.get(name, False)) as where,
        await writer_of(where, (3, 3, 3)) as writer,
    ):
        failing = writer.metadata.last_fragment.ensemble[0]
        where.transport.bookies[failing].code = Code.TIMEOUT
        waiting = asyncio.create_task(writer.append(b"0"))
        await anyio.sleep(3)
        assert not waiting.done()
        where.transport.bookies[failing].code = None
        assert await waiting == 0
        assert writer.metadata.last_fragment.ensemble[0] == failing

        where.transport.bookies[failing].code = Code.TIMEOUT
        waiting = asyncio.create_task(writer.append(b"1"))
        await anyio.sleep(1)
        features.clear()
        assert await waiting == 1
        assert failing not in writer.metadata.last_fragment.ensemble


async def test_features_that_cannot_be_told_are_off_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def broken(name: str) -> bool:
        raise RuntimeError(name)

    async with fake_cluster("abcd", features=broken) as where, await writer_of(where) as writer:
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT
        assert await writer.append(b"x") == 0
        await settled()

        assert len(writer.metadata.fragments) == 1
        assert "disable_ensemble_change is on could not be told" in caplog.text


@in_virtual_time
async def test_sending_again_ends_with_the_client() -> None:
    async with fake_cluster("abcd", features=lambda _: True) as where:
        writer = await writer_of(where, (3, 3, 3))
        for bookie in where.transport.bookies.values():
            bookie.code = Code.TIMEOUT
        future = writer.append_nowait(b"0")
        await anyio.sleep(1)
    where.sent.clear()
    await anyio.sleep(100)
    assert future.done()
    assert len(where.sent) <= 3  # refused by the closed transport


@pytest.mark.rule("W-25")
@in_virtual_time
async def test_delayed_changes_are_configured() -> None:
    async with (
        fake_cluster("abcdef", config=ClientConfig(writing=WritingSettings(delay_ensemble_change=True))) as where,
        await writer_of(where, (3, 3, 2)) as writer,
    ):
        first, second, _ = writer.metadata.last_fragment.ensemble
        where.transport.bookies[first].code = Code.TIMEOUT
        for number in range(5):
            assert await writer.append(b"x") == number
        assert len(writer.metadata.fragments) == 1
        where.transport.bookies[second].code = Code.TIMEOUT
        assert await writer.append(b"x") == 5
        assert {first, second}.isdisjoint(writer.metadata.last_fragment.ensemble)


@pytest.mark.rule("W-26")
@pytest.mark.rule("H-8")
@in_virtual_time
async def test_how_often_and_how_long_entries_are_sent_again_is_configured() -> None:
    config = ClientConfig(writing=WritingSettings(resend_first_s=1.0, resend_max_s=3.0, max_resends=4))
    async with fake_cluster("abcd", config=config, features=lambda _: True) as where:
        writer = await writer_of(where)
        for bookie in where.transport.bookies.values():
            bookie.code = Code.TIMEOUT
        began = now()
        with pytest.raises(WriteFailed, match="4 times again without success"):
            await writer.append(b"x")

        assert now() - began == pytest.approx(1 + 2 + 3 + 3 + 3)
        assert len(where.sent) == 3 * 5
