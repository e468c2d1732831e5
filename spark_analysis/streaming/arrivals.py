"""What came to a folder, look after look, so that a look can be repeated.

Spark asks a source where it stands, writes that down, and asks for what lies between two such places, once or, after a failure,
again. A place here is the number of a *scan*: a look at the folder that found something new. Each scan is a file that names
what it found, and up to which byte; with the state of the folder before it, that is all that a scan depends on. So it holds as
well for files that are still written.

Scans that Spark is done with are merged into one file from time to time. All is bounded by the number of histories in the folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spark_analysis.source import HistoryFile, find_histories

__all__ = ["FILE_BYTES_MAX", "SCAN_BYTES_MAX", "Arrival", "Arrivals", "write_whole"]

#: New bytes in one scan, which is one micro-batch, and of one file in it.
SCAN_BYTES_MAX: Final = 512 * 1024 * 1024
FILE_BYTES_MAX: Final = 64 * 1024 * 1024
#: Files in one scan.
_SCAN_FILES_MAX: Final = 10_000
#: Scans that are merged at a time.
_MERGE: Final = 50

_SUFFIX: Final = ".json"
_MERGED: Final = "merged.json"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A file that is new, or has changed: judge it up to byte ``up_to``, of which ``grown`` are new."""

    path: str
    name: str
    up_to: int
    grown: int


class Arrivals:
    """The scans of ``folder``, kept in ``kept``. One process at a time may look."""

    def __init__(self, folder: Path | str, kept: Path) -> None:
        self._folder = Path(folder)
        self._kept = kept
        kept.mkdir(parents=True, exist_ok=True)
        merged = _read(kept / _MERGED) or {"scan": 0, "files": {}}
        self._merged: int = merged["scan"]
        #: By name, up to which byte a file was handed out, and when it had been written.
        self._seen: dict[str, list[int]] = merged["files"]
        self._scans = sorted(number for number in map(_number, kept.iterdir()) if number > self._merged)
        self._before: dict[str, list[int]] = dict(self._seen)
        for number in self._scans:
            self._seen.update(self._found(number))

    @property
    def newest(self) -> int:
        """The number of the last scan, 0 if there was none."""
        return self._scans[-1] if self._scans else self._merged

    def look(self, after: int) -> int:
        """The last scan; a new one, if there is none after scan ``after`` and something has come or changed."""
        if self.newest > after:
            return self.newest
        found: dict[str, list[int]] = {}
        left = SCAN_BYTES_MAX
        # What has waited longest comes first, so a file that grows without end keeps none from being judged.
        for file in sorted(self._files(), key=lambda file: (file.mtime_ns, file.name)):
            known = self._seen.get(file.name)
            if known == [file.size, file.mtime_ns]:
                continue
            begin = known[0] if known is not None and file.size > known[0] else 0
            size = min(file.size, begin + FILE_BYTES_MAX)
            found[file.name] = [size, file.mtime_ns]
            left -= size - begin
            if left <= 0 or len(found) >= _SCAN_FILES_MAX:
                break
        if not found:
            return self.newest
        number = self.newest + 1
        write_whole(self._kept / f"{number:012d}{_SUFFIX}", json.dumps(found).encode())
        self._scans.append(number)
        self._seen.update(found)
        return number

    def between(self, after: int, last: int) -> list[Arrival]:
        """What the scans after ``after``, up to ``last``, found; a file that several found once."""
        known = dict(self._before)
        found: dict[str, Arrival] = {}
        for number in self._scans:
            for name, (size, mtime_ns) in self._found(number).items() if number <= last else ():
                if number > after:
                    earlier = known.get(name, [0, 0])[0]
                    found[name] = Arrival(str(self._path(name)), name, size, max(size - earlier, 0))
                known[name] = [size, mtime_ns]
        return list(found.values())

    def forget(self, last: int) -> None:
        """Merge the scans up to ``last``, which will not be asked for again, if they are many."""
        done = [number for number in self._scans if number <= last]
        if len(done) < _MERGE:
            return
        for number in done:
            self._before.update(self._found(number))
        write_whole(self._kept / _MERGED, json.dumps({"scan": done[-1], "files": self._before}).encode())
        self._merged = done[-1]
        self._scans = self._scans[len(done) :]
        for number in done:
            (self._kept / f"{number:012d}{_SUFFIX}").unlink(missing_ok=True)

    def _files(self) -> list[HistoryFile]:
        try:
            return find_histories(self._folder)
        except FileNotFoundError:  # nobody has recorded anything yet
            return []

    def _path(self, name: str) -> Path:
        return self._folder if self._folder.is_file() else self._folder / name

    def _found(self, number: int) -> Mapping[str, list[int]]:
        found = _read(self._kept / f"{number:012d}{_SUFFIX}")
        assert found is not None, "scans are removed by forget() alone"
        return found


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there with all of ``data``, or not at all."""
    partial = path.with_name(f"_{path.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found


def _number(path: Path) -> int:
    return int(path.stem) if path.suffix == _SUFFIX and path.stem.isdigit() else 0
