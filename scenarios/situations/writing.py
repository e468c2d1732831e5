"""Situations of writers: appends, ensemble changes, closes."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from scenarios.situations.base import Occasion, SituationFamily
from scenarios.situations.facts import FENCED, NOT_AVAILABLE, NOT_ENOUGH_BOOKIES, OK, READ_ONLY, TIMEOUT, failed

__all__ = ["FAMILY"]

FAMILY: Final = SituationFamily()

# Appends -----------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.APP_CANCEL)
def cancelled_append(_: Occasion) -> bool:
    """An application cancelled an append."""
    return True


@FAMILY.on(Kind.APP_FAIL)
def refused_append(_: Occasion) -> bool:
    """An append failed, and its application was told."""
    return True


@FAMILY.on(Kind.APP_FAIL, code=NOT_ENOUGH_BOOKIES)
def append_without_bookies(_: Occasion) -> bool:
    """An append failed because there were not enough bookies."""
    return True


@FAMILY.on(Kind.APP_ADD, given=True)
def given_id(_: Occasion) -> bool:
    """An application chose the id of its entry."""
    return True


@FAMILY.on(Kind.APP_ACK)
def deferred_ack(at: Occasion) -> bool:
    """An append was acknowledged before it was durable."""
    return at.fields["durable"] is False


@FAMILY.on(Kind.APP_ACK)
def ack_despite_failure(at: Occasion) -> bool:
    """An entry was acknowledged that some bookie had not confirmed."""
    return at.entry in at.ledger.bad_adds


@FAMILY.on(Kind.APP_ACK)
def ack_on_part(at: Occasion) -> bool:
    """An entry was acknowledged when fewer bookies than its write quorum had stored it."""
    return len(at.ledger.stored.get(at.entry, ())) < at.ledger.sizes[0]


@FAMILY.on(Kind.APP_ACK)
def ack_after_recovery_began(at: Occasion) -> bool:
    """An entry was acknowledged while another client recovered the ledger."""
    return bool(at.ledger.recovering)


# Answers of bookies ------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.ADD_RESP, recovery=False, code=FENCED)
def fenced_writer(_: Occasion) -> bool:
    """A bookie refused an entry of a writer because the ledger is fenced."""
    return True


@FAMILY.on(Kind.ADD_RESP, recovery=False, code=FENCED)
def fenced_zombie(at: Occasion) -> bool:
    """A bookie refused an entry of a writer that had been paused because the ledger is fenced."""
    return at.actor in at.run.woken


@FAMILY.on(Kind.ADD_RESP, recovery=False, code=FENCED)
def fence_outlives_restart(at: Occasion) -> bool:
    """A bookie refused an entry because of a fence that it set before it was restarted."""
    bookie = at.fields["bookie"]
    fence = at.ledger.fenced.get(bookie)
    return fence is not None and fence[1] < at.run.restarts[bookie]


@FAMILY.on(Kind.ADD_RESP, recovery=False, code=TIMEOUT)
def add_timeout(_: Occasion) -> bool:
    """A bookie did not answer an add of a writer in time."""
    return True


@FAMILY.on(Kind.ADD_RESP, recovery=False, code=NOT_AVAILABLE)
def unreachable_bookie(_: Occasion) -> bool:
    """An add of a writer did not reach a bookie, or its connection broke."""
    return True


@FAMILY.on(Kind.ADD_RESP, code=READ_ONLY)
def read_only_bookie(_: Occasion) -> bool:
    """A bookie refused an add because it is read-only."""
    return True


@FAMILY.on(Kind.ADD_RESP, recovery=False, code=failed)
def failure_after_ack(at: Occasion) -> bool:
    """A bookie failed an entry that had been acknowledged without it."""
    return at.entry in at.ledger.acked


@FAMILY.on(Kind.ADD_RESP, recovery=False)
def answer_of_former_member(at: Occasion) -> bool:
    """A bookie answered an add when it was no member of the last ensemble any more."""
    fragments = at.ledger.fragments
    return bool(fragments) and at.fields["bookie"] not in fragments[-1][1]


# Ensemble changes --------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.META_CAS, cause="ensemble", outcome="ok")
def ensemble_change(_: Occasion) -> bool:
    """A writer stored another ensemble."""
    return True


@FAMILY.on(Kind.META_CAS, cause="ensemble", outcome="ok")
def second_change(at: Occasion) -> bool:
    """A writer changed the ensemble of a ledger once more."""
    return at.ledger.changes > 0


@FAMILY.on(Kind.META_CAS, cause="ensemble", outcome="ok")
def change_of_several(at: Occasion) -> bool:
    """One ensemble change replaced several bookies."""
    if not at.ledger.fragments:
        return False
    return len(set(at.ledger.fragments[-1][1]) - set(at.fields["fragments"][-1][1])) > 1


@FAMILY.on(Kind.META_CAS, cause="ensemble", outcome="ok")
def change_in_place(at: Occasion) -> bool:
    """An ensemble change replaced bookies of a fragment that has no confirmed entries yet."""
    return bool(at.ledger.fragments) and len(at.fields["fragments"]) == len(at.ledger.fragments)


@FAMILY.on(Kind.META_CAS, cause="ensemble", outcome="conflict")
def change_conflict(_: Occasion) -> bool:
    """An ensemble change met a conflict."""
    return True


@FAMILY.on(Kind.META_CAS, cause="ensemble", outcome="unknown")
def change_unknown(_: Occasion) -> bool:
    """A writer did not learn whether its ensemble change was stored."""
    return True


@FAMILY.on(Kind.META_CAS, outcome="conflict")
def change_meets_recovery(at: Occasion) -> bool:
    """An ensemble change and the start of a recovery conflicted."""
    fields = at.fields
    if fields["cause"] == "ensemble":
        return at.ledger.is_marked
    return fields["cause"] == "recover" and fields["expected_version"] + 1 in at.ledger.change_seqs


@FAMILY.on(Kind.META_CAS, cause="ensemble", outcome="ok")
def change_meets_close(at: Occasion) -> bool:
    """A writer stored another ensemble when its application had asked it to close."""
    return at.actor in at.ledger.closing


@FAMILY.on(Kind.ADD_SEND, recovery=False)
def resent_to_replacement(at: Occasion) -> bool:
    """A writer sent an entry to a bookie that replaced another one."""
    sent = at.ledger.sent.get(at.entry, set())
    return at.fields["bookie"] not in sent and len(sent) >= at.ledger.sizes[0]


@FAMILY.on(Kind.ADD_SEND, recovery=False)
def resent_to_same(at: Occasion) -> bool:
    """A writer sent an entry once more to a bookie that it had sent it to."""
    return at.fields["bookie"] in at.ledger.sent.get(at.entry, ())


# Closes and ends ---------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.CLOSE_START)
def close_cuts_off(at: Occasion) -> bool:
    """A writer closed its ledger with appends in flight."""
    return at.ledger.has_pending(at.actor)


@FAMILY.on(Kind.CLOSE_START)
def close_meets_recovery(at: Occasion) -> bool:
    """A writer closed its ledger while another client recovered it."""
    return any(client != at.actor for client in at.ledger.recovering)


@FAMILY.on(Kind.CLOSE_RESULT, code=failed)
def refused_close(_: Occasion) -> bool:
    """A writer could not close its ledger."""
    return True


@FAMILY.on(Kind.CLOSE_RESULT, code=OK)
def close_finds_closed(at: Occasion) -> bool:
    """A writer's close succeeded on a ledger that another client had closed."""
    return at.ledger.closer not in {"", at.actor}


@FAMILY.on(Kind.META_CAS, cause="close", outcome="conflict")
def close_conflict(_: Occasion) -> bool:
    """The closing write of a ledger met a conflict."""
    return True


@FAMILY.on(Kind.META_CAS, cause="close", outcome="unknown")
def close_unknown(_: Occasion) -> bool:
    """A client did not learn whether its closing write was stored."""
    return True


@FAMILY.on(Kind.CLIENT_PAUSE)
def writer_paused_in_flight(at: Occasion) -> bool:
    """A writer was paused with appends in flight."""
    return any(ledger.has_pending(at.actor) for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.CLIENT_CRASH)
def writer_killed_in_flight(at: Occasion) -> bool:
    """A writer was killed with appends in flight."""
    return any(ledger.has_pending(at.actor) for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.CLIENT_CRASH)
def writer_killed_in_close(at: Occasion) -> bool:
    """A writer was killed while it closed its ledger."""
    return any(at.actor in ledger.closing for ledger in at.run.ledgers.values())
