"""Entries that are made the fast way cannot be told from others."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from bkclient.entry import Entry
from bkclient.wire.entry import made_entry


def test_an_entry_is_the_one_that_its_constructor_makes() -> None:
    made, entry = made_entry(1, 2, b"payload", 9, 0), Entry(1, 2, b"payload", 9, 0)
    assert type(made) is Entry
    assert (made, hash(made), repr(made), made.size) == (entry, hash(entry), repr(entry), entry.size)
    assert asdict(made) == asdict(entry)
    assert replace(made, entry_id=3) == replace(entry, entry_id=3) != made
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == copy.deepcopy(made) == entry


def test_an_entry_is_frozen() -> None:
    made = made_entry(1, 2, b"payload", 9, 0)
    with pytest.raises(FrozenInstanceError):
        made.payload = b"another"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del made.payload
    assert not hasattr(made, "__dict__")
