"""Ledger metadata as values: the shapes that exist, and the changes the protocol makes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from bkclient.ledger import Fragment, LedgerMetadata, LedgerState, Versioned

OPEN = LedgerMetadata(7, 3, 2, 2, (Fragment(0, ("a", "b", "c")), Fragment(10, ("a", "b", "d"))), password=b"secret")


@pytest.mark.rule("API-4")
@pytest.mark.parametrize(
    "change",
    [
        {"write_quorum_size": 4},
        {"ack_quorum_size": 3},
        {"ack_quorum_size": 0},
        {"fragments": ()},
        {"fragments": (Fragment(0, ("a", "b")),)},
        {"fragments": (Fragment(1, ("a", "b", "c")),)},
        {"fragments": (Fragment(0, ("a", "b", "c")), Fragment(0, ("a", "b", "d")))},
        {"fragments": (Fragment(0, ("a", "b", "c")), Fragment(9, ("a", "b", "d")), Fragment(8, ("a", "b", "e")))},
        {"digest_type": None},
        {"has_password": False},
        {"has_password": False, "digest_type": None},
        {"last_entry_id": 5},
        {"length": 5},
        {"state": LedgerState.IN_RECOVERY, "last_entry_id": 5},
        {"state": LedgerState.CLOSED, "last_entry_id": -2},
        {"state": LedgerState.CLOSED, "length": -1},
    ],
)
def test_metadata_of_another_shape_does_not_exist(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="ledger 7"):
        replace(OPEN, **change)


def test_an_entry_belongs_to_the_last_fragment_that_starts_at_or_below_it() -> None:
    ensembles = {entry: OPEN.ensemble_at(entry) for entry in (0, 9, 10, 2**62)}
    first, last = OPEN.fragments[0].ensemble, OPEN.fragments[1].ensemble
    assert ensembles == {0: first, 9: first, 10: last, 2**62: last}
    assert OPEN.last_fragment is OPEN.fragments[-1]
    with pytest.raises(ValueError, match="no fragment holds entry -1"):
        OPEN.ensemble_at(-1)


@pytest.mark.rule("W-30")
def test_a_new_ensemble_appends_a_fragment_or_replaces_the_one_that_starts_there() -> None:
    new = ("x", "y", "z")
    assert OPEN.with_ensemble(12, new).fragments == (*OPEN.fragments, Fragment(12, new))
    assert OPEN.with_ensemble(10, new).fragments == (OPEN.fragments[0], Fragment(10, new))
    with pytest.raises(ValueError, match="cannot start at entry 9"):
        OPEN.with_ensemble(9, new)


def test_every_change_is_a_new_value() -> None:
    recovering = OPEN.with_state(LedgerState.IN_RECOVERY)
    closed = recovering.closed(11, 120)
    assert (closed.is_closed, closed.last_entry_id, closed.length) == (True, 11, 120)
    assert (OPEN.state, recovering.state) == (LedgerState.OPEN, LedgerState.IN_RECOVERY)
    with pytest.raises(FrozenInstanceError):
        OPEN.length = 1  # type: ignore[misc]


def test_the_text_of_metadata_keeps_the_password_to_itself() -> None:
    assert "secret" not in repr(OPEN)
    assert "secret" not in str(Versioned(OPEN, 3))


@pytest.mark.rule("MD-2")
def test_the_stores_creation_time_makes_no_difference_between_versions() -> None:
    assert Versioned(OPEN, 3, created_ms=1) == Versioned(OPEN, 3) != Versioned(OPEN, 4)
