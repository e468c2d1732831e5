"""Bookies that fail too often are avoided for a while."""

from __future__ import annotations

import logging
import random
from collections import Counter

import anyio
import pytest

from bkclient import ClientConfig, HealthSettings
from bkclient.errors import Code
from bkclient.metadata.memory import MemoryMetadataStore
from bkclient.observability.stats import QUARANTINED
from bkclient.placement import quarantine as module
from bkclient.placement.client_side import HEALTH_CHECK_DISABLED
from bkclient.placement.quarantine import Quarantine
from tests.bkclient.fakes import FakeCluster, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.placement.test_watcher import Events

HARMLESS = (
    Code.NO_SUCH_ENTRY,
    Code.NO_SUCH_LEDGER_ON_BOOKIE,
    Code.LEDGER_FENCED,
    Code.LEDGER_EXISTS,
    Code.DUPLICATE_ENTRY_ID,
    Code.WRITE_ON_READ_ONLY_BOOKIE,
    Code.CLIENT_CLOSED,
)


def checked(**options: object) -> Quarantine:
    return Quarantine(random.Random(1), **{"threshold": 3, "duration_s": 60.0, **options})  # type: ignore[arg-type]


@pytest.mark.rule("PL-6")
def test_enough_errors_within_one_interval_make_a_bookie_faulty() -> None:
    quarantine = checked()
    for _ in range(3):
        quarantine.count("a", Code.TIMEOUT)
    for _ in range(2):
        quarantine.count("b", Code.TIMEOUT)
    assert quarantine.end_interval() == ("a",)
    quarantine.count("b", Code.TIMEOUT)
    assert quarantine.end_interval() == ()


@pytest.mark.rule("PL-6")
def test_quarantine_ends_by_itself_and_is_not_made_longer() -> None:
    quarantine = checked()
    assert quarantine.put(("a",), 100.0) == 1
    assert quarantine.put(("a", "b"), 130.0) == 1
    assert quarantine.at(159.9) == {"a", "b"}
    assert quarantine.at(160.0) == {"b"}
    assert quarantine.put(("a",), 160.0) == 1
    assert quarantine.at(190.0) == {"a"}
    assert quarantine.at(220.0) == frozenset()


@pytest.mark.rule("PL-6")
def test_only_the_share_of_faulty_bookies_that_chance_picks_is_avoided() -> None:
    quarantine = checked(ratio=0.25)
    put = quarantine.put(tuple(f"b{n:03}" for n in range(400)), 0.0)
    assert put == len(quarantine.at(1.0))
    assert 60 < put < 140
    assert checked(ratio=0.0).put(("a", "b"), 0.0) == 0


@pytest.mark.rule("PL-7")
@pytest.mark.behaviour("T-221")
@pytest.mark.parametrize("code", HARMLESS)
def test_errors_that_are_to_be_expected_do_not_count(code: int) -> None:
    quarantine = checked(counts_connections=True)
    for _ in range(10):
        quarantine.count("a", code)
    assert quarantine.end_interval() == ()


@pytest.mark.rule("PL-7")
@pytest.mark.behaviour("T-220")
def test_connections_that_fail_count_only_if_that_is_wanted() -> None:
    by_default, wanted = checked(), checked(counts_connections=True)
    for _ in range(3):
        by_default.count("a", Code.BOOKIE_NOT_AVAILABLE)
        wanted.count("a", Code.BOOKIE_NOT_AVAILABLE)
    assert by_default.end_interval() == ()
    assert wanted.end_interval() == ("a",)


def test_the_bookies_counted_in_one_interval_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOOKIES_COUNTED_MAX", 2)
    quarantine = checked(threshold=1)
    for bookie_id in "abcab":
        quarantine.count(bookie_id, Code.TIMEOUT)
    assert quarantine.end_interval() == ("a", "b")


def test_who_is_avoided_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bkclient.placement")
    quarantine = checked()
    quarantine.put(("a",), 0.0)
    quarantine.put(("a",), 1.0)
    quarantine.at(70.0)
    quarantine.at(71.0)
    assert [record.getMessage() for record in caplog.records] == [
        "bookie a failed too often and is avoided for 60.0 s",
        "bookie a is avoided no more",
    ]


# A whole client -------------------------------------------------------------------------------------------------------

CONFIG = ClientConfig(
    health=HealthSettings(enabled=True, check_interval_s=60, error_threshold_per_interval=2, quarantine_s=600)
)


