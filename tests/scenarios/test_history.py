"""Histories on disk: what is written is read back, and what was not written whole is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack
import pytest

from scenarios.history import (
    FIELDS,
    KINDS,
    SCHEMA_VERSION,
    Event,
    FieldType,
    History,
    HistoryError,
    HistoryWriter,
    Kind,
    read_history,
)
from scenarios.history.writer import BLOCK_EVENTS

_HEADER = {"scenario": "happy-path", "seed": 7, "mutant": "", "package_version": "1"}
_EXAMPLES: dict[FieldType, Any] = {
    FieldType.LONG: -1,
    FieldType.STRING: "b0",
    FieldType.BOOLEAN: True,
    FieldType.FRAGMENTS: [[0, ["b0", "b1"]], [5, ["b0", "b2"]]],
}


class Clock:
    """Ten microseconds later at every look."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 10
        return self.now


def example(kind: str) -> dict[str, Any]:
    return {name: _EXAMPLES[FIELDS[name]] for name in KINDS[kind]}


def write_all_kinds(path: Path | None = None) -> HistoryWriter:
    writer = HistoryWriter(_HEADER, Clock(), path)
    for kind in KINDS:
        writer.record(kind, "actor", 3, **example(kind))
    writer.close()
    return writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.bkh"


def objects(path: Path) -> list[Any]:
    with path.open("rb") as stream:
        return list(msgpack.Unpacker(stream, strict_map_key=False))


def rewrite(path: Path, parts: list[Any]) -> None:
    path.write_bytes(b"".join(msgpack.packb(part) for part in parts))


def test_every_kind_is_read_back_as_it_was_recorded(path: Path) -> None:
    writer = write_all_kinds(path)
    header, events = read_history(path)
    assert {name: header[name] for name in _HEADER} == _HEADER
    assert len(events) == writer.events == len(KINDS)
    for seq, (kind, event) in enumerate(zip(KINDS, events, strict=True)):
        assert event == Event(seq, 10 * (seq + 1), "actor", kind, 3, example(kind))


def test_a_history_describes_itself(path: Path) -> None:
    write_all_kinds(path)
    header = objects(path)[0]
    assert header["format"] == "bk-history"
    assert header["schema_version"] == SCHEMA_VERSION
    assert header["kinds"] == [[str(kind), list(names)] for kind, names in KINDS.items()]
    assert header["fields"] == {name: str(kind) for name, kind in FIELDS.items()}


def test_unknown_values_are_kept_unknown(path: Path) -> None:
    writer = HistoryWriter(_HEADER, Clock(), path)
    writer.record(Kind.LAC_ADV, "reader", 1, lac=None, source=None, handle=None)
    writer.close()
    (event,) = read_history(path)[1]
    assert event.fields == {"lac": None, "source": None, "handle": None}


def test_events_can_be_read_again(path: Path) -> None:
    write_all_kinds(path)
    history = History(path)
    assert list(history.events()) == list(history.events())


def test_the_digest_is_that_of_the_events_alone(tmp_path: Path) -> None:
    one = write_all_kinds(tmp_path / "one.bkh")
    kept_nowhere = write_all_kinds()
    assert one.digest == kept_nowhere.digest
    other_header = HistoryWriter({"scenario": "another"}, Clock())
    for kind in KINDS:
        other_header.record(kind, "actor", 3, **example(kind))
    assert other_header.digest == one.digest


def test_a_digest_that_was_asked_for_before_the_end_changes_nothing(tmp_path: Path) -> None:
    """Events are hashed and written many at a time, and what there is at once when the digest is asked for."""
    whole = write_all_kinds()
    writer = HistoryWriter(_HEADER, Clock(), tmp_path / "asked.bkh")
    digests = {writer.digest}
    for kind in KINDS:
        writer.record(kind, "actor", 3, **example(kind))
        digests.add(writer.digest)
    writer.close()
    assert writer.digest == whole.digest
    assert len(digests) == len(KINDS) + 1
    assert len(list(History(tmp_path / "asked.bkh").events())) == len(KINDS)


def test_another_time_or_value_is_another_digest() -> None:
    def digest(*, lac: int = 1, start: int = 0) -> str:
        clock = Clock()
        clock.now = start
        writer = HistoryWriter(_HEADER, clock)
        writer.record(Kind.BK_LAC, "b0", 1, lac=lac)
        return writer.digest

    assert len({digest(), digest(lac=2), digest(start=1)}) == 3


