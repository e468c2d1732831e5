"""Asking an ensemble for the last add confirmed, with and without fencing.

The question goes to all E bookies at once and is answered as soon as the bookies heard *cover* the ensemble (DS-11): then
every ack quorum has a member that was heard, so the greatest LAC among the answers is at least as high as the LAC any
acknowledged entry carried. With fencing, coverage also means that no ack quorum is left that would still accept an
entry from the old writer.

Who only wants to know whether there is anything new asks without waiting for coverage (:class:`LacProgress`): the first sign of
progress is the answer, and it is a hint, not a bound.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

from bkclient.errors import Code, Refusal
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES, CoverageSet, QuorumSizes
from bkclient.protocol.read import outranks
from bkclient.protocol.value import Value, ends_once, moved

__all__ = ["LacOutcome", "LacProgress", "LacRead"]


class LacOutcome(Enum):
    """Whether a LAC read has been answered."""

    WAITING = "waiting"
    COVERED = "covered"
    FAILED = "failed"


_NEXT: Final = ends_once(LacOutcome.WAITING)


class LacRead(Value):
    """One LAC read over one ensemble. Feed it every answer; it ends at most once.

    ``last_add_confirmed`` is the greatest LAC seen (-1 before any), ``length`` the bytes up to there as far as those entries tell
    that carried it (REC-7). ``failure_code`` says why it failed, ``failed_by`` whose answer that was.
    """

    __slots__ = ("_coverage", "_ensemble", "failed_by", "failure_code", "last_add_confirmed", "length", "outcome")

    def __init__(self, sizes: QuorumSizes, ensemble: Ensemble) -> None:
        self.outcome = LacOutcome.WAITING
        self.last_add_confirmed = -1
        self.length = 0
        self.failure_code: int = Code.READ
        self.failed_by: BookieId | None = None
        self._ensemble = ensemble
        self._coverage = CoverageSet(sizes)

    @property
    def bookies(self) -> Collection[BookieId]:
        """The bookies to ask: the whole ensemble."""
        return self._ensemble

    def on_reply(self, bookie_id: BookieId, code: int, last_add_confirmed: int = -1, length: int = 0) -> LacOutcome:
        """Note one answer; ``length`` is the ledger's before the entry that carried the LAC.

        That is exact if the entry is the next one after the LAC, and too much if others lie between. An answer whose digest does
        not verify must be given as ``DIGEST_MATCH``: it is unknown, not an answer (R-36, REC-7). UNAUTHORIZED (REC-9) and
        CLIENT_CLOSED (API-18) fail at once. Answers after the end change nothing (REC-8).
        """
        if self.outcome is not LacOutcome.WAITING:
            return self.outcome
        if code in (Code.UNAUTHORIZED, Code.CLIENT_CLOSED) and not isinstance(code, Refusal):
            self.failure_code, self.failed_by = code, bookie_id
            self.outcome = moved(_NEXT, self.outcome, LacOutcome.FAILED)
            return self.outcome
        for position, member in enumerate(self._ensemble):
            if member == bookie_id:
                self._coverage.add(position, code)
        is_valid = code == Code.OK or code in EXPLICIT_NEGATIVES
        if code == Code.OK and last_add_confirmed > self.last_add_confirmed:
            self.last_add_confirmed = last_add_confirmed
            self.length = length
        elif code == Code.OK and last_add_confirmed == self.last_add_confirmed >= 0:
            self.length = min(self.length, length)
        if not is_valid:
            self.failure_code, self.failed_by = code, bookie_id
        if is_valid and self._coverage.is_covered:
            self.outcome = moved(_NEXT, self.outcome, LacOutcome.COVERED)
        elif self._coverage.is_exhausted:
            self.outcome = moved(_NEXT, self.outcome, LacOutcome.FAILED)
        return self.outcome


class LacProgress(Value):
    """Asks an ensemble for a LAC above the one known (R-38). Feed it every answer; it ends at most once.

    It ends as COVERED, which here means answered, with the first LAC above ``known``; or when all have answered and any of
    them was good or an explicit negative. ``last_add_confirmed`` is the greatest LAC heard, never below ``known``.
    """

    __slots__ = ("_answered", "_ensemble", "_has_answer", "failed_by", "failure_code", "last_add_confirmed", "outcome")

    def __init__(self, ensemble: Ensemble, known: int) -> None:
        self.outcome = LacOutcome.WAITING
        self.last_add_confirmed = known
        self.failure_code: int = Code.OK
        self.failed_by: BookieId | None = None
        self._ensemble = tuple(dict.fromkeys(ensemble))
        self._answered: dict[BookieId, None] = {}
        self._has_answer = False

    @property
    def bookies(self) -> Collection[BookieId]:
        """The bookies to ask: the whole ensemble."""
        return self._ensemble

    def on_reply(self, bookie_id: BookieId, code: int, last_add_confirmed: int = -1) -> LacOutcome:
        """Note one answer; a corrupt one is ``DIGEST_MATCH``. UNAUTHORIZED and CLIENT_CLOSED fail at once."""
        if self.outcome is not LacOutcome.WAITING or bookie_id in self._answered:
            return self.outcome
        self._answered[bookie_id] = None
        if code in (Code.UNAUTHORIZED, Code.CLIENT_CLOSED) and not isinstance(code, Refusal):
            self.failure_code, self.failed_by = code, bookie_id
            self.outcome = moved(_NEXT, self.outcome, LacOutcome.FAILED)
            return self.outcome
        self._has_answer |= code == Code.OK or code in EXPLICIT_NEGATIVES
        if code == Code.OK and last_add_confirmed > self.last_add_confirmed:
            self.last_add_confirmed = last_add_confirmed
            self.outcome = moved(_NEXT, self.outcome, LacOutcome.COVERED)
            return self.outcome
        if code != Code.OK and outranks(code, self.failure_code):
            self.failure_code, self.failed_by = code, bookie_id
        if len(self._answered) == len(self._ensemble):
            self.outcome = moved(_NEXT, self.outcome, LacOutcome.COVERED if self._has_answer else LacOutcome.FAILED)
        return self.outcome
