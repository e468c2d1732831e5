"""Defects that are planted in the storage are seen by crash runs; those here within a few."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.storage_defect import StorageDefect
from tests.tools.storage_defect_table import DEFECTS
from tests.tools.storage_defects import PAGE, hunt, main, rows_of, with_table

SOON = {
    "entries are not replayed": "I1",
    "fences are not journalled": "I2",
    "marks are written before the store is flushed": "I3",
    "marks are not synced": "I4",
    "acknowledged before the sync": "I5",
    "memtables are written backwards": "I8",
    "the source goes before the index is durable": "I10",
    "snapshots are not read": "I14",
    "memtables grow without bound": "I16",
    "known LACs fall": "I17",
    "a swap loses the active cache": "I3",
    "a flush does not sync its log": "I3",
    "the last batch of several is not written": "I3",
    "changes of ledgers are not synced": "I3",
    "the removal of a ledger takes the next": "I2",
    "locations of copies are not set": "I10",
}


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len(DEFECTS) >= 40
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    assert SOON.keys() <= {defect.name for defect in DEFECTS}


@pytest.mark.parametrize("defect", [each for each in DEFECTS if each.name in SOON], ids=lambda each: each.name)
def test_a_defect_is_seen_as_what_it_violates(defect: StorageDefect) -> None:
    assert hunt(defect, 12, wanted=SOON[defect.name]).invariants


def test_the_page_has_the_last_results_of_every_defect() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    assert [row[:3] for row in rows] == [[each.name, each.mechanism, each.kind] for each in DEFECTS]
    seen = {row[0]: row[4] for row in rows}
    assert "NOT FOUND" not in seen.values()
    assert all(seen[each.name] == f"`{each.test}`" for each in DEFECTS if each.test)


@pytest.mark.deep
def test_workers_find_what_one_finds_in_the_order_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for processes in ("1", "2"):
        assert main(["are not journalled", "--runs", "5", "--processes", processes]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    names = [each.name for each in DEFECTS if "are not journalled" in each.name]
    assert [line[:60].strip() for line in told[0].splitlines()[1:]] == names
    assert len(names) == 3


def test_a_defect_that_is_not_found_ends_it_with_1_and_none_to_plant_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["an explicit LAC is replayed over none only", "--runs", "1", "--processes", "1"]) == 1
    assert "NOT FOUND" in capsys.readouterr().out
    for arguments in (["no such defect"], ["", "--store", "tape"]):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)


def test_rows_of_others_stay_in_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr("tests.tools.storage_defects.PAGE", page)
    before = rows_of(PAGE.read_text(encoding="utf-8"))
    name = "an explicit LAC is replayed over none only"
    main([name, "--runs", "1", "--processes", "1", "--page"])
    after = rows_of(page.read_text(encoding="utf-8"))
    assert list(after) == list(before)
    assert after == before | {name: f"| {name} | replay | interleaved | 1 | NOT FOUND |\n"}


def test_results_replace_those_before() -> None:
    page = with_table("head\n<!-- results -->\nold\n<!-- end -->\ntail\n", ["| a |\n"], "2026-01-02")
    assert page.startswith("head\n<!-- results -->\nCounted on 2026-01-02:\n\n| defect |")
    assert page.endswith("|---|\n| a |\n\n<!-- end -->\ntail\n")
    assert "old" not in page
