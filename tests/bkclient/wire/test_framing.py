"""Frames out of a stream: any cut of it gives the same frames, within bounded memory and linear time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.wire.errors import FrameTooLarge, WireError
from bkclient.wire.framing import DEFAULT_MAX_FRAME_SIZE, FrameBuffer, frame

KIB = 1024
CONTENTS = st.binary(max_size=60) | st.integers(0, 9000).map(bytes)


def chunks(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    position = 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        yield data[position:cut]
        position = cut


def test_a_frame_is_its_length_in_four_bytes_and_its_content() -> None:
    assert frame(b"abc") == b"\0\0\0\3abc"
    assert frame(b"") == b"\0\0\0\0"


def test_a_stream_cut_at_every_byte_gives_the_same_frames() -> None:
    contents = [b"", b"one", b"x" * 5000, b"", b"y" * 4092, b"last"]
    stream = b"".join(map(frame, contents))
    for cut in range(len(stream) + 1):
        buffer = FrameBuffer()
        assert [*buffer.feed(stream[:cut]), *buffer.feed(stream[cut:])] == contents
        assert len(buffer) == 0


def test_a_stream_that_arrives_byte_by_byte_gives_the_same_frames() -> None:
    contents = [b"", b"one", b"z" * 300]
    buffer = FrameBuffer()
    got = [content for byte in b"".join(map(frame, contents)) for content in buffer.feed(bytes((byte,)))]
    assert got == contents


@settings(deadline=None)
@given(contents=st.lists(CONTENTS, max_size=12), cuts=st.lists(st.integers(0, 200_000), max_size=12))
def test_any_cuts_give_the_same_frames_fed_or_written_in_place(contents: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, contents))
    fed, written = FrameBuffer(), FrameBuffer()
    got_fed: list[bytes] = []
    got_written: list[bytes] = []
    for chunk in chunks(stream, cuts):
        got_fed += fed.feed(chunk)
        while chunk:
            free = written.get_buffer()
            assert len(free) > 0
            count = min(len(free), len(chunk))
            free[:count] = chunk[:count]
            free.release()
            written.commit(count)
            has_frame = written.has_frame
            new = list(written.frames())
            assert has_frame == bool(new)
            assert not written.has_frame
            got_written += new
            chunk = chunk[count:]  # noqa: PLW2901 - the rest of it
    assert got_fed == got_written == contents


def test_the_limit_counts_the_prefix_and_is_inclusive() -> None:
    buffer = FrameBuffer(max_frame_size=100)
    assert list(buffer.feed(frame(b"x" * 96))) == [b"x" * 96]
    with pytest.raises(FrameTooLarge, match=r"101 bytes.*100") as caught:
        list(buffer.feed(frame(b"x" * 97)))
    assert (caught.value.size, caught.value.limit) == (101, 100)
    assert isinstance(caught.value, WireError)
    assert buffer.has_frame, "there is an error to raise"


def test_the_default_limit_is_five_mebibytes() -> None:
    assert DEFAULT_MAX_FRAME_SIZE == 5_242_880
    content = bytes(DEFAULT_MAX_FRAME_SIZE - 4)
    buffer = FrameBuffer()
    assert list(buffer.feed(frame(content))) == [content]
    with pytest.raises(FrameTooLarge):
        list(buffer.feed((DEFAULT_MAX_FRAME_SIZE - 3).to_bytes(4, "big")))


def test_a_whole_frame_over_a_small_limit_is_refused_also_behind_another_frame() -> None:
    got: list[bytes] = []
    with pytest.raises(FrameTooLarge):
        got.extend(FrameBuffer(100).feed(frame(b"before") + frame(b"x" * 97)))
    assert got == [b"before"]


@pytest.mark.parametrize("limit", [100, 5000, 100 * KIB])
def test_a_frame_over_the_limit_is_refused_on_its_prefix_after_the_frames_before_it(limit: int) -> None:
    buffer = FrameBuffer(limit)
    got: list[bytes] = []
    with pytest.raises(FrameTooLarge):
        got.extend(buffer.feed(frame(b"before") + frame(b"") + (limit - 3).to_bytes(4, "big")))
    assert got == [b"before", b""]
    for _ in range(2):
        with pytest.raises(FrameTooLarge):
            list(buffer.frames())


@pytest.mark.parametrize("prefix", ["ffffffff", "80000000", "7fffffff"])
def test_a_huge_length_costs_no_memory(prefix: str) -> None:
    buffer = FrameBuffer()
    with pytest.raises(FrameTooLarge):
        list(buffer.feed(bytes.fromhex(prefix)))
    assert buffer.capacity == 4 * KIB


def test_a_connection_that_says_nothing_holds_four_kibibytes() -> None:
    buffer = FrameBuffer()
    assert len(buffer.get_buffer()) == buffer.capacity == 4 * KIB


@pytest.mark.parametrize("announced", [5 * KIB, 64 * KIB, 100 * KIB, 1000 * KIB, DEFAULT_MAX_FRAME_SIZE])
@pytest.mark.parametrize("chunk", [1, 15, 1000, 4096, 65_536])
def test_memory_grows_with_what_has_arrived_not_with_what_is_announced(announced: int, chunk: int) -> None:
    buffer = FrameBuffer()
    stream = (announced - 4).to_bytes(4, "big") + bytes(min(announced, 2000 * chunk) - 5)
    for start in range(0, len(stream), chunk):
        assert list(buffer.feed(stream[start : start + chunk])) == []
        buffer.get_buffer()
        assert buffer.capacity <= max(4 * KIB, 2 * len(buffer))


@settings(deadline=None)
@given(
    contents=st.lists(CONTENTS, max_size=12),
    announced=st.integers(5000, 5_000_000),
    cuts=st.lists(st.integers(0, 200_000)),
)
def test_memory_is_bounded_by_what_arrived_whatever_came_before(
    contents: list[bytes], announced: int, cuts: list[int]
) -> None:
    buffer = FrameBuffer()
    stream = b"".join(map(frame, contents)) + announced.to_bytes(4, "big") + bytes(min(announced, 70_000) - 1)
    arrived = 0
    for chunk in chunks(stream, cuts):
        arrived += len(chunk)
        for _ in buffer.feed(chunk):
            pass
        buffer.get_buffer()
        assert buffer.capacity <= max(4 * KIB, min(2 * arrived, 64 * KIB)) + 2 * len(buffer)


def test_memory_is_released_when_nothing_is_held_and_only_then() -> None:
    buffer = FrameBuffer()
    contents = [bytes(300 * KIB), b"small"]
    stream = b"".join(map(frame, contents))
    assert [*buffer.feed(stream[:-1])] == contents[:1]
    buffer.release()
    assert len(buffer) == 8
    assert [*buffer.feed(stream[-1:])] == contents[1:]
    assert buffer.capacity >= 64 * KIB
    buffer.release()
    assert buffer.capacity == 4 * KIB
    assert [*buffer.feed(stream)] == contents


def test_memory_is_64_kib_or_one_larger_frame_and_is_given_back() -> None:
    buffer = FrameBuffer()
    large = frame(bytes(1000 * KIB))
    stream = frame(b"small") * 10_000 + large + frame(b"small") * 10_000 + large
    count = 0
    for start in range(0, len(stream), 10 * KIB):
        for _ in buffer.feed(stream[start : start + 10 * KIB]):
            count += 1
        assert buffer.capacity <= len(large)
        assert len(buffer) <= buffer.capacity
    assert count == 20_002
    buffer.get_buffer()
    assert buffer.capacity == 64 * KIB


def test_a_buffer_that_frames_fill_to_its_end_doubles_up_to_64_kib() -> None:
    buffer = FrameBuffer()
    capacities = []
    for _ in range(7):
        free = buffer.get_buffer()
        free[:] = frame(bytes(len(free) - 4))
        buffer.commit(len(free))
        assert [len(content) for content in buffer.frames()] == [len(free) - 4]
        capacities.append(buffer.capacity)
    assert capacities == [4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 64 * KIB, 64 * KIB]


def test_a_frame_that_ends_with_the_buffer_stays_where_it_is() -> None:
    buffer = FrameBuffer()
    assert list(buffer.feed(frame(b"before") + frame(bytes(4 * KIB - 14))[:100])) == [b"before"]
    assert len(buffer.get_buffer()) == 4 * KIB - 10 - 100


def test_a_frame_as_large_as_the_buffer_is_received_in_it_and_a_larger_one_in_parts() -> None:
    for size, capacity in [(64 * KIB, 64 * KIB), (64 * KIB + 1, 64 * KIB + 1 - 4)]:
        buffer = FrameBuffer()
        assert list(buffer.feed(frame(bytes(64 * KIB - 4)))) == [bytes(64 * KIB - 4)]
        assert buffer.capacity == 64 * KIB
        large = frame(bytes(size - 4))
        assert list(buffer.feed(frame(b"before") + large[: 64 * KIB - 10])) == [b"before"]
        buffer.get_buffer()
        assert buffer.capacity == capacity
        assert list(buffer.feed(large[64 * KIB - 10 :])) == [bytes(size - 4)]
        assert buffer.capacity == 64 * KIB


def test_the_smallest_buffer_is_not_made_anew_to_be_released() -> None:
    buffer = FrameBuffer()
    before = buffer.get_buffer()
    buffer.release()
    assert buffer.get_buffer().obj is before.obj


def test_bytes_are_moved_a_constant_number_of_times_however_small_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = 0
    original = FrameBuffer._replace

    def counting(self: FrameBuffer, capacity: int) -> None:
        nonlocal moved
        moved += len(self)
        original(self, capacity)

    monkeypatch.setattr(FrameBuffer, "_replace", counting)
    buffer = FrameBuffer()
    stream = (frame(bytes(300 * KIB)) + frame(b"x" * 99) * 3000) * 3
    for start in range(0, len(stream), 500):
        for _ in buffer.feed(stream[start : start + 500]):
            pass
    assert 0 < moved < len(stream)


def test_a_limit_below_the_prefix_is_refused() -> None:
    with pytest.raises(ValueError, match="max_frame_size 4"):
        FrameBuffer(4)


def test_a_view_handed_out_survives_the_growth_of_the_buffer() -> None:
    buffer = FrameBuffer()
    view = buffer.get_buffer()
    assert list(buffer.feed(frame(bytes(200 * KIB)))) == [bytes(200 * KIB)]
    view[0] = 1
    assert len(buffer) == 0
