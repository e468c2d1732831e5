"""Names what a program in a simulated world takes from the real one: clocks, chance, threads, processes, blocking sleeps.

A world repeats itself only if nothing in it depends on anything else than the seed. The event loop refuses what it can. The rest
are calls of C functions, which nothing can replace for good (``from time import time`` has its own reference). So while a run is
audited, the interpreter reports every call, and those of the table below are noted with the line of the program that made them.
Calls from the standard library and from this project count for their callers; those of ``logging`` do not count, because
it stamps every record. ``id()`` counts where a program calls it itself, because libraries use it for identity.

A call costs a few times as much while it is audited, so the plugin audits one seed of each test. :mod:`scenarios.auditing` audits
this project itself, and loops over sets of plain objects, too.
"""

from __future__ import annotations

import builtins
import datetime as dt
import os
import random
import socket
import sys
import sysconfig
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from scenarios.set_order import is_plain

__all__ = ["LOOP_FILE", "Audit", "RealUse", "RealWorldWarning"]

_PLACES_MAX: Final = 50


class RealWorldWarning(UserWarning):
    """A program in a simulated world used a real clock or real chance: the same seed may not give the same run again."""


def _names(module: object, *names: str) -> dict[object, str]:
    prefix = getattr(module, "__name__", "")
    return {getattr(module, name): f"{prefix}.{name}" for name in names if hasattr(module, name)}


_CLOCKS: Final = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time")
#: What each kind is, and what to do instead.
_INSTEAD: Final = {
    "clock": "a real clock; ask asyncio.get_running_loop().time(), or take a clock as an argument (bk_world.wall_clock)",
    "chance": "real chance; take a random.Random as an argument (bk_world.rng)",
    "sleep": "a sleep in real time; use asyncio.sleep or anyio.sleep",
    "thread": "a real thread or process; keep to tasks",
    "socket": "a real socket; use the connections of asyncio",
    "address": "an address, another one in each process; take the object itself, or count",
    "order": "in the order of addresses, another one in each process; use a dict, or sort",
}
#: C functions, and what they are.
_FUNCTIONS: Final[dict[object, tuple[str, str]]] = {
    **{function: (name, "clock") for function, name in _names(time, *_CLOCKS, "localtime", "gmtime", "ctime").items()},
    **{function: (name, "chance") for function, name in _names(os, "urandom", "getrandom").items()},
    time.sleep: ("time.sleep", "sleep"),
    os.fork: ("os.fork", "thread"),
    builtins.id: ("id", "address"),
}
#: Python functions, by their code.
_CODES: Final[dict[object, tuple[str, str]]] = {
    threading.Thread.start.__code__: ("threading.Thread.start", "thread"),
    uuid.uuid4.__code__: ("uuid.uuid4", "chance"),
    uuid.uuid1.__code__: ("uuid.uuid1", "chance"),
}
_DATES: Final = ("now", "utcnow", "today")
_CONNECTS: Final = ("connect", "connect_ex", "bind")
_SEED: Final = random.Random.seed.__code__
#: The generator behind the functions of the module ``random``.
_SHARED: Final = random.random.__self__  # type: ignore[attr-defined]


_ROOT: Final = Path(__file__).resolve().parents[2]
_OURS: Final = tuple(f"{_ROOT / name}{os.sep}" for name in ("bkclient", "simbookie", "scenarios"))
_LIBRARY: Final = f"{sysconfig.get_path('stdlib')}{os.sep}"
_SITE: Final = f"{os.sep}site-packages{os.sep}"
_LOGGING: Final = f"{os.sep}logging{os.sep}"


@dataclass(frozen=True, slots=True)
class RealUse:
    """A line of a program, and a sentence about what it takes from the real world."""

    file: str
    line: int
    sentence: str


class Audit:
    """What was taken from the real world, by name and place; :meth:`listening` is when.

    ``under_test`` are folders whose code is audited, instead of what is neither the standard library nor this project.
    """

    def __init__(self, under_test: Sequence[str] | None = None) -> None:
        self._found: dict[tuple[str, int], dict[str, str]] = {}
        self._under_test = None if under_test is None else tuple(f"{folder}{os.sep}" for folder in under_test)

    @property
    def uses(self) -> list[RealUse]:
        """One for each place, in the order of the calls."""
        return [
            RealUse(file, line, f"{', '.join(names)} is {_INSTEAD[next(iter(names.values()))]}")
            for (file, line), names in self._found.items()
        ]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to the calls of this thread while the block runs; without effect where a profiler does already."""
        if sys.getprofile() is not None:
            yield
            return
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            what = _FUNCTIONS.get(called) or _method(called)
        elif event == "call":
            what = _CODES.get(frame.f_code)
            if what is None and frame.f_code is _SEED and frame.f_locals.get("a") is None:
                what = ("random.Random without a seed", "chance")
        else:
            return
        if what is not None:
            self._note(frame, *what)

    def note(self, file: str, line: int, name: str, kind: str) -> None:
        """Note what is called ``name`` there."""
        place = (file, line)
        if place in self._found or len(self._found) < _PLACES_MAX:
            self._found.setdefault(place, {})[name] = kind

    def _note(self, frame: FrameType | None, name: str, kind: str) -> None:
        """Note the innermost caller that is audited, and what it called there."""
        while frame is not None:
            file = frame.f_code.co_filename
            if _LOGGING in file:
                return
            if self._is_audited(file):
                self.note(file, frame.f_lineno, name, kind)
                return
            if file == LOOP_FILE or kind == "address" or (self._under_test is not None and file.startswith(_OURS)):
                return  # the world itself, or what records: nothing of the program is below
            if not file.startswith("<"):
                name = f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"
            frame = frame.f_back

    def _is_audited(self, file: str) -> bool:
        if self._under_test is None:
            return not _is_inner(file)
        return file.startswith(self._under_test) and file != LOOP_FILE


def _method(called: Any) -> tuple[str, str] | None:
    """What a C method is, by what it is a method of."""
    of: object = getattr(called, "__self__", None)
    if of is _SHARED:
        return (f"random.{called.__name__}", "chance")
    if of is dt.datetime or of is dt.date:
        return (f"datetime.{called.__name__}", "clock") if called.__name__ in _DATES else None
    if called.__name__ == "pop" and isinstance(of, set):
        return ("set.pop of plain objects", "order") if len(of) > 1 and any(map(is_plain, of)) else None
    if called.__name__ in _CONNECTS and isinstance(of, socket.socket):
        return (f"socket.{called.__name__}", "socket")
    return None


def _is_inner(file: str) -> bool:
    # Packages are installed within the standard library's folder, this project among them.
    is_library = file.startswith(_LIBRARY) and _SITE not in file
    return is_library or file.startswith(("<", *_OURS)) or _ANYIO in file


#: Of the event loop of the simulated world.
LOOP_FILE: Final = str(_ROOT / "simbookie" / "world" / "loop.py")
_ANYIO: Final = f"{_SITE}anyio{os.sep}"
