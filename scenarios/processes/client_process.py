"""A client process of a run: its life, and how far its program is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from bkclient.errors import MetadataStoreError
from scenarios.history import Kind
from scenarios.liveness import StuckError
from scenarios.plan import operations as ops
from scenarios.plan.model import Program
from scenarios.processes.child import Child
from scenarios.recording.recorders import Recorder

__all__ = ["ClientChild", "ProgramReport"]

_MODULE: Final = "scenarios.processes.program"


class ProgramReport:
    """How far a program is, as its process told; see :class:`~scenarios.playing.programs.PlayedProgram`."""

    def __init__(self, program: Program, on_change: Callable[[], None]) -> None:
        self.program = program
        self.failed: list[str] = []
        self.problems: list[str] = []
        self.current: ops.ClientOperation | None = None
        self.has_ended = False
        self.has_begun = False
        self._on_change = on_change

    @property
    def is_staying(self) -> bool:
        """Whether it does nothing more, and its process lives on."""
        return isinstance(self.current, ops.Stay | ops.RunAutoRecovery)

    def take(self, at: int, failed: list[str], problems: list[str], *, has_ended: bool) -> None:
        """Take in what the process told."""
        self.has_begun = True
        self.failed, self.problems, self.has_ended = failed, problems, has_ended
        self.current = None if at < 0 else self.program.calls[at].operation
        self._on_change()


class ClientChild:
    """A process that plays a program, or reads back. It is there from the beginning, and begins with :meth:`start`.

    ``on_message`` gets what is no business of its life: events, ledgers that it created.
    """

    def __init__(
        self,
        name: str,
        task: Mapping[str, Any],
        folder: Path,
        recorder: Recorder,
        on_message: Callable[[list[Any]], None],
    ) -> None:
        self.name = name
        self.part = folder / f"{name}.bkh"
        self.report: ProgramReport | None = None
        self._recorder = recorder
        self._on_message = on_message
        self._error: Exception | None = None
        self._end = asyncio.Event()
        self._has_started = False
        self._is_killed = False
        self._child = Child(
            _MODULE, {**task, "name": name, "file": str(self.part)}, folder / f"{name}.log", self._take, self._ended
        )

    @property
    def is_alive(self) -> bool:
        """Whether the program runs, even if it is paused: it has neither returned nor been killed."""
        return self._has_started and self._child.is_alive

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self._child.is_paused

    def start(self, *message: object) -> None:
        """Let it begin."""
        self._has_started = True
        detail = "program of the plan" if self.report is not None else "reads back"
        self._recorder.record(Kind.CLIENT_START, self.name, incarnation=1, detail=detail)
        self._child.send("start", *message)

    def send(self, *message: object) -> None:
        """Send it a message."""
        self._child.send(*message)

    def crash(self) -> None:
        """SIGKILL. Idempotent."""
        if self.is_alive:
            self._is_killed = True
            self._child.kill()
            self._recorder.record(Kind.CLIENT_CRASH, self.name, incarnation=1)

    def discard(self) -> None:
        """SIGKILL, after the run."""
        self._is_killed = True
        self._child.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.is_alive and not self.is_paused:
            self._child.pause()
            self._recorder.record(Kind.CLIENT_PAUSE, self.name)

    def resume(self) -> None:
        """SIGCONT."""
        if self.is_alive and self.is_paused:
            self._recorder.record(Kind.CLIENT_RESUME, self.name)
            self._child.resume()

    async def ended(self) -> None:
        """Wait until it has returned or was killed; raises what it raised, ``RuntimeError`` for an end by itself."""
        await self._end.wait()
        if self._error is not None:
            raise self._error

    def _take(self, message: list[Any]) -> None:
        match message:
            case ["at", at, failed, problems, has_ended] if self.report is not None:
                self.report.take(at, failed, problems, has_ended=has_ended)
            case ["returned"]:
                self._is_killed = True
            case ["not-started", problem]:
                self._error = MetadataStoreError(problem)
            case ["stuck", ledger_id, problem, clause]:
                self._error = StuckError(ledger_id, problem, clause)
            case ["failed", problem]:
                self._error = RuntimeError(f"the process of {self.name} ended: {problem}")
            case _:
                self._on_message(message)

    def _ended(self) -> None:
        if self._error is None and not self._is_killed:
            self._error = RuntimeError(f"the process of {self.name} ended by itself:\n{self._child.last_words()}")
        self._end.set()