def test_listeners_hear_every_event_as_it_will_be_read(path: Path) -> None:
    heard: list[Event] = []
    writer = HistoryWriter(_HEADER, Clock(), path)
    writer.listeners.append(heard.append)
    for kind in KINDS:
        writer.record(kind, "actor", 3, **example(kind))
    writer.close()
    assert heard == read_history(path)[1]


def test_events_of_some_kinds_are_heard_first_and_no_others() -> None:
    heard: list[tuple[str, Event]] = []
    writer = HistoryWriter(_HEADER, Clock())
    writer.listeners.append(lambda event: heard.append(("all", event)))
    writer.listen([Kind.BK_LAC, Kind.BK_GC, Kind.BK_LAC], lambda event: heard.append(("some", event)))
    for kind in (Kind.BK_SYNC, Kind.BK_LAC, Kind.BK_GC):
        writer.record(kind, "b0", 1, **example(kind))
    assert [(who, event.kind) for who, event in heard] == [
        ("all", Kind.BK_SYNC),
        ("some", Kind.BK_LAC),
        ("all", Kind.BK_LAC),
        ("some", Kind.BK_GC),
        ("all", Kind.BK_GC),
    ]
    told = Event(-1, 0, "elsewhere", Kind.BK_LAC, 1, example(Kind.BK_LAC))
    heard.clear()
    writer.tell(told)
    assert heard == [("some", told), ("all", told)]
    assert writer.events == 3, "what is told is not recorded"


def test_readers_get_every_event_in_blocks() -> None:
    heard: list[Event] = []
    blocks: list[Sequence[Event]] = []
    writer = HistoryWriter(_HEADER, Clock())
    writer.listeners.append(heard.append)
    writer.readers.append(blocks.append)
    for entry in range(2 * BLOCK_EVENTS + 1):
        writer.record(Kind.BK_SYNC, "b0", 1, entry=entry)
    assert [len(block) for block in blocks] == [BLOCK_EVENTS, BLOCK_EVENTS]
    writer.close()
    writer.close()
    assert [len(block) for block in blocks] == [BLOCK_EVENTS, BLOCK_EVENTS, 1]
    assert [event for block in blocks for event in block] == heard


@pytest.mark.parametrize("count", [0, 1, 15, 16, BLOCK_EVENTS, BLOCK_EVENTS + 1])
def test_events_are_packed_one_after_the_other_however_many_are_a_block(path: Path, count: int) -> None:
    writer = HistoryWriter(_HEADER, Clock(), path)
    for entry in range(count):
        writer.record(Kind.BK_SYNC, "b0", 1, entry=entry)
    writer.close()
    _, *events, footer = objects(path)
    assert events == [[list(KINDS).index(Kind.BK_SYNC), n, 10 * (n + 1), "b0", 1, n] for n in range(count)]
    digest = hashlib.sha256(b"".join(msgpack.packb(event) for event in events)).hexdigest()
    assert footer == {"events": count, "digest": digest}


@pytest.mark.parametrize("fields", [{}, {"lac": 1}, {"lac": 1, "origin": "x"}])
def test_an_event_takes_all_fields_of_its_kind_and_no_other(fields: dict[str, Any]) -> None:
    writer = HistoryWriter(_HEADER, Clock())
    with pytest.raises(TypeError, match="LAC_ADV takes the fields"):
        writer.record(Kind.LAC_ADV, "reader", 1, **fields)
    assert writer.events == 0


def test_a_misnamed_field_is_found_when_events_are_packed() -> None:
    writer = HistoryWriter(_HEADER, Clock())
    writer.record(Kind.BK_SYNC, "b0", 1, entry=1)
    writer.record(Kind.BK_SYNC, "b0", 1, entries=2)
    with pytest.raises(TypeError, match=r"BK_SYNC takes the fields \['entry'\], not \['entries'\]"):
        writer.flush()


def test_without_a_digest_events_are_handed_on_and_not_packed(path: Path) -> None:
    heard: list[Event] = []
    writer = HistoryWriter(_HEADER, Clock(), with_digest=False)
    writer.readers.append(heard.extend)
    writer.record(Kind.BK_SYNC, "b0", 1, entry=2**70)  # which msgpack cannot express
    assert writer.digest == ""
    writer.close()
    assert [event.fields for event in heard] == [{"entry": 2**70}]
    writer = HistoryWriter(_HEADER, Clock(), path, with_digest=False)
    writer.record(Kind.BK_SYNC, "b0", 1, entry=1)
    writer.close()
    assert objects(path)[-1]["digest"] == writer.digest != "", "a file has one"


