"""The expressions invariants are written in: which events, which bookies, what to say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind

__all__ = [
    "DENIALS",
    "ENTRY_KEY",
    "FENCED",
    "LEDGER_KEY",
    "LEDGER_RECOVERY",
    "NO_SUCH_LEDGER",
    "OK",
    "REFUSALS",
    "ensemble_of",
    "is_applied_write",
    "is_closed",
    "is_creation",
    "is_deletion",
    "is_in_write_set",
    "is_kind",
    "is_stored_copy",
    "is_stored_metadata",
    "is_true",
    "join_small",
    "observed",
    "tell",
]

#: What identifies a ledger, and an entry: ids are only unique within a history.
LEDGER_KEY: Final = ("history", "ledger")
ENTRY_KEY: Final = (*LEDGER_KEY, "entry")

#: The outcome codes that invariants speak of, restated here: a mistake in the client's table must not hide itself.
OK: Final = 0
NO_SUCH_ENTRY: Final = -13
NO_SUCH_LEDGER_ON_BOOKIE: Final = -7
LEDGER_RECOVERY: Final = -10
NO_SUCH_LEDGER: Final = -25
FENCED: Final = -101
DENIALS: Final = (NO_SUCH_ENTRY, NO_SUCH_LEDGER_ON_BOOKIE)
#: With these a write-back ends its recovery: the client is closed, nobody may do that, the ledger is fenced, or not this client.
REFUSALS: Final = (-19, -100, FENCED, -102)


# Conditions ---------------------------------------------------------------------------------------------------------


def is_true(condition: Column) -> Column:
    """``condition``, false where it is null."""
    return sf.coalesce(condition, sf.lit(False))  # noqa: FBT003


def is_kind(*kinds: Kind) -> Column:
    """Whether a row is an event of one of ``kinds``."""
    return sf.col("kind").isin(*(str(kind) for kind in kinds))


def is_applied_write() -> Column:
    """Whether a row is a write of metadata that the store applied."""
    return is_kind(Kind.META_CAS) & (sf.col("outcome") == "ok") & (sf.col("cause") != "delete")


def is_creation() -> Column:
    """Whether a row is the creation of a ledger, which the store applied."""
    return is_applied_write() & (sf.col("cause") == "create")


def is_deletion() -> Column:
    """Whether a row is a deletion of a ledger that was applied, or may have been."""
    return is_kind(Kind.META_CAS) & (sf.col("cause") == "delete") & (sf.col("outcome") != "conflict")


def is_stored_metadata() -> Column:
    """Whether a row shows metadata that the store held: a write that it applied, or a read."""
    return is_applied_write() | (is_kind(Kind.META_READ) & (sf.col("outcome") == "ok"))


def is_closed() -> Column:
    """Whether the metadata in a row is that of a closed ledger."""
    return sf.col("state") == "CLOSED"


def is_stored_copy(copy: Column) -> Column:
    """Whether one of the ``copies`` of an entry is one that a bookie stored, and not what clients sent or heard of it."""
    return copy["bookie"].isNotNull() & copy["stored_seq"].isNotNull()


# Quorums ------------------------------------------------------------------------------------------------------------


def ensemble_of(fragments: Column, entry: Column) -> Column:
    """The bookies of the fragment that ``entry`` belongs to: the one with the greatest first entry not above it."""
    serving = sf.filter(fragments, lambda fragment: fragment["first_entry"] <= entry)
    only = sf.get(fragments, sf.lit(0))
    chosen = sf.when(sf.size(fragments) == 1, only).otherwise(sf.try_element_at(serving, sf.lit(-1)))
    return chosen["bookies"]


def is_in_write_set(bookie: Column, ensemble: Column, entry: Column, write_quorum_size: Column) -> Column:
    """Whether ``bookie`` is at one of the Qw positions from ``entry`` mod E on (DS-1). False for null ensembles."""
    position = sf.array_position(ensemble, bookie) - 1
    distance = sf.pmod(position - entry, sf.nullif(sf.size(ensemble), sf.lit(0)))
    return is_true((position >= 0) & (distance < write_quorum_size))


# Findings -----------------------------------------------------------------------------------------------------------


def tell(
    clause: str | Column,
    is_broken: Column,
    seq: Column,
    evidence: Sequence[Column] | Column,
    text: str,
    *values: Column,
) -> Column:
    """A finding's ``seq``, ``clause``, ``witness`` and ``evidence`` as one struct; null where ``is_broken`` is not true.

    ``clause`` is the number of the clause that is broken, ``evidence`` the smallest set of events that shows it, one by one or as
    an array, and ``text`` a format for ``values``. Structs sort by ``seq``, so the least of several is the earliest.
    """
    told = sf.struct(
        seq.alias("seq"),
        (sf.lit(clause) if isinstance(clause, str) else clause).alias("clause"),
        sf.format_string(text, *values).alias("witness"),
        (evidence if isinstance(evidence, Column) else sf.array(*evidence)).alias("evidence"),
    )
    return sf.when(is_broken, told)


def observed(rows: DataFrame, *findings: Column) -> DataFrame:
    """Each of ``rows`` as its ledger and those of ``findings`` (see :func:`tell`) that are not null; null if there are none."""
    is_any = reduce(or_, (finding.isNotNull() for finding in findings))
    told = sf.array_compact(sf.array(*findings)) if len(findings) > 1 else sf.array(*findings)
    return rows.select(*LEDGER_KEY, sf.when(is_any, told).alias("findings"))


def join_small(left: DataFrame, right: DataFrame, on: Sequence[str], how: str) -> DataFrame:
    """Join each row of ``left`` with its rows in ``right``, by a hash table of ``right``.

    Everything is partitioned by history already, so neither side moves, and a hash table of one partition's ledgers or entries
    is small beside its events; Spark, knowing the size of neither, would sort both.
    """
    return left.join(right.hint("shuffle_hash"), on=list(on), how=how)
