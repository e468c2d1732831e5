"""What a client reports about its operations, and that it asks nothing of anybody when nobody listens."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest

from bkclient._client.writing.shell import WriterShell
from bkclient.config import ClientConfig, TimeoutSettings, WritingSettings
from bkclient.errors import Code, NoSuchLedger, NotEnoughBookies
from bkclient.observability import stats as names
from bkclient.repair.admin import core_of
from tests.bkclient.fakes import FakeCluster, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.inside import machine_of, shell_of
from tests.settling import settled


class Notes:
    """A :class:`~bkclient.observability.stats.ClientStats` with a clock that advances by one at every look."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, float, int]] = []
        self.events: Counter[str] = Counter()
        self._now = 0.0

    def now(self) -> float:
        self._now += 1
        return self._now

    def operation(self, name: str, seconds: float, code: int) -> None:
        self.operations.append((name, seconds, code))

    def event(self, name: str, amount: int = 1) -> None:
        self.events[name] += amount

    def level(self, name: str, change: int) -> None:
        self.events[name] += change

    def codes(self, name: str) -> list[int]:
        return [code for operation, _, code in self.operations if operation == name]


async def test_every_operation_is_reported_with_its_outcome() -> None:
    notes = Notes()
    async with fake_cluster(stats=notes) as where:
        writer = await writer_of(where)
        for _ in range(3):
            await writer.append(b"x")
        await writer.force()
        await writer.write_explicit_lac()
        await writer.close()
        await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        await where.bk.open_ledger_as_administrator(writer.ledger_id, recover=True)
        await where.bk.delete_ledger(writer.ledger_id)
        with pytest.raises(NoSuchLedger):
            await where.bk.open_ledger(writer.ledger_id, recover=True)
        with pytest.raises(NotEnoughBookies):
            await where.bk.create_ledger(ensemble_size=9)

    assert notes.codes(names.CREATE) == [0, Code.NOT_ENOUGH_BOOKIES]
    assert notes.codes(names.OPEN) == [0, 0, Code.NO_SUCH_LEDGER]
    assert notes.codes(names.ADD) == [0, 0, 0]
    for name in (names.FORCE, names.WRITE_LAC, names.CLOSE, names.DELETE):
        assert notes.codes(name) == [0]
    assert all(seconds > 0 for _, seconds, _ in notes.operations)


async def test_failed_entries_ensemble_changes_and_missing_copies_are_counted() -> None:
    notes = Notes()
    async with fake_cluster("abcd", stats=notes) as where:
        writer = await writer_of(where)
        first, second, third = writer.metadata.last_fragment.ensemble
        where.transport.bookies[first].code = Code.TIMEOUT
        await writer.append(b"0")
        assert notes.events[names.ENSEMBLE_CHANGES] == 1
        where.transport.hold(third)
        await writer.append(b"1")
        where.transport.release(third, Code.TIMEOUT)
        assert notes.events[names.ADD_UNDER_REPLICATED] == 1

        where.transport.bookies[second].code = Code.LEDGER_FENCED
        where.transport.hold("abcd")
        writer.append_nowait(b"2")
        writer.append_nowait(b"3")
        where.transport.release("abcd", Code.LEDGER_FENCED)
        await settled()

    assert notes.codes(names.ADD) == [0, 0, Code.LEDGER_FENCED, Code.LEDGER_FENCED]


@in_virtual_time
async def test_waiting_for_connections_is_counted_once_per_wait() -> None:
    notes = Notes()
    config = ClientConfig(
        timeouts=TimeoutSettings(backpressure_s=1.0), writing=WritingSettings(delay_ensemble_change=True)
    )
    async with fake_cluster(config=config, stats=notes) as where, await writer_of(where) as writer:
        await writer.append(b"0")
        where.transport.unwritable.add("a")
        await writer.append(b"1")
        where.transport.unwritable.clear()

    assert notes.events[names.THROTTLED] == 1


async def test_without_anybody_listening_the_plain_shell_is_used() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        assert type(shell_of(writer)) is WriterShell


async def test_what_a_bookie_fails_is_reported_to_the_watcher_and_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fake_cluster("abcd") as where, await writer_of(where) as writer:
        reported = reports_of(where, monkeypatch)
        await writer.append(b"0")
        await writer.force()
        assert reported == []
        failing = writer.metadata.last_fragment.ensemble[0]
        where.transport.bookies[failing].code = Code.WRITE
        await writer.append(b"1")
        await settled()

        assert set(reported) == {(failing, Code.WRITE)}


def reports_of(where: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    reported: list[tuple[str, int]] = []
    core = core_of(where.bk)
    monkeypatch.setattr(core.watcher, "on_request_failed", lambda bookie_id, code: reported.append((bookie_id, code)))
    return reported


async def test_what_an_append_goes_through_has_few_enough_attributes_for_fast_look_ups() -> None:
    """CPython 3.11 keeps up to 29 attributes where compiled code finds them; one more, and every look-up is a search."""
    async with fake_cluster(stats=Notes()) as where, await writer_of(where) as writer:
        for worker in (machine_of(writer), shell_of(writer)):
            assert not hasattr(worker, "__dict__")  # slots have no such limit
        assert not vars(writer)


@in_virtual_time
async def test_a_last_add_confirmed_that_an_idle_writer_tells_is_measured_like_one_that_is_asked_for() -> None:
    notes = Notes()
    async with fake_cluster(
        config=ClientConfig(writing=WritingSettings(explicit_lac_interval_s=1.0)), stats=notes
    ) as where:
        writer = await writer_of(where)
        for _ in range(50):
            notes.now()
        await writer.append(b"0")
        await anyio.sleep(5)
        ((seconds, code),) = [(seconds, code) for name, seconds, code in notes.operations if name == names.WRITE_LAC]
        assert code == 0
        assert 0 < seconds < 10
        await writer.close()


@in_virtual_time
async def test_a_last_add_confirmed_that_cannot_be_told_is_measured_as_a_failure() -> None:
    notes = Notes()
    async with fake_cluster(
        config=ClientConfig(writing=WritingSettings(explicit_lac_interval_s=1.0)), stats=notes
    ) as where:
        writer = await writer_of(where)
        await writer.append(b"0")
        for bookie in where.transport.bookies.values():
            bookie.code = Code.TIMEOUT
        await anyio.sleep(1.5)
        assert notes.codes(names.WRITE_LAC) == [Code.TIMEOUT]
        for bookie in where.transport.bookies.values():
            bookie.code = None
        await writer.close()
