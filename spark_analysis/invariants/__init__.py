"""The invariants, one module each, and the list of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scenarios.clauses import INVARIANTS as NAMES
from spark_analysis.invariants.ack_has_quorum import ACK_HAS_QUORUM
from spark_analysis.invariants.acked_readable import ACKED_READABLE
from spark_analysis.invariants.acked_replication import ACKED_REPLICATION
from spark_analysis.invariants.acks_in_order import ACKS_IN_ORDER
from spark_analysis.invariants.add_resolves import ADD_RESOLVES
from spark_analysis.invariants.answers_match import ANSWERS_MATCH
from spark_analysis.invariants.base import Invariant, judge
from spark_analysis.invariants.bookie_lac_monotonic import BOOKIE_LAC_MONOTONIC
from spark_analysis.invariants.close_at_decision import CLOSE_AT_DECISION
from spark_analysis.invariants.close_keeps_acks import CLOSE_KEEPS_ACKS
from spark_analysis.invariants.closed_at_quorum import CLOSED_AT_QUORUM
from spark_analysis.invariants.closed_from_in_recovery import CLOSED_FROM_IN_RECOVERY
from spark_analysis.invariants.cookie_gate import COOKIE_GATE
from spark_analysis.invariants.coverage_before_reads import COVERAGE_BEFORE_READS
from spark_analysis.invariants.durable_before_ack import DURABLE_BEFORE_ACK
from spark_analysis.invariants.failure_is_no_denial import FAILURE_IS_NO_DENIAL
from spark_analysis.invariants.fenced_is_told import FENCED_IS_TOLD
from spark_analysis.invariants.fenced_stays_fenced import FENCED_STAYS_FENCED
from spark_analysis.invariants.fragments_well_formed import FRAGMENTS_WELL_FORMED
from spark_analysis.invariants.gc_only_dead import GC_ONLY_DEAD
from spark_analysis.invariants.lac_honest import LAC_HONEST
from spark_analysis.invariants.length_consistent import LENGTH_CONSISTENT
from spark_analysis.invariants.limbo_never_denies import LIMBO_NEVER_DENIES
from spark_analysis.invariants.log_compaction_keeps import LOG_COMPACTION_KEEPS
from spark_analysis.invariants.log_compaction_whole import LOG_COMPACTION_WHOLE
from spark_analysis.invariants.log_cursors_keep import LOG_CURSORS_KEEP
from spark_analysis.invariants.log_delivers import LOG_DELIVERS
from spark_analysis.invariants.log_in_order import LOG_IN_ORDER
from spark_analysis.invariants.log_listed import LOG_LISTED
from spark_analysis.invariants.log_one_consumer import LOG_ONE_CONSUMER
from spark_analysis.invariants.log_one_open import LOG_ONE_OPEN
from spark_analysis.invariants.log_one_owner import LOG_ONE_OWNER
from spark_analysis.invariants.log_times_grow import LOG_TIMES_GROW
from spark_analysis.invariants.log_trim_keeps import LOG_TRIM_KEEPS
from spark_analysis.invariants.metadata_before_use import METADATA_BEFORE_USE
from spark_analysis.invariants.negative_coverage import NEGATIVE_COVERAGE
from spark_analysis.invariants.negative_stays import NEGATIVE_STAYS
from spark_analysis.invariants.no_ack_after_end import NO_ACK_AFTER_END
from spark_analysis.invariants.no_false_negative import NO_FALSE_NEGATIVE
from spark_analysis.invariants.no_lac_truncation import NO_LAC_TRUNCATION
from spark_analysis.invariants.no_wait_for_all import NO_WAIT_FOR_ALL
from spark_analysis.invariants.nothing_beyond_close import NOTHING_BEYOND_CLOSE
from spark_analysis.invariants.nothing_invented import NOTHING_INVENTED
from spark_analysis.invariants.positive_verified import POSITIVE_VERIFIED
from spark_analysis.invariants.read_stability import READ_STABILITY
from spark_analysis.invariants.read_within_lac import READ_WITHIN_LAC
from spark_analysis.invariants.reader_lac_monotonic import READER_LAC_MONOTONIC
from spark_analysis.invariants.recoveries_agree import RECOVERIES_AGREE
from spark_analysis.invariants.recovery_add_accepted import RECOVERY_ADD_ACCEPTED
from spark_analysis.invariants.recovery_lac_frozen import RECOVERY_LAC_FROZEN
from spark_analysis.invariants.recovery_reads import RECOVERY_READS
from spark_analysis.invariants.recovery_resolves import RECOVERY_RESOLVES
from spark_analysis.invariants.replicas_agree import REPLICAS_AGREE
from spark_analysis.invariants.rewrite_before_close import REWRITE_BEFORE_CLOSE
from spark_analysis.invariants.single_writer_order import SINGLE_WRITER_ORDER
from spark_analysis.invariants.start_is_lac_plus_one import START_IS_LAC_PLUS_ONE
from spark_analysis.invariants.stored_where_sent import STORED_WHERE_SENT
from spark_analysis.invariants.unknown_aborts import UNKNOWN_ABORTS
from spark_analysis.invariants.visible_lac_bounded import VISIBLE_LAC_BOUNDED
from spark_analysis.invariants.writer_lac_monotonic import WRITER_LAC_MONOTONIC

__all__ = ["INVARIANTS", "Invariant", "judge", "select"]

_ALL: Final[tuple[Invariant, ...]] = (
    ACKED_READABLE,
    ACKED_REPLICATION,
    ACKS_IN_ORDER,
    ACK_HAS_QUORUM,
    ADD_RESOLVES,
    ANSWERS_MATCH,
    BOOKIE_LAC_MONOTONIC,
    CLOSED_AT_QUORUM,
    CLOSED_FROM_IN_RECOVERY,
    CLOSE_AT_DECISION,
    CLOSE_KEEPS_ACKS,
    COOKIE_GATE,
    COVERAGE_BEFORE_READS,
    DURABLE_BEFORE_ACK,
    FENCED_IS_TOLD,
    FENCED_STAYS_FENCED,
    FRAGMENTS_WELL_FORMED,
    GC_ONLY_DEAD,
    LAC_HONEST,
    LENGTH_CONSISTENT,
    LIMBO_NEVER_DENIES,
    LOG_DELIVERS,
    LOG_IN_ORDER,
    LOG_LISTED,
    LOG_ONE_CONSUMER,
    LOG_ONE_OPEN,
    LOG_ONE_OWNER,
    LOG_TIMES_GROW,
    LOG_TRIM_KEEPS,
    LOG_CURSORS_KEEP,
    LOG_COMPACTION_KEEPS,
    LOG_COMPACTION_WHOLE,
    METADATA_BEFORE_USE,
    NEGATIVE_COVERAGE,
    NEGATIVE_STAYS,
    NOTHING_INVENTED,
    NO_ACK_AFTER_END,
    NO_FALSE_NEGATIVE,
    NO_LAC_TRUNCATION,
    NO_WAIT_FOR_ALL,
    POSITIVE_VERIFIED,
    READER_LAC_MONOTONIC,
    READ_STABILITY,
    READ_WITHIN_LAC,
    RECOVERIES_AGREE,
    RECOVERY_LAC_FROZEN,
    RECOVERY_READS,
    RECOVERY_RESOLVES,
    REPLICAS_AGREE,
    REWRITE_BEFORE_CLOSE,
    SINGLE_WRITER_ORDER,
    START_IS_LAC_PLUS_ONE,
    UNKNOWN_ABORTS,
    VISIBLE_LAC_BOUNDED,
    FAILURE_IS_NO_DENIAL,
    NOTHING_BEYOND_CLOSE,
    RECOVERY_ADD_ACCEPTED,
    STORED_WHERE_SENT,
    WRITER_LAC_MONOTONIC,
)

#: All invariants, the most important first, as in the table of both witnesses.
INVARIANTS: Final[tuple[Invariant, ...]] = tuple(sorted(_ALL, key=lambda invariant: list(NAMES).index(invariant.name)))

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
