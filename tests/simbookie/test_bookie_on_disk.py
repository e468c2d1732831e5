"""Bookie processes with ``--data``: what they acknowledged outlives any end; a folder is one bookie's and one process's."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import AddRequest, ReadRequest, Request, Status
from simbookie.cli.app import app
from simbookie.processes import BookieProcess, BookieStartError
from simbookie.storage.base import StorageError, StorageIOError
from simbookie.storage.conf import StorageConf
from simbookie.storage.data_folder import DataFolderError, DataPlaces, data_folder
from simbookie.storage.interleaved import InterleavedLedgerStore
from simbookie.storage.kinds import StoreKind
from tests.simbookie.storage.stores import entry

# a metadata service of each process's own: enough for a bookie that is asked directly
MEMORY = "mem://alone"
KEY = b"k" * 20


@pytest.fixture
def kind() -> StoreKind | None:
    return None


@pytest.fixture
def bookie(tmp_path: Path, kind: StoreKind | None) -> Iterator[BookieProcess]:
    options = ["--data", str(tmp_path / "data"), *(["--storage", kind.value] if kind is not None else [])]
    process = BookieProcess("b0", MEMORY, tmp_path, bookie_id="b0", options=options)
    yield process
    process.kill()


def asked(bookie: BookieProcess, *requests: Request) -> list[tuple[Status, bytes | None]]:
    """The status of each answer, and the entry it brings."""
    found: list[tuple[Status, bytes | None]] = []
    with closing(socket.create_connection((bookie.address.host, bookie.address.port), 10)) as connection:
        wire: ClientConnection[None] = ClientConnection(3)
        for request in requests:
            connection.sendall(b"".join(bytes(part) for part in wire.send(request, None)))
            came = len(found)
            while len(found) == came:
                answers = wire.receive(connection.recv(65_536))
                found += [(status, getattr(response, "body", None)) for _, _, status, response in answers]
    return found


def add(entry_id: int) -> AddRequest:
    body = entry(7, entry_id, b"payload %d" % entry_id, lac=entry_id - 1)
    return AddRequest(7, entry_id, KEY, body[:32], body[32:])


@pytest.mark.parametrize("kind", [None, *StoreKind])
def test_what_a_bookie_acknowledged_outlives_a_kill_and_an_orderly_end(bookie: BookieProcess) -> None:
    bookie.start()
    assert asked(bookie, *map(add, range(20))) == [(Status.OK, None)] * 20
    ((status, _),) = asked(bookie, ReadRequest(7, 19, fence_key=KEY, high_priority=True))
    assert status is Status.OK
    bookie.kill()
    for _ in range(2):
        bookie.start()
        for entry_id, (status, body) in enumerate(asked(bookie, *(ReadRequest(7, number) for number in range(20)))):
            assert (status, (body or b"").endswith(b"payload %d" % entry_id)) == (Status.OK, True)
        assert asked(bookie, add(20)) == [(Status.FENCED, None)]
        assert bookie.terminate() == 0


def test_a_folder_is_of_one_process_at_a_time_and_of_one_bookie_for_good(bookie: BookieProcess, tmp_path: Path) -> None:
    bookie.start()
    options = ["--data", str(tmp_path / "data")]
    with pytest.raises(BookieStartError, match="in use by another process"):
        BookieProcess("second", MEMORY, tmp_path, bookie_id="b0", options=options).start()
    assert bookie.terminate() == 0
    with pytest.raises(BookieStartError, match="the data of bookie b0, not of b1; use --id b0"):
        BookieProcess("other", MEMORY, tmp_path, bookie_id="b1", options=options).start()


def test_a_damaged_journal_is_one_sentence(bookie: BookieProcess, tmp_path: Path) -> None:
    bookie.start()
    asked(bookie, add(0))
    bookie.kill()
    (journal,) = (tmp_path / "data" / "journal" / "current").glob("*.txn")
    content = bytearray(journal.read_bytes())
    content[512:516] = b"\xff\xff\xff\x01"
    journal.write_bytes(content)
    with pytest.raises(BookieStartError, match=r"bk-sim: .*\.txn: a record of -255 bytes at 512"):
        bookie.start()


def used(folder: Path, conf: StorageConf) -> None:
    """Use a folder for a moment, and store something."""

    async def use() -> None:
        with data_folder(
            DataPlaces.inside(folder), conf, clock_ms=lambda: 0, rng=Random(1), on_fatal=lambda _: None
        ) as storage:
            ended = asyncio.Event()
            storage.open(ended.set, lambda _: None)
            await ended.wait()
            storage.set_master_key(7, KEY)
            storage.add_entry(7, 0, entry(7, 0), None, None)
            ended.clear()
            storage.shutdown(ended.set)
            await ended.wait()

    asyncio.run(use())


@pytest.mark.parametrize("first", StoreKind)
def test_a_folder_has_the_files_of_one_kind_of_store(first: StoreKind, tmp_path: Path) -> None:
    """A bookie with another kind would deny what it has acknowledged."""
    used(tmp_path, StorageConf(kind=first))
    used(tmp_path, StorageConf())
    has_database = (tmp_path / "ledgers/current/locations").exists()
    assert has_database is (first is StoreKind.DB)
    for second in StoreKind:
        if (first is StoreKind.DB) == (second is StoreKind.DB):
            used(tmp_path, StorageConf(kind=second))
            continue
        with pytest.raises(
            DataFolderError, match=f"would find nothing there; use --storage {'db' if has_database else 'sorted'}"
        ):
            used(tmp_path, StorageConf(kind=second))
    assert (tmp_path / "ledgers/current/locations").exists() is has_database


def test_a_store_with_a_database_needs_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(StorageError, match=r"pip install 'bkclient\[rocksdb\]'"):
        used(tmp_path, StorageConf(kind=StoreKind.DB))


def test_a_kind_of_store_in_memory_is_wrong_usage() -> None:
    result = CliRunner().invoke(app, ["bookie", "--metadata", "mem://", "--storage", "db"])
    assert (result.exit_code, "requires --data" in " ".join(result.stderr.split())) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "requires --id or --port"),
        (["--id", "b0", "--journal-sync-ms", "1"], "the disk decides how long a sync takes"),
    ],
)
def test_what_does_not_go_with_a_folder_is_wrong_usage(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    command = ["bookie", "--metadata", "mem://", "--data", str(tmp_path / "data"), *arguments]
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, complaint in " ".join(result.stderr.split())) == (2, True)
    assert not (tmp_path / "data").exists()


@contextmanager
def open_lock(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_the_lock_ends_with_the_block(tmp_path: Path) -> None:
    def use() -> None:
        folder = tmp_path / "data"
        with data_folder(
            DataPlaces.inside(folder), StorageConf(), clock_ms=lambda: 0, rng=Random(1), on_fatal=lambda _: None
        ) as storage:
            assert storage.acks_are_durable

    use()
    use()
    with open_lock(tmp_path / "data"), pytest.raises(DataFolderError, match="in use by another process"):
        use()


def test_a_checkpoint_that_fails_is_logged_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    used(tmp_path, StorageConf(kind=StoreKind.INTERLEAVED))
    assert "checkpoint" not in caplog.text

    def fails(_store: InterleavedLedgerStore, on_done: Any, token: object) -> None:
        asyncio.get_running_loop().call_soon(on_done, token, StorageIOError("the index is gone"))

    monkeypatch.setattr(InterleavedLedgerStore, "flush", fails)
    used(tmp_path, StorageConf())
    assert (
        f"{tmp_path}: a checkpoint failed, so the journals stay as they are until one succeeds: the index is gone"
        in (caplog.text)
    )


def conf_file(tmp_path: Path, **settings: str) -> Path:
    path = tmp_path / "bk_server.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


@pytest.mark.parametrize(
    ("kind", "journals", "ledgers", "indexes"),
    [
        (StoreKind.INTERLEAVED, "a", "a", "a"),
        *((kind, "j1,j2", "l1,l2", "i1,i2") for kind in StoreKind),
        pytest.param(StoreKind.DB, "a,j", "l,a", "l,a", id="shared"),
    ],
)
def test_folders_are_those_that_a_configuration_file_names(
    kind: StoreKind, journals: str, ledgers: str, indexes: str, tmp_path: Path
) -> None:
    """All files are in ``current`` of one of them, where a bookie of BookKeeper has them too."""
    at = {
        key: [tmp_path / each for each in names.split(",")]
        for key, names in (
            *(("journalDirectories", journals), ("ledgerDirectories", ledgers), ("indexDirectories", indexes)),
        )
    }
    settings = {key: ", ".join(map(str, paths)) for key, paths in at.items()}
    file = conf_file(tmp_path, **settings, ledgerStorageClass=kind.class_name)
    bookie = BookieProcess("b0", MEMORY, tmp_path, bookie_id="b0", options=["--conf", str(file)])
    try:
        bookie.start()
        assert asked(bookie, *map(add, range(20))) == [(Status.OK, None)] * 20
        bookie.kill()
        bookie.start()
        for status, body in asked(bookie, *(ReadRequest(7, number) for number in range(20))):
            assert (status, body is not None) == (Status.OK, True)
        with pytest.raises(BookieStartError, match="in use by another process"):
            BookieProcess("b1", MEMORY, tmp_path, bookie_id="b0", options=["--conf", str(file)]).start()
        assert bookie.terminate() == 0
    finally:
        bookie.kill()
    for folder in {folder for folders in at.values() for folder in folders}:
        assert {each.name for each in folder.iterdir()} == {"current", "lock"}
        assert (folder / "current" / "VERSION").is_file()
    assert all(list((folder / "current").glob("*.txn")) for folder in at["journalDirectories"])
    assert any(list((folder / "current").glob("*.log")) for folder in at["ledgerDirectories"])
    index_files = "locations" if kind is StoreKind.DB else "*/*/*.idx"
    assert any(list((folder / "current").glob(index_files)) for folder in at["indexDirectories"])
    if ledgers != indexes:
        assert not any(list((folder / "current").glob(index_files)) for folder in at["ledgerDirectories"])


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"ledgerDirectories": "l"}, "journalDirectories and ledgerDirectories must both be named"),
        ({"journalDirectories": "j"}, "journalDirectories and ledgerDirectories must both be named"),
        ({"journalDirectories": "j,./j", "ledgerDirectories": "l"}, "a folder is named twice"),
        (
            {"journalDirectory": "j", "ledgerDirectories": "l", "journalFormatVersionToWrite": "5"},
            "journalFormatVersionToWrite must be >= 6, got 5",
        ),
        (
            {
                "journalDirectories": "j",
                "ledgerDirectories": "l",
                "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.X",
            },
            "tlsProviderFactoryClass=org.apache.bookkeeper.tls.X is refused: use --tls-certificate",
        ),
        (
            {"journalDirectories": "j", "ledgerDirectories": "l", "nettyMaxFrameSizeBytes": "big"},
            "nettyMaxFrameSizeBytes must be a whole number",
        ),
        ({"indexDirectories": "i"}, "journalDirectories and ledgerDirectories must both be named"),
        ({"gcWaitTime": "1000"}, "requires --data, or folders in the file"),
    ],
)
def test_a_file_that_makes_no_sense_is_wrong_usage(
    settings: dict[str, str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["bookie", "--metadata", "mem://", "--id", "b0", "--conf", str(conf_file(tmp_path, **settings))]
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, complaint in " ".join(result.stderr.split())) == (2, True)
    assert [each.name for each in tmp_path.iterdir()] == ["bk_server.conf"]


def test_a_folder_of_data_is_used_whatever_a_file_names(tmp_path: Path) -> None:
    file = conf_file(tmp_path, journalDirectories=str(tmp_path / "j"), ledgerDirectories=str(tmp_path / "l"))
    options = ["--conf", str(file), "--data", str(tmp_path / "data")]
    bookie = BookieProcess("b0", MEMORY, tmp_path, bookie_id="b0", options=options)
    bookie.start()
    bookie.kill()
    assert (tmp_path / "data" / "journal").is_dir()
    assert not (tmp_path / "j").exists()


@pytest.mark.parametrize("kind", [StoreKind.DB])
def test_a_start_that_fails_after_the_store_was_full_ends_the_process(bookie: BookieProcess, tmp_path: Path) -> None:
    bookie.start()
    big = entry(7, 0, bytes(100_000))
    adds = [AddRequest(7, number, KEY, entry(7, number, b"", -1)[:32], big[32:]) for number in range(30)]
    assert asked(bookie, *adds) == [(Status.OK, None)] * 30
    bookie.kill()
    (journal,) = (tmp_path / "data" / "journal" / "current").glob("*.txn")
    with journal.open("r+b") as file:
        content = file.read()
        file.seek(len(content.rstrip(b"\0")) // 512 * 512 + 512)
        file.write((-255).to_bytes(4, signed=True))
    conf = tmp_path / "bk_server.conf"
    conf.write_text("dbStorage_writeCacheMaxSizeMb=1\n")
    options = ["--data", str(tmp_path / "data"), "--conf", str(conf)]
    small = BookieProcess("b0", MEMORY, tmp_path, bookie_id="b0", options=options, start_timeout_s=30)
    with pytest.raises(BookieStartError, match=r"bk-sim: .*\.txn: a record of -255 bytes"):
        small.start()
