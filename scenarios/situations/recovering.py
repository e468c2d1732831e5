"""Situations of recoveries."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from scenarios.situations.base import Occasion, SituationFamily
from scenarios.situations.facts import OK, denied, failed, undecided

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


@FAMILY.on(Kind.META_READ, state="IN_RECOVERY")
def recovery_taken_over(at: Occasion) -> bool:
    """A client came to recover a ledger that another one had begun to recover and no longer does."""
    return not at.ledger.recovering and at.ledger.looking.get(at.actor, False)


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


@FAMILY.on(Kind.META_CAS, cause="recover", outcome="conflict")
def mark_conflict(_: Occasion) -> bool:
    """The write that marks a ledger as in recovery met a conflict."""
    return True


@FAMILY.on(Kind.META_CAS, cause="recover", outcome="unknown")
def mark_unknown(_: Occasion) -> bool:
    """A client did not learn whether it had marked a ledger as in recovery."""
    return True


# Fences and answers ------------------------------------------------------------------------------------------------


def _is_under_way(at: Occasion) -> bool:
    return at.actor in at.ledger.recovering


@FAMILY.on(Kind.REC_READ_RESP, Kind.FENCE_RESP, code=undecided)
def unknown_answer(at: Occasion) -> bool:
    """A bookie neither confirmed nor denied an entry that a recovery asked it for."""
    fields = at.fields
    if at.event.kind == Kind.FENCE_RESP or not _is_under_way(at):
        return _is_under_way(at)
    return bool(fields["fence"]) and (at.actor, fields["entry"]) not in at.ledger.decided


@FAMILY.on(Kind.FENCE_RESP, code=undecided)
def unanswered_fence(_: Occasion) -> bool:
    """A bookie did not say that it had fenced the ledger."""
    return True


@FAMILY.on(Kind.REC_READ_RESP, code=undecided)
def limbo_answer(at: Occasion) -> bool:
    """A bookie that cannot vouch for what it does not have neither confirmed nor denied an entry to a recovery."""
    return at.fields["bookie"] in at.ledger.limbo


@FAMILY.on(Kind.REC_READ_RESP, code=denied)
def denied_after_loss(at: Occasion) -> bool:
    """A bookie denied an entry to a recovery that it had stored and lost."""
    return (at.fields["bookie"], at.entry) in at.ledger.lost


@FAMILY.on(Kind.FENCE_SET)
def late_fence(at: Occasion) -> bool:
    """A bookie fenced a ledger that had been closed."""
    return at.ledger.end is not None and at.actor not in at.ledger.fenced


@FAMILY.on(Kind.FENCE_SET)
def fence_on_read_only(at: Occasion) -> bool:
    """A bookie that is read-only fenced a ledger."""
    return at.run.is_in_force("read-only", at.actor)


# Decisions ---------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.REC_DECIDE, verdict="unknown")
def undecided_entry(_: Occasion) -> bool:
    """A recovery could neither find an entry nor rule it out."""
    return True


@FAMILY.on(Kind.REC_DECIDE, verdict="positive")
def found_half_written(at: Occasion) -> bool:
    """A recovery found an entry that fewer bookies than an ack quorum had."""
    return len(at.ledger.stored.get(at.entry, ())) < at.ledger.sizes[1]


@FAMILY.on(Kind.REC_DECIDE, verdict="positive")
def found_unacknowledged(at: Occasion) -> bool:
    """A recovery found an entry that was not acknowledged."""
    return at.entry not in at.ledger.acked


@FAMILY.on(Kind.REC_DECIDE, verdict="positive")
def found_after_denial(at: Occasion) -> bool:
    """A recovery found an entry that some bookie had denied."""
    return (at.actor, at.entry) in at.ledger.denied


@FAMILY.on(Kind.REC_DECIDE, verdict="negative")
def stored_and_ruled_out(at: Occasion) -> bool:
    """A recovery ruled out an entry that some bookie had."""
    return bool(at.ledger.stored.get(at.entry))


@FAMILY.on(Kind.REC_DECIDE, verdict="negative")
def rivals_disagree(at: Occasion) -> bool:
    """A recovery ruled out an entry that a rival wrote back."""
    return bool(at.ledger.written_back.get(at.entry, set()) - {at.actor})


# Writing back ------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.ADD_RESP, recovery=True, code=failed)
def unanswered_write_back(at: Occasion) -> bool:
    """A bookie did not confirm what a recovery wrote back to it."""
    return _is_under_way(at)


@FAMILY.on(Kind.ADD_RESP, recovery=True)
def rivals_write_back(at: Occasion) -> bool:
    """Two recoveries wrote the same entry back."""
    return bool(at.ledger.written_back.get(at.entry, set()) - {at.actor})


@FAMILY.on(Kind.BK_STORE, recovery=True)
def write_back_where_it_was(at: Occasion) -> bool:
    """A recovery wrote an entry back to a bookie that had it."""
    return at.actor in at.ledger.stored.get(at.entry, ())


@FAMILY.on(Kind.BK_STORE, recovery=True)
def write_back_to_read_only(at: Occasion) -> bool:
    """A bookie that is read-only took what a recovery wrote back."""
    return at.run.is_in_force("read-only", at.actor)


@FAMILY.on(Kind.BK_STORE, recovery=True)
def late_write_back(at: Occasion) -> bool:
    """A bookie stored what a recovery wrote back when the ledger was closed already."""
    return at.ledger.end is not None


# Ends --------------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.META_CAS, outcome="ok", state="CLOSED")
def recovery_replaces(at: Occasion) -> bool:
    """A recovery closed a ledger with other bookies than those it began with."""
    found = at.ledger.recovering.get(at.actor)
    return at.ledger.end is None and found is not None and found != at.fields["fragments"]


@FAMILY.on(Kind.META_CAS, cause="close", outcome="ok")
def recovered_empty(at: Occasion) -> bool:
    """A recovery closed a ledger as empty."""
    return at.fields["last_entry"] == -1 and _is_under_way(at)


@FAMILY.on(Kind.META_CAS, cause="close", outcome="ok")
def recovery_keeps_unacknowledged(at: Occasion) -> bool:
    """A recovery closed a ledger above the last entry that was acknowledged."""
    return _is_under_way(at) and at.fields["last_entry"] > at.ledger.acks


@FAMILY.on(Kind.OPEN_RESULT, recovery=True, code=failed)
def failed_recovery(_: Occasion) -> bool:
    """Opening a ledger with recovery failed."""
    return True


@FAMILY.on(Kind.OPEN_RESULT, recovery=True, code=OK)
def nothing_to_recover(at: Occasion) -> bool:
    """A client opened a ledger with recovery that another one had closed, and did not have to recover it."""
    return not _is_under_way(at) and at.ledger.closer not in {"", at.actor}


@FAMILY.on(Kind.OPEN_RESULT, recovery=True, code=OK)
def rivals_both_recover(at: Occasion) -> bool:
    """Two clients recovered one ledger, and the second found that the first had closed it."""
    return _is_under_way(at) and at.ledger.closer not in {"", at.actor}


@FAMILY.on(Kind.CLIENT_CRASH)
def recovery_killed(at: Occasion) -> bool:
    """A client was killed while it recovered a ledger."""
    return any(at.actor in ledger.recovering for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.CLIENT_PAUSE)
def recovery_paused(at: Occasion) -> bool:
    """A client was paused while it recovered a ledger."""
    return any(at.actor in ledger.recovering for ledger in at.run.ledgers.values())
