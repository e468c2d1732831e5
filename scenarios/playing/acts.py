"""Acting: which faults of a plan are in force, what ends them, and their events in the history."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from scenarios.plan import faults
from scenarios.plan.model import Step
from scenarios.plan.words import member_of, print_fields
from scenarios.playing.in_force import InForce
from scenarios.playing.ledgers import PlayedLedgers
from scenarios.playing.matching import traffic_match
from scenarios.recording.recorders import Recorder
from simbookie.world.faults import Action, Delay, Duplicate, Fate, Interception

__all__ = ["Acts", "ClientLife", "Undo", "directions", "directions_across", "message_acts", "undone"]

Undo = Callable[[], object]


class ClientLife(Protocol):
    """A process of a client, as far as steps break it; each call is without effect where there is nothing to do."""

    def crash(self) -> None:
        """Kill it."""

    def pause(self) -> None:
        """Let it execute nothing until :meth:`resume`."""

    def resume(self) -> None:
        """Let it go on."""


@dataclass(slots=True)
class _Lasting:
    """A fault that is in force; ``undo`` ends it."""

    name: str
    fault: faults.Fault
    undo: Undo


class Acts(ABC):
    """Does what steps say: which faults are in force, and what ends them. What a fault does is said by :meth:`acts`.

    ``start`` starts a client, ``clients`` are those that were started.
    """

    def __init__(
        self,
        recorder: Recorder,
        ledgers: PlayedLedgers,
        clients: Mapping[str, ClientLife],
        start: Callable[[str], None],
    ) -> None:
        self._recorder = recorder
        self._ledgers = ledgers
        self._clients = clients
        self._start = start
        #: Steps that could not be taken.
        self.problems: list[str] = []
        self._lasting: dict[str, _Lasting] = {}
        self._in_force = InForce()
        self._counts: Counter[str] = Counter()
        self._acts: Final = self.acts()

    @abstractmethod
    def acts(self) -> dict[type[faults.Fault], Callable[[Any], Undo | None]]:
        """What each fault does; that of a lasting one returns what ends it, None if there is nothing to break."""

    @abstractmethod
    def can_begin(self, fault: faults.Fault) -> bool:
        """Whether there is anything to break: a process that is dead can neither crash nor pause."""

    @abstractmethod
    def calm(self) -> None:
        """End what chance does to messages and calls."""

    def perform(self, step: Step) -> None:
        """Do what the step says."""
        fault = step.fault.at(self._ledgers.place)
        if any(member_of(host) for host in fault.hosts):
            self.problems.append(f"no ledger had the bookie of {step.fault.verb} {' '.join(step.fault.hosts)}")
            return
        if isinstance(fault, faults.Start):
            self._start(fault.host)
        elif isinstance(fault, faults.EndFault):
            self._end(lambda lasting: lasting.name == fault.step)
        elif isinstance(fault, faults.HealAll):
            self._end(lambda lasting: not isinstance(lasting.fault, _DEATHS))
        elif isinstance(fault, faults.Restart):
            self._end(lambda lasting: isinstance(lasting.fault, _DEATHS) and lasting.fault.host == fault.host)
        elif isinstance(fault, faults.Resume):
            self._end(lambda lasting: lasting.fault == faults.Pause(fault.host))
        elif fault.is_lasting:
            self._begin(step.name or self._numbered(fault), fault)
        else:
            self._record(fault, self._numbered(fault), "once")
            self._acts[type(fault)](fault)

    def end_all(self) -> None:
        """End every fault in force, and the chance ones of network and metadata service.

        A bookie whose disk was replaced stays down: it would be another one.
        """
        self._end(lambda lasting: not isinstance(lasting.fault, faults.Wipe))
        self.calm()

    def is_dead(self, host: str) -> bool:
        """Whether a fault is in force that has ended the bookie."""
        return any(isinstance(known.fault, _DEATHS) and known.fault.host == host for known in self._lasting.values())

    def _numbered(self, fault: faults.Fault) -> str:
        self._counts[fault.verb] += 1
        return f"{fault.verb}-{self._counts[fault.verb]}"

    def _begin(self, name: str, fault: faults.Fault) -> None:
        if name in self._lasting or not self.can_begin(fault):
            return
        self._record(fault, name, "begin")
        undo = self._acts[type(fault)](fault)
        self._lasting[name] = _Lasting(name, fault, undo if undo is not None else lambda: None)

    def _end(self, is_meant: Callable[[_Lasting], bool]) -> None:
        for lasting in [found for found in self._lasting.values() if is_meant(found)]:
            del self._lasting[lasting.name]
            self._record(lasting.fault, lasting.name, "end")
            lasting.undo()

    def _record(self, fault: faults.Fault, name: str, phase: str) -> None:
        target, *others = fault.hosts or ("",)
        words = print_fields(fault)
        self._recorder.record_fault(
            fault.verb,
            " ".join(words) if phase != "end" else f"ends: {' '.join(words)}",
            fault=name,
            phase=phase,
            target=target,
            other=",".join(others),
            parameters=" ".join(words[len(fault.hosts) :] if not isinstance(fault, _SEVERAL_HOSTS) else words),
        )


#: Faults that name more hosts than one in a word, so that their words say all there is.
_SEVERAL_HOSTS: Final = (faults.Partition, faults.Messages, faults.MetadataCalls)


#: Faults that a restart ends.
_DEATHS: Final = (faults.Crash, faults.Wipe)


def undone(interception: Interception[Any]) -> Undo:
    """What ends an interception, and lets go what it holds."""

    def end() -> None:
        interception.remove()
        interception.release()

    return end


def directions(host: str, other: str, way: faults.Way) -> list[tuple[str, str]]:
    """From which host to which a fault between two acts."""
    ways = {
        faults.Way.TO: [(host, other)],
        faults.Way.FROM: [(other, host)],
        faults.Way.BOTH: [(host, other), (other, host)],
    }
    return ways[way]


def message_acts(intercept: Callable[..., Interception[Any]]) -> dict[type[faults.Fault], Callable[[Any], Undo]]:
    """What each fault of single messages does, where ``intercept(match, action, limit=...)`` picks them."""

    def by(action: Callable[[Any], Action]) -> Callable[[faults.Messages], Undo]:
        return lambda fault: undone(intercept(traffic_match(fault), action(fault), limit=fault.limit))

    return {
        faults.Drop: by(lambda _: Fate.DROP),
        faults.Hold: by(lambda _: Fate.HOLD),
        faults.DelayMessages: by(lambda fault: Delay(fault.by_s)),
        faults.DuplicateMessages: by(lambda fault: Duplicate(fault.copies)),
    }


def directions_across(partition: faults.Partition) -> list[tuple[str, str]]:
    """From which host to which nothing passes while the two groups are apart; a host is never apart from itself."""
    pairs = [(one, other) for one, other in itertools.product(partition.group, partition.others) if one != other]
    return [way for one, other in pairs for way in ((one, other), (other, one))]
