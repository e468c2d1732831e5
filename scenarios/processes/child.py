"""A process of a run, as its director has it: it is sent messages, killed, stopped and continued."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgpack

from simbookie.standstill import stop

__all__ = ["Child"]

_READ_BYTES: Final = 65_536
_END_TIMEOUT_S: Final = 10.0
_LOG_LINES_SHOWN: Final = 8
_UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""What may wait for a process that takes nothing, because it is stopped."""


class Child:
    """Runs ``python -m MODULE`` with a task.

    ``on_message`` gets what it tells, ``on_end`` is called once, after the last message.
    """

    def __init__(
        self,
        module: str,
        task: Mapping[str, Any],
        log_path: Path,
        on_message: Callable[[list[Any]], None],
        on_end: Callable[[], None],
    ) -> None:
        self._log_path = log_path
        self._on_message = on_message
        self._on_end = on_end
        self._unpacker = msgpack.Unpacker()
        self._has_ended = False
        self.is_paused = False
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is the director's
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)  # a process that is stopped takes nothing, and must not stop its director
        self._unsent = bytearray()
        asyncio.get_running_loop().add_reader(self._out, self._read)
        self.send("task", {**task, "director": os.getpid()})

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs, even if it is paused."""
        return not self._has_ended

    def send(self, *message: object) -> None:
        """Send it a message, which waits while it takes none; one that has ended gets none.

        It is killed when more than 64 MiB wait.
        """
        if self._has_ended:
            return
        self._unsent += msgpack.packb(list(message))
        if len(self._unsent) > _UNSENT_BYTES_MAX:
            with self._log_path.open("a") as log:
                log.write(f"killed: it took none of the last {_UNSENT_BYTES_MAX} bytes of messages\n")
            self._process.kill()
            self._unsent.clear()
        self._write()

    def kill(self) -> None:
        """SIGKILL, whatever it is doing; returns when it is gone and everything that it told was taken. Idempotent."""
        if self._has_ended:
            return
        self._process.kill()
        self._process.wait(_END_TIMEOUT_S)
        while not self._has_ended:
            self._read()

    def pause(self) -> None:
        """SIGSTOP; returns when it stands still."""
        if not self._has_ended:
            self.is_paused = True
            stop(self._process)

    def resume(self) -> None:
        """SIGCONT."""
        if not self._has_ended and self.is_paused:
            self.is_paused = False
            self._process.send_signal(signal.SIGCONT)

    def last_words(self) -> str:
        """The end of what it logged."""
        lines = self._log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES_SHOWN:])

    def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            del self._unsent[: os.write(self._in, self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # it has ended, which its output will tell
            self._unsent.clear()
        if self._unsent:
            loop.add_writer(self._in, self._write)
        else:
            loop.remove_writer(self._in)

    def _read(self) -> None:
        try:
            data = os.read(self._out, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._unpacker.feed(data)
            for message in self._unpacker:
                self._on_message(message)
        elif not self._has_ended:
            self._has_ended = True
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._out)
            loop.remove_writer(self._in)
            self._process.wait(_END_TIMEOUT_S)
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()
            self._on_end()
