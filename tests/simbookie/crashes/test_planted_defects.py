"""Defects that are planted in the storage are seen by crash runs; those here within a few."""

from __future__ import annotations

import pytest

from tests.tools.storage_defect import StorageDefect
from tests.tools.storage_defect_table import DEFECTS
from tests.tools.storage_defects import PAGE, hunt, with_table

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


def test_results_replace_those_before() -> None:
    page = with_table("head\n<!-- results -->\nold\n<!-- end -->\ntail\n", ["| a |\n"], "2026-01-02")
    assert page.startswith("head\n<!-- results -->\nCounted on 2026-01-02:\n\n| defect |")
    assert page.endswith("|---|\n| a |\n\n<!-- end -->\ntail\n")
    assert "old" not in page
