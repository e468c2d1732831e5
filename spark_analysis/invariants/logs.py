"""What the events tell of logs: their events, and what became of their ledgers.

Histories without logs have nothing of it, and what is derived is empty.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.expressions import (
    LEDGER_KEY,
    is_applied_write,
    is_closed,
    is_kind,
    is_stored_metadata,
    join_small,
)

__all__ = [
    "LOG_KEY",
    "LOG_KINDS",
    "LOG_LEDGER_COLUMNS",
    "LOG_LEDGER_KINDS",
    "NEVER",
    "compactions",
    "log_ledgers",
    "place",
    "place_text",
]

#: What identifies a log: names are only unique within a history.
LOG_KEY: Final = ("history", "log")

LOG_KINDS: Final = tuple(kind for kind in Kind if kind.startswith("LOG_"))
LOG_LEDGER_KINDS: Final = (
    *(Kind.LOG_LEDGER, Kind.LOG_APPEND, Kind.LOG_END, Kind.LOG_TRIM, Kind.META_CAS, Kind.META_READ),
)
LOG_LEDGER_COLUMNS: Final = ("seq", "log", "epoch", "last_entry", "cause", "outcome", "state")

#: Behind every event.
NEVER: Final = 2**63 - 1


def place() -> Column:
    """Where a message is; places of one log sort in its order."""
    return sf.struct("ledger", "entry", "batch")


def place_text(where: Column) -> Column:
    """A place in words."""
    return sf.concat_ws(":", where["ledger"], where["entry"], where["batch"])


def compactions(log_events: DataFrame) -> DataFrame:
    """One row for each time that a log came to point to a compacted ledger (cause ``done``) or no more (``dropped``).

    ``point_seq`` is the event, ``horizon`` the ledger and the entry up to which that ledger covers the log.
    """
    return log_events.filter(is_kind(Kind.LOG_COMPACT) & sf.col("cause").isin("done", "dropped")).select(
        *LEDGER_KEY, "log", "cause", sf.col("seq").alias("point_seq"), sf.struct("through", "entry").alias("horizon")
    )


def log_ledgers(log_events: DataFrame, rare: DataFrame) -> DataFrame:
    """One row per ledger that was made for a log, or is in the list of one. Each event is the first of its kind, null if none.

    * ``made_seq``: it was made; ``listed_seq``, ``listed_epoch``: it was appended to the list.
    * ``noted_seq``, ``noted_entry``: its end was noted. ``left_seq``: it left the list, ended empty or trimmed; ``trimmed_seq``.
    * ``closed_seq``, ``closed_entry``: it was closed, as its metadata tell. ``deleted_seq``: they were deleted.
    """
    seq = sf.col("seq")
    is_end, is_trim = is_kind(Kind.LOG_END), is_kind(Kind.LOG_TRIM)
    listed = sf.min(sf.when(is_kind(Kind.LOG_APPEND), sf.struct("seq", "epoch")))
    noted = sf.min(sf.when(is_end, sf.struct("seq", "last_entry")))
    of_log = (
        log_events.filter(is_kind(Kind.LOG_LEDGER, Kind.LOG_APPEND, Kind.LOG_END, Kind.LOG_TRIM))
        .groupBy(*LEDGER_KEY, "log")
        .agg(
            sf.min(sf.when(is_kind(Kind.LOG_LEDGER), seq)).alias("made_seq"),
            listed["seq"].alias("listed_seq"),
            listed["epoch"].alias("listed_epoch"),
            noted["seq"].alias("noted_seq"),
            noted["last_entry"].alias("noted_entry"),
            sf.min(sf.when(is_trim | (is_end & (sf.col("last_entry") < 0)), seq)).alias("left_seq"),
            sf.min(sf.when(is_trim, seq)).alias("trimmed_seq"),
        )
    )
    is_delete = is_kind(Kind.META_CAS) & (sf.col("cause") == "delete") & (sf.col("outcome") == "ok")
    closed = sf.min(sf.when(is_stored_metadata() & is_closed(), sf.struct("seq", "last_entry")))
    of_metadata = (
        rare.filter(is_kind(Kind.META_CAS, Kind.META_READ) & (is_applied_write() | is_stored_metadata() | is_delete))
        .groupBy(*LEDGER_KEY)
        .agg(
            closed["seq"].alias("closed_seq"),
            closed["last_entry"].alias("closed_entry"),
            sf.min(sf.when(is_delete, seq)).alias("deleted_seq"),
        )
    )
    return join_small(of_log, of_metadata, on=LEDGER_KEY, how="left")