def test_closing_twice_is_closing_once(path: Path) -> None:
    writer = write_all_kinds(path)
    size = path.stat().st_size
    writer.close()
    assert path.stat().st_size == size


def test_folders_are_made_for_it(tmp_path: Path) -> None:
    write_all_kinds(tmp_path / "a" / "b" / "run.bkh")
    assert (tmp_path / "a" / "b" / "run.bkh").exists()


# Refusals ----------------------------------------------------------------------------------------------------------


def refused(path: Path, says: str) -> None:
    with pytest.raises(HistoryError, match=says) as caught:
        read_history(path)
    assert str(path) in str(caught.value)
    assert caught.value.path == str(path)


def test_a_missing_file_is_refused(path: Path) -> None:
    refused(path, "cannot be opened")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x93\x01\x02\x03", b"\x80", b"\xc1"])
def test_what_is_no_history_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refused(path, "is not a history")


def test_another_schema_version_is_refused_by_name(path: Path) -> None:
    write_all_kinds(path)
    header, *rest = objects(path)
    rewrite(path, [{**header, "schema_version": 99}, *rest])
    refused(path, "schema version 99; this program reads version 1")


def test_a_file_that_stops_early_is_refused(path: Path) -> None:
    write_all_kinds(path)
    rewrite(path, objects(path)[:-3])
    refused(path, f"is truncated after {len(KINDS) - 2} events")


def test_a_writer_that_was_not_closed_leaves_a_truncated_file(path: Path) -> None:
    writer = HistoryWriter(_HEADER, Clock(), path)
    for _ in range(20_000):
        writer.record(Kind.BK_SYNC, "b0", 1, entry=1)
    assert path.stat().st_size > 0
    refused(path, "truncated|damaged|not a history")
    writer.close()
    assert len(read_history(path)[1]) == 20_000


def test_a_lost_event_is_refused(path: Path) -> None:
    write_all_kinds(path)
    parts = objects(path)
    rewrite(path, [*parts[:5], *parts[6:]])
    refused(path, "event 5 stands where event 4 belongs")


def test_a_changed_event_is_refused(path: Path) -> None:
    write_all_kinds(path)
    parts = objects(path)
    parts[4][2] += 1
    rewrite(path, parts)
    refused(path, "does not match the digest")


def test_a_wrong_count_is_refused(path: Path) -> None:
    write_all_kinds(path)
    *parts, footer = objects(path)
    rewrite(path, [*parts, {**footer, "events": 1}])
    refused(path, "its footer says 1")


def test_more_after_the_footer_is_refused(path: Path) -> None:
    write_all_kinds(path)
    path.write_bytes(path.read_bytes() + b"\x01")
    refused(path, "goes on after its footer")


@pytest.mark.parametrize("event", [[0], [999, 0, 0, "a", 1], "text", [0, 0, 0, "a", 1, 2], 7, None])
def test_an_event_of_no_known_shape_is_refused(path: Path, event: Any) -> None:
    write_all_kinds(path)
    parts = objects(path)
    rewrite(path, [parts[0], event, *parts[1:]])
    with pytest.raises(HistoryError):
        read_history(path)


# Processes that are killed ---------------------------------------------------------------------------------------


def test_what_is_written_through_survives_a_kill(path: Path) -> None:
    """Nothing is flushed or closed, as after SIGKILL."""
    writer = HistoryWriter(_HEADER, Clock(), path, writes_through=True)
    writer.record(Kind.BK_SYNC, "b0", 1, entry=0)
    assert [event.kind for event in History(path, may_be_cut=True).events()] == [Kind.BK_SYNC]
    with pytest.raises(HistoryError, match="truncated after 1 events"):
        read_history(path)
    writer.abandon()


def test_a_last_event_that_is_cut_off_is_left_out(path: Path) -> None:
    writer = HistoryWriter(_HEADER, Clock(), path, writes_through=True)
    for entry in range(3):
        writer.record(Kind.BK_SYNC, "b0", 1, entry=entry)
    writer.abandon()
    path.write_bytes(path.read_bytes()[:-1])
    assert [event.fields["entry"] for event in History(path, may_be_cut=True).events()] == [0, 1]


def test_what_may_be_cut_is_not_what_may_be_damaged(path: Path) -> None:
    writer = HistoryWriter(_HEADER, Clock(), path, writes_through=True)
    writer.abandon()
    path.write_bytes(path.read_bytes() + msgpack.packb(None))
    with pytest.raises(HistoryError, match="no known shape"):
        list(History(path, may_be_cut=True).events())
