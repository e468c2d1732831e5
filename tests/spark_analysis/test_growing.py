"""Histories that are judged while they grow: what a look at one comes to, and what came to a folder. No Spark here."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest

from scenarios.checker import OnlineChecker
from scenarios.history import Event, History
from scenarios.model import Violation
from spark_analysis.streaming import arrivals, growing
from spark_analysis.streaming.arrivals import Arrivals
from spark_analysis.streaming.growing import Growth, HistoryState, Progress, judge_growth
from spark_analysis.streaming.source import StreamSource
from tests.spark_analysis.plants import NEAR_MISSES, PLANTS
from tests.spark_analysis.recorded import bystander, record, truncated, truncating, with_choices


def look(path: Path, before: Progress | None = None, up_to: int | None = None, scan: int = 1) -> Growth:
    """A look at ``path``, after the one that came to ``before``, as another process would take it."""
    size = path.stat().st_size if path.exists() and up_to is None else up_to or 0
    return judge_growth(str(path), pickle.loads(pickle.dumps(before)), size, scan)


# One history --------------------------------------------------------------------------------------------------------


def test_in_whatever_pieces_a_history_comes_it_is_judged_as_a_whole(tmp_path: Path) -> None:
    for number, plant in enumerate((*PLANTS, *NEAR_MISSES)):
        path = record(tmp_path / "one.bkh", plant.story, bystander())
        whole = OnlineChecker()
        history = History(path)
        for event in history.events():
            whole.feed(event)
        size = path.stat().st_size
        told: list[Violation] = []
        growth = Growth(HistoryState.OPEN, Progress(1))
        for up_to in (*range(1 + number % 97, size, 1 + size // 5), size):
            growth = look(path, growth.progress, up_to)
            told += growth.violations
            assert (growth.state is HistoryState.JUDGED) == (up_to == size), (plant.file, up_to)
        assert told == list(whole.finish()), plant.file
        assert growth.progress.checker.judged == whole.judged
        assert growth.digest == history.digest
        assert growth.progress.started == 1


def test_a_violation_is_told_before_the_history_ends_and_once(tmp_path: Path) -> None:
    path = record(tmp_path / "bad.bkh", truncating(3), bystander())
    data = path.read_bytes()
    path.write_bytes(data[:-200])
    first = look(path)
    assert first.state is HistoryState.OPEN
    assert [found.clause for found in first.violations] == ["A1"]
    path.write_bytes(data)
    second = look(path, first.progress)
    assert (second.state, second.violations) == (HistoryState.JUDGED, ())
    assert second.digest is not None


def test_a_footer_may_hold_what_a_schedule_chose(tmp_path: Path) -> None:
    plain = record(tmp_path / "plain.bkh", bystander())
    growth = look(with_choices(plain, tmp_path / "chosen.bkh"))
    assert (growth.state, growth.digest) == (HistoryState.JUDGED, look(plain).digest)


def test_nothing_is_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = record(tmp_path / "good.bkh", bystander())
    fed: list[int] = []

    class Counting(OnlineChecker):
        def feed(self, event: Event) -> None:
            fed.append(event.seq)
            super().feed(event)

    monkeypatch.setattr(growing, "OnlineChecker", Counting)
    progress = Progress(1, checker=Counting())
    for up_to in range(0, path.stat().st_size + 1, 7):
        progress = judge_growth(str(path), progress, up_to, 1).progress
    judge_growth(str(path), progress, path.stat().st_size, 1)
    assert fed == list(range(len(fed)))


def replaced(before: bytes, after: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert data.count(before) >= 1
        return data.replace(before, after, 1)

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _: b"plain text, and no history at all", "is not a history"),
        (lambda _: msgpack.packb({"format": "other"}), "does not start with a history header"),
        (replaced(b"\xaeschema_version\x01", b"\xaeschema_version\x07"), "has schema version 7"),
        (lambda data: data + b"\x00", "goes on after its footer"),
        (replaced(b"\xa6writer", b"\xa6Writer"), "does not match the digest in its footer"),
        (replaced(b"\xa6events", b"\xa6Events"), "its footer says None"),
        (lambda data: data[:-100] + b"\xc1" + data[-99:], ""),
    ],
)
def test_a_file_that_is_no_history_is_told_apart_from_one_that_grows(
    tmp_path: Path, change: Callable[[bytes], bytes], says: str
) -> None:
    path = record(tmp_path / "odd.bkh", bystander())
    data = path.read_bytes()
    changed = change(data)
    path.write_bytes(changed)
    growth = look(path)
    assert growth.state is HistoryState.UNUSABLE
    assert says in (growth.problem or "")


def test_what_is_torn_is_open_until_it_goes_on(tmp_path: Path) -> None:
    path = truncated(tmp_path / "torn.bkh")
    assert look(path).state is HistoryState.OPEN
    path.write_bytes(b"")
    assert look(path).state is HistoryState.OPEN


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.bkh")
    assert look(tmp_path / "pipe.bkh").problem == "is no regular file"
    assert look(tmp_path / "gone.bkh").problem == "cannot be read (No such file or directory)"


def test_whatever_a_history_holds_the_look_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(OnlineChecker):
        def feed(self, event: Event) -> None:
            raise OverflowError("too much")

    path = record(tmp_path / "odd.bkh", bystander())
    progress = Progress(1, checker=Fails())
    growth = judge_growth(str(path), progress, path.stat().st_size, 1)
    assert growth.problem == "holds what cannot be judged (OverflowError: too much)"


def test_an_object_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "OBJECT_BYTES_MAX", 1000)
    monkeypatch.setattr(growing, "_READ_BYTES", 1000)
    path = record(tmp_path / "odd.bkh", bystander())
    assert look(path).problem == "has an object of more than 1000 bytes after byte 0"


def test_a_file_that_was_written_anew_is_judged_anew(tmp_path: Path) -> None:
    path = truncated(tmp_path / "one.bkh")
    first = look(path)
    record(path, truncating(3), seed=5)
    second = look(path, first.progress, scan=4)
    assert (second.state, second.progress.started) == (HistoryState.JUDGED, 4)
    assert [found.clause for found in second.violations] == ["A1"]
    path.write_bytes(path.read_bytes()[:-300])
    third = look(path, second.progress, scan=6)
    assert (third.state, third.progress.started) == (HistoryState.OPEN, 6)


# A folder -----------------------------------------------------------------------------------------------------------


def names(arrived: Arrivals, after: int, last: int) -> dict[str, tuple[int, int]]:
    return {found.name: (found.up_to, found.grown) for found in arrived.between(after, last)}


def test_a_scan_has_what_is_new_or_has_grown(tmp_path: Path) -> None:
    folder, kept = tmp_path / "in", tmp_path / "kept"
    arrived = Arrivals(folder, kept)
    assert arrived.look(0) == 0, "the folder may come later"
    folder.mkdir()
    (folder / "a.bkh").write_bytes(b"x" * 10)
    (folder / "_a.bkh.part").write_bytes(b"x")
    assert arrived.look(0) == 1
    assert arrived.look(1) == 1, "nothing has come"
    (folder / "a.bkh").write_bytes(b"x" * 15)
    (folder / "b.bkh").write_bytes(b"x" * 3)
    assert arrived.look(0) == 1, "what was found is judged first"
    assert arrived.look(1) == 2
    assert names(arrived, 0, 1) == {"a.bkh": (10, 10)}
    assert names(arrived, 1, 2) == {"a.bkh": (15, 5), "b.bkh": (3, 3)}
    assert names(arrived, 0, 2) == {"a.bkh": (15, 5), "b.bkh": (3, 3)}
    again = Arrivals(folder, kept)
    assert again.newest == 2
    assert again.between(1, 2) == arrived.between(1, 2), "whatever the folder has become"


def test_scans_have_limits_and_what_waits_longest_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "SCAN_BYTES_MAX", 100)
    monkeypatch.setattr(arrivals, "FILE_BYTES_MAX", 60)
    for number, name in enumerate(("c", "a", "b")):
        path = tmp_path / "in" / f"{name}.bkh"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 90)
        os.utime(path, ns=(number, number))
    arrived = Arrivals(tmp_path / "in", tmp_path / "kept")
    found, last = [], -1
    while arrived.newest != last:
        last = arrived.newest
        arrived.look(last)
        if arrived.newest != last:
            found.append(names(arrived, last, arrived.newest))
    assert found == [
        {"c.bkh": (60, 60), "a.bkh": (60, 60)},
        {"c.bkh": (90, 30), "a.bkh": (90, 30), "b.bkh": (60, 60)},
        {"b.bkh": (90, 30)},
    ]


def test_scans_that_are_done_with_are_merged(tmp_path: Path) -> None:
    folder, kept = tmp_path / "in", tmp_path / "kept"
    folder.mkdir()
    (folder / "done.bkh").write_bytes(b"x")
    arrived = Arrivals(folder, kept)
    for number in range(60):
        (folder / "a.bkh").write_bytes(b"x" * (number + 1))
        assert arrived.look(number) == number + 1
        arrived.forget(number)
    assert len(list(kept.iterdir())) < 20
    again = Arrivals(folder, kept)
    assert again.newest == arrived.newest == 60
    assert again.look(60) == 60, "what was merged is known"
    assert again.between(59, 60) == arrived.between(59, 60)
    assert json.loads((kept / "merged.json").read_bytes())["scan"] >= 50


def test_a_scan_that_is_repeated_comes_to_the_same(tmp_path: Path) -> None:
    """As it is when a task, or the whole job, was ended in the middle."""
    folder, kept = tmp_path / "in", tmp_path / "kept"
    path = record(folder / "bad.bkh", truncating(3), bystander())
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    reader = StreamSource({"path": str(folder), "kept": str(kept)}).streamReader(None)  # type: ignore[arg-type]
    at = [reader.initialOffset()]

    def rows() -> list[object]:
        here = pickle.loads(pickle.dumps(reader))
        return [row for part in reader.partitions(at[-2], at[-1]) for row in here.read(part)]

    at.append(reader.latestOffset(at[-1], None))  # type: ignore[arg-type]
    first = rows()
    assert rows() == first
    path.write_bytes(data)
    reader.commit(at[-1])
    at.append(reader.latestOffset(at[-1], None))  # type: ignore[arg-type]
    second = rows()
    assert rows() == second
    assert [row[3] for row in (*first, *second)] == ["open", "judged"]  # type: ignore[index]
    told = [clause for row in (*first, *second) for _, clause, *_ in row[-1]]  # type: ignore[index]
    assert told == ["A1"]
    reader.commit(at[-1])
    assert list((kept / "open").iterdir()) == [], "nothing is kept of what has ended"
