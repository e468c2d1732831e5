"""Damaged histories: whatever became of the file, it is refused with a plain error, or its events are what they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scenarios.history import Event, History, HistoryError, read_history
from tests.scenarios.test_history import objects, rewrite, write_all_kinds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.bkh"


@pytest.mark.parametrize("kinds", [None, 3, [], [["APP_ACK"]], [[1, 2]], {"a": 1}])
def test_a_header_without_usable_kinds_is_refused(path: Path, kinds: Any) -> None:
    write_all_kinds(path)
    header, *rest = objects(path)
    rewrite(path, [{**header, "kinds": kinds}, *rest])
    with pytest.raises(HistoryError):
        read_history(path)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Event], Path]:
    path = tmp_path_factory.mktemp("fuzz") / "run.bkh"
    write_all_kinds(path)
    return path.read_bytes(), read_history(path)[1], path


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read_as_it_was(
    good: tuple[bytes, list[Event], Path], data: st.DataObject
) -> None:
    """The digest does not cover the header, so damage there may go unnoticed; the events are right or refused."""
    content, events, path = good
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    length = data.draw(st.one_of(st.just(len(damaged)), st.integers(0, len(damaged))))
    path.write_bytes(bytes(damaged[:length]))
    try:
        _, found = read_history(path)
    except HistoryError:
        return
    assert [(event.seq, event.time_us, event.actor, event.ledger) for event in found] == [
        (event.seq, event.time_us, event.actor, event.ledger) for event in events
    ]


def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    """Opening a named pipe waits for a writer, and a device may have no end."""
    os.mkfifo(tmp_path / "pipe.bkh")
    (tmp_path / "zero.bkh").symlink_to("/dev/zero")
    (tmp_path / "folder.bkh").mkdir()
    for name in ("pipe.bkh", "zero.bkh", "folder.bkh"):
        with pytest.raises(HistoryError, match="no regular file"):
            History(tmp_path / name)
