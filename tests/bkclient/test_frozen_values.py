"""What users get as values behaves as values: it pickles, copies, converts, compares and hashes."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient._frozen import FrozenDict
from bkclient.entry import Entry, EntryResult, LastConfirmedAndEntry
from bkclient.ledger import DigestType, Fragment, LedgerMetadata, LedgerState, Versioned
from bkclient.metadata.records import BookieServiceInfo, Endpoint

METADATA = LedgerMetadata(7, 1, 1, 1, (Fragment(0, ("a",)),), custom_metadata={"owner": b"me"}, password=b"x")
ENTRY = Entry(7, 0, b"x", 1, -1)

VALUES: list[Any] = [
    METADATA,
    replace(METADATA, custom_metadata={}),
    METADATA.closed(3, 30),
    METADATA.fragments[0],
    Versioned(METADATA, 3, created_ms=1),
    BookieServiceInfo((Endpoint("bookie", "h", 3181, "bookie-rpc"),), {"version": "4.17"}),
    BookieServiceInfo(),
    ENTRY,
    EntryResult(0, ENTRY, None),
    LastConfirmedAndEntry(0, ENTRY),
]


def is_a_value(value: Any, same: Callable[[], Any]) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == copy.copy(value) == value
    assert hash(value) == hash(same()) == hash(copy.deepcopy(value))
    fields = asdict(value)
    assert set(fields) == set(type(value).__dataclass_fields__)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_public_values_pickle_copy_convert_and_hash(value: Any) -> None:
    is_a_value(value, lambda: replace(value))


@given(
    custom=st.dictionaries(st.text(), st.binary()),
    state=st.sampled_from([LedgerState.OPEN, LedgerState.IN_RECOVERY]),
    digest=st.sampled_from(DigestType),
    starts=st.sets(st.integers(1, 50), max_size=3),
)
def test_metadata_of_any_content_is_a_value(
    custom: dict[str, bytes], state: LedgerState, digest: DigestType, starts: set[int]
) -> None:
    fragments = tuple(Fragment(first, (f"bookie-{first}",)) for first in (0, *sorted(starts)))

    def make() -> LedgerMetadata:
        return LedgerMetadata(1, 1, 1, 1, fragments, state, digest_type=digest, custom_metadata=dict(custom))

    is_a_value(make(), make)
    assert make() == replace(make(), custom_metadata=MappingProxyType(custom))
    assert asdict(make())["custom_metadata"] == custom


def test_what_was_handed_in_can_change_and_the_metadata_does_not() -> None:
    custom = {"a": b"1"}
    metadata = replace(METADATA, custom_metadata=custom)
    custom["a"] = b"2"
    assert metadata.custom_metadata == {"a": b"1"}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.__setitem__("a", 2),
        lambda d: d.__delitem__("a"),
        lambda d: d.update(a=2),
        lambda d: d.setdefault("b", 2),
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.__ior__({"a": 2}),
    ],
)
def test_a_frozen_dict_refuses_every_change(change: Callable[[Any], Any]) -> None:
    frozen = FrozenDict(a=1)
    with pytest.raises(TypeError, match="FrozenDict cannot be changed"):
        change(frozen)
    assert frozen == {"a": 1}


def test_a_frozen_dict_is_a_dict_to_everyone_who_reads_it() -> None:
    frozen = FrozenDict(a=1)
    assert json.dumps(frozen) == '{"a": 1}'
    assert repr(frozen) == "FrozenDict({'a': 1})"
    assert copy.copy(frozen) is frozen
    assert frozen | {"b": 2} == {"a": 1, "b": 2}
