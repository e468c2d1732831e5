"""``bk-sim inspect journal``: what it says of journal files, whole, torn and foreign."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simbookie.cli.app import app
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder
from simbookie.storage.journal.journal import Journal
from simbookie.storage.journal.mark import LogMark
from simbookie.storage.journal.records import explicit_lac_body, fence_body, key_body
from tests.simbookie.storage.journals import journal_settings
from tests.simbookie.storage.stores import entry


def invoke(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["inspect", "journal", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three journal files, 10.txn to 12.txn, the last one empty, that say everything a journal can say."""
    root = tmp_path_factory.mktemp("inspected")

    async def write() -> None:
        settings = journal_settings(file_bytes_max=600, group_wait_max_s=0)
        folder = Folder(DirectoryDisk(root), "current")
        journal = Journal(folder, settings, mark=LogMark(), clock_ms=lambda: 15)
        journal.start()
        journal.append(7, -0x1000, key_body(7, b"key"), None, None)
        written = asyncio.get_running_loop().create_future()
        journal.append(7, 0, entry(7, 0, b"abc"), lambda *_: written.set_result(None), None)
        await written
        journal.append(7, -0x2000, fence_body(7), None, None)
        journal.append(8, -0x8000, explicit_lac_body(8, struct.pack(">qq", 8, 5)), None, None)
        journal.append(8, 6, entry(8, 6, lac=5), None, None)
        drained = asyncio.get_running_loop().create_future()
        journal.drain(lambda: drained.set_result(None))
        await drained

    asyncio.run(write())
    (root / "current" / "VERSION").write_text("4")
    return root / "current"


def test_every_kind_of_record_is_listed_in_the_order_written(current: Path) -> None:
    (first, second, third) = json.loads(invoke(current, "--payload", "--json").stdout)["journals"]
    assert first == {
        "file": str(current / "10.txn"),
        "id": 16,
        "bytes": 16_384,
        "version": 6,
        "end": "zero-length",
        "position": 1_028,
        "error": None,
        "records": [
            {"position": 512, "kind": "key", "ledger": 7, "entry": -4096, "bytes": 23, "master_key": "6b6579"},
            {"position": 539, "kind": "entry", "ledger": 7, "entry": 0, "bytes": 35, "lac": -1, "payload": "616263"},
        ],
    }
    assert [(each["kind"], each["ledger"], each.get("lac")) for each in second["records"]] == [
        ("fence", 7, None),
        ("explicit-lac", 8, 5),
        ("entry", 8, 5),
    ]
    assert (third["id"], third["records"]) == (18, [])


def test_a_file_is_listed_for_people(current: Path) -> None:
    lines = invoke(current / "11.txn").stdout.splitlines()
    assert lines == [
        f"journal {current / '11.txn'}: 16384 bytes, version 6",
        "at 512: ledger 7, fence, 16 bytes",
        "at 532: ledger 8, explicit-lac, 36 bytes, LAC 5",
        "at 572: ledger 8, entry 6, 32 bytes, LAC 5",
        "ends at 1028: zero-length",
    ]
    assert len(invoke(current / "11.txn", "--ledger", 7).stdout.splitlines()) == 3


def test_a_file_that_is_cut_short_is_listed_as_far_as_it_goes(current: Path, tmp_path: Path) -> None:
    torn = tmp_path / "1.txn"
    torn.write_bytes((current / "10.txn").read_bytes()[:560])
    (facts,) = json.loads(invoke(torn, "--json").stdout)["journals"]
    assert (facts["end"], facts["position"], len(facts["records"])) == ("short-record", 560, 1)


def test_a_damaged_file_is_listed_up_to_the_damage_and_ends_in_1(current: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "1.txn"
    damaged.write_bytes((current / "10.txn").read_bytes()[:539] + struct.pack(">i", -9))
    (facts,) = json.loads(invoke(damaged, "--json", code=1).stdout)["journals"]
    assert (facts["end"], facts["error"], len(facts["records"])) == ("damaged", "a record of -9 bytes at 539", 1)
    assert invoke(damaged, code=1).stdout.splitlines()[-1] == "ends at 543: damaged: a record of -9 bytes at 539"


def test_a_version_that_nobody_can_read_is_told(tmp_path: Path) -> None:
    foreign = tmp_path / "1.txn"
    foreign.write_bytes(b"BKLG\0\0\0\x63" + bytes(600))
    (facts,) = json.loads(invoke(foreign, "--json", code=1).stdout)["journals"]
    assert (facts["version"], facts["error"]) == (None, "journal version 99, expected 1 to 6")


def test_a_folder_without_journals_and_a_file_that_is_not_there_are_wrong_usage(tmp_path: Path) -> None:
    assert "no journal file" in invoke(tmp_path, code=2).output
    invoke(tmp_path / "missing.txn", code=2)
