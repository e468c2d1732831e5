"""Situations at the metadata service, and whether anything went wrong at all."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from scenarios.situations.base import Occasion, SituationFamily
from scenarios.situations.facts import undecided

__all__ = ["FAMILY", "FAULT_MET"]

FAMILY: Final = SituationFamily()
#: Causes of FAULT events that tell of an end, not of a fault.
_MENDED: Final = frozenset({"calm", "end", "heal", "restart", "resume", "start"})

FAULT_MET: Final = "something-wrong"
"""The situation of every run that met a fault."""

#: Causes of faults that cut hosts off from each other.
_CUTS: Final = frozenset({"partition", "cut", "clog"})


@FAMILY.on(Kind.BK_CRASH)
@FAMILY.on(Kind.FAULT, phase=lambda phase: phase != "end", cause=lambda cause: cause not in _MENDED)
@FAMILY.on(Kind.META_CAS, outcome=lambda outcome: outcome != "ok")
@FAMILY.on(Kind.ADD_RESP, Kind.READ_RESP, Kind.REC_READ_RESP, Kind.FENCE_RESP, code=undecided)
def something_wrong(_: Occasion) -> bool:
    """A fault began, a bookie failed or refused a request, a bookie crashed, or a metadata write did not succeed."""
    return True


@FAMILY.on(Kind.REC_START)
def recovery_of_stale_metadata(at: Occasion) -> bool:
    """A client began to recover a ledger by metadata that were not the last ones."""
    return bool(at.fields["version"] < at.ledger.version)


@FAMILY.on(Kind.META_READ, state="IN_RECOVERY")
def read_of_marked(_: Occasion) -> bool:
    """A client read the metadata of a ledger that is being recovered."""
    return True


@FAMILY.on(Kind.META_CAS, outcome="error")
def write_refused(_: Occasion) -> bool:
    """The metadata service refused a write for another reason than its version."""
    return True


@FAMILY.on(Kind.META_CAS, cause="delete", outcome="ok")
def deleted(_: Occasion) -> bool:
    """A client deleted a ledger."""
    return True


@FAMILY.on(Kind.APP_ADD)
def append_to_deleted(at: Occasion) -> bool:
    """An application appended to a ledger that was deleted."""
    return at.ledger.is_deleted


@FAMILY.on(Kind.META_CAS, cause="rereplicate", outcome="ok")
def copies_restored(_: Occasion) -> bool:
    """A repair put other bookies in the place of some that a ledger had lost."""
    return True


@FAMILY.on(Kind.FAULT, cause="store-down", phase="begin")
def store_down_in_recovery(at: Occasion) -> bool:
    """The metadata service went down while a client recovered a ledger."""
    return any(ledger.recovering for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.FAULT, cause="lose-session")
def session_lost_in_append(at: Occasion) -> bool:
    """The session of a client expired with appends in flight."""
    return any(ledger.has_pending(at.fields["target"]) for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.FAULT, cause=lambda cause: cause in _CUTS, phase=lambda phase: phase != "end")
def partition_in_recovery(at: Occasion) -> bool:
    """Hosts were cut off from each other while a client recovered a ledger."""
    return any(ledger.recovering for ledger in at.run.ledgers.values())
