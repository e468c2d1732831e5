"""Tries mutants in one pytest session: the tests are collected once, and every mutant is tried in a fork of that process.

Starting pytest anew for each mutant would cost more than the tests themselves. First all tests run once without a mutant, to
see which functions each of them reaches and how long it takes. A mutant is then tried with the tests that reach its
function until one of them fails: first those that noticed other changes of this function, then the quick ones.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

import pytest

__all__ = ["PROFILE", "MutantSession", "Outcome"]

PROFILE: Final = "mutation"
"""Of Hypothesis, which is not to make failing examples small that nobody reads."""

_HANGS_AFTER_S: Final = 10.0
_HANGS_AFTER_TIMES: Final = 10
_FAILED: Final = 1
#: How many tests may fail that look at the code itself, which is full of mutants.
_BROKEN_MAX: Final = 5
#: Of the processes that try mutants, which take long and can wait.
_NICENESS: Final = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant, and by which test."""

    what: str
    by: str = ""


@dataclass(slots=True)
class _Found:
    """What a run without mutants found: by test, seconds and the functions that it reaches."""

    seconds: list[float] = field(default_factory=list)
    reached: list[set[str]] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)


class MutantSession:
    """A pytest plugin that takes the place of the ordinary run.

    ``mutants`` maps the name of each mutant to that of its function, as mutmut spells them. ``outcomes`` has all of them
    afterwards: killed, timeout, survived, or no tests. Tests with an id of a parameter in ``skip`` take no part. No mutant is
    tried with more than ``tests_max`` tests.
    """

    def __init__(
        self,
        mutants: dict[str, str],
        children: int,
        *,
        skip: frozenset[str],
        tests_max: int | None,
        progress: Callable[[str], None],
    ) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self._mutants = mutants
        self._children = children
        self._skip = skip
        self._tests_max = tests_max
        self._progress = progress
        self._trampoline: Any = import_module("mutmut.mutation.trampoline")
        self._hits: set[str] = import_module("mutmut.state").state()._stats
        self._is_failed = False
        self._seconds = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        """Before Hypothesis looks for the profile."""
        hypothesis: Any = import_module("hypothesis")
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile(PROFILE, deadline=None, derandomize=True, database=None, phases=phases)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what only repeats."""
        items[:] = [item for item in items if not self._skip & _ids(item)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the tests."""
        if session.testsfailed:
            raise pytest.UsageError(f"{session.testsfailed} files of tests cannot be collected in the copy")
        # Asked at every call of a function that has mutants; mutmut looks into the environment each time.
        self._trampoline.get_mutant_under_test = lambda: self._trampoline._mutant_under_test
        found = self._watch(session.items)
        if found.failed:
            names = ", ".join(session.items[number].nodeid for number in found.failed)
            if len(found.failed) > _BROKEN_MAX:
                raise pytest.UsageError(f"without any mutant these fail: {names}")
            self._progress(f"left out, because they fail without any mutant: {names}")
        by_function: dict[str, list[int]] = defaultdict(list)
        for number in sorted(range(len(session.items)), key=lambda number: found.seconds[number]):
            for function in found.reached[number] if number not in found.failed else ():
                by_function[function].append(number)
        self._progress(f"{len(session.items)} tests, {sum(found.seconds):.0f} s; {len(self._mutants)} mutants")
        gc.collect()
        gc.freeze()  # or every fork would copy what the collector touches
        self._try_all(session.items, by_function, found.seconds)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest."""
        self._is_failed |= report.failed
        self._seconds += report.duration

    def _watch(self, items: Sequence[pytest.Item]) -> _Found:
        with tempfile.TemporaryFile() as results:
            child = os.fork()
            if not child:
                try:
                    pickle.dump(self._found_by(items), results)
                    results.flush()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            results.seek(0)
            found: _Found = pickle.load(results)
        return found

    def _found_by(self, items: Sequence[pytest.Item]) -> _Found:
        found = _Found()
        _be_quiet(items[0].config)
        self._trampoline.set_mutant_under_test("stats")
        for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
            self._hits.clear()
            self._run(item, following)
            found.seconds.append(self._seconds)
            found.reached.append(set(self._hits))
            if self._is_failed:
                found.failed.append(number)
        return found

    def _try_all(
        self, items: Sequence[pytest.Item], by_function: dict[str, list[int]], seconds: Sequence[float]
    ) -> None:
        waiting = list(self._mutants)
        running: dict[int, tuple[str, IO[bytes]]] = {}
        noticed: dict[str, Counter[str]] = defaultdict(Counter)
        cpu_s = 0.0
        while waiting or running:
            while waiting and len(running) < self._children:
                mutant = waiting.pop(0)
                function = self._mutants[mutant]
                numbers = by_function.get(function, [])
                numbers = sorted(numbers, key=lambda number: -noticed[function][items[number].nodeid])[
                    : self._tests_max
                ]
                if not numbers:
                    self.outcomes[mutant] = Outcome("no tests")
                    continue
                killer: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the child has ended
                child = os.fork()
                if not child:
                    self._try(mutant, [items[number] for number in numbers], [seconds[n] for n in numbers], killer)
                running[child] = (mutant, killer)
            if running:
                child, status, usage = os.wait4(-1, 0)
                cpu_s += usage.ru_utime + usage.ru_stime
                mutant, killer = running.pop(child)
                with killer:
                    killer.seek(0)
                    by = killer.read().decode()
                code = os.waitstatus_to_exitcode(status)
                what = "survived" if code == 0 else "timeout" if code == -signal.SIGALRM else "killed"
                self.outcomes[mutant] = Outcome(what, by if code else "")
                noticed[self._mutants[mutant]][by] += what == "killed"
                self._progress(f"{len(self.outcomes)}/{len(self._mutants)} {what} {mutant} {by if code else ''}")
        self._progress(f"{cpu_s:.0f} s of CPU time")

    def _try(self, mutant: str, items: Sequence[pytest.Item], seconds: Iterable[float], killer: IO[bytes]) -> None:
        """In the child: run ``items`` until one fails, and end the process."""
        try:
            os.nice(_NICENESS)
            _be_quiet(items[0].config)
            self._trampoline.set_mutant_under_test(mutant)
            for item, following, usual_s in zip(items, [*items[1:], None], seconds, strict=True):
                killer.seek(0)
                killer.truncate()
                killer.write(item.nodeid.encode())
                killer.flush()
                # A test that hangs may hang while it is torn down as well, so the process ends.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, _HANGS_AFTER_S + _HANGS_AFTER_TIMES * usual_s)
                self._run(item, following)
                if self._is_failed:
                    os._exit(_FAILED)
            os._exit(0)
        finally:
            os._exit(_FAILED)

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> None:
        for _ in range(2):  # the second time, for tests that a machine is too busy for
            self._is_failed, self._seconds = False, 0.0
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if not self._is_failed:
                break


def _ids(item: pytest.Item) -> set[str]:
    """The ids of a test's parameters, alone and in pairs, because some have the dash that joins them."""
    spec: Any = getattr(item, "callspec", None)
    alone = [] if spec is None else spec.id.split("-")
    return {*alone, *(f"{first}-{second}" for first, second in pairwise(alone))}


def _be_quiet(config: pytest.Config) -> None:
    nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    with suppress(AssertionError):  # without a reporter there is nobody to be quietened
        config.get_terminal_writer()._file = nowhere
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(nowhere.fileno(), 1)
    os.dup2(nowhere.fileno(), 2)
