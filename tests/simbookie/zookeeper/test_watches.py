"""Watches of the three modes, and their limits."""

from __future__ import annotations

import pytest

from simbookie.zookeeper.codes import ErrorCode, EventType, WatcherType, WatchMode, ZooKeeperError
from simbookie.zookeeper.watches import Watches, WatchTable


def new_watches(*, size_max: int = 100, size_per_watcher_max: int = 100) -> Watches[str]:
    return Watches(size_max=size_max, size_per_watcher_max=size_per_watcher_max)


def test_a_watch_for_once_is_spent_by_one_event() -> None:
    watches = new_watches()
    watches.data.add("/a", "ann")
    watches.data.add("/a", "ann")
    watches.data.add("/a", "bob")
    assert watches.fire(EventType.CHILDREN_CHANGED, "/a") == []
    assert watches.fire(EventType.DATA_CHANGED, "/a") == ["ann", "bob"]
    assert watches.fire(EventType.DATA_CHANGED, "/a") == []
    assert len(watches) == 0


def test_who_watches_data_and_children_hears_once_of_a_deletion() -> None:
    watches = new_watches()
    watches.data.add("/a", "ann")
    watches.children.add("/a", "ann")
    watches.children.add("/a", "bob")
    assert watches.fire(EventType.DELETED, "/a") == ["ann", "bob"]
    assert len(watches) == 0


def test_lasting_watches_last() -> None:
    watches = new_watches()
    watches.add_lasting("/a", "ann", WatchMode.PERSISTENT)
    watches.add_lasting("/", "bob", WatchMode.PERSISTENT_RECURSIVE)
    for _ in range(2):
        assert watches.fire(EventType.DATA_CHANGED, "/a") == ["ann", "bob"]
        assert watches.fire(EventType.CHILDREN_CHANGED, "/a") == ["ann"]
        assert watches.fire(EventType.CREATED, "/a/b/c") == ["bob"]
    assert watches.remove("/", "bob", WatcherType.PERSISTENT_RECURSIVE)
    assert watches.fire(EventType.CREATED, "/a/b/c") == []
    assert not watches.remove("/", "bob", WatcherType.ANY)
    assert watches.remove("/a", "ann", WatcherType.PERSISTENT)
    assert len(watches) == 0


def test_modes_are_watched_and_removed_one_by_one() -> None:
    watches = new_watches()
    watches.data.add("/a", "ann")
    for mode in (WatchMode.PERSISTENT, WatchMode.PERSISTENT_RECURSIVE):
        watches.add_lasting("/a", "ann", mode)
    assert watches.has("/a", "ann", WatcherType.DATA)
    assert not watches.has("/a", "ann", WatcherType.CHILDREN)
    assert watches.remove("/a", "ann", WatcherType.PERSISTENT_RECURSIVE)
    assert watches.fire(EventType.CREATED, "/a/b") == []
    assert watches.remove("/a", "ann", WatcherType.DATA)
    assert not watches.remove("/a", "ann", WatcherType.DATA)
    assert watches.has("/a", "ann", WatcherType.PERSISTENT)
    assert watches.fire(EventType.DATA_CHANGED, "/a") == ["ann"]


def test_a_watcher_that_goes_takes_its_watches_along() -> None:
    watches = new_watches()
    for path in ("/a", "/b"):
        watches.children.add(path, "ann")
        watches.add_lasting(path, "ann", WatchMode.PERSISTENT_RECURSIVE)
    watches.children.add("/a", "bob")
    watches.remove_watcher("ann")
    watches.remove_watcher("ann")
    assert len(watches) == 1
    assert watches.fire(EventType.CREATED, "/a/b") == []


def test_watches_are_bounded_for_each_and_for_all() -> None:
    table: WatchTable[str] = WatchTable(size_max=3, size_per_watcher_max=2)
    for path in ("/a", "/b", "/a"):
        table.add(path, "ann")
    with pytest.raises(ZooKeeperError) as refused:
        table.add("/c", "ann")
    assert refused.value.code is ErrorCode.QUOTA_EXCEEDED
    table.add("/a", "bob")
    with pytest.raises(ZooKeeperError):
        table.add("/b", "bob")
    assert len(table) == 3
    table.fire("/a")
    table.add("/b", "bob")
