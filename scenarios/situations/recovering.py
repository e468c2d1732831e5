"""Situations of recoveries."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from scenarios.situations.base import Occasion, SituationFamily
from scenarios.situations.facts import DENIALS, OK

__all__ = ["FAMILY"]

FAMILY: Final = SituationFamily()

# Beginnings --------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.REC_START)
def recovery(_: Occasion) -> bool:
    """A client began to recover a ledger."""
    return True


@FAMILY.on(Kind.REC_START)
def rival_recoveries(at: Occasion) -> bool:
    """Two clients recovered one ledger at the same time."""
    return any(client != at.actor for client in at.ledger.recovering)


@FAMILY.on(Kind.META_READ)
def recovery_taken_over(at: Occasion) -> bool:
    """A client came to recover a ledger that another one had begun to recover and no longer does."""
    is_left = at.fields["state"] == "IN_RECOVERY" and not at.ledger.recovering
    return is_left and at.ledger.looking.get(at.actor, False)


@FAMILY.on(Kind.REC_START)
def own_ledger_recovered(at: Occasion) -> bool:
    """A client recovered the ledger that it had created itself."""
    return at.actor == at.ledger.writer


@FAMILY.on(Kind.REC_START)
def recovery_of_several_fragments(at: Occasion) -> bool:
    """A client recovered a ledger whose ensemble had changed."""
    return len(at.ledger.fragments or ()) > 1


@FAMILY.on(Kind.REC_START)
def recovery_meets_appends(at: Occasion) -> bool:
    """A client began to recover a ledger with appends in flight."""
    return bool(at.ledger.adds)


@FAMILY.on(Kind.META_CAS)
def mark_conflict(at: Occasion) -> bool:
    """The write that marks a ledger as in recovery met a conflict."""
    return bool(at.fields["cause"] == "recover" and at.fields["outcome"] == "conflict")


@FAMILY.on(Kind.META_CAS)
def mark_unknown(at: Occasion) -> bool:
    """A client did not learn whether it had marked a ledger as in recovery."""
    return bool(at.fields["cause"] == "recover" and at.fields["outcome"] == "unknown")


# Fences and answers ------------------------------------------------------------------------------------------------


def _is_under_way(at: Occasion) -> bool:
    return at.actor in at.ledger.recovering


@FAMILY.on(Kind.REC_READ_RESP, Kind.FENCE_RESP)
def unknown_answer(at: Occasion) -> bool:
    """A bookie neither confirmed nor denied an entry that a recovery asked it for."""
    fields = at.fields
    is_unknown = fields["code"] != OK and fields["code"] not in DENIALS and _is_under_way(at)
    if at.event.kind == Kind.FENCE_RESP or not is_unknown:
        return is_unknown
    return bool(fields["fence"]) and (at.actor, fields["entry"]) not in at.ledger.decided


@FAMILY.on(Kind.FENCE_RESP)
def unanswered_fence(at: Occasion) -> bool:
    """A bookie did not say that it had fenced the ledger."""
    return at.fields["code"] != OK and at.fields["code"] not in DENIALS


@FAMILY.on(Kind.REC_READ_RESP)
def limbo_answer(at: Occasion) -> bool:
    """A bookie that cannot vouch for what it does not have neither confirmed nor denied an entry to a recovery."""
    fields = at.fields
    return fields["bookie"] in at.ledger.limbo and fields["code"] != OK and fields["code"] not in DENIALS


@FAMILY.on(Kind.REC_READ_RESP)
def denied_after_loss(at: Occasion) -> bool:
    """A bookie denied an entry to a recovery that it had stored and lost."""
    return at.fields["code"] in DENIALS and (at.fields["bookie"], at.entry) in at.ledger.lost


@FAMILY.on(Kind.FENCE_SET)
def late_fence(at: Occasion) -> bool:
    """A bookie fenced a ledger that had been closed."""
    return at.ledger.end is not None and at.actor not in at.ledger.fenced


@FAMILY.on(Kind.FENCE_SET)
def fence_on_read_only(at: Occasion) -> bool:
    """A bookie that is read-only fenced a ledger."""
    return at.run.is_in_force("read-only", at.actor)


# Decisions ---------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.REC_DECIDE)
def undecided_entry(at: Occasion) -> bool:
    """A recovery could neither find an entry nor rule it out."""
    return bool(at.fields["verdict"] == "unknown")


@FAMILY.on(Kind.REC_DECIDE)
def found_half_written(at: Occasion) -> bool:
    """A recovery found an entry that fewer bookies than an ack quorum had."""
    return at.fields["verdict"] == "positive" and len(at.ledger.stored.get(at.entry, ())) < at.ledger.sizes[1]


@FAMILY.on(Kind.REC_DECIDE)
def found_unacknowledged(at: Occasion) -> bool:
    """A recovery found an entry that was not acknowledged."""
    return at.fields["verdict"] == "positive" and at.entry not in at.ledger.acked


@FAMILY.on(Kind.REC_DECIDE)
def found_after_denial(at: Occasion) -> bool:
    """A recovery found an entry that some bookie had denied."""
    return at.fields["verdict"] == "positive" and (at.actor, at.entry) in at.ledger.denied


@FAMILY.on(Kind.REC_DECIDE)
def stored_and_ruled_out(at: Occasion) -> bool:
    """A recovery ruled out an entry that some bookie had."""
    return at.fields["verdict"] == "negative" and bool(at.ledger.stored.get(at.entry))


@FAMILY.on(Kind.REC_DECIDE)
def rivals_disagree(at: Occasion) -> bool:
    """A recovery ruled out an entry that a rival wrote back."""
    return at.fields["verdict"] == "negative" and bool(at.ledger.written_back.get(at.entry, set()) - {at.actor})


# Writing back ------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.ADD_RESP)
def unanswered_write_back(at: Occasion) -> bool:
    """A bookie did not confirm what a recovery wrote back to it."""
    return bool(at.fields["recovery"]) and at.fields["code"] != OK and _is_under_way(at)


@FAMILY.on(Kind.ADD_RESP)
def rivals_write_back(at: Occasion) -> bool:
    """Two recoveries wrote the same entry back."""
    return bool(at.fields["recovery"]) and bool(at.ledger.written_back.get(at.entry, set()) - {at.actor})


@FAMILY.on(Kind.BK_STORE)
def write_back_where_it_was(at: Occasion) -> bool:
    """A recovery wrote an entry back to a bookie that had it."""
    return bool(at.fields["recovery"]) and at.actor in at.ledger.stored.get(at.entry, ())


@FAMILY.on(Kind.BK_STORE)
def write_back_to_read_only(at: Occasion) -> bool:
    """A bookie that is read-only took what a recovery wrote back."""
    return bool(at.fields["recovery"]) and at.run.is_in_force("read-only", at.actor)


@FAMILY.on(Kind.BK_STORE)
def late_write_back(at: Occasion) -> bool:
    """A bookie stored what a recovery wrote back when the ledger was closed already."""
    return bool(at.fields["recovery"]) and at.ledger.end is not None


# Ends --------------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.META_CAS)
def recovery_replaces(at: Occasion) -> bool:
    """A recovery closed a ledger with other bookies than those it began with."""
    fields = at.fields
    is_close = fields["outcome"] == "ok" and fields["state"] == "CLOSED" and at.ledger.end is None
    found = at.ledger.recovering.get(at.actor)
    return is_close and found is not None and found != fields["fragments"]


@FAMILY.on(Kind.META_CAS)
def recovered_empty(at: Occasion) -> bool:
    """A recovery closed a ledger as empty."""
    fields = at.fields
    is_close = fields["cause"] == "close" and fields["outcome"] == "ok" and fields["last_entry"] == -1
    return is_close and _is_under_way(at)


@FAMILY.on(Kind.META_CAS)
def recovery_keeps_unacknowledged(at: Occasion) -> bool:
    """A recovery closed a ledger above the last entry that was acknowledged."""
    fields = at.fields
    is_close = fields["cause"] == "close" and fields["outcome"] == "ok" and _is_under_way(at)
    return is_close and fields["last_entry"] > at.ledger.acks


@FAMILY.on(Kind.OPEN_RESULT)
def failed_recovery(at: Occasion) -> bool:
    """Opening a ledger with recovery failed."""
    return bool(at.fields["recovery"] and at.fields["code"] != OK)


@FAMILY.on(Kind.OPEN_RESULT)
def nothing_to_recover(at: Occasion) -> bool:
    """A client opened a ledger with recovery that another one had closed, and did not have to recover it."""
    is_open = at.fields["recovery"] and at.fields["code"] == OK
    return bool(is_open) and not _is_under_way(at) and at.ledger.closer not in {"", at.actor}


@FAMILY.on(Kind.OPEN_RESULT)
def rivals_both_recover(at: Occasion) -> bool:
    """Two clients recovered one ledger, and the second found that the first had closed it."""
    is_open = at.fields["recovery"] and at.fields["code"] == OK
    return bool(is_open) and _is_under_way(at) and at.ledger.closer not in {"", at.actor}


@FAMILY.on(Kind.CLIENT_CRASH)
def recovery_killed(at: Occasion) -> bool:
    """A client was killed while it recovered a ledger."""
    return any(at.actor in ledger.recovering for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.CLIENT_PAUSE)
def recovery_paused(at: Occasion) -> bool:
    """A client was paused while it recovered a ledger."""
    return any(at.actor in ledger.recovering for ledger in at.run.ledgers.values())
