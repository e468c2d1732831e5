"""The members of a writer's ensemble: who failed, who replaces them; and what is done while they may not be replaced.

When a bookie fails, in this order:

* the entry has its ack quorum: the failure is remembered for the next append or call of
  :meth:`~bkclient.protocol.append.AppendMachine.act_on_late_failures`, unless changes are delayed or disabled (W-16, W-33, H-5);
* changes are delayed, or this bookie could not be replaced before: nothing, while the entry can do without it (W-25, H-7);
* changes are disabled: what failed is sent again later (W-26);
* the ledger has deferred sync: the writer ends (W-27);
* otherwise the bookie is replaced, together with all that failed (W-24, W-28). If none of them can be replaced, the
  writer ends with NotEnoughBookies; except that a change which replaced some, a delayed and a voluntary one leave the
  others in place as long as no entry needs them.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkclient._backoff import Backoff
from bkclient.ledger import BookieId, Ensemble, LedgerMetadata
from bkclient.protocol.adds import PendingAdds
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.ensemble import BookieMemory, ReplaceBookie, replace_failed
from bkclient.protocol.intents import ReplaceBookies
from bkclient.protocol.value import NOTHING, Value

__all__ = ["EnsembleChange", "Membership", "Resends"]


class EnsembleChange(Value):
    """One ensemble change, of one pass or, if more bookies fail meanwhile, of several.

    Remembers every position that failed in any pass. Pending adds are sent there again when the change ends: to the new
    bookie; and to a failed bookie that could not be replaced, because an add that waits for it must either get there
    now or fail again. And it remembers every bookie that failed, because none of them may come back within the change.

    A *voluntary* change is one that no add waits for.
    """

    __slots__ = ("failed", "failures", "is_voluntary", "positions", "update")

    def __init__(self, *, is_voluntary: bool = False) -> None:
        self.is_voluntary = is_voluntary
        self.positions: set[int] = set()
        self.failed: dict[BookieId, None] = {}
        #: What the present pass replaces, and the number of its metadata update.
        self.failures: dict[int, BookieId] = {}
        self.update = 0


class Membership(Value):
    """Which bookies failed a writer, and who takes their places."""

    __slots__ = ("change", "late", "memory", "passes", "unreplaced")

    def __init__(self) -> None:
        self.memory = BookieMemory()
        #: The change under way.
        self.change: EnsembleChange | None = None
        #: How many passes there were.
        self.passes = 0
        #: Failures that no add waits for, or that came during a change.
        self.late: dict[int, BookieId] = NOTHING
        #: Bookies that failed and stayed, because they could not be replaced.
        self.unreplaced: dict[int, BookieId] = NOTHING

    def is_unreplaced(self, position: int, bookie_id: BookieId) -> bool:
        """Whether the bookie failed there before, could not be replaced, and it has acknowledged nothing since."""
        return self.unreplaced.get(position) == bookie_id and bookie_id in self.memory.unproven

    def all_failures(self) -> dict[int, BookieId]:
        """Everybody who failed and is not replaced yet; without those that have acknowledged something since: they are back."""
        self.unreplaced = {p: b for p, b in self.unreplaced.items() if b in self.memory.unproven}
        return {**self.unreplaced, **self.late}

    def begin_pass(self, first_entry_id: int, failures: Mapping[int, BookieId], entries: int) -> ReplaceBookies:
        """What a pass wants of the metadata: to replace ``failures`` from ``first_entry_id`` on, which is LAC + 1 (W-30)."""
        change = self.change
        assert change is not None, "a pass belongs to a change"
        assert first_entry_id <= entries, "a fragment begins at the next entry to be confirmed"
        self.memory.note_failed(failures.values(), entries)
        change.positions.update(failures)
        change.failed.update(dict.fromkeys(failures.values()))
        change.failures = dict(failures)
        return ReplaceBookies(first_entry_id, tuple(failures.items()))

    def choose(
        self,
        metadata: LedgerMetadata,
        failures: Mapping[int, BookieId],
        replace: ReplaceBookie,
        adds: PendingAdds,
        policy: str,
    ) -> Ensemble:
        """The last ensemble of ``metadata`` without ``failures``; raises as :func:`replace_failed` does."""
        entries = adds.last_add_acknowledged + 1
        failed_before = self.memory.useless(entries)
        if self.change is not None:
            failed_before += self.change.failed
        return replace_failed(
            metadata.ledger_id,
            metadata.last_fragment.ensemble,
            failures,
            replace,
            failed_before=failed_before,
            last_resort=self.memory.last_resort(entries),
            policy=policy,
            codes=adds.failure_codes,
        )

    def take_left_over(self, ensemble: Ensemble, given_up: Mapping[int, BookieId]) -> dict[int, BookieId]:
        """What failed during the pass that has ended with ``ensemble``, and needs another one.

        When a bookie dies, everything outstanding on it fails; only those that are still members need another pass, and not
        those that this pass could not replace.
        """
        left = {p: b for p, b in self.late.items() if ensemble[p] == b and given_up.get(p) != b}
        self.late = {}
        return left

    def end_change(self, before: Ensemble, after: Ensemble, given_up: Mapping[int, BookieId]) -> set[int]:
        """The change has ended; returns the positions that pending adds have to be sent to again."""
        change = self.change
        assert change is not None, "a change has ended"
        # Compared with what adds were sent to, not with what was planned: the answers of a bookie that was replaced are void.
        replaced = {p for p, bookie_id in enumerate(before) if after[p] != bookie_id}
        self.unreplaced = {p: after[p] for p in sorted(change.positions) if after[p] in change.failed}
        self.memory.note_change(before, after, self.unreplaced.values())
        return change.positions.difference(given_up) | replaced


class Resends(Value):
    """When to send again, and when to give up: the back-off of a writer that must not change its ensemble (W-26, H-8).

    Every round in which entries got acknowledged starts the back-off anew. So a writer that gets on in spite of a dead bookie
    goes on for as long as it likes, and one that waits for the bookie gives up after ``max_resends`` rounds.
    """

    __slots__ = ("_head", "_options", "_rounds", "is_scheduled")

    def __init__(self, options: AppendOptions) -> None:
        self.is_scheduled = False
        self._options = options
        self._rounds = 0
        self._head = -1

    def schedule(self, last_add_acknowledged: int) -> float:
        """Note that a round is to come; returns in how many seconds."""
        self.is_scheduled = True
        if last_add_acknowledged > self._head:
            self._head = last_add_acknowledged
            self._rounds = 0
        return Backoff(self._options.first_resend_s, self._options.max_resend_s).nth(self._rounds)

    def begin_round(self) -> bool:
        """Note that the round has come; tells whether it may still take place."""
        self.is_scheduled = False
        self._rounds += 1
        return self._rounds <= self._options.max_resends
