"""The runs of a ledger's entry ids, whatever order they come in."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simbookie.storage.runs import EntryRuns


class Kept:
    """Runs as a storage keeps them, and the ids themselves."""

    def __init__(self) -> None:
        self.runs, self.last, self.ids = EntryRuns(), -1, set[int]()

    def add(self, entry_id: int) -> None:
        if entry_id > self.last:
            if entry_id != self.last + 1:
                self.runs.skip_to(entry_id, self.last)
            self.last = entry_id
        elif entry_id not in self.ids:
            self.runs.insert(entry_id)
        self.ids.add(entry_id)

    def check(self) -> None:
        firsts, lasts = self.runs.runs(self.last)
        listed = [entry_id for first, last in zip(firsts, lasts, strict=True) for entry_id in range(first, last + 1)]
        assert listed == sorted(self.ids)
        assert all(first > last + 1 for first, last in zip(firsts[1:], lasts, strict=False)), "no two that touch"
        assert len(firsts) <= len(self.runs) + 1


@given(st.lists(st.integers(0, 30), max_size=60))
def test_runs_are_those_of_the_ids_that_came(ids: list[int]) -> None:
    kept = Kept()
    for entry_id in ids:
        kept.add(entry_id)
        kept.check()


@pytest.mark.parametrize("seed", range(10))
def test_all_ids_in_any_order_are_one_run(seed: int) -> None:
    kept, ids = Kept(), list(range(300))
    Random(seed).shuffle(ids)
    for entry_id in ids:
        kept.add(entry_id)
    kept.check()
    assert kept.runs.runs(kept.last)[0].tolist() == [0]
