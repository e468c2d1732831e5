"""Who is to be told of which znodes' next changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from simbookie.zookeeper.codes import ErrorCode, EventType, WatcherType, WatchMode, ZooKeeperError

__all__ = ["WatchTable", "Watches"]

Watcher = TypeVar("Watcher")


class WatchTable(Generic[Watcher]):
    """Watches of one kind by path and by watcher.

    A watcher may watch a path in several modes; a second watch in the same mode is the first one. ``size_max`` bounds all
    watches together, ``size_per_watcher_max`` those of one watcher; QUOTA_EXCEEDED says that there are too many.
    """

    def __init__(self, *, size_max: int, size_per_watcher_max: int) -> None:
        self._size_max = size_max
        self._size_per_watcher_max = size_per_watcher_max
        self._by_path: dict[str, dict[Watcher, set[WatchMode]]] = {}
        self._paths: dict[Watcher, set[str]] = {}
        self._size = 0
        self._recursive = 0

    def __len__(self) -> int:
        """How many pairs of a path and a watcher there are."""
        return self._size

    def add(self, path: str, watcher: Watcher, mode: WatchMode = WatchMode.ONCE) -> None:
        """Add a watch."""
        paths = self._paths.get(watcher, set())
        if path not in paths:
            if self._size >= self._size_max or len(paths) >= self._size_per_watcher_max:
                raise ZooKeeperError(ErrorCode.QUOTA_EXCEEDED)
            self._size += 1
        self._paths.setdefault(watcher, set()).add(path)
        modes = self._by_path.setdefault(path, {}).setdefault(watcher, set())
        self._recursive += mode is WatchMode.PERSISTENT_RECURSIVE and mode not in modes
        modes.add(mode)

    def has(self, path: str, watcher: Watcher, mode: WatchMode | None = None) -> bool:
        """Whether ``watcher`` watches the path in this mode, or in any."""
        modes = self._by_path.get(path, {}).get(watcher, ())
        return bool(modes) if mode is None else mode in modes

    def remove(self, path: str, watcher: Watcher, mode: WatchMode | None = None) -> bool:
        """Remove the watch of the path by ``watcher`` in this mode, or in all; whether there was one."""
        if not self.has(path, watcher, mode):
            return False
        modes = self._by_path[path][watcher]
        if mode is None or modes == {mode}:
            self._forget(path, watcher)
        else:
            modes.remove(mode)
            self._recursive -= mode is WatchMode.PERSISTENT_RECURSIVE
        return True

    def remove_watcher(self, watcher: Watcher) -> None:
        """Remove all watches of a watcher that is gone."""
        for path in list(self._paths.get(watcher, ())):
            self._forget(path, watcher)

    def fire(self, path: str) -> list[Watcher]:
        """Those who are to be told of a change at ``path``; watches for once are spent."""
        told: dict[Watcher, None] = {}
        for watcher, modes in list(self._by_path.get(path, {}).items()):
            told[watcher] = None
            modes.discard(WatchMode.ONCE)
            if not modes:
                self._forget(path, watcher)
        if self._recursive:
            for ancestor in _ancestors(path):
                for watcher, modes in self._by_path.get(ancestor, {}).items():
                    if WatchMode.PERSISTENT_RECURSIVE in modes:
                        told[watcher] = None
        return list(told)

    def _forget(self, path: str, watcher: Watcher) -> None:
        watchers, paths = self._by_path[path], self._paths[watcher]
        self._recursive -= WatchMode.PERSISTENT_RECURSIVE in watchers.pop(watcher)
        paths.discard(path)
        if not watchers:
            del self._by_path[path]
        if not paths:
            del self._paths[watcher]
        self._size -= 1


class Watches(Generic[Watcher]):
    """All watches of a server: of data, to which creation and deletion belong, and of children. Limits hold for each kind."""

    def __init__(self, *, size_max: int, size_per_watcher_max: int) -> None:
        self.data: WatchTable[Watcher] = WatchTable(size_max=size_max, size_per_watcher_max=size_per_watcher_max)
        self.children: WatchTable[Watcher] = WatchTable(size_max=size_max, size_per_watcher_max=size_per_watcher_max)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.data) + len(self.children)

    def add_lasting(self, path: str, watcher: Watcher, mode: WatchMode) -> None:
        """Add a watch that survives events. One that covers all below ``path`` is told of every child, not of "children"."""
        self.data.add(path, watcher, mode)
        if mode is WatchMode.PERSISTENT:
            self.children.add(path, watcher, mode)

    def has(self, path: str, watcher: Watcher, kind: WatcherType) -> bool:
        """Whether ``watcher`` watches the path in this way."""
        tables, mode = self._meant(kind)
        return any(table.has(path, watcher, mode) for table in tables)

    def remove(self, path: str, watcher: Watcher, kind: WatcherType) -> bool:
        """Remove watches of this kind; whether there were any."""
        tables, mode = self._meant(kind)
        removed = [table.remove(path, watcher, mode) for table in tables]
        return any(removed)

    def remove_watcher(self, watcher: Watcher) -> None:
        """Remove all watches of a watcher that is gone."""
        self.data.remove_watcher(watcher)
        self.children.remove_watcher(watcher)

    def fire(self, kind: EventType, path: str) -> list[Watcher]:
        """Those who are to be told of this event, each once."""
        if kind is EventType.CHILDREN_CHANGED:
            return self.children.fire(path)
        told = self.data.fire(path)
        if kind is EventType.DELETED:
            told = list(dict.fromkeys((*told, *self.children.fire(path))))
        return told

    def _meant(self, kind: WatcherType) -> tuple[tuple[WatchTable[Watcher], ...], WatchMode | None]:
        match kind:
            case WatcherType.CHILDREN:
                return (self.children,), WatchMode.ONCE
            case WatcherType.DATA:
                return (self.data,), WatchMode.ONCE
            case WatcherType.PERSISTENT:
                return (self.children, self.data), WatchMode.PERSISTENT
            case WatcherType.PERSISTENT_RECURSIVE:
                return (self.data,), WatchMode.PERSISTENT_RECURSIVE
            case WatcherType.ANY:
                return (self.children, self.data), None


def _ancestors(path: str) -> Iterator[str]:
    while len(path) > 1:
        path = path[: path.rfind("/")] or "/"
        yield path
