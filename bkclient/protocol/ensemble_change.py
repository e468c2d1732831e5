"""One ensemble change of a writer, and the sending again that takes its place while changes are disabled."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bkclient.ledger import BookieId, Ensemble, LedgerMetadata, LedgerState
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.update import LocalMetadata, MetadataUpdate

__all__ = ["EnsembleChange", "Resends"]


class EnsembleChange:
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
        #: What the present pass replaces.
        self.failures: dict[int, BookieId] = {}
        self.update: MetadataUpdate | None = None

    def begin_pass(
        self,
        local: LocalMetadata,
        first_entry_id: int,
        failures: Mapping[int, BookieId],
        choose: Callable[[LedgerMetadata, Mapping[int, BookieId]], Ensemble],
    ) -> MetadataUpdate:
        """The update that replaces ``failures`` from ``first_entry_id`` on, which is LAC + 1 (W-30)."""

        def needs_update(metadata: LedgerMetadata) -> bool:
            ensemble = metadata.last_fragment.ensemble
            return metadata.state is LedgerState.OPEN and any(
                ensemble[position] == bookie_id for position, bookie_id in failures.items()
            )

        def transform(metadata: LedgerMetadata) -> LedgerMetadata:
            return metadata.with_ensemble(first_entry_id, choose(metadata, failures))

        self.positions.update(failures)
        self.failed.update(dict.fromkeys(failures.values()))
        self.failures = dict(failures)
        self.update = MetadataUpdate(local, "ensemble", needs_update=needs_update, transform=transform)
        return self.update


class Resends:
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
        delay: float = self._options.first_resend_s * 2 ** min(self._rounds, 60)
        return min(delay, self._options.max_resend_s)

    def begin_round(self) -> bool:
        """Note that the round has come; tells whether it may still take place."""
        self.is_scheduled = False
        self._rounds += 1
        return self._rounds <= self._options.max_resends
