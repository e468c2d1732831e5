"""The bookies as one client sees them: who is registered, and who is to be avoided.

All choices of bookies go through the :class:`BookieWatcher`: it keeps the policy up to date with the registry and asks
it in two rounds, first without the bookies in quarantine, then, if there are too few, with them. That holds for
repairs too; the Java client's tools ask the policy directly and copy to bookies it keeps its own writers from.

With a *stabilisation period* bookies that left still count for a while where there are too few others: most of them are
being restarted. Then each round asks the ``fallback``, a second policy like the first, which is told of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from bkclient.ledger import BookieId, Ensemble
from bkclient.metadata.base import BookieSets
from bkclient.observability import log
from bkclient.observability.stats import NOT_ADHERING, ClientStats
from bkclient.placement.base import (
    Adherence,
    BookieHealth,
    LedgerShape,
    PlacementPolicy,
    RepairingPolicy,
)
from bkclient.placement.offers import (
    ask_for_ensemble,
    ask_for_order,
    ask_for_repair,
    ask_for_replacement,
    name_of,
)
from bkclient.placement.quarantine import Quarantine
from bkclient.placement.weights import BookieWeights

__all__ = ["BookieWatcher"]

_NONE: frozenset[BookieId] = frozenset()
_NAMES_LOGGED_MAX: Final = 20

_log = logging.getLogger(__name__)


class BookieWatcher:
    """Asks ``policy`` on behalf of one client.

    ``quarantine`` is None where health is not checked, ``fallback`` where bookies that left do not count for another
    ``stabilize_s`` seconds. ``weights`` are told which bookies there are. ``clock`` is the running loop's.
    """

    def __init__(
        self,
        policy: PlacementPolicy,
        *,
        fallback: PlacementPolicy | None = None,
        stabilize_s: float = 0.0,
        quarantine: Quarantine | None = None,
        weights: BookieWeights | None = None,
        stats: ClientStats | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.policy = policy
        #: What is registered now, as far as this client has heard; replaced as a whole (PL-17).
        self.bookies = BookieSets()
        #: Called after each change of :attr:`bookies`.
        self.listeners: list[Callable[[], None]] = []
        #: Counts the changes of :attr:`bookies`.
        self.changes = 0
        #: Whether an order of reads may be remembered while :attr:`changes` stays and the reader's health is clean.
        # As of a SteadyOrderPolicy; every client asks, and to ask with isinstance takes far longer.
        self.has_steady_read_order = bool(getattr(policy, "has_steady_read_order", False))
        self._writable: frozenset[BookieId] = _NONE
        self._read_only: frozenset[BookieId] = _NONE
        self._fallback = fallback
        self._stabilize_s = stabilize_s
        self._left: dict[BookieId, float] = {}
        self._quarantine = quarantine
        self._weights = weights
        self._stats = stats
        self._clock = clock or _loop_time

    # What is registered ------------------------------------------------------------------------------------------

    def update(self, bookies: BookieSets) -> None:
        """The registered bookies changed."""
        before = self.bookies
        self.bookies = bookies
        self.changes += 1
        self._writable, self._read_only = frozenset(bookies.writable), frozenset(bookies.read_only)
        _log_change(before, bookies)
        if self._weights is not None:
            self._weights.retain(bookies.writable)
        _tell(self.policy, bookies)
        if self._fallback is not None:
            until = self._clock() + self._stabilize_s
            self._left.update((bookie_id, until) for bookie_id in before.writable)
            self._left = {b: end for b, end in self._left.items() if not self.is_available(b)}
            self._tell_fallback(self._fallback)
        if bookies != before:
            for listener in self.listeners:
                listener()

    def is_available(self, bookie_id: BookieId) -> bool:
        """Whether the bookie is registered, writable or not."""
        return bookie_id in self._writable or bookie_id in self._read_only

    @property
    def quarantined(self) -> frozenset[BookieId]:
        """Bookies that are chosen only if there are too few others."""
        return _NONE if self._quarantine is None else self._quarantine.at(self._clock())

    def on_request_failed(self, bookie_id: BookieId, code: int) -> None:
        """A request to the bookie failed; enough of the kind that tells of a sick bookie put it in quarantine."""
        if self._quarantine is not None:
            self._quarantine.count(bookie_id, code)

    # Choosing ----------------------------------------------------------------------------------------------------

    def new_ensemble(self, shape: LedgerShape) -> Ensemble | None:
        """An ensemble for a new ledger, None if too few bookies are writable.

        Raises :class:`~bkclient.errors.ArgumentError` for sizes that the policy refuses,
        :class:`~bkclient.errors.NotEnoughBookies` if the policy fails, and
        :class:`~bkclient.errors.UnexpectedCondition` if it offers bookies that it must not offer.
        """
        for policy, avoided, writable in self._rounds():
            ensemble = ask_for_ensemble(policy, shape, avoided, writable)
            if ensemble is not None:
                self._note_adherence(shape, ensemble)
                return ensemble
        return None

    def replace(
        self, shape: LedgerShape, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]
    ) -> BookieId | None:
        """A bookie for ``position`` of ``ensemble``, None if there is none. Raises as :meth:`new_ensemble` does."""
        for policy, avoided, writable in self._rounds():
            bookie_id = ask_for_replacement(policy, shape, ensemble, position, excluded | avoided, writable)
            if bookie_id is not None:
                self._note_adherence(shape, (*ensemble[:position], bookie_id, *ensemble[position + 1 :]))
                return bookie_id
        return None

    def propose_repair(
        self, shape: LedgerShape, ensemble: Ensemble, excluded: frozenset[BookieId] = _NONE
    ) -> Ensemble | None:
        """An ensemble that adheres to the policy, with as few new bookies as possible.

        None if there is none, or if the policy cannot tell. Raises as :meth:`replace` does.
        """
        for policy, avoided, writable in self._rounds():
            if isinstance(policy, RepairingPolicy):
                repaired = ask_for_repair(policy, shape, ensemble, excluded | avoided, writable)
                if repaired is not None:
                    return repaired
        return None

    def _rounds(self) -> Iterator[tuple[PlacementPolicy, frozenset[BookieId], frozenset[BookieId]]]:
        """The policy to ask next, what it has to avoid, and what it may offer."""
        quarantined = self.quarantined
        for avoided in (quarantined, _NONE) if quarantined else (_NONE,):
            yield self.policy, avoided, self._writable
            if self._fallback is not None and self._left:
                self._tell_fallback(self._fallback)
                yield self._fallback, avoided, self._writable.union(self._left)

    def _tell_fallback(self, fallback: PlacementPolicy) -> None:
        now = self._clock()
        self._left = {bookie_id: until for bookie_id, until in self._left.items() if until > now}
        writable = tuple(sorted(self._writable.union(self._left)))
        _tell(fallback, BookieSets(writable, self.bookies.read_only))

    def _note_adherence(self, shape: LedgerShape, ensemble: Ensemble) -> None:
        if self._stats is not None and self.adherence(shape, ensemble) is Adherence.FAIL:
            self._stats.event(NOT_ADHERING)

    # Judging and ordering ----------------------------------------------------------------------------------------

    def adherence(self, shape: LedgerShape, ensemble: Ensemble) -> Adherence:
        """How well ``ensemble`` keeps to the policy; FAIL if the policy fails to tell."""
        try:
            return self.policy.adherence(shape, ensemble)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            _log.exception("the placement policy %s could not judge an ensemble", name_of(self.policy))
            return Adherence.FAIL

    def covers_fault_domains(self, shape: LedgerShape, bookies: Collection[BookieId]) -> bool:
        """Whether acknowledgements of ``bookies`` span enough fault domains; no if the policy fails to tell."""
        try:
            return self.policy.covers_fault_domains(shape, bookies)
        except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
            _log.exception("the placement policy %s could not judge acknowledgements", name_of(self.policy))
            return False

    def read_order(self, write_set: Sequence[BookieId], health: BookieHealth) -> tuple[BookieId, ...]:
        """The members of ``write_set`` in the order in which to ask them.

        Raises :class:`~bkclient.errors.UnexpectedCondition` if the policy fails, or adds or leaves out any.
        """
        return ask_for_order(self.policy, write_set, health)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _tell(policy: PlacementPolicy, bookies: BookieSets) -> None:
    try:
        policy.update(bookies)
    except Exception:  # noqa: BLE001 - a plug-in, whose failure is logged
        # It goes on with what it knew, and its offers are checked; the others who watch the registry hear of the change.
        _log.exception("the placement policy %s could not take in a change of the bookies", name_of(policy))


def _log_change(before: BookieSets, after: BookieSets) -> None:
    if before == after or not log.BOOKIES_CHANGED.is_enabled:
        return
    kinds = (("writable", before.writable, after.writable), ("read-only", before.read_only, after.read_only))
    for kind, old, new in kinds:
        came, left = frozenset(new).difference(old), frozenset(old).difference(new)
        if came or left:
            log.BOOKIES_CHANGED(kind=kind, count=len(new), came=_names(came), left=_names(left))


def _names(bookies: Collection[BookieId]) -> str:
    shown = ", ".join(sorted(bookies)[:_NAMES_LOGGED_MAX]) or "none"
    return f"{shown} and {len(bookies) - _NAMES_LOGGED_MAX} more" if len(bookies) > _NAMES_LOGGED_MAX else shown
