"""``bk-sim inspect``: what it says of entry logs and index files, whole, torn and foreign."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from simbookie.cli.app import app
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.interleaved import InterleavedLedgerStore
from tests.simbookie.storage.stores import Owner, done, entry


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store with two ledgers, one log complete and one not."""
    root = tmp_path_factory.mktemp("inspected")

    async def write() -> None:
        store = InterleavedLedgerStore(Folders([Folder(DirectoryDisk(root), "current")], Random(1)))
        store.open(Owner())
        for ledger_id in (7, 8):
            store.set_master_key(ledger_id, b"key")
            store.add_entry(ledger_id, 3, entry(ledger_id, 3, b"abc", lac=2))
        store.logger.roll()
        store.add_entry(7, 4, entry(7, 4))
        store.set_fenced(7)
        store.set_explicit_lac(7, 3, b"l" * 16)
        await done(store.flush)
        store.close()

    asyncio.run(write())
    return root / "current"


def invoke(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_a_log_is_listed_with_its_ledgers_and_entries(current: Path) -> None:
    facts = json.loads(invoke("log", current / "0.log", "--payload", "--json").stdout)
    assert facts.pop("file") == str(current / "0.log")
    assert facts == {
        "bytes": 1024 + 2 * 39 + 24 + 2 * 16,
        "version": 1,
        "map_offset": 1024 + 2 * 39,
        "ledgers": {"7": 39, "8": 39},
        "entries": [
            {"position": 1028, "ledger": 7, "entry": 3, "bytes": 35, "lac": 2, "payload": "616263"},
            {"position": 1067, "ledger": 8, "entry": 3, "bytes": 35, "lac": 2, "payload": "616263"},
        ],
    }
    lines = invoke("log", current / "0.log", "--ledger", 8, "--payload").stdout.splitlines()
    assert lines[0].endswith("1158 bytes, version 1, ledgers map at 1102")
    assert lines[1:] == [
        *("ledger 7: 39 bytes", "ledger 8: 39 bytes"),
        "at 1067: ledger 8, entry 3, 35 bytes, LAC 2: 616263",
    ]


def test_a_log_that_is_not_complete_says_so(current: Path) -> None:
    lines = invoke("log", current / "1.log").stdout.splitlines()
    assert lines[0].endswith("not complete: no ledgers map")
    assert lines[1:] == ["ledger 7: 36 bytes", "at 1028: ledger 7, entry 4, 32 bytes, LAC -1"]


def test_a_log_that_is_cut_short_is_listed_as_far_as_it_goes(current: Path, tmp_path: Path) -> None:
    torn = tmp_path / "0.log"
    torn.write_bytes((current / "0.log").read_bytes()[:1090])
    facts = json.loads(invoke("log", torn, "--json").stdout)
    assert (facts["ledgers"], len(facts["entries"])) == ({"7": 39}, 1)


def test_an_index_is_listed_with_what_is_known_of_the_ledger(current: Path) -> None:
    facts = json.loads(invoke("index", current / "0/7/7.idx", "--json").stdout)
    assert facts.pop("file") == str(current / "0/7/7.idx")
    assert facts == {
        "ledger": 7,
        "version": 1,
        "master_key": b"key".hex(),
        "fenced": True,
        "in_limbo": False,
        "explicit_lac": b"l".hex() * 16,
        "bytes": 8192,
        "entries": [{"entry": 3, "log": 0, "position": 1028}, {"entry": 4, "log": 1, "position": 1028}],
    }
    lines = invoke("index", current / "0/8/8.idx").stdout.splitlines()
    assert lines[1:] == [
        *("ledger: 8", "version: 1", f"master key: {b'key'.hex()}", "fenced: False", "in limbo: False"),
        *("explicit lac: None", "bytes: 8192", "entry 3: log 0, position 1067"),
    ]


@pytest.mark.parametrize("command", ["log", "index"])
def test_other_files_are_refused(command: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"x" * 2000)
    assert "begins with" in invoke(command, wrong, code=1).stderr
    assert "No such file" in invoke(command, tmp_path / "missing", code=1).stderr
