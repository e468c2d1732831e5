"""AckedReplication: an entry acknowledged as durable stays on an ack quorum of its write set, losses aside.

At every moment from that acknowledgement on, of the entry's write set under the metadata stored then, at least Qa bookies hold
it, less those that ever lost it. Where no bookie holds the entry, that is clause A4's (AckedReadable).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import observed, tell
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.held import COPY_COLUMNS, COPY_KINDS

__all__ = ["ACKED_REPLICATION"]


def _observe(facts: Facts) -> DataFrame:
    ack, at, held = sf.col("durable_seq"), sf.col("at"), sf.col("held")
    wanted = sf.col("ack_quorum_size") - sf.col("lost")
    short = tell(
        "A5",
        (held > 0) & (held < wanted),
        at,
        sf.concat(sf.array(ack, sf.col("image.seq"), at), sf.col("holders")),
        "entry %d was acknowledged (event %d), and is on %d bookies of its write set instead of %d (event %d)",
        sf.col("entry"),
        ack,
        held,
        wanted,
        at,
    )
    return observed(facts.held_entries.filter(ack.isNotNull()), short)


ACKED_REPLICATION: Final = Invariant(
    name="AckedReplication",
    clauses=("A5",),
    kinds=COPY_KINDS,
    columns=COPY_COLUMNS,
    observe=_observe,
)
