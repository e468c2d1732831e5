"""Bookies as operating-system processes: what can be killed, stopped and started again for real.

A :class:`BookieProcess` runs ``bk-sim bookie``; a :class:`ProcessCluster` runs several of them against one metadata service. A
process says that it serves by one line of JSON on its standard output; what it logs goes to a file. It ends when its standard
input does, which the operating system closes when this process dies, however it dies: nothing is left behind.

These bookies keep everything in memory. One that was killed starts again *empty* under its old name and address, which no real
bookie does (its cookie would tell); use that to study exactly this, and pauses for everything else.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Final, Self

from bkclient.metadata.base import BookieAddress
from simbookie.standstill import stop
from simbookie.start_errors import BookieStartError

__all__ = ["BookieProcess", "BookieStartError", "ProcessCluster"]

_POLL_INTERVAL_S: Final = 0.05
_LOG_LINES_SHOWN: Final = 20
_LOCATION_SCRIPT: Final = """#!/bin/sh
# the rack of each argument, which is a bookie id such as bookie-3.rack-1
for bookie in "$@"; do echo "/${bookie##*.}"; done
"""


class BookieProcess:
    """One bookie process. ``options`` are further options of ``bk-sim bookie``; times in seconds.

    ``name`` names its files in ``log_dir``. Without a port the system chooses one, which later starts keep. A subclass may run
    another :attr:`module`, which does something first.
    """

    #: The module whose command line is that of ``bk-sim``.
    module: ClassVar[str] = "simbookie.cli"

    def __init__(
        self,
        name: str,
        metadata_uri: str,
        log_dir: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bookie_id: str | None = None,
        options: Sequence[str] = (),
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 10.0,
    ) -> None:
        self.name = name
        self.log_path = log_dir / f"{name}.log"
        self._ready_path = log_dir / f"{name}.ready"
        self._metadata_uri = metadata_uri
        self._host = host
        self._port = port
        self._bookie_id = bookie_id
        self._options = tuple(options)
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._last_status: int | None = None
        #: Where it serves operators by HTTP, if it does; known once it serves.
        self.admin_port: int | None = None

    @property
    def bookie_id(self) -> str:
        """The id under which it is registered; ``RuntimeError`` before the first start if none was given."""
        if self._bookie_id is None:
            raise RuntimeError(f"{self.name} has no id before it has been started")
        return self._bookie_id

    @property
    def address(self) -> BookieAddress:
        """Where it listens; port 0 before the first start if none was given."""
        return BookieAddress(self._host, self._port)

    @property
    def pid(self) -> int | None:
        """The process id, ``None`` while there is no process."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process is there; it may be paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def ending(self) -> str:
        """How the process ended: "stopped" if in order, otherwise "died" and why; ``RuntimeError`` while it runs."""
        status = self._last_status if self._process is None else self._process.poll()
        if status is None:
            raise RuntimeError(f"{self.name} has not ended")
        if status < 0:
            return f"died of {signal.Signals(-status).name}"
        return "stopped" if status == 0 else f"died with exit status {status}"

    def spawn(self) -> None:
        """Start the process without waiting for it to serve; nothing happens if it runs."""
        if self.is_running:
            return
        self._release()
        command = [sys.executable, "-m", self.module, "bookie", "--json", "--exit-with-stdin"]
        command += ["--metadata", self._metadata_uri, "--host", self._host, "--port", str(self._port)]
        if self._bookie_id is not None:
            command += ["--id", self._bookie_id]
        command += self._options
        with self.log_path.open("ab") as log, self._ready_path.open("wb") as ready:
            self._log_start = log.tell()
            # a session of its own: a Ctrl-C in the terminal is ours to pass on, in order
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                command, stdin=subprocess.PIPE, stdout=ready, stderr=log, start_new_session=True
            )

    def wait_ready(self) -> None:
        """Wait until the process serves; :class:`BookieStartError` if it ends before or takes too long."""
        process = self._process
        if process is None:
            raise RuntimeError(f"{self.name} was not started")
        for _ in range(max(1, int(self._start_timeout_s / _POLL_INTERVAL_S))):
            announcement, newline, _ = self._ready_path.read_bytes().partition(b"\n")
            facts = json.loads(announcement) if newline else {}
            if "bookie_id" in facts:  # the other thing it may announce is an error, and then it ends
                self._bookie_id, self._port = facts["bookie_id"], facts["listening_port"]
                self.admin_port = facts["admin_port"]
                return
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(_POLL_INTERVAL_S)
                self._release()
                raise BookieStartError(f"{self.name} ended with status {status}.{self._log_tail()}")
        self.kill()
        raise BookieStartError(f"{self.name} did not serve within {self._start_timeout_s:g} s.{self._log_tail()}")

    def start(self) -> None:
        """Start the process and wait until it serves; see :meth:`wait_ready`."""
        self.spawn()
        self.wait_ready()

    def kill(self) -> None:
        """Kill it at once (SIGKILL), paused or not. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(self._stop_timeout_s)
            self._release()

    def terminate(self) -> int | None:
        """Let it shut down in order (SIGTERM), kill it if it takes too long; its exit status, ``None`` if it did not run."""
        process = self._process
        if process is None:
            return None
        if self.is_running:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._stop_timeout_s)
        self.kill()
        return process.returncode

    def pause(self) -> None:
        """Let it stand still (SIGSTOP): its connections stay up and nothing is answered."""
        stop(self._running())

    def resume(self) -> None:
        """Let it run on after a pause (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill it if it runs, and start it at its old address, with nothing in it."""
        self.kill()
        self.start()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.is_running:
            raise RuntimeError(f"{self.name} is not running")
        return self._process

    def _release(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._last_status = process.poll()
            if process.stdin is not None:
                _close_quietly(process.stdin)

    def _log_tail(self) -> str:
        text = self.log_path.read_bytes()[self._log_start :].decode(errors="replace").strip()
        return "".join(f"\n    {line}" for line in text.splitlines()[-_LOG_LINES_SHOWN:]) or " It logged nothing."


def _close_quietly(pipe: IO[bytes]) -> None:
    with suppress(OSError):
        pipe.close()


class ProcessCluster:
    """``bookies`` bookie processes registered in one metadata service; a context manager, synchronous or asynchronous.

    Files are written to ``log_dir``, by default a temporary directory that :meth:`close` removes. A killed bookie can register
    again under its id only after its old session expired, so ``session_timeout_s`` is short by default.

    With ``racks`` the bookies are dealt to that many racks. Their ids tell which, ``bookie-3.rack-1``, and so does
    :attr:`location_script`, a program as clients ask for locations.

    ``options_of`` gives further options for the bookie with an index. With ``keeps_data`` each bookie keeps its data in a folder
    of ``log_dir``, so that one that was killed starts again with what it had acknowledged.
    """

    def __init__(
        self,
        metadata_uri: str,
        bookies: int,
        *,
        log_dir: Path | None = None,
        session_timeout_s: float = 4.0,
        options: Sequence[str] = (),
        start_timeout_s: float = 60.0,
        racks: int = 0,
        options_of: Callable[[int], Sequence[str]] = lambda _index: (),
        keeps_data: bool = False,
    ) -> None:
        if bookies < 0 or racks < 0:
            raise ValueError(f"a cluster cannot have {bookies} bookies in {racks} racks")
        self.metadata_uri = metadata_uri
        self._size = bookies
        self._log_dir = log_dir
        self._options = ("--session-timeout-s", str(session_timeout_s), *options)
        self._start_timeout_s = start_timeout_s
        self._racks = racks
        self._options_of = options_of
        self._keeps_data = keeps_data
        self._resources = ExitStack()
        #: All processes, dead ones included, in the order in which they were added.
        self.bookies: list[BookieProcess] = []

    @property
    def log_dir(self) -> Path:
        """Where the log files are; ``RuntimeError`` before the start if none was given."""
        if self._log_dir is None:
            raise RuntimeError("the log directory is made when the cluster is started")
        return self._log_dir

    @property
    def has_racks(self) -> bool:
        """Whether the bookies were dealt to racks."""
        return self._racks > 0

    @property
    def location_script(self) -> Path:
        """The program that prints the rack of each bookie it is given; made when a cluster with racks is started."""
        return self.log_dir / "locations.sh"

    @property
    def bookie_ids(self) -> tuple[str, ...]:
        """The ids of all processes, dead ones included."""
        return tuple(bookie.bookie_id for bookie in self.bookies)

    def bookie(self, bookie_id: str) -> BookieProcess:
        """The process of a bookie; ``KeyError`` if there is none of this id."""
        for bookie in self.bookies:
            if bookie.bookie_id == bookie_id:
                return bookie
        raise KeyError(bookie_id)

    def start(self) -> None:
        """Start all processes side by side and wait until all serve; :class:`BookieStartError` leaves none running."""
        if self._log_dir is None:
            self._log_dir = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="bookies-")))
        self._log_dir.mkdir(parents=True, exist_ok=True)
        try:
            if self._racks:
                self.location_script.write_text(_LOCATION_SCRIPT)
                self.location_script.chmod(0o755)
            self._add(self._size)
        except BaseException:
            self.close()
            raise

    def add(self) -> BookieProcess:
        """Start one more process."""
        (bookie,) = self._add(1)
        return bookie

    def _add(self, count: int) -> list[BookieProcess]:
        first = len(self.bookies)
        added = [
            BookieProcess(
                f"bookie-{index}",
                self.metadata_uri,
                self.log_dir,
                bookie_id=self._id_of(index),
                options=[*self._options, *self._data_options(index), *self._options_of(index)],
                start_timeout_s=self._start_timeout_s,
            )
            for index in range(first, first + count)
        ]
        self.bookies += added
        for bookie in added:
            bookie.spawn()
        for bookie in added:
            bookie.wait_ready()
        return added

    def _id_of(self, index: int) -> str | None:
        if self._racks:
            return f"bookie-{index}.rack-{index % self._racks + 1}"
        return f"bookie-{index}" if self._keeps_data else None  # a folder is one bookie's for good

    def _data_options(self, index: int) -> tuple[str, ...]:
        return ("--data", str(self.log_dir / f"bookie-{index}.data")) if self._keeps_data else ()

    def terminate(self) -> None:
        """Let all processes shut down in order, side by side."""
        for bookie in self.bookies:
            if (pid := bookie.pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        for bookie in self.bookies:
            bookie.terminate()

    def close(self) -> None:
        """Kill whatever runs and remove a temporary log directory. Idempotent."""
        for bookie in self.bookies:
            bookie.kill()
        self._resources.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)
