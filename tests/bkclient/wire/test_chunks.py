"""Acknowledgements are taken out of a chunk by the run, and told by the run: nothing else comes of it than one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from bkclient.wire import chunks
from bkclient.wire.chunks import SentAdd
from bkclient.wire.messages import AddRequest

TOKENS = ["a writer", "another writer"]


def frame_of(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def taken_one_by_one(chunk: bytes, adds: dict[bytes, SentAdd[str]]) -> tuple[list[SentAdd[str]], int, int]:
    """What :func:`chunks.taken` does, in other words."""
    acknowledged, position = [], 0
    while len(chunk) - position > 4:
        frame = chunk[position : position + 4 + chunk[position + 3]]
        if frame not in adds:
            break
        acknowledged.append(adds.pop(frame))
        position += len(frame)
    return acknowledged, position, sum(add[3] for add in acknowledged)


#: Of few sizes and fewer contents, so that frames of one size follow each other, recur, and are the beginnings of others.
CONTENTS = st.sampled_from(
    [b"", b"a", b"b", b"ab", b"aa", b"\0\0\0\1", b"\0\0\0\1a", b"\0\0\0\2ab", b"c" * 40, b"c" * 41]
)


@given(st.lists(CONTENTS, max_size=12), st.sets(CONTENTS), st.integers(0, 60), st.binary(max_size=6))
@example([b"a", b"b", b"ab", b"aa", b"c" * 40], {b"a", b"b", b"ab", b"aa", b"c" * 40}, 0, b"")
@example([b"a", b"\0\0\0\1", b"b"], {b"a", b"b"}, 0, b"")
@example([b"ab", b"a"], {b"ab", b"a"}, 0, b"")
def test_acknowledgements_of_any_sizes(contents: list[bytes], known: set[bytes], cut: int, rest: bytes) -> None:
    chunk = b"".join(map(frame_of, contents))
    chunk = chunk[: len(chunk) - cut] + rest
    adds: dict[bytes, SentAdd[str]] = {
        frame_of(content): (number, TOKENS[number % 2], 1.0, 100 + number) for number, content in enumerate(known)
    }
    expected_left = dict(adds)
    expected = taken_one_by_one(chunk, expected_left)
    assert chunks.taken(chunk, adds) == expected
    assert list(adds.items()) == list(expected_left.items())


ADDS = st.tuples(
    st.integers(0, 9) | st.just(AddRequest(1, 2, b"", b"", b"")), st.sampled_from(TOKENS), st.just(1.0), st.just(1)
)


@given(st.lists(ADDS, max_size=8))
@example([(1, TOKENS[0], 0.0, 1), (2, TOKENS[1], 0.0, 1), (3, TOKENS[0], 0.0, 1)])
@example([(1, TOKENS[0], 0.0, 1), (AddRequest(1, 2, b"", b"", b""), TOKENS[0], 0.0, 1), (3, TOKENS[0], 0.0, 1)])
def test_runs_are_those_of_one_by_one(adds: list[Any]) -> None:
    assert chunks.runs_of(adds) == chunks.runs_of_each(adds)
