"""Entries that are read many at a time: each has the read that it would have had alone, as soon as anything is to be decided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import Code
from bkclient.protocol.read import EntryRead, ReadOutcome
from bkclient.protocol.read_run import ReadRun

ORDERS = ["abc", "bca", "cab", "abb", "b"]


@pytest.mark.rule("R-7")
def test_every_entry_is_asked_of_its_first_replica() -> None:
    run = ReadRun(4, [tuple("abc"), tuple("bca"), tuple("acb")])
    assert run.to_ask() == {"a": [4, 6], "b": [5]}
    run.found((5,))
    assert list(run.waiting) == [4, 6]


@pytest.mark.rule("R-7")
@pytest.mark.rule("R-11")
@pytest.mark.rule("R-13")
@given(
    orders=st.lists(st.sampled_from(ORDERS).map(tuple), min_size=1, max_size=4),
    codes=st.lists(st.sampled_from([Code.OK, Code.NO_SUCH_ENTRY, Code.DIGEST_MATCH, Code.TIMEOUT, None]), min_size=12),
)
def test_an_entry_goes_on_as_if_it_had_been_read_alone(orders: list[tuple[str, ...]], codes: list[Code | None]) -> None:
    """A code is an answer of the next bookie that was asked, None a late one."""
    run = ReadRun(7, orders)
    first = {entry_id: bookie_id for bookie_id, entry_ids in run.to_ask().items() for entry_id in entry_ids}
    steps = iter(codes)
    for entry_id, replicas in enumerate(orders, 7):
        alone = EntryRead(entry_id, replicas)
        asked = list(alone.to_ask())
        assert asked == [first[entry_id]]
        read: EntryRead | None = None
        for code in steps:
            if code is Code.OK and read is None:
                run.found((entry_id,))
                assert alone.on_reply(asked[0], Code.OK) is ReadOutcome.FOUND
                assert (alone.tried, alone.overtaken) == (1, ())
                break
            if read is None:
                read = run.single(entry_id)
            if code is None:
                assert read.on_late() == alone.on_late()
            elif asked:
                bookie_id = asked.pop(0)
                assert read.on_reply(bookie_id, code) is alone.on_reply(bookie_id, code)
            more = alone.to_ask()
            assert read.to_ask() == more
            asked += more
            assert read == alone
            if alone.outcome is not ReadOutcome.WAITING:
                break
        assert (entry_id in run.waiting) == (read is None and alone.outcome is ReadOutcome.WAITING)
