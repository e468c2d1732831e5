"""Situations of writers: appends, ensemble changes, closes."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from scenarios.situations.base import Occasion, SituationFamily
from scenarios.situations.facts import FENCED, NOT_AVAILABLE, NOT_ENOUGH_BOOKIES, OK, READ_ONLY, TIMEOUT

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


@FAMILY.on(Kind.APP_FAIL)
def append_without_bookies(at: Occasion) -> bool:
    """An append failed because there were not enough bookies."""
    return bool(at.fields["code"] == NOT_ENOUGH_BOOKIES)


@FAMILY.on(Kind.APP_ADD)
def given_id(at: Occasion) -> bool:
    """An application chose the id of its entry."""
    return bool(at.fields["given"])


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


@FAMILY.on(Kind.ADD_RESP)
def fenced_writer(at: Occasion) -> bool:
    """A bookie refused an entry of a writer because the ledger is fenced."""
    return not at.fields["recovery"] and at.fields["code"] == FENCED


@FAMILY.on(Kind.ADD_RESP)
def fenced_zombie(at: Occasion) -> bool:
    """A bookie refused an entry of a writer that had been paused because the ledger is fenced."""
    return fenced_writer(at) and at.actor in at.run.woken


@FAMILY.on(Kind.ADD_RESP)
def fence_outlives_restart(at: Occasion) -> bool:
    """A bookie refused an entry because of a fence that it set before it was restarted."""
    bookie = at.fields["bookie"]
    fence = at.ledger.fenced.get(bookie)
    return fenced_writer(at) and fence is not None and fence[1] < at.run.restarts[bookie]


@FAMILY.on(Kind.ADD_RESP)
def add_timeout(at: Occasion) -> bool:
    """A bookie did not answer an add of a writer in time."""
    return not at.fields["recovery"] and at.fields["code"] == TIMEOUT


@FAMILY.on(Kind.ADD_RESP)
def unreachable_bookie(at: Occasion) -> bool:
    """An add of a writer did not reach a bookie, or its connection broke."""
    return not at.fields["recovery"] and at.fields["code"] == NOT_AVAILABLE


@FAMILY.on(Kind.ADD_RESP)
def read_only_bookie(at: Occasion) -> bool:
    """A bookie refused an add because it is read-only."""
    return bool(at.fields["code"] == READ_ONLY)


@FAMILY.on(Kind.ADD_RESP)
def failure_after_ack(at: Occasion) -> bool:
    """A bookie failed an entry that had been acknowledged without it."""
    return not at.fields["recovery"] and at.fields["code"] != OK and at.entry in at.ledger.acked


@FAMILY.on(Kind.ADD_RESP)
def answer_of_former_member(at: Occasion) -> bool:
    """A bookie answered an add when it was no member of the last ensemble any more."""
    fragments = at.ledger.fragments
    return not at.fields["recovery"] and bool(fragments) and at.fields["bookie"] not in fragments[-1][1]


# Ensemble changes --------------------------------------------------------------------------------------------------


def _is_change(at: Occasion, outcome: str = "ok") -> bool:
    return bool(at.fields["cause"] == "ensemble" and at.fields["outcome"] == outcome)


@FAMILY.on(Kind.META_CAS)
def ensemble_change(at: Occasion) -> bool:
    """A writer stored another ensemble."""
    return _is_change(at)


@FAMILY.on(Kind.META_CAS)
def second_change(at: Occasion) -> bool:
    """A writer changed the ensemble of a ledger once more."""
    return _is_change(at) and at.ledger.changes > 0


@FAMILY.on(Kind.META_CAS)
def change_of_several(at: Occasion) -> bool:
    """One ensemble change replaced several bookies."""
    if not _is_change(at) or not at.ledger.fragments:
        return False
    return len(set(at.ledger.fragments[-1][1]) - set(at.fields["fragments"][-1][1])) > 1


@FAMILY.on(Kind.META_CAS)
def change_in_place(at: Occasion) -> bool:
    """An ensemble change replaced bookies of a fragment that has no confirmed entries yet."""
    return _is_change(at) and bool(at.ledger.fragments) and len(at.fields["fragments"]) == len(at.ledger.fragments)


@FAMILY.on(Kind.META_CAS)
def change_conflict(at: Occasion) -> bool:
    """An ensemble change met a conflict."""
    return _is_change(at, "conflict")


@FAMILY.on(Kind.META_CAS)
def change_unknown(at: Occasion) -> bool:
    """A writer did not learn whether its ensemble change was stored."""
    return _is_change(at, "unknown")


@FAMILY.on(Kind.META_CAS)
def change_meets_recovery(at: Occasion) -> bool:
    """An ensemble change and the start of a recovery conflicted."""
    fields = at.fields
    if fields["outcome"] != "conflict":
        return False
    if fields["cause"] == "ensemble":
        return at.ledger.is_marked
    return fields["cause"] == "recover" and fields["expected_version"] + 1 in at.ledger.change_seqs


@FAMILY.on(Kind.META_CAS)
def change_meets_close(at: Occasion) -> bool:
    """A writer stored another ensemble when its application had asked it to close."""
    return _is_change(at) and at.actor in at.ledger.closing


@FAMILY.on(Kind.ADD_SEND)
def resent_to_replacement(at: Occasion) -> bool:
    """A writer sent an entry to a bookie that replaced another one."""
    sent = at.ledger.sent.get(at.entry, set())
    is_new = not at.fields["recovery"] and at.fields["bookie"] not in sent
    return is_new and len(sent) >= at.ledger.sizes[0]


@FAMILY.on(Kind.ADD_SEND)
def resent_to_same(at: Occasion) -> bool:
    """A writer sent an entry once more to a bookie that it had sent it to."""
    return not at.fields["recovery"] and at.fields["bookie"] in at.ledger.sent.get(at.entry, ())


# Closes and ends ---------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.CLOSE_START)
def close_cuts_off(at: Occasion) -> bool:
    """A writer closed its ledger with appends in flight."""
    return at.ledger.has_pending(at.actor)


@FAMILY.on(Kind.CLOSE_START)
def close_meets_recovery(at: Occasion) -> bool:
    """A writer closed its ledger while another client recovered it."""
    return any(client != at.actor for client in at.ledger.recovering)


@FAMILY.on(Kind.CLOSE_RESULT)
def refused_close(at: Occasion) -> bool:
    """A writer could not close its ledger."""
    return bool(at.fields["code"] != OK)


@FAMILY.on(Kind.CLOSE_RESULT)
def close_finds_closed(at: Occasion) -> bool:
    """A writer's close succeeded on a ledger that another client had closed."""
    return at.fields["code"] == OK and at.ledger.closer not in {"", at.actor}


@FAMILY.on(Kind.META_CAS)
def close_conflict(at: Occasion) -> bool:
    """The closing write of a ledger met a conflict."""
    return bool(at.fields["cause"] == "close" and at.fields["outcome"] == "conflict")


@FAMILY.on(Kind.META_CAS)
def close_unknown(at: Occasion) -> bool:
    """A client did not learn whether its closing write was stored."""
    return bool(at.fields["cause"] == "close" and at.fields["outcome"] == "unknown")


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
