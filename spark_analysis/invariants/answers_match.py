"""AnswersMatch: an answer is to one request, and a client hears from a bookie what the bookie said.

Requests and answers without a number are passed over. What was heard is compared with what was said where the bookie records what
arrives at it; an answer of a bookie to a request whose number it did not know may be to any request that asks for the same.
Outcomes that may arise at the client, such as a timeout, need no bookie.
Plain requests are as they have to be; only the messages of the others are collected.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from scenarios.history import Kind
from spark_analysis.invariants.base import Invariant
from spark_analysis.invariants.expressions import (
    DENIALS,
    LEDGER_KEY,
    OK,
    is_kind,
    is_true,
    join_small,
    observed,
    tell,
)
from spark_analysis.invariants.facts import Facts
from spark_analysis.invariants.messages import ANSWERS, ASKED, MESSAGE_KINDS, REQUEST, SENDS, messages

__all__ = ["ANSWERS_MATCH"]

_FENCED: Final = -101


def _conversations(told: DataFrame) -> DataFrame:
    """Per ``client`` and ``request`` with an answer: ``sent``, the ``answers`` it got, and what bookies ``said``, in order.

    ``heard`` is the answer that is taken for that to the request, and ``stray`` the first one that no request awaited.
    """
    message = sf.struct("seq", *ASKED, "code")
    by_request = (
        told.groupBy(*REQUEST)
        .agg(
            sf.min(sf.when(is_kind(*SENDS), sf.struct("seq", *ASKED))).alias("sent"),
            sf.collect_list(sf.when(is_kind(*ANSWERS), message)).alias("answers"),
            sf.collect_list(sf.when(is_kind(Kind.BK_ANSWER), message)).alias("said"),
        )
        .filter(sf.size("answers") > 0)
    )
    answers, sent = sf.array_sort("answers"), sf.col("sent")
    awaited = sf.filter(answers, lambda answer: is_true(answer["seq"] > sent["seq"]))
    early = sf.filter(answers, lambda answer: ~is_true(answer["seq"] > sent["seq"]))
    return by_request.select(
        *LEDGER_KEY,
        *("client", "request", "sent", "said"),
        sf.get(awaited, sf.lit(0)).alias("heard"),
        sf.coalesce(sf.get(early, sf.lit(0)), sf.get(awaited, sf.lit(1)))["seq"].alias("stray"),
    )


def _observe(facts: Facts) -> DataFrame:
    told = messages(facts.of(*MESSAGE_KINDS))
    doubtful = facts.doubtful_requests.select(*LEDGER_KEY, sf.inline("doubtful"))
    numbered = told.filter(sf.col("request").isNotNull())
    said_to_any = (
        told.filter(is_kind(Kind.BK_ANSWER) & sf.col("request").isNull())
        .select(*LEDGER_KEY, "client", *ASKED, "code")
        .distinct()
        .withColumn("was_said", sf.lit(True))  # noqa: FBT003
    )
    telling = (
        facts.of(Kind.BK_RECV).groupBy(*LEDGER_KEY, sf.col("actor").alias("bookie")).agg(sf.min("seq").alias("telling"))
    )
    heard, sent, stray = sf.col("heard"), sf.col("sent"), sf.col("stray")
    rows = (
        _conversations(join_small(numbered, doubtful, on=REQUEST, how="left_semi"))
        .select("*", *(heard[name].alias(name) for name in (*ASKED, "code")))
        .transform(join_small, telling, on=(*LEDGER_KEY, "bookie"), how="left")
        .transform(join_small, said_to_any, on=(*LEDGER_KEY, "client", *ASKED, "code"), how="left")
    )
    client, request = sf.col("client"), sf.col("request")
    unawaited = tell(
        "M1",
        stray.isNotNull(),
        stray,
        [stray],
        "%s got an answer to request %d (event %d), which awaited none",
        client,
        request,
        stray,
    )
    is_about_another = sf.struct(*(heard[name] for name in ASKED)) != sf.struct(*(sent[name] for name in ASKED))
    mistaken = tell(
        "M1",
        heard.isNotNull() & is_about_another,
        heard["seq"],
        [sent["seq"], heard["seq"]],
        "%s asked %s for entry %d (%s, request %d), and got the answer of %s about entry %d (%s, event %d)",
        client,
        *(sent[name] for name in ("bookie", "entry", "operation")),
        request,
        *(heard[name] for name in ("bookie", "entry", "operation", "seq")),
    )
    unsaid = tell(
        "M2",
        _is_unsaid(heard),
        heard["seq"],
        [sent["seq"], heard["seq"]],
        "%s heard code %d from %s about entry %d (%s, event %d), which %s request %d",
        client,
        *(heard[name] for name in ("code", "bookie", "entry", "operation", "seq")),
        sf.when(sf.size(_said_to(heard)) == 0, "had not answered").otherwise(
            sf.concat(sf.lit("answered with "), _codes(_said_to(heard)))
        ),
        request,
    )
    plain = facts.doubtful_requests.filter(sf.col("has_plain")).select(*LEDGER_KEY, sf.lit(None).alias("findings"))
    return observed(rows, unawaited, mistaken, unsaid).union(plain)


def _said_to(heard: Column) -> Column:
    """What the bookie that was heard had said to the request."""
    return sf.filter("said", lambda said: (said["bookie"] == heard["bookie"]) & (said["seq"] < heard["seq"]))


def _codes(messages: Column) -> Column:
    return sf.array_join(sf.array_distinct(sf.transform(messages, lambda said: said["code"].cast("string"))), ", ")


def _is_unsaid(heard: Column) -> Column:
    """Whether only the bookie could have said so, and it had not."""
    return is_true(
        heard["code"].isin(OK, _FENCED, *DENIALS)
        & (sf.col("telling") < heard["seq"])
        & ~sf.exists(_said_to(heard), lambda said: said["code"] == heard["code"])
        & sf.col("was_said").isNull()
    )


ANSWERS_MATCH: Final = Invariant(
    name="AnswersMatch",
    clauses=("M1", "M2"),
    kinds=(*SENDS, *ANSWERS, Kind.BK_RECV, Kind.BK_ANSWER),
    columns=("seq", "actor", "entry", "bookie", "code", "recovery", "request", "source", "operation"),
    observe=_observe,
)
