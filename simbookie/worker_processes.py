"""Units of work in several processes, which an interrupt ends at a safe point.

Ctrl-C goes to every process of a terminal. Workers never see it: the parent lets them finish the unit they are at. In the parent
``KeyboardInterrupt`` could come up anywhere, also where the executor holds a lock or where Python drops exceptions, and then
nobody would stop. So the signal is only noted, and raised between two results. A second one is raised at once.

A parent that is killed cannot stop its workers, which hold the pipe that they wait at open for each other. So each looks whether
its parent lives, and ends with it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing import get_all_start_methods, get_context, parent_process
from types import FrameType
from typing import Final, Self, TypeVar

__all__ = ["HandOut", "NotedInterrupts", "default_processes", "in_order", "worker_processes"]

UnitT = TypeVar("UnitT")
DoneT = TypeVar("DoneT")

HandOut = Callable[[Iterable[UnitT]], Iterator[tuple[int, DoneT]]]
"""Works on units and yields what each comes to, with its index, as it ends; only as many run or wait as keep the workers busy."""

#: Units that wait for a worker, per worker: enough to keep it busy, few enough to stop soon.
_UNITS_AHEAD: Final = 2
#: How long an interrupt may have to wait until it is looked for.
_LOOK_EVERY_S: Final = 0.2


def default_processes() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(done: Iterable[tuple[int, DoneT]]) -> Iterator[DoneT]:
    """What units came to, in the order of the units."""
    early: dict[int, DoneT] = {}
    due = 0
    for index, unit_done in done:
        early[index] = unit_done
        while due in early:
            yield early.pop(due)
            due += 1


@contextmanager
def worker_processes(count: int, work: Callable[[UnitT], DoneT]) -> Iterator[HandOut[UnitT, DoneT]]:
    """Have ``count`` processes work on units; 1 does everything in this process.

    ``work`` and units must be picklable. What ``work`` raises comes out of the iterator. ``KeyboardInterrupt`` stops the workers
    after the units they are at, and is passed on.
    """
    if count <= 1:
        with NotedInterrupts() as interrupts:
            yield partial(_hand_out_here, work, interrupts)
        return
    method = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    executor = ProcessPoolExecutor(count, mp_context=get_context(method), initializer=_begin)

    def hand_out(units: Iterable[UnitT]) -> Iterator[tuple[int, DoneT]]:
        numbered = enumerate(units)
        under_way: dict[Future[DoneT], int] = {}
        while True:
            for index, unit in islice(numbered, count * (1 + _UNITS_AHEAD) - len(under_way)):
                with _interrupts_are_blocked():
                    under_way[executor.submit(work, unit)] = index
            if not under_way:
                return
            for future in wait(under_way, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED).done:
                yield under_way.pop(future), future.result()
            interrupts.raise_noted()

    with NotedInterrupts() as interrupts:
        try:
            yield hand_out
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


def _hand_out_here(
    work: Callable[[UnitT], DoneT], interrupts: NotedInterrupts, units: Iterable[UnitT]
) -> Iterator[tuple[int, DoneT]]:
    for index, unit in enumerate(units):
        yield index, work(unit)
        interrupts.raise_noted()


class NotedInterrupts:
    """Notes SIGINT while the block runs, where Python would raise ``KeyboardInterrupt``; raises it at the end at the latest."""

    def __init__(self) -> None:
        self._is_noted = False
        self._is_in_charge = False

    def __enter__(self) -> Self:
        is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_pythons and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._on_signal)
            self._is_in_charge = True
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._is_in_charge:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is None:
            self.raise_noted()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_noted:
            raise KeyboardInterrupt
        self._is_noted = True

    def raise_noted(self) -> None:
        """Raise ``KeyboardInterrupt`` if a signal has come since."""
        if self._is_noted:
            self._is_noted = False
            raise KeyboardInterrupt


@contextmanager
def _interrupts_are_blocked() -> Iterator[None]:
    """A process that starts here is born without SIGINT: it could meet one before it comes to ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """What a worker does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "this is a worker"
    parent.join()
    os._exit(1)  # in the middle of a unit that nobody waits for
