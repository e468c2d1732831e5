"""Commands for a running cluster, one a line: those of :data:`~simbookie.development.control.ACTIONS`, ``list`` and ``help``.

A line that cannot be carried out is answered by a sentence that says why. Lines are read by a thread, from the file descriptor
itself, so that a program that ends does not wait for a line that never comes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from simbookie.development.control import ACTIONS, ClusterControl, ControlError

__all__ = ["HELP", "LINE_BYTES_MAX", "lines_of", "obey", "run_commands"]

#: A longer line is not a command.
LINE_BYTES_MAX: Final = 1000
_LINES_WAITING_MAX: Final = 100

HELP: Final = "\n".join(
    [
        *(f"  {f'{each.name} BOOKIE' if each.to_bookie else each.name:<17}{each.meaning}" for each in ACTIONS.values()),
        f"  {'list':<17}the bookies, and how each is",
        f"  {'help':<17}these lines",
        "A bookie is named by its id or its number, counted from 0.",
    ]
)
"""All commands with their meanings."""


async def obey(control: ClusterControl, line: str) -> str:
    """Carry out one line; what to answer, which is nothing for an empty line."""
    if len(line) > LINE_BYTES_MAX:
        return f"a command has at most {LINE_BYTES_MAX} characters"
    words = line.split()
    if not words:
        return ""
    if words == ["help"]:
        return HELP
    if words == ["list"]:
        return "\n".join(
            f"{number:>3}  {process.bookie_id}  {control.state(process)}"
            for number, process in enumerate(control.cluster.bookies)
        )
    if len(words) > 2:
        return f"one action and one bookie, got {len(words)} words; help lists the commands"
    try:
        done = await control.act(*words)
    except ControlError as error:
        return f"{error}" if words[0] in ACTIONS else f"{error}, list, help"
    return f"{done.action}: {done.bookie}"


async def run_commands(control: ClusterControl, lines: AsyncIterator[str], say: Callable[[str], None]) -> None:
    """Carry out lines until there are no more."""
    async for line in lines:
        if answer := await obey(control, line):
            say(answer)


async def lines_of(descriptor: int) -> AsyncIterator[str]:
    """The lines that come from a file descriptor, until its end. At most 100 wait; reading waits for room after that."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(_LINES_WAITING_MAX)

    def put(line: bytes | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()

    def read() -> None:
        with suppress(RuntimeError, OSError):  # the loop has ended, or the terminal is another program's
            rest = b""
            while data := os.read(descriptor, 4096):
                *whole, rest = (rest + data).split(b"\n")
                rest = rest[: LINE_BYTES_MAX + 1]
                for line in whole:
                    put(line)
            put(rest)
        with suppress(RuntimeError):
            put(None)

    with suppress(ValueError):  # signals are the main thread's
        signal.signal(
            signal.SIGTTIN, signal.SIG_IGN
        )  # in the background a read fails then, instead of stopping everything
    threading.Thread(target=read, name="commands", daemon=True).start()
    while (line := await queue.get()) is not None:
        yield line.decode(errors="replace")
