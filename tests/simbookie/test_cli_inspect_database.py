"""``bk-sim inspect index`` of a store with a database: both databases, while nobody, or a bookie, has them open."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from simbookie.cli.app import app
from simbookie.storage.db.rocks import RocksDatabase, rocks_databases
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder, Folders
from tests.simbookie.storage.stores import Owner, done, entry


@pytest.fixture
def current(tmp_path: Path) -> Iterator[Path]:
    """The folder of a store with two ledgers, which is open."""

    async def write() -> DbLedgerStore:
        store = DbLedgerStore(
            Folders([Folder(DirectoryDisk(tmp_path), "current")], Random(1)),
            databases=lambda folder: rocks_databases(tmp_path / folder.path),
        )
        store.open(Owner())
        for ledger_id in (7, 8):
            store.set_master_key(ledger_id, b"key")
            store.add_entry(ledger_id, 3, entry(ledger_id, 3, b"abc", lac=2))
        store.set_fenced(7)
        store.set_explicit_lac(7, 3, b"l" * 16)
        flags = (-0xEEFD).to_bytes(8, signed=True)
        store.shards[0].ledgers.database.put(flags, (1).to_bytes(8))
        await done(store.flush)
        return store

    store = asyncio.run(write())
    yield tmp_path / "current"
    store.close()


def invoke(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["inspect", "index", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_locations_are_listed_of_all_ledgers_or_of_one(current: Path) -> None:
    lines = ["ledger 7, entry 3: log 0, position 1028", "ledger 8, entry 3: log 0, position 1067"]
    assert invoke(current / "locations").stdout.splitlines() == lines
    assert invoke(current / "locations", "--ledger", 8).stdout.splitlines() == lines[1:]
    assert invoke(current / "locations", "--ledger", 9).stdout == ""
    assert json.loads(invoke(current / "locations", "--ledger", 7, "--json").stdout) == {
        "file": str(current / "locations"),
        "entries": [{"ledger": 7, "entry": 3, "log": 0, "position": 1028}],
    }


def test_ledgers_are_listed_and_a_bookies_flags_are_not(current: Path) -> None:
    lines = [
        f"ledger 7: master key 6b6579, fenced True, in limbo False, explicit lac {'6c' * 16}",
        "ledger 8: master key 6b6579, fenced False, in limbo False, explicit lac None",
    ]
    assert invoke(current / "ledgers").stdout.splitlines() == lines
    assert invoke(current / "ledgers", "--ledger", 8).stdout.splitlines() == lines[1:]
    (ledger,) = json.loads(invoke(current / "ledgers", "--ledger", 7, "--json").stdout)["ledgers"]
    facts = {"ledger": 7, "master_key": "6b6579", "fenced": True, "in_limbo": False, "explicit_lac": "6c" * 16}
    assert ledger == facts


def test_nothing_is_changed(current: Path) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in current.rglob("*") if path.is_file()}

    for path in current.rglob("rocksdict-config.json"):
        path.unlink()  # as BookKeeper's bookies leave their databases
    before = files()
    invoke(current / "locations")
    invoke(current / "ledgers", "--json")
    assert files() == before


def test_another_folder_is_wrong_usage_and_a_database_that_is_none_a_failure(tmp_path: Path) -> None:
    assert "neither ledgers nor locations" in " ".join(invoke(tmp_path, code=2).stderr.split())
    (tmp_path / "locations").mkdir()
    assert "could not open the database" in invoke(tmp_path / "locations", code=1).stderr
    assert list((tmp_path / "locations").iterdir()) == []


def test_damage_is_a_failure(current: Path, tmp_path: Path) -> None:
    path = tmp_path / "other" / "locations"
    database = RocksDatabase(path)
    database.put(b"short", b"")
    database.close()
    assert "5 bytes of key" in invoke(path, code=1).stderr


def test_without_the_package_one_sentence_says_what_to_install(current: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert "pip install 'bkclient[rocksdb]'" in invoke(current / "locations", code=1).stderr
