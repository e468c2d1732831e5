"""The clauses that concern the state of a whole cluster.

The clauses that one client can break alone (A2, A3, A6, B6, C3, C6, C7, E2, E3 and others) are checked when its steps are
computed, and E5 with those of the bookies. What is left is about the ledger and all its bookies:

* A1 and F5 stay broken once they are: the end of a closed ledger, what was acknowledged, and what was told only grow;
* A5 and B4 may heal, when an add that is under way arrives. They are judged in every state that the search visits. With
  reductions it does not visit all; there A2, C6, E3 and the final states stand for them.
* L2, L9, L12 and, without faults, L4 are judged in final states.
"""

from __future__ import annotations

from typing import Final

from scenarios.exhaustive.moves import ClusterMoves
from scenarios.machines.broken import BrokenClause

__all__ = ["Judge"]

_FINE: Final = 0


class Judge:
    """Judges states; verdicts are remembered by the fields that they depend on."""

    def __init__(self, moves: ClusterMoves) -> None:
        self._moves = moves
        self._facts = moves.of_writer.all
        self._verdicts: dict[int, BrokenClause | int] = {}
        self._shift = moves.parts_shift
        self._writer_mask = (
            1 << moves.client_shifts[1] if len(moves.client_shifts) > 1 else 1 << moves.parts_shift
        ) - 1

    def broken(self, state: int) -> BrokenClause | None:
        """The clause that is broken in ``state``, which others have led to."""
        acknowledged = self._facts[state & self._writer_mask].facts.acknowledged
        key = (state >> self._shift) << 4 | acknowledged + 1
        verdict = self._verdicts.get(key)
        if verdict is None:
            found = next((one for one in self._judged(state, acknowledged) if self._moves.is_wanted(one)), None)
            verdict = self._verdicts[key] = _FINE if found is None else found
        return verdict if isinstance(verdict, BrokenClause) else None

    def broken_at_end(self, state: int) -> BrokenClause | None:
        """The clause that is broken because ``state`` is final."""
        return next((one for one in self._judged_at_end(state) if self._moves.is_wanted(one)), None)

    def _judged(self, state: int, acknowledged: int) -> list[BrokenClause]:
        moves = self._moves
        metadata = moves.values[moves.value(state)].metadata
        numbers = {name: moves.bookie(state, place) for place, name in enumerate(moves.cluster.names)}
        found, end = [], acknowledged
        if metadata.is_closed:
            end = metadata.last_entry_id
            told = max(moves.bookies.told(number) for number in numbers.values())
            if acknowledged > end:
                found.append(BrokenClause("A1", f"closed at {end}, {acknowledged} was acknowledged"))
            if told > end:
                found.append(BrokenClause("F5", f"closed at {end}, bookies tell LAC {told}"))
        for entry_id in range(end + 1):
            ensemble = metadata.ensemble_at(entry_id)
            members = [ensemble[(entry_id + i) % len(ensemble)] for i in range(metadata.write_quorum_size)]
            holders = [one for one in members if entry_id in moves.bookies.bookie(numbers[one]).entries]
            if len(holders) < metadata.ack_quorum_size:
                clause = "B4" if metadata.is_closed else "A5"
                found.append(BrokenClause(clause, f"entry {entry_id} is only on {holders} of {members}"))
        return found

    def _judged_at_end(self, state: int) -> list[BrokenClause]:
        moves = self._moves
        found = []
        metadata = moves.values[moves.value(state)].metadata
        for client in range(len(moves.client_shifts)):
            one = moves.conversations(client).all[moves.conversation(state, client)]
            if one.facts.unsettled is not None:
                found.append(one.facts.unsettled)
            # A final state may have adds under way; nobody hears of them, but readers may ask for them.
            if metadata.is_closed and client and one.told_under_way > metadata.last_entry_id:
                what = f"closed at {metadata.last_entry_id}, an add under way tells LAC {one.told_under_way}"
                found.append(BrokenClause("F5", what))
        cluster = moves.cluster
        if cluster.recoveries and not cluster.has_faults and not metadata.is_closed:
            found.append(BrokenClause("L4", f"a recovery without any trouble left the ledger {metadata.state.name}"))
        return found

    def kind(self, state: int) -> str:
        """A final state in words: how the ledger ended, what was acknowledged, and how the clients ended."""
        moves = self._moves
        metadata = moves.values[moves.value(state)].metadata
        ledger = metadata.state.name.replace("_", " ").lower()
        ledger += f" at {metadata.last_entry_id}" if metadata.is_closed else ""
        ends = [
            moves.conversations(client).all[moves.conversation(state, client)].facts
            for client in range(len(moves.client_shifts))
        ]
        recoveries = sorted(facts.outcome for facts in ends[1:])
        told = "" if not recoveries else f", recovery {' and '.join(recoveries)}"
        return f"{ledger}, acknowledged {ends[0].acknowledged}, writer {ends[0].outcome}{told}"
