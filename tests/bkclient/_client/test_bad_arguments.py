"""Every public call with every kind of wrong argument: a typed error, and nothing sent and nothing stored.

One row is a call, an argument, and values that it must not take; classes may share rows. A public method that neither a row nor
an exemption names fails :func:`test_every_public_call_is_in_the_table`, so a new call comes with its rows. Rows for another class
go into a list of their own and into :data:`TABLE`; how an object of the class is made goes into :data:`MAKERS`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from bkclient import AdvancedLedgerWriter, BookKeeper, ClientConfig, LedgerReader, LedgerReads, LedgerWriter
from bkclient._client.writing.own_reads import OwnReads
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    DuplicateEntryId,
    NoSuchLedger,
    ReadFailed,
)
from bkclient.repair import RepairAdmin
from bkclient.repair.underreplication.marks import UnderReplication
from tests.bkclient.fakes import FakeCluster, advanced_writer_of, fake_cluster, writer_of
from tests.settling import settled

NO_INTS = ("0", 1.0, None, b"1", [0])
NO_BYTES = ("text", None, 7, bytearray(b"x"))
NO_BUFFERS = ("text", None, 7, [b"x"], object())
NO_FLAGS = (None, 0, 1, "yes")
NO_BOOKIES = ("", "a/b", "with space", "readonly", "..", b"a", None, 7, ["a"])
NO_CALLS = (None, 7, "print")
NO_SECONDS = ("1", True, -1, float("nan"), float("inf"), [1])
TOO_LARGE = 2**63


@dataclass(frozen=True)
class Row:
    """``method`` called with ``good`` arguments must refuse each of ``wrong`` for ``argument``, by ``error``."""

    method: str
    argument: str
    wrong: tuple[Any, ...]
    good: Mapping[str, Any] = field(default_factory=dict)
    error: type[BookKeeperError] = ArgumentError


def ids(method: str, argument: str = "ledger_id", **good: Any) -> Row:
    """No ledger ids at all."""
    return Row(method, argument, (*NO_INTS, True, TOO_LARGE), good)


def creation(method: str) -> list[Row]:
    """T-2 to T-11."""
    return [
        Row(method, "ensemble_size", ("3", 3.0, None, True, 0, -1, 1)),
        Row(method, "write_quorum_size", ("2", 2.0, None, True, 0, -1, 4, 1)),
        Row(method, "ack_quorum_size", ("2", 2.0, None, True, 0, -1, 3)),
        Row(method, "password", NO_BYTES),
        Row(method, "digest_type", (3, None, "CRC32C", b"")),
        Row(
            method,
            "custom_metadata",
            ({"key": "text"}, {b"key": b"value"}, {1: b"value"}, [("key", b"value")], "text", 7),
        ),
        Row(method, "deferred_sync", NO_FLAGS),
        Row(method, "ledger_id", ("0", 1.0, b"1", True, -1, -TOO_LARGE, TOO_LARGE)),
    ]


CLIENT = [
    *creation("create_ledger"),
    *creation("create_advanced_ledger"),
    ids("open_ledger"),
    Row("open_ledger", "ledger_id", (-1, -TOO_LARGE, 4711), error=NoSuchLedger),
    Row("open_ledger", "password", NO_BYTES, {"ledger_id": 0}),
    Row("open_ledger", "digest_type", (3, "CRC32", b""), {"ledger_id": 0}),
    Row("open_ledger", "recover", NO_FLAGS, {"ledger_id": 0}),
    Row("open_ledger", "keep_metadata_updated", NO_FLAGS, {"ledger_id": 0}),
    ids("open_ledger_as_administrator"),
    Row("open_ledger_as_administrator", "ledger_id", (-1, 4711), error=NoSuchLedger),
    Row("open_ledger_as_administrator", "recover", NO_FLAGS, {"ledger_id": 0}),
    Row("open_ledger_as_administrator", "keep_metadata_updated", NO_FLAGS, {"ledger_id": 0}),
    ids("delete_ledger"),
    Row("delete_ledger", "ledger_id", (-1, -TOO_LARGE)),
    ids("ledger_metadata"),
    Row("ledger_metadata", "ledger_id", (-1, 4711), error=NoSuchLedger),
    ids("is_closed"),
    Row("is_closed", "ledger_id", (-1, 4711), error=NoSuchLedger),
    ids("watch_metadata"),
    Row("watch_metadata", "ledger_id", (-1, 4711), error=NoSuchLedger),
]

#: Calls of whatever reads a ledger. The ledger of the table has the confirmed entries 0 and 1.
READS = [
    Row("read", "entry_id", (*NO_INTS, True, -1, TOO_LARGE), {"unconfirmed": True}),
    Row("read", "entry_id", (*NO_INTS, True, -1)),
    Row("read", "entry_id", (2, TOO_LARGE), error=ReadFailed),
    Row("read", "parallel", NO_FLAGS, {"entry_id": 0}),
    Row("read", "unconfirmed", NO_FLAGS, {"entry_id": 0}),
    Row("read", "parallel", NO_FLAGS, {"entry_id": 0, "unconfirmed": True}),
    *(
        row
        for method in ("read_range", "read_entries", "read_results")
        for row in (
            Row(method, "first", (*NO_INTS, True, -1, 2), {"last": 1}),
            Row(method, "last", (*NO_INTS, True, -1), {"first": 0}),
            Row(method, "last", (2, TOO_LARGE), {"first": 0}, error=ReadFailed),
            Row(method, "parallel", NO_FLAGS, {"first": 0, "last": 1}),
        )
    ),
    *(
        row
        for method in ("read_range", "read_entries")
        for row in (
            Row(method, "first", (*NO_INTS, True, -1, 2), {"last": 1, "unconfirmed": True}),
            Row(method, "last", (*NO_INTS, True, -1, TOO_LARGE), {"first": 0, "unconfirmed": True}),
            Row(method, "parallel", NO_FLAGS, {"first": 0, "last": 1, "unconfirmed": True}),
            Row(method, "unconfirmed", NO_FLAGS, {"first": 0, "last": 1}),
        )
    ),
    *(
        row
        for unconfirmed in (False, True)
        for row in (
            Row("read_batch", "start", (*NO_INTS, True, -1), {"unconfirmed": unconfirmed}),
            Row("read_batch", "max_count", (*NO_INTS, True, -1, 2**31), {"start": 0, "unconfirmed": unconfirmed}),
            Row("read_batch", "max_bytes", (*NO_INTS, True, -1, 2**31), {"start": 0, "unconfirmed": unconfirmed}),
        )
    ),
    Row("read_batch", "unconfirmed", NO_FLAGS, {"start": 0}),
    Row("read_batch", "start", (2, TOO_LARGE), error=ReadFailed),
    Row("read_batch", "start", (TOO_LARGE,), {"unconfirmed": True}),
    Row("read_last_add_confirmed_and_entry", "entry_id", (*NO_INTS, True, -1, TOO_LARGE), {"timeout_s": 1.0}),
    Row("read_last_add_confirmed_and_entry", "timeout_s", ("1", None, True, -1, 1e9, float("nan")), {"entry_id": 0}),
    Row("read_last_add_confirmed_and_entry", "parallel", NO_FLAGS, {"entry_id": 0, "timeout_s": 1.0}),
]

READER = [
    *READS,
    Row("tail", "first_entry_id", (*NO_INTS, True, -1)),
    Row("tail", "patience_s", ("1", None, True, -1, 1e9)),
]

WRITER = [
    *(
        Row(method, "payload", (*NO_BUFFERS, bytes(6 * 1024 * 1024)))
        for method in ("append", "append_nowait", "submit")
    ),
    Row("append_all", "payloads", (1, None, "text", b"one", ["text"], [1], [None], [bytes(6 * 1024 * 1024)])),
]

ADVANCED = [
    *(
        row
        for method in ("append", "append_nowait", "submit")
        for row in (
            Row(method, "entry_id", (*NO_INTS, True, TOO_LARGE), {"payload": b"x"}),
            Row(method, "entry_id", (-1, 0, 1), {"payload": b"x"}, error=DuplicateEntryId),
            Row(method, "payload", (*NO_BUFFERS, bytes(6 * 1024 * 1024)), {"entry_id": 2}),
        )
    ),
    Row("wait_for_room", "entry_id", (*NO_INTS, True)),
]

ADMIN = [
    ids("check_ledger"),
    Row("check_ledger", "ledger_id", (-1, 4711), error=NoSuchLedger),
    Row("check_ledger", "thorough", NO_FLAGS, {"ledger_id": 0}),
    Row("ledgers_on", "bookie_id", NO_BOOKIES),
    Row("entries_on", "bookie_id", NO_BOOKIES, {"ledger_id": 0}),
    ids("entries_on", bookie_id="a"),
    Row("entries_on", "ledger_id", (-1, -TOO_LARGE), {"bookie_id": "a"}),
    ids("check_replicas"),
    Row("check_replicas", "ledger_id", (-1, 4711), error=NoSuchLedger),
    ids("repair_ledger"),
    Row("repair_ledger", "ledger_id", (-1, 4711), error=NoSuchLedger),
    Row("repair_ledger", "thorough", NO_FLAGS, {"ledger_id": 0}),
    Row("repair_ledger", "on_progress", NO_CALLS, {"ledger_id": 0}),
    ids("close_ledger"),
    Row("close_ledger", "ledger_id", (-1, 4711), error=NoSuchLedger),
    Row("restore_copies", "bookie_id", NO_BOOKIES, {"ledger_id": 0}),
    ids("restore_copies", bookie_id="a"),
    Row("restore_copies", "ledger_id", (-1, 4711), {"bookie_id": "a"}, error=NoSuchLedger),
    Row("restore_copies", "has_entry", NO_CALLS, {"bookie_id": "a", "ledger_id": 0}),
    Row("recover_bookie", "bookie_ids", ("a", b"a", None, 7, [], {}, *([wrong] for wrong in NO_BOOKIES), ["a", None])),
    Row(
        "recover_bookie",
        "ledger_ids",
        ("0", b"0", 0, *([wrong] for wrong in (*NO_INTS, True, TOO_LARGE)), [0, None]),
        {"bookie_ids": ["a"]},
    ),
    *(
        Row("recover_bookie", argument, NO_FLAGS, {"bookie_ids": ["a"]})
        for argument in ("dry_run", "skip_open_ledgers", "skip_unrecoverable")
    ),
    Row("recover_bookie", "concurrency", (*NO_INTS, True, 0, -1), {"bookie_ids": ["a"]}),
    Row("recover_bookie", "on_progress", NO_CALLS, {"bookie_ids": ["a"]}),
    Row("decommission", "bookie_id", NO_BOOKIES),
    Row("decommission", "poll_s", (*NO_SECONDS, None, 0, 0.0, 1e9), {"bookie_id": "gone"}),
    Row("decommission", "timeout_s", (*NO_SECONDS, 1e9), {"bookie_id": "gone"}),
    Row("decommission", "on_progress", NO_CALLS, {"bookie_id": "gone"}),
    Row("under_replication", "name", ("", b"x", None, 7)),
    Row("under_replication", "wall_clock_ms", (7, "now", 0)),
]

#: Of what an administrator does with marks.
MARKS = [
    *(row for method in ("holder", "try_lock") for row in (ids(method), Row(method, "ledger_id", (-1,)))),
    ids("mark", missing=["a"]),
    Row("mark", "ledger_id", (-1,), {"missing": ["a"]}),
    Row("mark", "missing", ("a", b"a", None, 7, [b"a"], ["a", None]), {"ledger_id": 0}),
    Row("set_lost_bookie_recovery_delay_s", "delay_s", (*NO_INTS, True, -1, 2**31)),
]

TABLE: dict[type, list[Row]] = {
    BookKeeper: CLIENT,
    LedgerReader: READER,
    OwnReads: READS,
    LedgerWriter: WRITER,
    AdvancedLedgerWriter: ADVANCED,
    RepairAdmin: ADMIN,
}

#: What does not end with a ledger, and refuses everything once the client is closed.
OWNERS = (BookKeeper, RepairAdmin)

#: Public methods that take no argument of an application.
WITHOUT_ARGUMENTS: dict[type, set[str]] = {
    BookKeeper: {"aclose", "bookies", "is_metadata_available", "list_ledgers", "node_tree", "parent_tree"},
    LedgerReader: {"aclose", "wait_closed"},
    OwnReads: set(),
    LedgerWriter: {"wait_for_room"},
    AdvancedLedgerWriter: set(),
    RepairAdmin: {"trigger_audit", "auditor"},
}
for _reads in (LedgerReader, OwnReads):
    WITHOUT_ARGUMENTS[_reads] |= {"read_last_add_confirmed", "try_read_last_add_confirmed", "read_last_entry"}
for _handle in (LedgerWriter, AdvancedLedgerWriter):
    WITHOUT_ARGUMENTS[_handle] |= {"aclose", "flush", "force", "write_explicit_lac", "close"}


async def make_writer(where: FakeCluster) -> LedgerWriter:
    writer = await writer_of(where)
    for payload in (b"0", b"1"):
        await writer.append(payload)
    return writer


async def make_own_reads(where: FakeCluster) -> LedgerReads:
    return (await make_writer(where)).reader


async def make_advanced(where: FakeCluster) -> AdvancedLedgerWriter:
    writer = await advanced_writer_of(where)
    for entry_id, payload in enumerate((b"0", b"1")):
        await writer.append(entry_id, payload)
    return writer


async def make_reader(where: FakeCluster) -> LedgerReader:
    async with await make_writer(where) as writer:
        pass
    return await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)


async def make_client(where: FakeCluster) -> BookKeeper:
    async with await make_writer(where):
        return where.bk


async def make_admin(where: FakeCluster) -> RepairAdmin:
    return RepairAdmin(await make_client(where))


async def make_marks(where: FakeCluster) -> UnderReplication:
    return (await make_admin(where)).under_replication(wall_clock_ms=lambda: 0)


MAKERS: dict[type, Callable[[FakeCluster], Awaitable[Any]]] = {
    BookKeeper: make_client,
    LedgerReader: make_reader,
    OwnReads: make_own_reads,
    LedgerWriter: make_writer,
    AdvancedLedgerWriter: make_advanced,
    RepairAdmin: make_admin,
    UnderReplication: make_marks,
}


def cases(table: Mapping[type, list[Row]]) -> list[Any]:
    return [
        pytest.param(kind, row, id=f"{kind.__name__}.{row.method}-{row.argument}-{row.error.__name__}")
        for kind, rows in table.items()
        for row in rows
    ]


async def outcome(call: Callable[[], Any]) -> None:
    """Carry a call out in whatever way it is carried out."""
    result = call()
    if isinstance(result, AsyncIterator):
        await anext(result)
    elif inspect.isawaitable(result):
        await result


@pytest.mark.rule("API-1")
@pytest.mark.rule("API-3")
@pytest.mark.rule("API-9")
@pytest.mark.rule("API-11")
@pytest.mark.behaviour("T-15")
@pytest.mark.behaviour("T-17")
@pytest.mark.behaviour("T-2")
@pytest.mark.behaviour("T-3")
@pytest.mark.behaviour("T-4")
@pytest.mark.behaviour("T-5")
@pytest.mark.behaviour("T-6")
@pytest.mark.behaviour("T-7")
@pytest.mark.behaviour("T-9")
@pytest.mark.behaviour("T-10")
@pytest.mark.behaviour("T-11")
@pytest.mark.parametrize(("kind", "row"), cases({**TABLE, UnderReplication: MARKS}))
async def test_a_wrong_argument_is_refused_with_nothing_sent_and_nothing_stored(kind: type, row: Row) -> None:
    async with fake_cluster() as where:
        target = await MAKERS[kind](where)
        await settled()
        where.sent.clear()
        before = where.service.snapshot()

        for value in row.wrong:
            try:
                await outcome(partial(getattr(target, row.method), **{**row.good, row.argument: value}))
            except row.error:
                continue
            pytest.fail(f"{row.argument}={value!r} was accepted")
        await settled()

        assert where.sent == []
        assert where.service.snapshot() == before
        if isinstance(target, LedgerWriter | AdvancedLedgerWriter):
            assert (target.in_flight_entries, target.in_flight_bytes, where.bk.in_flight_bytes) == (0, 0, 0)
            append: Any = target.append
            assert await append(*([2] if kind is AdvancedLedgerWriter else []), b"goes on") == 2


@pytest.mark.rule("API-2")
@pytest.mark.behaviour("T-9")
@pytest.mark.parametrize(
    ("kind", "row"), cases({kind: [row for row in TABLE[kind] if row.error is ArgumentError] for kind in OWNERS})
)
async def test_arguments_are_looked_at_before_it_is_asked_whether_the_client_is_closed(kind: type, row: Row) -> None:
    async with fake_cluster() as where:
        target = await MAKERS[kind](where)

    for value in row.wrong:
        with pytest.raises(ArgumentError):
            await outcome(partial(getattr(target, row.method), **{**row.good, row.argument: value}))


async def test_an_administrator_takes_no_mapping_for_a_configuration() -> None:
    async with fake_cluster() as where:
        for wrong in ({}, {"batch_entries": 1}, ClientConfig(), "x"):
            with pytest.raises(ArgumentError, match="config must be a RepairConfig, got"):
                RepairAdmin(where.bk, wrong)  # type: ignore[arg-type]


@pytest.mark.rule("API-2")
@pytest.mark.behaviour("T-51")
async def test_a_closed_client_refuses_every_call_with_good_arguments_as_closed() -> None:
    async with fake_cluster() as where:
        handles = [
            await MAKERS[kind](where) for kind in (LedgerReader, LedgerWriter, AdvancedLedgerWriter, RepairAdmin)
        ]
    where.sent.clear()
    reader, writer, advanced, admin = handles
    bk = where.bk
    calls: list[Callable[[], Any]] = [
        bk.create_ledger,
        bk.create_advanced_ledger,
        lambda: bk.open_ledger(0, recover=True),
        lambda: bk.open_ledger(0, recover=False),
        lambda: bk.open_ledger_as_administrator(0, recover=True),
        lambda: bk.delete_ledger(0),
        lambda: bk.ledger_metadata(0),
        lambda: bk.is_closed(0),
        lambda: bk.watch_metadata(0),
        bk.list_ledgers,
        bk.bookies,
        bk.is_metadata_available,
        lambda: reader.read(0),
        lambda: writer.append(b"x"),
        lambda: writer.append_nowait(b"x"),
        lambda: advanced.append(2, b"x"),
        lambda: advanced.append_nowait(2, b"x"),
        lambda: writer.submit(b"x"),
        lambda: advanced.submit(2, b"x"),
        *(getattr(handle, name) for handle in (writer, advanced) for name in ("force", "write_explicit_lac", "close")),
        *(handle.reader.read_last_add_confirmed for handle in (writer, advanced)),
        lambda: writer.reader.read(0),
        *(partial(getattr(admin, name), 0) for name in ("check_ledger", "check_replicas", "repair_ledger")),
        *(partial(getattr(admin, name), "gone") for name in ("ledgers_on", "decommission")),
        lambda: admin.entries_on("a", 0),
        lambda: admin.recover_bookie(["a"]),
        lambda: admin.recover_bookie(["a"], ledger_ids=[0]),
        *(admin.under_replication, admin.trigger_audit, admin.auditor),
    ]
    for call in calls:
        with pytest.raises(ClientClosed):
            await outcome(call)

    assert where.sent == []


@pytest.mark.parametrize("kind", TABLE)
def test_every_public_call_is_in_the_table(kind: type) -> None:
    public = {
        name
        for name, member in inspect.getmembers(kind, callable)
        if not name.startswith("_") and not isinstance(inspect.getattr_static(kind, name), property)
    }
    named = {row.method for row in TABLE[kind]}
    assert public - named - WITHOUT_ARGUMENTS[kind] == set()
    assert (named | WITHOUT_ARGUMENTS[kind]) - public == set()
    for name in WITHOUT_ARGUMENTS[kind]:
        assert list(inspect.signature(getattr(kind, name)).parameters) == ["self"], name
