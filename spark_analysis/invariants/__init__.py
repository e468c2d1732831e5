"""The invariants, one module each, and the list of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_analysis.invariants.ack_has_quorum import ACK_HAS_QUORUM
from spark_analysis.invariants.acked_readable import ACKED_READABLE
from spark_analysis.invariants.acks_in_order import ACKS_IN_ORDER
from spark_analysis.invariants.base import CheckClass, Invariant, judge
from spark_analysis.invariants.closed_at_quorum import CLOSED_AT_QUORUM
from spark_analysis.invariants.ensemble_change_above_acks import ENSEMBLE_CHANGE_ABOVE_ACKS
from spark_analysis.invariants.fenced_stays_fenced import FENCED_STAYS_FENCED
from spark_analysis.invariants.fragments_well_formed import FRAGMENTS_WELL_FORMED
from spark_analysis.invariants.lac_honest import LAC_HONEST
from spark_analysis.invariants.negative_coverage import NEGATIVE_COVERAGE
from spark_analysis.invariants.no_lac_truncation import NO_LAC_TRUNCATION
from spark_analysis.invariants.recoveries_agree import RECOVERIES_AGREE
from spark_analysis.invariants.recovery_reads import RECOVERY_READS
from spark_analysis.invariants.replicas_agree import REPLICAS_AGREE

__all__ = ["INVARIANTS", "CheckClass", "Invariant", "judge", "select"]

#: All invariants, the most important first.
INVARIANTS: Final[tuple[Invariant, ...]] = (
    NO_LAC_TRUNCATION,
    ACKED_READABLE,
    RECOVERIES_AGREE,
    LAC_HONEST,
    FENCED_STAYS_FENCED,
    FRAGMENTS_WELL_FORMED,
    ACKS_IN_ORDER,
    ACK_HAS_QUORUM,
    CLOSED_AT_QUORUM,
    ENSEMBLE_CHANGE_ABOVE_ACKS,
    REPLICAS_AGREE,
    RECOVERY_READS,
    NEGATIVE_COVERAGE,
)

_BY_NAME: Final = {invariant.name.lower(): invariant for invariant in INVARIANTS}
assert len(_BY_NAME) == len(INVARIANTS), "names are unique"


def select(names: Iterable[str]) -> tuple[Invariant, ...]:
    """The invariants of these names, whatever their case, in the order of :data:`INVARIANTS`; all if there is no name.

    ``ValueError`` for a name that no invariant has.
    """
    wanted = {name.lower(): name for name in names}
    unknown = [name for key, name in wanted.items() if key not in _BY_NAME]
    if unknown:
        known = ", ".join(invariant.name for invariant in INVARIANTS)
        raise ValueError(f"there is no invariant {', '.join(unknown)}; there are {known}")
    return tuple(invariant for invariant in INVARIANTS if not wanted or invariant.name.lower() in wanted)
