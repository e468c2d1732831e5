"""The synchronous client: what crosses between threads, what is refused, how it is interrupted and closed, how it is typed."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

import bkclient
import bkclient.sync
from bkclient import LedgerWriter
from bkclient.errors import ArgumentError, BookKeeperError, ClientClosed, IllegalOperation, LedgerClosed, NoSuchLedger
from bkclient.log import ConsumerMode, MessageId, NoSuchLog, PublishSettings
from bkclient.sync import SyncBookKeeper
from bkclient.sync.bridge import Bridge
from scenarios.testing import TcpCluster

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with TcpCluster(4) as cluster:
        yield cluster.uri


@pytest.fixture
def bk(uri: str) -> Iterator[SyncBookKeeper]:
    with bkclient.sync.connect(uri) as client:
        yield client


def client_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "bkclient.sync"]


def test_everything_a_ledger_can_do(bk: SyncBookKeeper) -> None:
    writer = bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=b"secret")
    assert writer.append(b"one") == 0
    assert writer.submit(b"two").result(5) == 1
    assert writer.append_all([b"three", bytearray(b"four")]) == [2, 3]
    reader = bk.open_ledger(writer.ledger_id, password=b"secret")
    assert not reader.is_closed
    writer.flush()
    writer.force()
    assert (writer.last_add_confirmed, writer.metadata.password) == (3, b"secret")
    writer.close()
    assert writer.is_closed
    reader.wait_closed()
    assert [entry.payload for entry in reader] == [b"one", b"two", b"three", b"four"]
    assert [entry.entry_id for entry in reader.read_range(1, 2)] == [1, 2]
    assert len(reader.read_entries(0, 3)) == len(reader.read_batch(0)) == 4
    assert reader.read_last_entry() == reader.read(3)
    assert [entry.entry_id for entry in reader.tail(2)] == [2, 3]
    reader.aclose()
    assert bk.is_closed(writer.ledger_id)
    assert writer.ledger_id in bk.list_ledgers()
    assert len(bk.bookies().writable) == 4
    bk.delete_ledger(writer.ledger_id)
    with pytest.raises(NoSuchLedger):
        bk.ledger_metadata(writer.ledger_id)


def test_recovery_takes_a_ledger_over(bk: SyncBookKeeper) -> None:
    writer = bk.create_ledger()
    writer.append(b"one")
    assert bk.open_ledger(writer.ledger_id, recover=True).last_add_confirmed == 0
    with pytest.raises(BookKeeperError):
        writer.append(b"two")
    with pytest.raises(BookKeeperError):
        writer.submit(b"three").result()


def test_given_entry_ids(bk: SyncBookKeeper) -> None:
    with bk.create_advanced_ledger() as writer:
        second = writer.submit(1, b"two")
        assert writer.append(0, b"one") == 0
        assert second.result() == 1


def test_logs(bk: SyncBookKeeper) -> None:
    bk.logs.create("of-threads")
    with bk.logs.writer("of-threads") as log:
        assert log.epoch == 1
        published = [log.publish(b"one"), log.publish_nowait(b"two", key="k").result()]
        log.flush()
    with bk.logs.reader("of-threads", follow=False) as reader:
        assert [message.id for message in reader] == published
    assert "of-threads" in bk.logs.names()
    assert bk.logs.info("of-threads").epoch == 1
    with pytest.raises(NoSuchLog), bk.logs.writer("unknown"):
        pass


def test_cursors_and_groups_of_consumers(bk: SyncBookKeeper) -> None:
    bk.logs.create("shared")
    with bk.logs.writer("shared") as log:
        for number in range(8):
            log.publish(b"%d" % number)
    with bk.logs.cursor("shared", "c") as cursor:
        messages = [next(cursor) for _ in range(5)]
        cursor.acknowledge(messages[0])
        cursor.acknowledge_all(messages[2:4])
        cursor.flush()
        assert cursor.backlog_entries() == 5
        assert [place.entry_id for place in cursor.positions] == [1]
        cursor.acknowledge_through(messages[3])
    with bk.logs.cursor("shared", "c") as cursor:
        assert [next(cursor).payload for _ in range(4)] == [b"4", b"5", b"6", b"7"]
    with pytest.raises(IllegalOperation, match="inside"):
        next(cursor)
    bk.logs.reset_cursor("shared", "c", MessageId.LATEST)
    assert [info.backlog_entries for info in bk.logs.cursors("shared")] == [0]
    with bk.logs.consumer("shared", "g", mode=ConsumerMode.EXCLUSIVE) as consumer:
        first = consumer.receive()
        consumer.reject(first)
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: consumer.receive(), range(4)))
        found += consumer.receive_batch(2)
        while len(found) < 8:
            found += consumer.receive_batch()
        assert sorted(message.payload for message in found) == [b"%d" % number for number in range(8)]
        consumer.acknowledge(found[0])
        consumer.acknowledge_all(found[1:])
        consumer.flush()
        assert (consumer.backlog_entries(), consumer.partitions) == (0, (-1,))
    assert bk.logs.change_settings("shared", max_ledger_entries=7).max_ledger_entries == 7
    with pytest.raises(IllegalOperation, match="has no ledger"):
        bk.logs.drop_lost_ledger("shared", 10**9)


@pytest.mark.parametrize("batch_messages", [1, 100])
def test_messages_of_a_log_cross_many_at_a_time_and_none_is_lost_between(
    bk: SyncBookKeeper, batch_messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"many-{batch_messages}"
    bk.logs.create(name)
    with bk.logs.writer(name, settings=PublishSettings(batch_messages=batch_messages)) as log:
        for number in range(1000):
            log.publish_nowait(b"%d" % number)
    crossings = 0
    call = Bridge.call

    def counted(bridge: Bridge, *args: Any, **kwargs: Any) -> Any:
        nonlocal crossings
        crossings += 1
        return call(bridge, *args, **kwargs)

    with bk.logs.reader(name, follow=False) as reader:
        monkeypatch.setattr(Bridge, "call", counted)
        found = []
        for message in reader:
            found.append(message)
            if len(found) == 10:
                break
        found += reader
    assert [message.payload for message in found] == [b"%d" % number for number in range(1000)]
    if batch_messages > 1:  # else it depends on how many entries have arrived when somebody looks
        assert crossings <= 1000 // batch_messages + 2, "one for each entry at most, and those for the end"


def test_many_threads_share_a_client_and_a_writer(bk: SyncBookKeeper) -> None:
    with bk.create_ledger() as writer, ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(writer.append, [b"%d" % number for number in range(80)]))
    assert sorted(ids) == list(range(80))
    reader = bk.open_ledger(writer.ledger_id)
    with ThreadPoolExecutor(8) as threads:
        read = list(threads.map(reader.read, ids))
    assert [entry.payload for entry in read] == [b"%d" % number for number in range(80)]


def test_tail_waits_and_may_be_left(bk: SyncBookKeeper) -> None:
    writer = bk.create_ledger()
    reader = bk.open_ledger(writer.ledger_id)
    seen: list[bytes] = []

    def follow() -> None:
        seen.extend(entry.payload for entry in reader.tail())

    thread = threading.Thread(target=follow)
    thread.start()
    writer.append_all([b"one", b"two"])
    for entry in reader.tail():
        assert entry.payload == b"one"
        break
    writer.close()
    thread.join(20)
    assert seen == [b"one", b"two"]


def test_arguments_are_checked_before_anything_is_iterated(bk: SyncBookKeeper) -> None:
    with bk.create_ledger() as writer:
        writer.append(b"one")
    reader = bk.open_ledger(writer.ledger_id)
    with pytest.raises(ArgumentError):
        reader.read_range(-1, 0)


def test_leaving_by_an_exception_closes_the_ledger(bk: SyncBookKeeper) -> None:
    writer = bk.create_ledger()

    def write() -> None:
        with writer:
            writer.append(b"one")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert bk.is_closed(writer.ledger_id)
    with pytest.raises(LedgerClosed):
        writer.append(b"two")


def test_closing_ends_calls_under_way_and_the_thread(uri: str) -> None:
    before = client_threads()
    pending = bkclient.sync.connect(uri)
    client = pending.open()
    reader = client.open_ledger(client.create_ledger().ledger_id)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            reader.wait_closed()
        except BookKeeperError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    pending.close()
    thread.join(20)
    pending.close()
    assert [type(error) for error in errors] == [ClientClosed]
    with pytest.raises(ClientClosed):
        client.create_ledger()
    with pytest.raises(ArgumentError, match="entered once"):
        pending.open()
    assert client_threads() == before


def test_a_client_that_cannot_connect_leaves_no_thread() -> None:
    before = client_threads()
    with pytest.raises(ArgumentError, match="none of the known schemes"):
        bkclient.sync.connect("nowhere://x").open()
    assert client_threads() == before


async def test_in_a_thread_with_an_event_loop_it_is_refused(uri: str) -> None:
    with pytest.raises(IllegalOperation, match="this thread runs an event loop") as raised:
        bkclient.sync.connect(uri).open()
    assert "anyio.to_thread.run_sync" in str(raised.value)

    def in_a_thread() -> int:
        with bkclient.sync.connect(uri) as client, client.create_ledger() as writer:
            return writer.append(b"one")

    assert await anyio.to_thread.run_sync(in_a_thread) == 0


async def test_asynchronous_handles_are_refused_elsewhere(uri: str) -> None:
    async with bkclient.connect(uri) as client, await client.create_ledger() as writer:
        await writer.append(b"one")
        reader = await client.open_ledger(writer.ledger_id)

        def elsewhere() -> None:
            for call in (
                client.create_ledger,
                lambda: client.open_ledger(writer.ledger_id),
                client.aclose,
                lambda: writer.append(b"two"),
                writer.flush,
                writer.close,
                lambda: reader.read(0, unconfirmed=True),
                reader.read_last_add_confirmed,
            ):
                with pytest.raises(IllegalOperation, match="belong to the event loop in which the client was entered"):
                    asyncio.run(call())
            with pytest.raises(IllegalOperation, match=r"for threads there is bkclient\.sync"):
                writer.append_nowait(b"two")

        await anyio.to_thread.run_sync(elsewhere)
        assert await writer.append(b"two") == 1, "nothing happened"


@pytest.mark.parametrize("begin", ["__aenter__", "__await__"])
def test_on_another_event_loop_the_client_says_so_when_it_is_entered_or_awaited(begin: str) -> None:
    beginning = getattr(bkclient.connect("mem://nowhere"), begin)()
    with pytest.raises(IllegalOperation, match=r"runs on asyncio's event loop.* trio"):
        beginning.send(None)  # what trio does first, with no event loop of asyncio in sight


@pytest.mark.parametrize("call", ["reader.wait_closed()", "next(iter(reader.tail()))"])
def test_ctrl_c_ends_a_waiting_call_and_closes_everything(uri: str, call: str) -> None:
    program = f"""
        import bkclient.sync

        with bkclient.sync.connect({uri!r}) as bk:
            with bk.create_ledger() as writer:
                reader = bk.open_ledger(writer.ledger_id)
                print(writer.ledger_id, flush=True)
                try:
                    {call}
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
            print(bk.is_closed(writer.ledger_id), writer.is_closed)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        time.sleep(0.2)  # until it waits; a signal that comes before interrupts the call, too
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout.read() == "interrupted\nTrue True\n"
    assert process.returncode == 0


