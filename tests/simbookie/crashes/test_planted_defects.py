"""Defects that are planted in the storage are seen by crash runs; those here within a few."""

from __future__ import annotations

import pytest

from tests.tools.storage_defect_table import DEFECTS, StorageDefect
from tests.tools.storage_defects import hunt

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
}


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len(DEFECTS) >= 40
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    assert SOON.keys() <= {defect.name for defect in DEFECTS}


@pytest.mark.parametrize("defect", [each for each in DEFECTS if each.name in SOON], ids=lambda each: each.name)
def test_a_defect_is_seen_as_what_it_violates(defect: StorageDefect) -> None:
    assert hunt(defect, 12, wanted=SOON[defect.name]).invariants
