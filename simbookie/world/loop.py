"""An asyncio event loop in virtual time.

The clock stands still while anything is ready to run, and jumps to the next timer when nothing is. So a simulated hour takes as
long as what happens in it, and time depends on the program alone. The loop runs ordinary asyncio and anyio code. What it promises
beyond asyncio's own contract:

* **Order.** Ready callbacks run first in, first out; timers by their time, those of the same time in the order in which they
  were set. A schedule may let deliveries and processes be late (:mod:`simbookie.world.schedule`); what it promises is said there.
* **Hashes.** Tasks and futures hash to a number counted per loop, so sets of them have a definite order.
* **Ownership.** Every callback belongs to the process in whose context it was scheduled (:mod:`simbookie.world.process`); those
  of killed processes are dropped, those of paused ones deferred.
* **An end.** When nothing can happen any more the run fails with :class:`~simbookie.world.errors.Deadlock`; limits on callbacks
  and on virtual time end runs that would go on for ever. A callback that raises ends the run.
* **Isolation.** Real sockets, threads, signals, subprocesses and executors are refused. Connections lead through the TCP of the
  world that the loop belongs to (:mod:`simbookie.world.streams`); a loop without a world has none.

A killed process must not run its ``finally`` blocks, but Python runs them when it destroys a suspended coroutine. So everything
that a killed process left behind is kept until :meth:`VirtualTimeLoop.close`, when the run is over. There it is unwound, with
whatever it does failing in the closed world, and silently.

Not modelled: clocks of single hosts that are off or drift (:meth:`VirtualTimeLoop.time` is the place), callbacks that take time.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import warnings
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from itertools import count
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, Unpack

from simbookie.collector_off import collector_off
from simbookie.world.callbacks import NumberedFuture, NumberedTask, OwnedHandle, described, new_handle, owner_of
from simbookie.world.connecting_loop import ConnectingLoop
from simbookie.world.determinism import deterministic_anyio, forget_task
from simbookie.world.errors import (
    Deadlock,
    StepLimitReached,
    TimeLimitReached,
    UnhandledErrors,
    WorldError,
)
from simbookie.world.limits import LoopLimits
from simbookie.world.process import Process, ProcessState, current_process
from simbookie.world.schedule import Schedule, Strand, StrandTimer, WakeTimer
from simbookie.world.teardown import dead_silence, unwind

__all__ = ["LoopLimits", "VirtualTimeLoop"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_RUNNING: Final = ProcessState.RUNNING
_PAUSED: Final = ProcessState.PAUSED
_KILLED: Final = ProcessState.KILLED

_FOREVER: Final = math.inf

#: Cancelled timers are swept out when there are more than this and they are the majority.
_CANCELLED_TIMERS_MAX: Final = 100


class VirtualTimeLoop(ConnectingLoop):
    """The event loop of one simulated run. Runs in one thread, with no other loop running there."""

    #: Tells patches of other libraries that real threads have no place here.
    is_virtual: Final = True
    #: Says that it is not: a loop in virtual time has no debug mode. Every future asks, and this is no call of Python's.
    get_debug = staticmethod(bool)

    _closed: bool
    _stopping: bool
    _check_closed: Callable[[], None]

    def __init__(self, limits: LoopLimits | None = None) -> None:
        super().__init__()
        self.set_debug(False)  # the environment must not decide how a run goes
        self.limits = limits if limits is not None else LoopLimits()
        #: Called after every callback, with the process whose it was; what it raises ends the run as a callback's error does.
        self.after_step: Callable[[Process | None], object] | None = None
        #: What is called once, in this order, after the callback that runs at present, and forgotten; likewise.
        self.afterwards: list[Callable[[], object]] = []
        #: Who says what is late, if anything is; may be replaced at any time.
        self.schedule: Schedule | None = None
        #: What callbacks and tasks may raise without ending the run: ends of processes that are meant.
        self.expected: tuple[type[Exception], ...] = ()
        #: Callbacks executed so far.
        self.steps = 0
        #: What tasks raised that was never retrieved: ``(whose and which, what)``.
        self.unretrieved: list[tuple[str, BaseException]] = []
        self._failures: list[tuple[str, BaseException]] = []
        self.now = 0.0  # as time() says, for the world, which asks for every message
        self._numbers, self._task_numbers = count(1), count(1)
        self._ready: deque[OwnedHandle] = deque()
        self._timers: list[tuple[float, int, OwnedHandle]] = []  # StrandTimer and WakeTimer, too
        self._cancelled_timers = 0
        self._graveyard: list[object] = []
        self._asyncgen_owners: dict[int, Process | None] = {}
        self._iterations = 0

    # --------------------------------------------------------------------------------------------------------- clock

    def time(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self.now

    # ----------------------------------------------------------------------------------------------------- schedule

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None) -> Handle:
        """Run ``callback`` after everything that is ready now."""
        if self._closed:
            self._check_closed()
        handle = new_handle(OwnedHandle, callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        """Run ``callback`` at ``when`` on the loop's clock."""
        if self._closed:
            self._check_closed()
        timer = new_handle(OwnedHandle, callback, args, self, context, when)
        if when < _FOREVER:
            heapq.heappush(self._timers, (when, next(self._numbers), timer))
        elif when == _FOREVER:
            timer._scheduled = False  # noqa: SLF001  it will never be due
        else:
            raise ValueError(f"a timer needs a time, not {when}")
        return timer

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        """Run ``callback`` in ``delay`` seconds."""
        when = self.now + delay
        if self._closed or not when < _FOREVER:
            return self.call_at(when, callback, *args, context=context)
        timer = new_handle(
            OwnedHandle, callback, args, self, context, when
        )  # as call_at(), whose call every timer would cost
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def deliver_at(
        self,
        when: float,
        strand: Strand,
        callback: Callable[[Unpack[Ts]], object],
        args: tuple[*Ts],
        context: Context,
        *,
        is_ordered: bool = True,
    ) -> None:
        """Call ``callback`` at ``when``, or later if the schedule says so.

        For what arrives somewhere: after what came before in ``strand`` if ``is_ordered``, and never due earlier than that.
        """
        if self._closed:
            self._check_closed()
        if self.schedule is None and strand.head is None and when < _FOREVER:
            heapq.heappush(
                self._timers, (when, next(self._numbers), new_handle(OwnedHandle, callback, args, self, context, when))
            )
            return
        timer = new_handle(StrandTimer, callback, args, self, context, when)
        timer.due, timer.strand = when, strand
        item = (when, next(self._numbers), timer)
        if not is_ordered:
            heapq.heappush(self._timers, item)
        elif strand.head is None:
            strand.head = timer
            heapq.heappush(self._timers, item)
        elif strand.waiting is None:
            strand.waiting = deque([item])
        else:
            strand.waiting.append(item)

    def timers(self) -> list[TimerHandle]:
        """What is to come: timers that are not cancelled, by their time."""
        return [timer for _, _, timer in sorted(self._timers, key=lambda item: item[:2]) if not timer.cancelled()]

    def _timer_handle_cancelled(self, timer: TimerHandle) -> None:
        if timer._scheduled:  # type: ignore[attr-defined]  # noqa: SLF001
            self._cancelled_timers += 1
            if self._cancelled_timers > _CANCELLED_TIMERS_MAX and 2 * self._cancelled_timers > len(self._timers):
                # the timer that is being cancelled does not say so yet
                self._timers[:] = [item for item in self._timers if not (item[2]._cancelled or item[2] is timer)]  # noqa: SLF001
                heapq.heapify(self._timers)
                self._cancelled_timers = 0

    def create_future(self) -> asyncio.Future[Any]:
        """A future with a deterministic hash."""
        future: NumberedFuture[Any] = NumberedFuture(loop=self)
        future.number = next(self._numbers)
        return future

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """A task with a deterministic hash, and name unless it is given one; task factories are not supported."""
        self._check_closed()
        if context is None:
            context = copy_context()
        shown = f"task-{next(self._task_numbers)}" if name is None else str(name)
        return NumberedTask(coro, next(self._numbers), loop=self, name=shown, context=context)  # type: ignore[arg-type]

    # ----------------------------------------------------------------------------------------------------- processes

    def enter(self, process: Process, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Call ``callback`` as code of ``process``: at once if it is running, at its resumption if it is paused.

        For the world's own callbacks, when something arrives at a process. Nothing happens if the process was killed.
        """
        if process.state is _RUNNING and process.late is None:
            process.base.copy().run(callback, *args)
        elif process.state is _RUNNING and process.late is not None:
            process.late.append(new_handle(OwnedHandle, callback, args, self, process.context()))
        elif process.state is _PAUSED:
            process.deferred.append(new_handle(OwnedHandle, callback, args, self, process.context()))

    def pause(self, process: Process) -> None:
        """Let ``process`` execute nothing until :meth:`resume`."""
        if process.state is not _RUNNING:
            raise WorldError(f"{process} cannot be paused")
        process.state = _PAUSED

    def resume(self, process: Process) -> None:
        """Let a paused process go on, first with what came due meanwhile, in that order."""
        if process.state is not _PAUSED:
            raise WorldError(f"{process} is not paused")
        process.state = _RUNNING
        # in front, because whatever of this process is ready now came due later
        self._ready.extendleft(reversed(process.deferred))  # type: ignore[arg-type]
        process.deferred.clear()

    def kill(self, process: Process) -> None:
        """End ``process``: nothing of it executes from now on. Idempotent."""
        if process.state is _KILLED:
            return
        process.state = _KILLED
        self._graveyard += process.deferred
        process.deferred.clear()
        if process.late is not None:
            self._graveyard += process.late
            process.late = None
        # a task that nothing refers to any more would be destroyed, and its coroutine unwound
        self._graveyard += [task for task in self._pending_tasks() if task.process is process]

    def pending_tasks(self) -> list[str]:
        """A description of each unfinished task of a living process, in the order of creation."""
        return [described(task) for task in self._pending_tasks() if task.process is None or task.process.is_alive]

    def _pending_tasks(self) -> list[NumberedTask[Any]]:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, NumberedTask)]
        return sorted(tasks, key=lambda task: task.number)

    # ----------------------------------------------------------------------------------------------------------- run

    def run_forever(self) -> None:
        """Run until stopped, without the cyclic garbage collector: it comes at moments that depend on all of the process."""
        with collector_off(), deterministic_anyio():
            super().run_forever()

    def _run_once(self) -> None:  # noqa: C901, PLR0912  calls to its parts would cost every callback
        """Run until stopped. asyncio asks for one iteration, and after each whether to stop; asking here saves it a call."""
        ready, timers, afterwards, failures = self._ready, self._timers, self.afterwards, self._failures
        steps_max = self.limits.steps
        while True:
            self._iterations += 1
            if not ready and not self._stopping:
                self._advance()
            elif timers and timers[0][0] <= self.now:
                self._take_due()
            after_step, schedule = self.after_step, self.schedule
            left = len(ready)
            while left:  # nearly always one, for which a range takes longer to make than this to count
                left -= 1
                handle = ready.popleft()
                if handle._cancelled:  # noqa: SLF001
                    continue
                process = handle.process
                if process is not None:
                    if process.state is not _RUNNING:
                        (process.deferred if process.state is _PAUSED else self._graveyard).append(handle)
                        continue
                    if (process.late is not None or schedule is not None) and self._waits(process, handle):
                        continue
                self.steps += 1
                context, args = handle._context, handle._args  # noqa: SLF001
                try:  # nearly all have one argument or none, and a call with a star takes a fifth of a microsecond more
                    if not args:
                        context.run(handle._callback)  # noqa: SLF001
                    elif len(args) == 1:
                        context.run(handle._callback, args[0])  # noqa: SLF001
                    else:
                        context.run(handle._callback, *args)  # noqa: SLF001
                    if after_step is not None:
                        after_step(process)
                    if afterwards:
                        for look in afterwards:
                            look()
                        afterwards.clear()
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001  as asyncio's own handles do
                    self._callback_failed(handle, error)
            # a traceback of what a task raised may keep this frame, and a task must be destroyed as soon as nothing else
            # refers to it
            handle = context = args = None  # type: ignore[assignment]
            if failures or self.steps > steps_max:
                self._give_up()
            if self._stopping:
                return

    def _give_up(self) -> NoReturn:
        if self._failures:
            failures = list(self._failures)
            self._failures.clear()
            raise UnhandledErrors(failures) from failures[0][1]
        raise StepLimitReached(f"{self.steps} callbacks ran within {self.now:.6f} s", self.pending_tasks())

    # -------------------------------------------------------------------------------------------------------- turns

    def _take_due(self) -> None:
        """Make ready what is due, but for what becomes late."""
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # noqa: SLF001
            if timer._cancelled:  # noqa: SLF001
                self._cancelled_timers -= 1
            elif type(timer) is OwnedHandle:
                self._ready.append(timer)
            else:
                self._take_scheduled(timer)

    def _take_scheduled(self, timer: OwnedHandle) -> None:
        """The same of a timer that is due and knows of a schedule."""
        if isinstance(timer, StrandTimer):
            self._take_turn(timer)
        else:
            self._end_wait(timer)

    def _take_turn(self, timer: StrandTimer) -> None:
        """Something in a strand is due: it happens, or is late, and with it what comes after it in the strand."""
        strand, schedule = timer.strand, self.schedule
        if schedule is not None:
            when = schedule.late_until(strand.name, self.now, timer.due, self._timers)
            if when is not None:
                timer._scheduled = True  # noqa: SLF001
                heapq.heappush(self._timers, (when, next(self._numbers), timer))
                return
        self._ready.append(timer)
        if strand.head is timer:
            strand.head = None
            if strand.waiting:
                item = strand.waiting.popleft()
                strand.head = item[2]
                heapq.heappush(self._timers, item)

    def _waits(self, process: Process, handle: OwnedHandle) -> bool:
        """Whether a process is late, and ``handle`` waits for it. A process has one turn in an iteration of the loop."""
        if process.late is not None:
            process.late.append(handle)
            return True
        schedule = self.schedule
        if schedule is None or process.turn == self._iterations:
            return False
        process.turn = self._iterations
        now = self.now
        when = schedule.late_until(process.host_name, now, now, self._timers, process)
        if when is None:
            return False
        process.late = [handle]
        timer = new_handle(WakeTimer, _nothing, (), self, process.context(), when)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return True

    def _end_wait(self, timer: OwnedHandle) -> None:
        """A late process goes on, with all that waited, before anything else is asked of it."""
        process = timer.process
        assert process is not None, "it is a process that waits"
        late, process.late = process.late, None
        if late is None:
            return  # it was killed
        process.turn = self._iterations
        if process.state is _PAUSED:
            process.deferred[:0] = late
        else:
            self._ready.extend(late)  # type: ignore[arg-type]  # they came from there

    def _advance(self) -> None:
        """Move the clock to the next timer of anyone alive, and make ready what is due then."""
        timers = self._timers
        while True:
            if not timers:
                raise Deadlock(f"nothing can happen any more at {self.now:.6f} s", self.pending_tasks())
            when, number, timer = heapq.heappop(timers)
            timer._scheduled = False  # noqa: SLF001
            process = timer.process
            if timer._cancelled:  # noqa: SLF001
                self._cancelled_timers -= 1
            elif process is not None and process.state is _KILLED:
                self._graveyard.append(timer)
            else:
                break
        if when > self.now:
            if when > self.limits.seconds:
                timer._scheduled = True  # noqa: SLF001
                heapq.heappush(timers, (when, number, timer))
                raise TimeLimitReached(
                    f"nothing happens before {when:.6f} s, the limit is {self.limits.seconds} s", self.pending_tasks()
                )
            self.now = when
        if type(timer) is OwnedHandle:
            self._ready.append(timer)
        else:
            self._take_scheduled(timer)
        if timers and timers[0][0] <= self.now:
            self._take_due()

    def _callback_failed(self, handle: OwnedHandle, error: BaseException) -> None:
        if isinstance(error, self.expected):
            return
        name = getattr(handle._callback, "__qualname__", type(handle._callback).__name__)  # noqa: SLF001
        self._failures.append((f"{owner_of(handle.process)}: {name}", error))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Take note of an error: one that was reported here on purpose ends the run, as one that a callback raised does.

        What a task raised and was never retrieved goes to :attr:`unretrieved`. Plain futures may fail unseen.
        """
        future, error = context.get("future"), context.get("exception")
        if self._closed or not isinstance(error, BaseException) or isinstance(error, self.expected):
            return
        if future is None:
            self._failures.append((f"{owner_of(current_process.get())}: {context.get('message')}", error))
        elif isinstance(future, NumberedTask):
            self.unretrieved.append((f"{owner_of(future.process)}: {future.get_name()}", error))

    # ---------------------------------------------------------------------------------------------- async generators

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        self._asyncgen_owners[id(agen)] = current_process.get()

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        owner = self._asyncgen_owners.pop(id(agen), None)
        if self._closed:
            return  # a generator that is not closed here is destroyed without being unwound
        if owner is not None and not owner.is_alive:
            self._graveyard.append(agen)
        else:
            context = owner.context() if owner is not None else Context()
            self.call_soon(self._close_asyncgen, agen, context=context)

    def _close_asyncgen(self, agen: AsyncGenerator[Any, Any]) -> None:
        self.create_task(agen.aclose(), name="close of an abandoned generator")

    # ----------------------------------------------------------------------------------------------------------- end

    def close(self) -> None:
        """End the world: forget everything that was to come and unwind what is left. Idempotent.

        Suspended coroutines, of killed processes too, are unwound here, because Python cannot destroy them otherwise. What
        they do meanwhile cannot schedule anything, and what they raise is dropped.
        """
        if self._closed or self.is_running():
            super().close()
            return
        tasks = self._pending_tasks()
        handles: list[object] = [*self._ready, *(timer for _, _, timer in self._timers)]
        super().close()
        self._timers.clear()
        with dead_silence():
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                unwind(task.get_coro())
                forget_task(task)
            self._graveyard.clear()
            del handles, tasks

    def __del__(self) -> None:
        if not self._closed:
            warnings.warn(f"unclosed simulated world {self!r}", ResourceWarning, source=self, stacklevel=1)


def _nothing() -> None:
    """What is called at the end of a wait, which is no callback."""
