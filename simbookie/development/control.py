"""What may be done to a running development cluster: crash, restart, pause, resume, partition, heal, add.

Actions are carried out one after the other. What cannot be done raises :class:`ControlError` and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from simbookie.development.relay import Relay
from simbookie.processes import BookieProcess, BookieStartError, ProcessCluster

__all__ = ["ACTIONS", "BOOKIES_MAX", "Action", "ClusterControl", "ControlError", "Done", "relays_for"]

#: Bookies of a cluster, dead ones included.
BOOKIES_MAX: Final = 100
_REMEMBERED: Final = 50


class ControlError(Exception):
    """An action that cannot be carried out; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that may be done, ``to_bookie`` or to the cluster."""

    name: str
    meaning: str
    to_bookie: bool = True


ACTIONS: Final[Mapping[str, Action]] = {
    action.name: action
    for action in (
        Action("crash", "kill -9: the process is gone at once, without a word to anybody"),
        Action("restart", "start it again with what its disk has; one that runs is killed before"),
        Action("pause", "kill -STOP: its connections stay up, and nothing is answered"),
        Action("resume", "kill -CONT: it goes on where it stood"),
        Action("partition", "nothing passes between it and clients; it stays registered"),
        Action("heal", "bytes pass again"),
        Action("add", "start one more bookie", to_bookie=False),
    )
}
"""Every action by its name."""


@dataclass(frozen=True, slots=True)
class Done:
    """An action that was carried out, numbered from 1, or that was refused with ``error``."""

    number: int
    action: str
    bookie: str
    error: str = ""


class ClusterControl:
    """Acts on ``cluster``, whose bookies have ``relays`` before them, by the index of the bookie."""

    def __init__(self, cluster: ProcessCluster, relays: Mapping[int, Relay]) -> None:
        self.cluster = cluster
        self._relays = relays
        self._paused: set[str] = set()
        self._turn = asyncio.Lock()
        #: What was done lately, the last one at the end.
        self.done: deque[Done] = deque(maxlen=_REMEMBERED)
        self._count = 0

    async def start(self) -> None:
        """Let clients reach the bookies."""
        for index, relay in self._relays.items():
            await relay.start(self.cluster.bookies[index].address)

    async def aclose(self) -> None:
        """Close the relays."""
        for relay in self._relays.values():
            await relay.aclose()

    def state(self, bookie: BookieProcess) -> str:
        """``running``, ``crashed``, ``paused`` or ``partitioned``; one that is both of the latter is ``paused``."""
        if not bookie.is_running:
            return "crashed"
        if bookie.name in self._paused:
            return "paused"
        return "partitioned" if self._relay(bookie).is_cut else "running"

    def is_partitioned(self, bookie: BookieProcess) -> bool:
        """Whether nothing passes between the bookie and its clients."""
        return self._relay(bookie).is_cut

    async def act(self, action: str, bookie: str = "") -> Done:
        """Carry out an action; ``bookie`` is an id, a process's name or a number counted from 0.

        Raises :class:`ControlError`.
        """
        async with self._turn:
            try:
                name = await self._carry_out(action, bookie)
            except ControlError as error:
                self._note(action, bookie, str(error))
                raise
            return self._note(action, name)

    async def _carry_out(self, action: str, bookie: str) -> str:
        known = ACTIONS.get(action)
        if known is None:
            raise ControlError(f"no action is called {action!r}; there are: {', '.join(ACTIONS)}")
        if known.to_bookie and not bookie:
            raise ControlError(f"{action} needs a bookie: {action} {self._some()}")
        if not known.to_bookie and bookie:
            raise ControlError(f"{action} takes no bookie, got {bookie!r}")
        if action == "add":
            return await self._add()
        process = self._find(bookie)
        try:
            await self._act_on(action, process)
        except (BookieStartError, OSError) as error:
            raise ControlError(f"{process.bookie_id}: {error}") from error
        return process.bookie_id

    async def _act_on(self, action: str, process: BookieProcess) -> None:
        self._check(action, process)
        if action == "crash":
            await asyncio.to_thread(process.kill)
        elif action == "restart":
            await asyncio.to_thread(process.restart)
        elif action == "pause":
            await asyncio.to_thread(process.pause)
        elif action == "resume":
            process.resume()
        elif action == "partition":
            self._relay(process).cut()
        else:
            self._relay(process).heal()
        if action == "pause":
            self._paused.add(process.name)
        elif action in {"crash", "restart", "resume"}:
            self._paused.discard(process.name)

    def _check(self, action: str, process: BookieProcess) -> None:
        """Raise if the bookie is not in a state for the action."""
        name, is_paused, is_cut = process.bookie_id, process.name in self._paused, self._relay(process).is_cut
        refusals = {
            "pause": (is_paused, f"{name} is paused already: resume {name}"),
            "resume": (not is_paused, f"{name} is not paused"),
            "partition": (is_cut, f"{name} is partitioned already: heal {name}"),
            "heal": (not is_cut, f"{name} is not partitioned"),
        }
        if action in {"crash", "pause", "resume"} and not process.is_running:
            raise ControlError(f"{name} is not running: restart {name}")
        is_refused, why = refusals.get(action, (False, ""))
        if is_refused:
            raise ControlError(why)

    async def _add(self) -> str:
        if len(self.cluster.bookies) >= BOOKIES_MAX:
            raise ControlError(f"a cluster has {BOOKIES_MAX} bookies at most, dead ones included: restart one of them")
        try:
            process = await asyncio.to_thread(self.cluster.add)
        except BookieStartError as error:
            raise ControlError(str(error)) from error
        await self._relay(process).start(process.address)
        return process.bookie_id

    def _note(self, action: str, bookie: str, error: str = "") -> Done:
        self._count += 1
        done = Done(self._count, action, bookie, error)
        self.done.append(done)
        return done

    def _find(self, bookie: str) -> BookieProcess:
        bookies = self.cluster.bookies
        for process in bookies:
            if bookie in {process.bookie_id, process.name}:
                return process
        if bookie.isascii() and bookie.isdigit() and len(bookie) <= 3 and int(bookie) < len(bookies):
            return bookies[int(bookie)]
        raise ControlError(f"no bookie is called {bookie!r}; there are: {', '.join(self.cluster.bookie_ids)}")

    def _relay(self, process: BookieProcess) -> Relay:
        return self._relays[self.cluster.bookies.index(process)]

    def _some(self) -> str:
        return self.cluster.bookie_ids[0]


def relays_for() -> tuple[dict[int, Relay], Callable[[int], list[str]]]:
    """Relays that are made when bookies are, and the options that tell a bookie of its relay."""
    relays: dict[int, Relay] = {}

    def options_of(index: int) -> list[str]:
        relays[index] = Relay()
        return ["--advertised-port", str(relays[index].port)]

    return relays, options_of
