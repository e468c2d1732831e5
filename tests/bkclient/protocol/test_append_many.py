"""Entries that a writer takes many at a time: they come to what each one would have."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkclient.errors import Code
from tests.bkclient.protocol.harness import Writer

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.binary(max_size=3), min_size=1, max_size=4)),
        st.tuples(st.just("stored"), st.sampled_from("abcd"), st.integers(0, 7)),
        st.tuples(st.just("failed"), st.sampled_from("abcd"), st.integers(0, 7)),
        st.tuples(st.just("metadata")),
    ),
    max_size=20,
)


def played(steps: list[tuple[object, ...]], sizes: tuple[int, int, int], *, together: bool) -> tuple[list[object], int]:
    """What is seen after each step, and how many appends went together."""
    writer = Writer(sizes, spares="d")
    machine, seen, taken = writer.machine, list[object](), 0
    for name, *rest in steps:
        match (name, *rest):
            case ("append", list(payloads)) if machine.takes_many:
                taken += 1
                if together:
                    machine.append_all(payloads)
                else:
                    writer.append(*payloads)
            case ("stored", bookie, entry) if entry <= machine.last_add_pushed:  # type: ignore[operator]
                writer.ok(f"{entry}{bookie}")
            case ("failed", bookie, entry) if entry <= machine.last_add_pushed:  # type: ignore[operator]
                writer.answer(f"{entry}{bookie}", Code.TIMEOUT)
            case ("metadata",) if writer.updates:
                writer.metadata_arrives()
        seen.append((machine.snapshot(), writer.sent(), tuple(writer.acked), tuple(writer.failed), dict(writer.adds)))
    return seen, taken


@pytest.mark.rule("W-4", "W-10")
@given(STEPS, st.sampled_from([(3, 3, 2), (3, 2, 2), (3, 3, 1)]))
@example([("append", [b"x", b""]), ("stored", "a", 1), ("failed", "b", 0), ("append", [b"y", b"z"])], (3, 3, 2))
@example(
    [("append", [b"x"]), ("stored", "a", 0), ("stored", "b", 0), ("failed", "c", 0), ("append", [b"y", b"z"])],
    (3, 3, 2),
)
def test_many_appends_come_to_the_same(steps: list[tuple[object, ...]], sizes: tuple[int, int, int]) -> None:
    """Ids, lengths and LACs in headers, who is sent what in which order, and all of the machine."""
    assert played(steps, sizes, together=True) == played(steps, sizes, together=False)


def test_they_are_taken_one_by_one_where_an_append_may_come_to_more() -> None:
    writer = Writer(spares="d")
    found = [writer.machine.takes_many]
    writer.append()
    writer.ok("0a 0b")
    writer.answer("0c", Code.TIMEOUT)  # late: the next append replaces the bookie
    found.append(writer.machine.takes_many)
    writer.append()
    assert writer.state == "changing"
    found.append(writer.machine.takes_many)
    writer.metadata_arrives()
    found.append(writer.machine.takes_many)
    writer.close()
    found.append(writer.machine.takes_many)
    assert found == [True, False, False, True, False]
    assert not Writer(entry_ids_given=True).machine.takes_many
