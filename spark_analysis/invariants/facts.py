"""What invariants start from: the events, and the relations that several of them derive from these."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from pyspark.sql import DataFrame

from scenarios.history import Kind
from spark_analysis.invariants import denials, logs, relations
from spark_analysis.invariants import images as stored
from spark_analysis.invariants import runs as recoveries
from spark_analysis.invariants.by_kind import LOGS, RARE, EventsByKind
from spark_analysis.invariants.denied_reads import READ_KINDS, denied_reads
from spark_analysis.invariants.held import STORE_KINDS, held_entries
from spark_analysis.invariants.left_open import open_ends
from spark_analysis.invariants.messages import MESSAGE_KINDS, doubtful_requests

__all__ = ["Facts"]


class _derived:  # noqa: N801  a decorator
    """A relation that is derived when first asked for, once, whichever threads ask; after that it is an attribute."""

    def __init__(self, derive: Callable[[Any], DataFrame]) -> None:
        self._derive = derive
        self._alone = Lock()
        self.__doc__ = derive.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, facts: Facts, owner: type[Facts] | None = None) -> DataFrame:
        with self._alone:
            known: DataFrame | None = facts.__dict__.get(self._name)
            if known is None:
                known = facts.__dict__[self._name] = self._derive(facts)
            return known


class Facts:
    """The events of some histories, and what they tell of entries and ledgers; each relation is derived when first asked for.

    ``keep`` is applied to each relation that more than one invariant starts from, so that a job with several invariants
    can have it computed once; ``keep_events``, if given, to the events themselves. Several threads may ask. The events are read
    once for each set of kinds that are kept together (:mod:`spark_analysis.invariants.by_kind`).
    """

    def __init__(
        self,
        events: DataFrame,
        keep: Callable[[DataFrame], DataFrame] = lambda relation: relation,
        keep_events: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        self._by_kind = EventsByKind(events, keep_events or keep)
        self._keep = keep

    def of(self, *kinds: Kind) -> DataFrame:
        """The events of these kinds, in the columns that one of them has, of those that were read."""
        return self._by_kind.of(kinds)

    @property
    def rare_events(self) -> DataFrame:
        """The events of all kinds that do not occur once or more per entry."""
        return self._by_kind.of_set(RARE)

    @property
    def log_events(self) -> DataFrame:
        """The events of logs."""
        return self._by_kind.of_set(LOGS)

    @_derived
    def entries(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.relations.entries`."""
        return self._keep(relations.entries(self.of(*relations.ENTRY_KINDS), self.ledgers))

    @_derived
    def ledgers(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.relations.ledgers`."""
        return self._keep(relations.ledgers(self.rare_events))

    @_derived
    def open_ends(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.left_open.open_ends`."""
        return self._keep(open_ends(self.rare_events, self.ledgers))

    @_derived
    def images(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.images.images`."""
        return self._keep(stored.images(self.rare_events))

    @_derived
    def first_sends(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.relations.first_sends`."""
        return self._keep(relations.first_sends(self.of(Kind.ADD_SEND)))

    @_derived
    def denied_requests(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.denials.denied_requests`."""
        return self._keep(denials.denied_requests(self.of(*denials.DENIAL_KINDS)))

    @_derived
    def doubtful_requests(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.messages.doubtful_requests`."""
        return self._keep(doubtful_requests(self.of(*MESSAGE_KINDS)))

    @_derived
    def run_events(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.runs.run_events`."""
        return self._keep(recoveries.run_events(self.rare_events))

    @_derived
    def runs(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.runs.runs`."""
        return self._keep(recoveries.runs(self.run_events))

    @_derived
    def held_entries(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.held.held_entries`."""
        return self._keep(held_entries(self.of(*STORE_KINDS), self.rare_events, self.images, self.entries))

    @_derived
    def denied_reads(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.denied_reads.denied_reads`."""
        return self._keep(denied_reads(self.of(*READ_KINDS), self.of(Kind.BK_LOSS), self.images))

    @_derived
    def log_ledgers(self) -> DataFrame:
        """See :func:`spark_analysis.invariants.logs.log_ledgers`."""
        return self._keep(logs.log_ledgers(self.log_events, self.rare_events))
