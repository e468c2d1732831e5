"""Searches configurations exhaustively, with or without a planted defect, and measures the searches.

Every search that ends without a violation is followed by a verification of its reductions; without it, it proves nothing. And
every step that machines made in it is compared with the published specification.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from scenarios.exhaustive.configuration import Reductions, SmallCluster
from scenarios.exhaustive.moves import TooManyNumbersError
from scenarios.exhaustive.search import Search, Searched
from scenarios.exhaustive.traces import Trace, trace
from scenarios.exhaustive.verifying import Verified, verify
from scenarios.mutants import Mutant
from scenarios.specification.conformance import Conformed, conform

__all__ = ["Exhausted", "SearchLimits", "Settings", "exhaust", "memory_mb"]

_KB: Final = 1024
#: macOS counts bytes, others kibibytes.
_UNIT: Final = _KB * _KB if sys.platform == "darwin" else _KB


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Where a search stops: states, seconds of CPU time, and MiB that the process takes; None is no limit."""

    states: int | None = None
    seconds: float | None = None
    memory_mb: int | None = None

    def exceeded(self, states: int, seconds: float) -> str | None:
        """The limit that is met, in words."""
        if self.states is not None and states >= self.states:
            return f"more than {self.states} states"
        if self.seconds is not None and seconds >= self.seconds:
            return f"more than {self.seconds:g} seconds"
        if self.memory_mb is not None and memory_mb() >= self.memory_mb:
            return f"more than {self.memory_mb} MiB"
        return None


@dataclass(frozen=True, slots=True)
class Settings:
    """How to search; ``clauses`` are those that are looked for, None for all."""

    reductions: Reductions = field(default_factory=Reductions)
    limits: SearchLimits = field(default_factory=SearchLimits)
    clauses: frozenset[str] | None = None
    is_depth_first: bool = False


@dataclass(slots=True)
class Exhausted:
    """The result of one search.

    ``seconds`` are of CPU time, for the search without verification and trace. ``memory_mb`` is the most that the process took
    so far. ``numbers`` are the sizes of the tables: states of the automata, steps that machines made, conversations, values
    of the metadata store. ``verified`` and ``conformed`` are None unless the search was complete.
    """

    name: str
    cluster: SmallCluster
    searched: Searched
    settings: Settings
    seconds: float = 0.0
    memory_mb: float = 0.0
    numbers: dict[str, int] = field(default_factory=dict)
    verified: Verified | None = None
    conformed: Conformed | None = None
    trace: Trace | None = None

    @property
    def states_per_second(self) -> float:
        """States per second of CPU time."""
        return self.searched.states / self.seconds if self.seconds else 0.0

    @property
    def is_proof(self) -> bool:
        """Whether every state was visited, all reductions were justified, every step is specified, and nothing is broken."""
        is_sound = self.verified is not None and self.verified.is_sound
        return self.searched.is_complete and is_sound and self.conformed is not None and self.conformed.holds

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.searched.found is not None:
            return self.searched.found.broken.name
        if self.searched.stopped is not None:
            return f"not complete: {self.searched.stopped}"
        if self.conformed is not None and not self.conformed.holds:
            return "a step is not specified"
        return "holds" if self.is_proof else "a reduction was not justified"

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos exhaustive --json`` prints for each configuration."""
        found, broken = self.searched.found, None
        if found is not None and self.trace is not None:
            broken = {
                "invariant": found.broken.invariant or None,
                "clause": found.broken.clause or None,
                "witness": found.broken.witness,
                "trace": list(self.trace.moves),
                "at_the_end": list(self.trace.at_the_end),
            }
        return {
            "configuration": self.name,
            "cluster": self.cluster.as_json(),
            "states": self.searched.states,
            "edges": self.searched.edges,
            "seconds": round(self.seconds, 6),
            "states_per_second": round(self.states_per_second, 3),
            "memory_mb": round(self.memory_mb, 1),
            "complete": self.searched.is_complete,
            "stopped": self.searched.stopped,
            "ends": dict(sorted(self.searched.ends.items())),
            "numbers": self.numbers,
            "reductions": list(self.settings.reductions.used),
            "verified": None
            if self.verified is None
            else {"checks": self.verified.checks, "wrong": self.verified.wrong},
            "specification": None if self.conformed is None else self.conformed.as_json(),
            "broken": broken,
        }


def memory_mb() -> float:
    """The most memory that this process took so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT / _KB / _KB


def exhaust(
    name: str,
    cluster: SmallCluster,
    settings: Settings,
    mutant: Mutant | None = None,
    progress: Callable[[int], None] | None = None,
) -> Exhausted:
    """Search one configuration, with the defect planted into its machines if one is given.

    ``progress`` is called with the number of states from time to time. Ctrl-C ends the search, which says so.
    """
    started = time.process_time()

    def watch(searched: Searched) -> str | None:
        if progress is not None:
            progress(searched.states)
        return settings.limits.exceeded(searched.states, time.process_time() - started)

    with nullcontext() if mutant is None else mutant.applied():
        search = Search(
            cluster,
            settings.reductions,
            clauses=settings.clauses,
            watch=watch,
            is_depth_first=settings.is_depth_first,
        )
        try:
            search.run()
        except KeyboardInterrupt:
            search.searched.stopped = "interrupted"
            search.searched.states = len(search.seen)
        except TooManyNumbersError as error:
            search.searched.stopped = str(error)
            search.searched.states = len(search.seen)
        result = Exhausted(name, cluster, search.searched, settings, time.process_time() - started, memory_mb())
        moves = search.moves
        result.numbers = {
            "writer_states": moves.writer.states,
            "recovery_states": moves.recovery.states,
            "machine_steps": moves.writer.steps + moves.recovery.steps,
            "bookie_states": moves.bookies.states,
            "conversations": len(moves.of_writer.all) + len(moves.of_recovery.all) - 2,
            "metadata_values": len(moves.values),
        }
        if search.searched.found is not None:
            result.trace = trace(search, search.searched.found)
        elif search.searched.is_complete:
            result.conformed = conform(moves)
            result.verified = verify(moves)
    return result
