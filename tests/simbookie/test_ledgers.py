"""The memory of fenced and deleted ledgers."""

from __future__ import annotations

import pytest

from bkclient.wire.messages import Status
from simbookie.ledgers import FencedGraveyard, status_of
from simbookie.storage.base import NoSpace, StorageError, StorageIOError, WriteCacheFull


@pytest.mark.rule("BK-5")
def test_a_buried_ledger_is_remembered_until_nobody_asks_for_it_long_enough() -> None:
    graveyard = FencedGraveyard(keep_s=10.0, size_max=5)
    graveyard.bury(1, now=0.0)
    assert graveyard.holds(1, now=9.0)
    assert graveyard.holds(1, now=18.0), "asking keeps it"
    assert not graveyard.holds(1, now=28.0)
    assert not graveyard.holds(1, now=28.0)
    assert not graveyard.holds(2, now=0.0)


@pytest.mark.rule("BK-5")
def test_the_graveyard_is_bounded_and_forgets_the_one_not_asked_for_longest() -> None:
    graveyard = FencedGraveyard(keep_s=100.0, size_max=3)
    for ledger_id in (1, 2, 3):
        graveyard.bury(ledger_id, now=0.0)
    assert graveyard.holds(1, now=1.0)
    graveyard.bury(4, now=2.0)
    assert len(graveyard) == 3
    assert [ledger_id for ledger_id in (1, 2, 3, 4) if graveyard.holds(ledger_id, now=3.0)] == [1, 3, 4]


@pytest.mark.rule("BK-1")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (WriteCacheFull(), Status.TOO_MANY_REQUESTS),
        (StorageIOError(), Status.IO_ERROR),
        (NoSpace(), Status.IO_ERROR),
        (StorageError(), Status.BAD_REQUEST),
    ],
)
def test_failures_of_the_storage_have_their_status(error: StorageError, status: Status) -> None:
    assert status_of(error) is status
