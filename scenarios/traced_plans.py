"""A way to a violation in a small cluster as a plan: runs of the whole client take the same moves in the same order.

Every message of the trace is held, the request and the answer each by itself, and let go by the event that is the move before it
in the trace. So are calls to the metadata service, and the answers to these where something else happens before they are heard.
Behind the last move come first the answers that are left, and then all else.

A client gives up on a request when that has had no answer for a second. So it would give up at the same time on all that it
sent with it. Where a trace has the answer to another add come later, the bookie is read-only for a moment, and refuses the one
alone. Reads and adds have timeouts of their own, and are patient unless the trace gives up on one. Machines know no connections,
so what is counted does not depend on their age.

The bookies of a plan's first ensemble are drawn by the run's seed. ``replayed`` looks for one that draws them as they are in the
trace and breaks the same clause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from scenarios.exhaustive.automata import Ask
from scenarios.exhaustive.configuration import SmallCluster
from scenarios.exhaustive.traces import MoveKind, Trace, TracedMove
from scenarios.liveness import ADD_RESOLVES
from scenarios.plan import Plan, parse_plan
from scenarios.runner import run_plan

__all__ = ["SEEDS_TRIED", "Replayed", "plan_of_trace", "replayed"]

SEEDS_TRIED: Final = 64
#: How long a client takes at most to hear of what the metadata service has answered.
_HEARD_S: Final = 0.05
#: How long a client waits for an answer, in a trace in which it gives up on one and in any other.
_GIVES_UP_S: Final = 1.0
_PATIENT_S: Final = 30.0
_WORDS: Final = {"OPEN": "change", "IN_RECOVERY": "recover", "CLOSED": "close"}
_CAUSES: Final = {"OPEN": "ensemble", "IN_RECOVERY": "recover", "CLOSED": "close"}
_ANSWERS: Final = {
    "add": "ADD_RESP",
    "write-back": "ADD_RESP",
    "fence": "FENCE_RESP",
    "recovery-read": "REC_READ_RESP",
}


@dataclass(frozen=True, slots=True)
class Replayed:
    """A run of a traced plan that is violated: its seed, and the clause that it breaks."""

    seed: int
    clause: str


def plan_of_trace(name: str, summary: str, cluster: SmallCluster, trace: Trace, clause: str = "") -> Plan:
    """The plan of a way to the violation of ``clause``; if that is that every append ends, the plan demands it.

    :class:`~scenarios.plan.errors.PlanError` if ``name`` or ``summary`` are none.
    """
    return parse_plan(_Writing(cluster, trace, demands_ends=clause == ADD_RESOLVES).text(name, summary), name)


def replayed(plan: Plan, clause: str, mutant: str | None) -> Replayed | None:
    """The first seed with which a run of the plan breaks the clause; if none does, the first with which it breaks another one.

    None if none of :data:`SEEDS_TRIED` seeds breaks any. A search may judge a clause before what a run would show of it.
    """
    other: Replayed | None = None
    for seed in range(SEEDS_TRIED):
        broken = [one.clause for one in run_plan(plan, seed, mutant=mutant).violations]
        if clause in broken:
            return Replayed(seed, clause)
        if broken and other is None:
            other = Replayed(seed, broken[0])
    return other


class _Writing:
    """A plan in the making: the steps, and the trigger that the move before the next one is."""

    def __init__(self, cluster: SmallCluster, trace: Trace, *, demands_ends: bool) -> None:
        self._cluster = cluster
        self._demands_ends = demands_ends
        self._trace = trace
        self._places = {name: f"bookie-{place}" for place, name in enumerate(cluster.names)}
        self._steps: list[str] = []
        self._holds: dict[str, str] = {}
        self._programs: dict[str, list[str]] = {"writer": ["create a"]}
        self._seen: Counter[str] = Counter()
        self._refused = frozenset(_refused(cluster, trace.steps))
        self._refusals = 0
        #: By client, the calls to the metadata service that were carried out, and whose answers it has not heard.
        self._calls: dict[int, list[str]] = {}
        self._trigger, self._after_s = "at 0.05s", 0.0

    def text(self, name: str, summary: str) -> str:
        """All of it."""
        for number in range(1, self._cluster.recoveries + 1):
            self._programs[self._client(number)] = ["open a recover"]
        for client, ask in self._trace.asked:
            self._hold_message(client, ask)
        for client, state in self._trace.wanted:
            self._hold_call(client, _WORDS[state])
        if any(move.kind is MoveKind.TELLS and not move.client for move in self._trace.steps):
            self._hold_call(0, "read")
        for client, what in _answered_late(self._trace.steps):
            self._hold(f"{client} {what} answers", f"metadata hold-answer {what} {self._client(client)}")
        for number, move in enumerate(self._trace.steps):
            if number in self._refused:
                self._refuse(move)
            else:
                self._take(move)
        self._after_s += _HEARD_S  # what is left: first the answers, then the requests
        for key in [key for key in self._holds if key.endswith(" answers")]:
            self._let_go(key)
        self._after_s += _HEARD_S
        self._steps.append(f"{self._now}: heal")
        started = {self._client(move.client) for move in self._trace.steps if move.kind is MoveKind.BEGINS}
        sizes = f"{self._cluster.ensemble_size}/{self._cluster.write_quorum}/{self._cluster.ack_quorum}"
        lines = [
            *(f"# {number}. {words}" for number, words in enumerate(self._trace.moves, 1)),
            f"plan {name}",
            f"summary {summary}",
            "expect safe" if self._demands_ends else "expect anything",
            "",
            f"cluster {self._cluster.bookies} {sizes}",
            "  network jitter=0s",
            "  metadata jitter=0s",
            f"  timeouts add={self._patience_s(of_adds=True):g}s read={self._patience_s(of_adds=False):g}s",
            "  writing check-metadata-after-reconnect=no",
            "  reading recovery-read-ahead-entries=1 speculative-lac-first=30s speculative-lac-max=30s",
        ]
        for who, operations in self._programs.items():
            if who == "writer" or who in started:
                end = "flush a" if self._demands_ends and who == "writer" else "stay"
                lines += ["", f"client {who}", *(f"  {operation}" for operation in operations), f"  {end}"]
        return "\n".join([*lines, "", *self._steps]) + "\n"

    def _patience_s(self, *, of_adds: bool) -> float:
        given_up = (
            move.ask
            for number, move in enumerate(self._trace.steps)
            if move.kind is MoveKind.GIVES_UP and number not in self._refused
        )
        return (
            _GIVES_UP_S if any(ask is not None and (ask.add is not None) == of_adds for ask in given_up) else _PATIENT_S
        )

    def _client(self, number: int) -> str:
        if not number:
            return "writer"
        return "recoverer" if self._cluster.recoveries == 1 else f"recoverer-{number}"

    # Holding back ----------------------------------------------------------------------------------------------------

    def _hold(self, key: str, what: str) -> None:
        if key not in self._holds:
            self._holds[key] = f"m{len(self._holds) + 1}"
            self._steps.append(f"at 0s as {self._holds[key]}: {what}")

    def _hold_message(self, client: int, ask: Ask) -> None:
        traffic, bookie = _traffic(client, ask), self._places[ask.bookie_id]
        entries = "" if traffic == "fence" else f" entries={ask.entry_id}"
        word = "read" if traffic == "recovery-read" and not ask.fence else traffic
        for leg in ("", " answers"):
            key = f"{client} {traffic} {bookie} {ask.entry_id}{leg}"
            self._hold(key, f"hold {word} {self._client(client)} {bookie}{leg}{entries}")

    def _hold_call(self, client: int, what: str) -> None:
        self._hold(f"{client} {what}", f"metadata hold {what} {self._client(client)}")

    def _let_go(self, key: str) -> None:
        held = self._holds.pop(key, None)
        if held is not None:
            self._steps.append(f"{self._now}: end {held}")
            self._holds[f"gone {held}"] = held  # its number is not given again

    # Moves -----------------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> str:
        """The trigger: the move before has been taken."""
        if self._trigger.startswith("at "):
            return self._trigger
        kind, _, conditions = self._trigger.partition(" ")
        after = f" after={self._after_s:g}s" if self._after_s else ""
        return f"when {kind} {conditions}{after}"

    def _then(self, event: str) -> None:
        """The move is this event; the first of its like, or a later one."""
        self._seen[event] += 1
        nth, (kind, _, conditions) = self._seen[event], event.partition(" ")
        self._trigger, self._after_s = event if nth == 1 else f"{kind} nth={nth} {conditions}", 0.0

    def _take(self, move: TracedMove) -> None:
        client = self._client(move.client)
        if move.kind in {MoveKind.APPENDS, MoveKind.CLOSES}:
            program = self._programs[client]
            program.append("sleep 0.05s" if self._trigger.startswith("at ") else f"until {self._now}")
            program.append("append a 1 nowait" if move.kind is MoveKind.APPENDS else "close a")
            self._then(f"{'APP_ADD' if move.kind is MoveKind.APPENDS else 'CLOSE_START'} actor={client}")
        elif move.kind is MoveKind.BEGINS:
            self._steps.append(f"{self._now}: start {client}")
            self._then(f"META_READ actor={client}")
        elif move.kind is MoveKind.IS_TOLD:
            what = self._calls[move.client].pop(0) if self._calls.get(move.client) else ""
            self._let_go(f"{move.client} {what} answers")
            self._after_s += _HEARD_S
        elif move.kind is MoveKind.TELLS:
            self._calls.setdefault(move.client, []).append("read")
            self._let_go(f"{move.client} read")
            self._then(f"META_READ actor={client}")
        elif move.ask is None:
            self._calls.setdefault(move.client, []).append(_WORDS[move.state])
            self._let_go(f"{move.client} {_WORDS[move.state]}")
            outcome = "ok" if move.kind is MoveKind.STORES else "conflict"
            self._then(f"META_CAS actor={client} cause={_CAUSES[move.state]} outcome={outcome}")
        else:
            self._take_message(move, client, move.ask)

    def _refuse(self, move: TracedMove) -> None:
        """An add arrives at a bookie that is read-only then, and the client hears of that."""
        assert move.ask is not None, "it gives up on it"
        bookie, entry = self._places[move.ask.bookie_id], move.ask.entry_id
        key = f"{move.client} add {bookie} {entry}"
        self._refusals += 1
        self._steps.append(f"{self._now} as r{self._refusals}: read-only {bookie}")
        self._let_go(key)
        self._then(f"BK_ANSWER actor={bookie} source={self._client(move.client)} operation=add entry={entry}")
        self._steps.append(f"{self._now}: end r{self._refusals}")
        self._let_go(f"{key} answers")
        self._then(f"ADD_RESP actor={self._client(move.client)} entry={entry} bookie={bookie}")

    def _take_message(self, move: TracedMove, client: str, ask: Ask) -> None:
        traffic, bookie = _traffic(move.client, ask), self._places[ask.bookie_id]
        key = f"{move.client} {traffic} {bookie} {ask.entry_id}"
        entry = "" if traffic == "fence" else f" entry={ask.entry_id}"
        if move.kind is MoveKind.HEARS:
            self._let_go(f"{key} answers")
            self._then(f"{_ANSWERS[traffic]} actor={client}{entry} bookie={bookie}")
        elif move.kind is MoveKind.GIVES_UP:
            self._then(f"{_ANSWERS[traffic]} actor={client}{entry} bookie={bookie}")
        elif move.kind is MoveKind.CRASHES:
            self._steps.append(f"{self._now}: crash {bookie}")
            self._then(f"BK_CRASH actor={bookie}")
        else:
            self._let_go(key)
            self._then(f"BK_ANSWER actor={bookie} source={client} operation={traffic} entry={ask.entry_id}")


#: What the metadata service does about a call.
_CARRIED_OUT: Final = frozenset({MoveKind.STORES, MoveKind.REFUSES, MoveKind.TELLS})


def _answered_late(steps: Sequence[TracedMove]) -> Iterator[tuple[int, str]]:
    """The calls to the metadata service, each with its client, between which and their answers something happens."""
    for number, move in enumerate(steps, 1):
        if move.kind in _CARRIED_OUT and number < len(steps):
            following = steps[number]
            if following.client != move.client or following.kind not in {MoveKind.IS_TOLD, *_CARRIED_OUT}:
                yield move.client, _WORDS.get(move.state, "read")


def _refused(cluster: SmallCluster, steps: Sequence[TracedMove]) -> Iterator[int]:
    """The moves in which the writer gives up on an add, never to arrive, before it hears of another one that is under way."""
    first = cluster.names[: cluster.ensemble_size]
    appended = 0
    for number, move in enumerate(steps):
        appended += move.kind is MoveKind.APPENDS
        if move.kind is not MoveKind.GIVES_UP or move.client:
            continue
        later = [one for one in steps[number + 1 :] if not one.client and one.ask is not None]
        under_way = (one.ask for one in later if one.kind is MoveKind.HEARS and one.ask != move.ask)
        if all(one.ask != move.ask for one in later) and any(
            ask is not None and ask.entry_id < appended and ask.bookie_id in first for ask in under_way
        ):
            yield number


def _traffic(client: int, ask: Ask) -> str:
    if ask.add is not None:
        return "write-back" if client else "add"
    return "fence" if ask.kind == "fence" else "recovery-read"