def test_methods_have_the_docstrings_of_the_asynchronous_ones() -> None:
    assert inspect.getdoc(bkclient.sync.SyncLedgerWriter.append) == inspect.getdoc(LedgerWriter.append)


TYPED = """
from concurrent.futures import Future
from typing import Iterator
import bkclient.sync
from bkclient import Entry
from bkclient.log import MessageId

with bkclient.sync.connect("zk://x", config=None) as bk:
    with bk.create_ledger(ensemble_size=3) as writer:
        one: int = writer.append(b"x")
        two: Future[int] = writer.submit(b"x")
        three: list[int] = writer.append_all([b"x"])
    entries: Iterator[Entry] = bk.open_ledger(1, recover=True).read_range(0, 1, parallel=True)
    message: MessageId = bk.logs.writer("x").publish(b"x", key="k")
"""
WRONG = """
import bkclient.sync

with bkclient.sync.connect("zk://x", confg=None) as bk:
    bk.create_ledger(ensemble="3")
    bk.open_ledger("1")
    text: str = bk.open_ledger(1).read(0)
    bk.open_ledger(1).read_range(0)
"""


@pytest.mark.deep
def test_type_checkers_know_arguments_and_results(tmp_path: Path) -> None:
    files = {"typed.py": TYPED, "wrong.py": WRONG}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        *(str(tmp_path / name) for name in files),
    ]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    errors = [line.split("/")[-1].split(": error")[0] for line in found.splitlines() if ": error" in line]
    assert errors == [f"wrong.py:{line}" for line in (4, 5, 6, 7, 8)], found
