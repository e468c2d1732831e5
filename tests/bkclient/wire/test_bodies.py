"""Bodies of a batch: the same as if they had been cut out, and nothing that lengths do not lead to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.ledger import DigestType
from bkclient.wire.bodies import Bodies, bodies_from
from bkclient.wire.entry import EntryCodec
from bkclient.wire.errors import MalformedMessage

BODIES = st.lists(st.binary(max_size=50), max_size=6)


def content_of(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@given(BODIES, st.integers(0, 3), st.slices(6))
def test_they_are_a_sequence_of_what_was_packed(bodies: list[bytes], start: int, part: slice) -> None:
    found = bodies_from(bytes(start) + content_of(bodies), start)
    assert (len(found), list(found), found == tuple(bodies)) == (len(bodies), bodies, True)
    assert [found[place] for place in range(len(bodies))] == bodies
    assert list(found[part]) == bodies[part]
    assert (found == found[: len(bodies)], tuple(bodies) == found, found != bodies) == (True, True, True)
    for fewer in range(len(bodies)):
        assert found[:fewer] != found


def test_a_slice_of_the_first_ones_copies_nothing() -> None:
    found = bodies_from(content_of([b"one", b"two"]), 0)
    assert isinstance(found[:1], Bodies)
    assert isinstance(found[:None], Bodies)
    assert found[1:] == (b"two",)
    assert repr(found) == "<2 bodies in 14 bytes>"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\0\0\0", "an incomplete entry length"),
        (b"\0\0\0\1a\0", "an incomplete entry length"),
        (b"\0\0\0\2a", "an entry of 2 bytes"),
        (b"\xff\xff\xff\xffabc", "an entry of -1 bytes"),
    ],
)
def test_lengths_lead_to_the_end(content: bytes, why: str) -> None:
    with pytest.raises(MalformedMessage, match=why):
        bodies_from(content, 0)


@given(
    st.sampled_from(DigestType),
    st.lists(st.binary(max_size=40), min_size=1, max_size=5),
    st.data(),
)
def test_entries_are_those_of_bodies_that_were_cut_out(
    digest: DigestType, payloads: list[bytes], drawn: st.DataObject
) -> None:
    codec = EntryCodec(7, digest, b"secret")
    bodies = [codec.encode_header(number, -1, 9, payload) + payload for number, payload in enumerate(payloads)]
    damaged = drawn.draw(st.integers(-1, len(bodies) - 1))
    if damaged >= 0:
        bodies[damaged] = drawn.draw(
            st.sampled_from([b"", bodies[damaged][:20], bodies[damaged][:-1], bodies[damaged] + b"x"])
            | st.binary(max_size=60)
            | st.integers(0, len(bodies[damaged]) - 1).map(lambda at: changed(bodies[damaged], at))
        )
    ids = range(len(bodies))
    entries = codec.decode_several(ids, bodies_from(content_of(bodies), 0))
    assert entries == codec.decode_each(ids, tuple(bodies)) == codec.decode_several(ids, tuple(bodies))


def changed(body: bytes, place: int) -> bytes:
    return body[:place] + bytes((body[place] ^ 1,)) + body[place + 1 :]


def test_as_many_ids_are_given_as_there_are_bodies() -> None:
    codec = EntryCodec(7, DigestType.CRC32C, b"")
    body = codec.encode_header(0, -1, 0, b"")
    some: Any = bodies_from(content_of([body, body]), 0)
    for bodies in (some, tuple(some)):
        with pytest.raises(ValueError, match="longer"):
            codec.decode_several([0], bodies)
