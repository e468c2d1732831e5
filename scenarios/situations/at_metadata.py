"""Situations at the metadata service, and whether anything went wrong at all."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from scenarios.situations.base import Occasion, SituationFamily
from scenarios.situations.facts import DENIALS, OK

__all__ = ["FAMILY", "FAULT_MET"]

FAMILY: Final = SituationFamily()
#: Causes of FAULT events that tell of an end, not of a fault.
_MENDED: Final = frozenset({"calm", "end", "heal", "restart", "resume", "start"})

FAULT_MET: Final = "something-wrong"
"""The situation of every run that met a fault."""


@FAMILY.on(Kind.FAULT, Kind.META_CAS, Kind.ADD_RESP, Kind.READ_RESP, Kind.REC_READ_RESP, Kind.FENCE_RESP, Kind.BK_CRASH)
def something_wrong(at: Occasion) -> bool:
    """A fault began, a bookie failed or refused a request, a bookie crashed, or a metadata write did not succeed."""
    match at.event.kind:
        case Kind.BK_CRASH:
            return True
        case Kind.FAULT:
            return at.fields["phase"] != "end" and at.fields["cause"] not in _MENDED
        case Kind.META_CAS:
            return bool(at.fields["outcome"] != "ok")
        case _:
            return at.fields["code"] != OK and at.fields["code"] not in DENIALS


@FAMILY.on(Kind.REC_START)
def recovery_of_stale_metadata(at: Occasion) -> bool:
    """A client began to recover a ledger by metadata that were not the last ones."""
    return bool(at.fields["version"] < at.ledger.version)


@FAMILY.on(Kind.META_READ)
def read_of_marked(at: Occasion) -> bool:
    """A client read the metadata of a ledger that is being recovered."""
    return bool(at.fields["state"] == "IN_RECOVERY")


@FAMILY.on(Kind.META_CAS)
def write_refused(at: Occasion) -> bool:
    """The metadata service refused a write for another reason than its version."""
    return bool(at.fields["outcome"] == "error")


@FAMILY.on(Kind.META_CAS)
def deleted(at: Occasion) -> bool:
    """A client deleted a ledger."""
    return bool(at.fields["cause"] == "delete" and at.fields["outcome"] == "ok")


@FAMILY.on(Kind.APP_ADD)
def append_to_deleted(at: Occasion) -> bool:
    """An application appended to a ledger that was deleted."""
    return at.ledger.is_deleted


@FAMILY.on(Kind.META_CAS)
def copies_restored(at: Occasion) -> bool:
    """A repair put other bookies in the place of some that a ledger had lost."""
    return bool(at.fields["cause"] == "rereplicate" and at.fields["outcome"] == "ok")


@FAMILY.on(Kind.FAULT)
def store_down_in_recovery(at: Occasion) -> bool:
    """The metadata service went down while a client recovered a ledger."""
    is_down = at.fields["cause"] == "store-down" and at.fields["phase"] == "begin"
    return is_down and any(ledger.recovering for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.FAULT)
def session_lost_in_append(at: Occasion) -> bool:
    """The session of a client expired with appends in flight."""
    is_loss = at.fields["cause"] == "lose-session"
    return is_loss and any(ledger.has_pending(at.fields["target"]) for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.FAULT)
def partition_in_recovery(at: Occasion) -> bool:
    """Hosts were cut off from each other while a client recovered a ledger."""
    is_cut = at.fields["cause"] in {"partition", "cut", "clog"} and at.fields["phase"] != "end"
    return is_cut and any(ledger.recovering for ledger in at.run.ledgers.values())
