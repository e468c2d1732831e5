"""Locations from a program, as BookKeeper's ScriptBasedMapping asks for them.

The program is given host names (the part of a bookie id before the port) as arguments and prints one location for each, in their
order, separated by white space. It runs beside the event loop and cannot hold it up: a run has a limit of time, its
output one of size, and no more than a hundred bookies are asked for at once. A run that fails, or prints something else than one
path per argument, teaches nothing; the client tries again later. What was learned is kept until :meth:`ScriptLocations.forget`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import BinaryIO, Final

import anyio

from bkclient.ledger import BookieId
from bkclient.placement.locations import LocationListeners, is_location

__all__ = ["ScriptLocations"]

#: As many arguments as BookKeeper passes (net.topology.script.number.args), and more than any sensible line of output.
ARGUMENTS_PER_RUN: Final = 100
OUTPUT_MAX_BYTES: Final = ARGUMENTS_PER_RUN * 1024
TIMEOUT_S_DEFAULT: Final = 10.0
LOCATIONS_REMEMBERED_MAX: Final = 10_000
_GRACE_S: Final = 1.0

_log = logging.getLogger(__name__)


class ScriptLocations(LocationListeners):
    """Locations that ``program``, the path of an executable file, knows.

    ``timeout_s`` bounds each run of it.
    """

    def __init__(self, program: str, *, timeout_s: float = TIMEOUT_S_DEFAULT) -> None:
        super().__init__()
        self._program = program
        self._timeout_s = timeout_s
        self._known: dict[str, str] = {}
        self._resolving = asyncio.Lock()

    def location_of(self, bookie_id: BookieId) -> str | None:
        """What the program said when it was last asked."""
        return self._known.get(_host_of(bookie_id))

    def forget(self, bookies: Iterable[BookieId]) -> None:
        """Ask again about ``bookies`` at the next occasion."""
        for bookie_id in bookies:
            self._known.pop(_host_of(bookie_id), None)

    async def resolve(self, bookies: Sequence[BookieId]) -> bool:
        """Ask the program about those of ``bookies`` that are not known."""
        async with self._resolving:
            hosts = tuple(dict.fromkeys(_host_of(b) for b in bookies))
            unknown = [host for host in hosts if host not in self._known]
            learned = False
            for first in range(0, len(unknown), ARGUMENTS_PER_RUN):
                part = unknown[first : first + ARGUMENTS_PER_RUN]
                answer = await self._ask(part)
                if answer is None:
                    break
                self._remember(dict(zip(part, answer, strict=True)))
                learned = True
        if learned:
            self.changed()
        return all(host in self._known for host in hosts)

    def _remember(self, found: dict[str, str]) -> None:
        self._known.update(found)
        for host in list(self._known)[: max(0, len(self._known) - LOCATIONS_REMEMBERED_MAX)]:
            del self._known[host]

    async def _ask(self, hosts: Sequence[str]) -> list[str] | None:
        """The locations of ``hosts``; None if the program failed to tell."""
        async with _pipe() as (printed, writing_end):
            try:
                process = await asyncio.create_subprocess_exec(
                    self._program, *hosts, stdin=DEVNULL, stdout=writing_end, stderr=DEVNULL, start_new_session=True
                )
            except OSError as error:
                _log.warning("the location script %s cannot be run: %s", self._program, error)
                return None
            finally:
                writing_end.close()
            try:
                async with asyncio.timeout(self._timeout_s):
                    output = await _read_all(printed)
                    if output is None:
                        _kill(process)
                    status = await process.wait()
            except TimeoutError:
                _log.warning("the location script %s took longer than %s s", self._program, self._timeout_s)
                return None
            finally:
                await _end(process)
        if output is None or status != 0:
            reason = f"ended with status {status}" if output is not None else f"printed over {OUTPUT_MAX_BYTES} bytes"
            _log.warning("the location script %s %s", self._program, reason)
            return None
        locations = output.decode("utf-8", "replace").split()
        if len(locations) != len(hosts) or not all(map(is_location, locations)):
            _log.warning(
                "the location script %s printed %d words, not one path such as /region/rack for each of %d arguments",
                self._program,
                len(locations),
                len(hosts),
            )
            return None
        return locations


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, BinaryIO]]:
    """Both ends of a pipe, closed at the end.

    That of asyncio's own subprocesses would not do: there a process counts as running until all that it printed is read.
    """
    reading_end, writing_end = os.pipe()
    reader = asyncio.StreamReader()
    with os.fdopen(writing_end, "wb") as written:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading_end, "rb", buffering=0)
        )
        try:
            yield reader, written
        finally:
            transport.close()


async def _read_all(reader: asyncio.StreamReader) -> bytes | None:
    """Everything until the end; None if that is too much."""
    output = bytearray()
    while part := await reader.read(OUTPUT_MAX_BYTES):
        output += part
        if len(output) > OUTPUT_MAX_BYTES:
            return None
    return bytes(output)


async def _end(process: Process) -> None:
    """No process outlives its run, even if the waiter was cancelled."""
    if process.returncode is None:
        _kill(process)
        with anyio.move_on_after(_GRACE_S, shield=True):
            await process.wait()


def _kill(process: Process) -> None:
    # With what it started: a script mostly waits for others, which would keep its output open.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _host_of(bookie_id: BookieId) -> str:
    host, colon, port = bookie_id.rpartition(":")
    return host if colon and port.isdigit() else bookie_id
