"""Acknowledgements that were counted before a writer hears of them: they come to what each bookie's would have."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkclient.errors import Code
from tests.bkclient.protocol.harness import Writer

ENTRIES = st.integers(0, 3)
BOOKIES = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append")),
        st.tuples(st.just("stored"), BOOKIES, ENTRIES),
        st.tuples(st.just("failed"), BOOKIES, ENTRIES),
        st.tuples(st.just("metadata")),
        st.tuples(st.just("stored by"), st.sampled_from(["ab", "bc", "ac", "bd", "cd"]), ENTRIES, st.integers(1, 3)),
    ),
    max_size=20,
)


class By:
    """An ack quorum that stored all entries that are told of, or one for each of them in turn."""

    def __init__(self, *quorums: str) -> None:
        self.quorums = quorums

    def bookies_of(self, place: int) -> tuple[str, ...]:
        return tuple(self.quorums[place % len(self.quorums)])


CHANGING = [("append",), ("append",), ("failed", "c", 0)]


def played(
    steps: list[tuple[object, ...]], *, is_counted: bool, is_striped: bool, delays_changes: bool
) -> list[object]:
    sizes = (3, 2, 2) if is_striped else (3, 3, 2)
    writer = Writer(sizes, spares="d", delay_ensemble_change=delays_changes)
    machine, seen = writer.machine, list[object]()
    for name, *rest in steps:
        match (name, *rest):
            case ("append",) if machine.is_writable and machine.last_add_pushed < 3:
                writer.append()
            case ("stored", bookie, entry) if entry <= machine.last_add_pushed:  # type: ignore[operator]
                writer.ok(f"{entry}{bookie}")
            case ("failed", bookie, entry) if entry <= machine.last_add_pushed:  # type: ignore[operator]
                writer.answer(f"{entry}{bookie}", Code.TIMEOUT)
            case ("metadata",) if writer.updates:
                writer.metadata_arrives()
            case ("stored by", str(bookies), int(first), int(count)) if set(bookies) <= set(machine.adds.ensemble):
                entries = [entry for entry in range(first, first + count) if entry <= machine.last_add_pushed]
                quorums = ["".join(machine.adds.write_set(entry)) if is_striped else bookies for entry in entries]
                if entries and is_counted:
                    is_done = machine.acknowledged_by(By(*quorums), entries)
                    assert is_done == (entries[-1] not in machine.adds.pending)
                else:
                    for entry, stored in zip(entries, quorums, strict=True):
                        for bookie in stored:
                            machine.acknowledged(bookie, [entry])
        seen.append((machine.snapshot(), tuple(writer.acked), tuple(writer.failed), writer.state))
    return seen


@pytest.mark.rule("W-21")
@given(STEPS, st.booleans(), st.booleans())
@example([*CHANGING, ("stored by", "ab", 0, 2), ("metadata",), ("stored", "d", 0)], False, False)
@example([("append",), ("append",), ("stored by", "ab", 1, 1), ("stored by", "bc", 0, 1)], False, False)
@example([("append",), ("append",), ("stored by", "ab", 1, 1), ("stored by", "ab", 0, 2)], True, False)
@example(
    [("append",), ("append",), ("append",), ("stored", "a", 2), ("stored", "b", 2), ("stored by", "ab", 0, 2)],
    False,
    True,
)
def test_what_was_counted_comes_to_the_same(
    steps: list[tuple[object, ...]], is_striped: bool, delays_changes: bool
) -> None:
    """In every state: while the ensemble changes, after a failure, for entries that wait for others, or are done.

    Striped, each entry that is told of has a quorum of its own.
    """
    counted, each = (
        played(steps, is_counted=way, is_striped=is_striped, delays_changes=delays_changes) for way in (True, False)
    )
    assert counted == each


@pytest.mark.rule("W-22")
def test_nothing_is_confirmed_while_the_ensemble_changes() -> None:
    writer = Writer(spares="d")
    writer.append(b"0", b"1")
    writer.timeout("0c")
    assert writer.state == "changing"
    assert not writer.machine.acknowledged_by(By("ab"), [0, 1])
    assert writer.acked == []
    writer.metadata_arrives()
    assert writer.acked == [0, 1]


@pytest.mark.rule("W-16")
def test_once_a_bookie_has_failed_it_is_counted_who_stored_what() -> None:
    writer = Writer()
    writer.append(b"0", b"1")
    writer.machine.adds.fail("c", 5, Code.TIMEOUT)
    assert writer.machine.adds.take_stored([0]) is None
    assert writer.machine.acknowledged_by(By("ab"), [0, 1])
    assert writer.acked == [0, 1]