async def chosen(where: FakeCluster, ledgers: int = 8) -> Counter[str]:
    """How often each bookie is in the ensembles of new ledgers of three."""
    counts: Counter[str] = Counter()
    for _ in range(ledgers):
        writer = await writer_of(where)
        counts.update(writer.metadata.last_fragment.ensemble)
        await writer.close()
    return counts


async def fail(where: FakeCluster, bookie_id: str, code: int, times: int) -> None:
    """Appends that one bookie answers with ``code``, each in a ledger that has it."""
    failed = 0
    while failed < times:
        writer = await writer_of(where)
        if bookie_id in writer.metadata.last_fragment.ensemble:
            where.transport.bookies[bookie_id].code = code
            failed += 1
        await writer.append(b"x")
        await writer.close()
        where.transport.bookies[bookie_id].code = None


@pytest.mark.rule("PL-2")
@pytest.mark.rule("PL-6")
@pytest.mark.rule("PL-9")
@pytest.mark.behaviour("T-219")
@in_virtual_time
async def test_timeouts_keep_new_ledgers_from_a_bookie_until_its_quarantine_ends() -> None:
    stats = Events()
    stats.now = lambda: 0.0  # type: ignore[method-assign]
    stats.operation = stats.level = lambda *_: None  # type: ignore[method-assign, assignment]
    async with fake_cluster("abcd", config=CONFIG, stats=stats) as where:
        before = await where.bk.create_ledger(ensemble_size=4, write_quorum_size=4, ack_quorum_size=2)
        await fail(where, "a", Code.TIMEOUT, 2)
        assert "a" in await chosen(where)
        await anyio.sleep(61)
        assert QUARANTINED in stats.seen
        assert "a" not in await chosen(where)
        # it keeps its place where it has one, and gets one where there is no other choice
        assert "a" in before.metadata.last_fragment.ensemble
        whole = await where.bk.create_ledger(ensemble_size=4, write_quorum_size=2, ack_quorum_size=2)
        assert "a" in whole.metadata.last_fragment.ensemble
        await anyio.sleep(600)
        assert "a" in await chosen(where)


@pytest.mark.rule("PL-7")
@pytest.mark.behaviour("T-220")
@pytest.mark.behaviour("T-221")
@pytest.mark.parametrize("code", [Code.BOOKIE_NOT_AVAILABLE, Code.WRITE_ON_READ_ONLY_BOOKIE])
def test_lost_connections_and_expected_errors_keep_no_ledger_away(code: Code) -> None:
    @in_virtual_time
    async def run() -> None:
        async with fake_cluster("abcd", config=CONFIG) as where:
            await fail(where, "a", code, 3)
            await anyio.sleep(61)
            assert "a" in await chosen(where)

    run()


@pytest.mark.rule("PL-6")
@in_virtual_time
async def test_health_is_not_checked_by_default() -> None:
    async with fake_cluster(
        "abcd", config=ClientConfig(health=HealthSettings(error_threshold_per_interval=1))
    ) as where:
        await fail(where, "a", Code.TIMEOUT, 3)
        await anyio.sleep(61)
        assert "a" in await chosen(where)


@pytest.mark.rule("PL-8")
@in_virtual_time
async def test_the_switch_of_the_cluster_releases_all_bookies_at_the_next_check_that_finds_one() -> None:
    async with fake_cluster("abcd", config=CONFIG) as where:
        await fail(where, "a", Code.TIMEOUT, 2)
        await anyio.sleep(61)
        assert "a" not in await chosen(where)
        assert isinstance(where.store, MemoryMetadataStore)
        await where.store.node_tree().create(HEALTH_CHECK_DISABLED)
        await anyio.sleep(61)
        assert "a" not in await chosen(where)
        await fail(where, "b", Code.TIMEOUT, 2)
        await anyio.sleep(61)
        assert set(await chosen(where)) == set("abcd")


@pytest.mark.rule("PL-7")
@in_virtual_time
async def test_failures_met_by_a_recovery_count_too() -> None:
    async with fake_cluster("abcd", config=CONFIG) as where:
        writer = await where.bk.create_ledger(ensemble_size=4, write_quorum_size=4, ack_quorum_size=2)
        await writer.append(b"x")
        await writer.append(b"y")
        where.transport.bookies["a"].code = Code.TIMEOUT
        await where.bk.open_ledger(writer.ledger_id, recover=True)  # the fence and the reads, and what is written back
        where.transport.bookies["a"].code = None
        await anyio.sleep(61)
        assert "a" not in await chosen(where)
