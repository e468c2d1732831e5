"""Plans of the library with processes, on Apache BookKeeper's own bookies: ``make interop-plans``.

They are played as on ours (``make processes``): programs of clients are processes, with links between them and the bookies, which
are killed and stopped. What happens inside these bookies nobody records, so clauses about that are not judged.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from scenarios.plan.library import library_names, library_plan
from scenarios.processes import problems_of, run_plan_with_processes
from scenarios.processes.served import BookieWishes, OnEvent
from tests.interop.builds import Build
from tests.interop.real_bookie import RealBookie

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(600)]

_START_TIMEOUT_S = 120.0
_PLANS = [name for name in library_names() if not list(problems_of(library_plan(name), records=False))]


class RealBookies:
    """Makes bookies of one version."""

    records = False

    def __init__(self, build: Build) -> None:
        self._build = build
        self.kind = f"Apache BookKeeper {build.version}"

    def __call__(self, wishes: BookieWishes, on_event: OnEvent) -> RealServedBookie:
        del on_event  # they tell of nothing
        settings = {"bookieId": wishes.name, "zkTimeout": str(round(wishes.session_timeout_s * 1000))}
        return RealServedBookie(RealBookie(self._build, wishes.folder, wishes.metadata, settings))


class RealServedBookie:
    """A :class:`~scenarios.processes.served.ServedBookie`."""

    parts: Sequence[Path] = ()

    def __init__(self, bookie: RealBookie) -> None:
        self._bookie = bookie
        self._is_killed = False
        self.port = bookie.port
        self.is_paused = False

    @property
    def is_alive(self) -> bool:
        return self._bookie.is_running

    @property
    def problem(self) -> str:
        has_ended = not self._is_killed and not self._bookie.is_running
        return f"a bookie ended by itself:\n{self._bookie.log_tail()}" if has_ended else ""

    def start(self) -> None:
        self._is_killed = False
        self._bookie.spawn()

    async def serves(self) -> None:
        """It listens after it has registered."""
        async with asyncio.timeout(_START_TIMEOUT_S):
            while not self._is_killed:
                if self.problem:
                    raise RuntimeError(self.problem)
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    return

    def kill(self) -> None:
        self._is_killed = True
        self.is_paused = False
        self._bookie.kill()

    def pause(self) -> None:
        self.is_paused = True
        self._bookie.signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.is_paused and self.is_alive:
            self.is_paused = False
            self._bookie.signal(signal.SIGCONT)


@pytest.mark.parametrize("name", _PLANS)
def test_a_plan_on_real_bookies(
    name: str, build: Build, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    result = run_plan_with_processes(library_plan(name), 0, record=tmp_path, bookies=RealBookies(build))
    record_property("verdict", result.verdict)
    record_property("problem", result.problem)
    assert result.verdict != "violated", [violation.as_json() for violation in result.violations]
    assert {"A4", "B4", "D2", "M2"} <= set(result.unseen), "nobody saw inside"
    assert result.events > 10, result.problem
