"""Marks, locks, switches and the election: one contract for memory and ZooKeeper, and Java's names and bytes."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from bkclient.errors import ArgumentError, MetadataSerializationError, MetadataStoreError
from bkclient.metadata.tree import NodeTree, tree_of
from bkclient.repair.underreplication.election import AuditorElection
from bkclient.repair.underreplication.marks import CheckKind, LedgerMark, UnderReplication
from tests.bkclient.repair.underreplication.conftest import OpenSession

WIDE = (3, 70_000, 2**40 + 5)
NOW_MS = 1_700_000_000_000


class Program:
    """One program of auto-recovery: a session, its marks and its candidacy."""

    def __init__(self, name: str, marks: UnderReplication, election: AuditorElection, tree: object) -> None:
        self.name, self.marks, self.election, self.tree = name, marks, election, tree


async def program(open_session: OpenSession, name: str, seed: int = 1) -> Program:
    tree = tree_of(await open_session())
    marks = UnderReplication(tree, name=name, wall_clock_ms=lambda: NOW_MS, rng=Random(seed))
    await marks.open()
    return Program(name, marks, AuditorElection(tree, name), tree)


async def marked(marks: UnderReplication) -> list[LedgerMark]:
    return [mark async for mark in marks.marks()]


@pytest.mark.behaviour("T-267")
async def test_repeated_marks_merge_and_keep_their_first_time(open_session: OpenSession) -> None:
    one = (await program(open_session, "one")).marks
    assert await one.mark(7, ("b:1", "b:2", "b:1"))
    assert not await one.mark(7, ("b:2",)), "nothing new"
    assert await one.mark(7, ("b:3", "b:1"))
    assert await marked(one) == [LedgerMark(7, ("b:1", "b:2", "b:3"), NOW_MS)]


async def test_marks_that_two_programs_make_at_once_lose_nothing(open_session: OpenSession) -> None:
    one, two = (await program(open_session, "one")).marks, (await program(open_session, "two")).marks
    await asyncio.gather(*(marks.mark(7, (f"b:{n}",)) for n, marks in enumerate((one, two) * 5)))
    (mark,) = await marked(one)
    assert sorted(mark.missing) == sorted(f"b:{n}" for n in range(10))


async def test_marks_are_listed_by_ledger_id(open_session: OpenSession) -> None:
    one = (await program(open_session, "one")).marks
    for ledger_id in reversed(WIDE):
        await one.mark(ledger_id, ("b",))
    assert [mark.ledger_id for mark in await marked(one)] == list(WIDE)


@pytest.mark.behaviour("T-267")
async def test_a_ledger_is_locked_by_one_program_until_it_is_released(open_session: OpenSession) -> None:
    one, two = (await program(open_session, "one")).marks, (await program(open_session, "two")).marks
    await one.mark(7, ("b",))
    lock = await one.acquire()
    assert lock is not None
    assert lock.mark == LedgerMark(7, ("b",), NOW_MS)
    assert await two.acquire() is None
    assert await one.acquire() is None, "nor twice by the same one"
    assert await two.holder(7) == "one"
    await one.release(lock)
    await one.release(lock)
    assert await one.holder(7) is None
    assert await two.acquire() is not None
    await one.release(lock)
    assert await one.holder(7) == "two", "the lock of another session is left alone"


async def test_ledgers_to_be_passed_over_are_not_locked(open_session: OpenSession) -> None:
    one = (await program(open_session, "one")).marks
    for ledger_id in (1, 2, 3):
        await one.mark(ledger_id, ("b",))
    lock = await one.acquire(passing_over=(1, 3))
    assert lock is not None
    assert lock.ledger_id == 2
    assert await one.acquire(passing_over=(1, 3)) is None


@pytest.mark.behaviour("T-267")
async def test_a_replicated_mark_is_removed_only_if_it_is_what_was_seen(open_session: OpenSession) -> None:
    one, two = (await program(open_session, "one")).marks, (await program(open_session, "two")).marks
    await one.mark(7, ("b:1",))
    lock = await one.acquire()
    assert lock is not None
    await two.mark(7, ("b:2",))
    assert not await one.mark_replicated(lock)
    assert await marked(one) == [LedgerMark(7, ("b:1", "b:2"), NOW_MS)]
    assert await one.holder(7) is None, "it is unlocked all the same"
    lock = await two.acquire()
    assert lock is not None
    assert await two.mark_replicated(lock)
    assert await marked(two) == []


async def test_the_directories_of_the_last_mark_go_with_it(open_session: OpenSession) -> None:
    one = await program(open_session, "one")
    await one.marks.mark(7, ("b",))
    await one.marks.mark(8, ("b",))
    for left in ([8], []):
        lock = await one.marks.try_lock(8 if not left else 7)
        assert lock is not None
        assert await one.marks.mark_replicated(lock)
        assert [mark.ledger_id for mark in await marked(one.marks)] == left
    assert await tree_of(await open_session()).children("underreplication/ledgers") == []


@pytest.mark.behaviour("T-255")
async def test_the_locks_of_a_program_that_ends_are_free(open_session: OpenSession) -> None:
    session = await open_session()
    ending = UnderReplication(tree_of(session), name="ending", wall_clock_ms=lambda: 1, rng=Random(1))
    await ending.open()
    await ending.mark(7, ("b",))
    assert await ending.acquire() is not None
    staying = (await program(open_session, "staying")).marks
    assert await staying.acquire() is None
    await session.aclose()
    assert await staying.acquire() is not None


class Forgetful:
    """A tree whose operations of one kind are carried out, and then fail as if the answer had been lost."""

    def __init__(self, inner: NodeTree) -> None:
        self._inner = inner
        self.forgets = ""

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)
        if name == "watch":
            return operation

        async def carried_out(*arguments: Any, **options: Any) -> Any:
            result = await operation(*arguments, **options)
            if self.forgets == name:
                self.forgets = ""
                raise MetadataStoreError("the answer was lost")
            return result

        return carried_out


@pytest.mark.parametrize("forgets", ["create", "get", "delete"])
async def test_a_lock_whose_answer_was_lost_is_not_lost_itself(open_session: OpenSession, forgets: str) -> None:
    tree = Forgetful(tree_of(await open_session()))
    one = UnderReplication(tree, name="one", wall_clock_ms=lambda: 1, rng=Random(1))
    two = (await program(open_session, "two")).marks
    await two.mark(7, ("b",))
    if forgets == "create":
        tree.forgets = "create"
        with pytest.raises(MetadataStoreError):
            await one.acquire()
    else:
        lock = await one.acquire()
        assert lock is not None
        tree.forgets = forgets
        with pytest.raises(MetadataStoreError):
            await one.release(lock)
    assert (await two.acquire() is None) is (forgets != "delete"), "it is locked and nobody holds it"
    if forgets != "delete":
        assert await one.acquire() is not None
        assert await two.holder(7) == "one"


async def test_a_program_can_unlock_everything_it_locked_whether_it_knows_or_not(open_session: OpenSession) -> None:
    tree = Forgetful(tree_of(await open_session()))
    one = UnderReplication(tree, name="one", wall_clock_ms=lambda: 1, rng=Random(1))
    two = (await program(open_session, "two")).marks
    for ledger_id in (7, 8, 9):
        await two.mark(ledger_id, ("b",))
    assert await two.try_lock(9) is not None
    assert await one.try_lock(7) is not None
    tree.forgets = "create"
    with pytest.raises(MetadataStoreError):
        await one.try_lock(8)
    assert [await two.holder(ledger_id) for ledger_id in (7, 8, 9)] == ["one", "one", "two"]

    tree.forgets = "delete"
    with pytest.raises(MetadataStoreError):
        await one.release_all()
    await one.release_all()

    assert [await two.holder(ledger_id) for ledger_id in (7, 8, 9)] == [None, None, "two"]
    assert await one.try_lock(7) is not None, "it is held by nobody, here neither"


async def test_a_watch_of_the_marks_tells_of_the_first_one(open_session: OpenSession) -> None:
    one, two = (await program(open_session, "one")).marks, (await program(open_session, "two")).marks
    told = asyncio.Event()
    cancel = one.watch_marks(told.set)
    async with asyncio.timeout(5.0):
        await told.wait()
        told.clear()
        await two.mark(7, ("b",))
        await told.wait()
    cancel()


@pytest.mark.behaviour("T-264")
async def test_auto_recovery_is_switched_off_and_on_for_all(open_session: OpenSession) -> None:
    one, two = (await program(open_session, "one")).marks, (await program(open_session, "two")).marks
    assert await two.is_enabled()
    await one.disable()
    await one.disable()
    assert not await two.is_enabled()
    await two.enable()
    await two.enable()
    assert await one.is_enabled()


async def test_the_delay_of_audits_is_shared_and_every_setting_is_news(open_session: OpenSession) -> None:
    one, two = (await program(open_session, "one")).marks, (await program(open_session, "two")).marks
    assert await one.lost_bookie_recovery_delay_s() is None
    assert await one.lost_bookie_recovery_delay_version() == -1
    await one.set_lost_bookie_recovery_delay_s(30, only_first=True)
    await two.set_lost_bookie_recovery_delay_s(60, only_first=True)
    assert await two.lost_bookie_recovery_delay_s() == 30
    before = await two.lost_bookie_recovery_delay_version()
    await one.set_lost_bookie_recovery_delay_s(30)
    assert await two.lost_bookie_recovery_delay_version() > before
    for wrong in (-1, 2**31):
        with pytest.raises(ArgumentError, match="delay"):
            await one.set_lost_bookie_recovery_delay_s(wrong)


async def test_the_times_of_checks_are_kept_for_other_auditors(open_session: OpenSession) -> None:
    one, two = (await program(open_session, "one")).marks, (await program(open_session, "two")).marks
    for kind in CheckKind:
        assert await one.checked_ms(kind) is None
    await one.set_checked_ms(CheckKind.REPLICAS, NOW_MS)
    await one.set_checked_ms(CheckKind.REPLICAS, NOW_MS + 1)
    assert await two.checked_ms(CheckKind.REPLICAS) == NOW_MS + 1
    assert await two.checked_ms(CheckKind.LEDGERS) is None


@pytest.mark.behaviour("T-261")
async def test_one_candidate_is_elected_and_its_end_elects_the_next(open_session: OpenSession) -> None:
    first_session = await open_session()
    first = AuditorElection(tree_of(first_session), "first")
    second = (await program(open_session, "second")).election
    assert await second.auditor() is None
    async with asyncio.timeout(10.0):
        await first.until_elected()
        waiting = asyncio.ensure_future(second.until_elected())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert await second.auditor() == "first"
        assert not await second.is_elected()
        await first_session.aclose()
        await waiting
        assert await second.auditor() == "second"
        deposed = asyncio.ensure_future(second.until_deposed())
        await asyncio.sleep(0.05)
        assert not deposed.done()
        await second.resign()
        await deposed
    assert await second.auditor() is None


async def test_the_directory_of_candidates_says_who_is_elected_if_it_can(open_session: OpenSession) -> None:
    tree = Forgetful(tree_of(await open_session()))
    watching = tree_of(await open_session())
    election = AuditorElection(tree, "first")
    async with asyncio.timeout(10.0):
        tree.forgets = "write"
        await election.until_elected()
        node = await watching.get("underreplication/auditorelection")
        assert node is not None
        assert (node.data, tree.forgets) == (b'bookieId: "first"\n', "")
        await election.resign()
        again = AuditorElection(watching, "second")
        await again.until_elected()
        assert await again.auditor() == "second"
        node = await watching.get("underreplication/auditorelection")
        assert node is not None
        assert node.data == b'bookieId: "second"\n'


async def test_everything_lies_where_java_looks_for_it_in_javas_words(open_session: OpenSession) -> None:
    one = await program(open_session, "host-1")
    await one.marks.mark(12345678901, ("b:1", "b:2"))
    await one.marks.acquire()
    await one.marks.set_lost_bookie_recovery_delay_s(90)
    await one.marks.set_checked_ms(CheckKind.LEDGERS, 300)
    await one.marks.disable()
    async with asyncio.timeout(10.0):
        await one.election.until_elected()
    tree = tree_of(await open_session())
    expected = {
        "LAYOUT": b'type: "BASIC"\nversion: 1\n',
        "ledgers/0000/0002/dfdc/1c35/urL12345678901": b'replica: "b:1"\nreplica: "b:2"\nctime: %d\n' % NOW_MS,
        "locks/urL12345678901": b'bookieId: "host-1"\n',
        "disable": b"",
        "lostBookieRecoveryDelay": b"90",
        "checkallledgersctime": b"\x08\xac\x02",
        "auditorelection/V_0000000000": b'bookieId: "host-1"\n',
    }
    for path, data in expected.items():
        node = await tree.get(f"underreplication/{path}")
        assert node is not None, path
        assert node.data == data


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("LAYOUT", b'type: "OTHER"\nversion: 1\n'),
        ("LAYOUT", b'type: "BASIC"\nversion: 2\n'),
        ("LAYOUT", b"\xff"),
        ("lostBookieRecoveryDelay", b"soon"),
        ("lostBookieRecoveryDelay", b"99999999999"),
        ("checkallledgersctime", b"\xff"),
        ("locks/urL0000000007", b"??"),
    ],
)
async def test_records_that_cannot_be_read_are_told(open_session: OpenSession, path: str, data: bytes) -> None:
    await tree_of(await open_session()).create(f"underreplication/{path}", data)

    async def read_everything() -> None:
        one = (await program(open_session, "one")).marks
        await one.lost_bookie_recovery_delay_s()
        await one.checked_ms(CheckKind.LEDGERS)
        await one.holder(7)

    with pytest.raises(MetadataSerializationError):
        await read_everything()


async def test_a_mark_that_cannot_be_read_is_listed_locked_merged_with_and_removed(open_session: OpenSession) -> None:
    one = (await program(open_session, "one")).marks
    for ledger_id in (6, 7):
        path = f"underreplication/ledgers/0000/0000/0000/{ledger_id:04x}/urL{ledger_id:010d}"
        await tree_of(await open_session()).create(path, b"\xff nonsense")
    assert await marked(one) == [LedgerMark(6, ()), LedgerMark(7, ())]
    assert await one.mark(6, ("b",))
    assert LedgerMark(6, ("b",)) in await marked(one)
    for _ in range(2):
        lock = await one.acquire()
        assert lock is not None
        assert await one.mark_replicated(lock)
    assert await marked(one) == []


async def test_names_that_are_no_marks_are_passed_over(open_session: OpenSession) -> None:
    one = (await program(open_session, "one")).marks
    tree = tree_of(await open_session())
    for name in ("xyz/urL5", "0000/0000/0000/0001/other", "0000/0000/0000/0001/urL9999999999999999999"):
        await tree.create(f"underreplication/ledgers/{name}")
    await one.mark(1, ("b",))
    assert [mark.ledger_id for mark in await marked(one)] == [1]
    assert await one.acquire() is not None
