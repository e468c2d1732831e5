"""Situations of readers."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from scenarios.situations.base import Occasion, SituationFamily
from scenarios.situations.facts import OK, denied, failed

__all__ = ["FAMILY"]

FAMILY: Final = SituationFamily()


@FAMILY.on(Kind.READ_RESULT, code=OK)
def reader_crosses_change(at: Occasion) -> bool:
    """A reader of an open ledger read from an ensemble stored after it had opened the ledger."""
    ledger, opened = at.ledger, at.ledger.opened.get(at.actor)
    if opened is None or not ledger.fragments:
        return False
    first = max(first for first, _ in ledger.fragments if first <= max(at.entry, 0))
    return first > 0 and any(seq > opened for seq in ledger.change_seqs.values())


@FAMILY.on(Kind.REC_READ_RESP, Kind.READ_RESP, code=OK)
def altered_copy(at: Occasion) -> bool:
    """A bookie answered a read with a copy that was altered on its disk."""
    return (at.fields["bookie"], at.entry) in at.ledger.lost


@FAMILY.on(Kind.READ_RESULT, code=failed)
def failed_read(_: Occasion) -> bool:
    """A read of an application failed."""
    return True


@FAMILY.on(Kind.READ_RESULT, code=OK)
def read_from_another_replica(at: Occasion) -> bool:
    """An entry was read from one bookie after another one had failed."""
    return (at.actor, at.entry) in at.ledger.bad_reads


@FAMILY.on(Kind.READ_SEND)
def read_asks_several(at: Occasion) -> bool:
    """A reader asked another bookie before the first one had answered."""
    asked = at.ledger.asked.get((at.actor, at.entry), set())
    return bool(asked - {at.fields["bookie"]})


@FAMILY.on(Kind.READ_RESP, code=denied)
def acknowledged_entry_denied(at: Occasion) -> bool:
    """A bookie denied a reader an entry that was acknowledged."""
    return at.entry in at.ledger.acked


@FAMILY.on(Kind.READ_RESULT, code=OK)
def read_before_close(at: Occasion) -> bool:
    """An entry was read from a ledger that was being written."""
    return at.ledger.state == "OPEN"


@FAMILY.on(Kind.READ_RESULT, code=OK)
def read_during_recovery(at: Occasion) -> bool:
    """An entry was read from a ledger that was being recovered."""
    return at.ledger.state == "IN_RECOVERY"


@FAMILY.on(Kind.LAC_ADV)
def lac_behind(at: Occasion) -> bool:
    """A reader was told of a last add confirmed below an entry that was acknowledged already."""
    return bool(at.fields["lac"] < at.ledger.acks)


@FAMILY.on(Kind.LAC_ADV)
def lac_rises(at: Occasion) -> bool:
    """A reader that asked again was told of a higher last add confirmed."""
    return at.actor in at.ledger.lac and at.fields["lac"] > at.ledger.lac[at.actor]


@FAMILY.on(Kind.LAC_ADV, source="long-poll")
def entry_awaited(_: Occasion) -> bool:
    """A long poll was answered."""
    return True


@FAMILY.on(Kind.OPEN_RESULT, recovery=False, state="CLOSED")
def opened_closed(_: Occasion) -> bool:
    """A client opened a closed ledger without recovery."""
    return True


@FAMILY.on(Kind.OPEN_RESULT, recovery=False, code=failed)
def failed_open(_: Occasion) -> bool:
    """Opening a ledger without recovery failed."""
    return True
