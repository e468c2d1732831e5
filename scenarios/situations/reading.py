"""Situations of readers."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from scenarios.situations.base import Occasion, SituationFamily
from scenarios.situations.facts import DENIALS, OK

__all__ = ["FAMILY"]

FAMILY: Final = SituationFamily()


@FAMILY.on(Kind.READ_RESULT)
def reader_crosses_change(at: Occasion) -> bool:
    """A reader of an open ledger read from an ensemble stored after it had opened the ledger."""
    ledger, opened = at.ledger, at.ledger.opened.get(at.actor)
    if at.fields["code"] != OK or opened is None or not ledger.fragments:
        return False
    first = max(first for first, _ in ledger.fragments if first <= max(at.entry, 0))
    return first > 0 and any(seq > opened for seq in ledger.change_seqs.values())


@FAMILY.on(Kind.REC_READ_RESP, Kind.READ_RESP)
def altered_copy(at: Occasion) -> bool:
    """A bookie answered a read with a copy that was altered on its disk."""
    return at.fields["code"] == OK and (at.fields["bookie"], at.entry) in at.ledger.lost


@FAMILY.on(Kind.READ_RESULT)
def failed_read(at: Occasion) -> bool:
    """A read of an application failed."""
    return bool(at.fields["code"] != OK)


@FAMILY.on(Kind.READ_RESULT)
def read_from_another_replica(at: Occasion) -> bool:
    """An entry was read from one bookie after another one had failed."""
    return at.fields["code"] == OK and (at.actor, at.entry) in at.ledger.bad_reads


@FAMILY.on(Kind.READ_SEND)
def read_asks_several(at: Occasion) -> bool:
    """A reader asked another bookie before the first one had answered."""
    asked = at.ledger.asked.get((at.actor, at.entry), set())
    return bool(asked - {at.fields["bookie"]})


@FAMILY.on(Kind.READ_RESP)
def acknowledged_entry_denied(at: Occasion) -> bool:
    """A bookie denied a reader an entry that was acknowledged."""
    return at.fields["code"] in DENIALS and at.entry in at.ledger.acked


@FAMILY.on(Kind.READ_RESULT)
def read_before_close(at: Occasion) -> bool:
    """An entry was read from a ledger that was being written."""
    return at.fields["code"] == OK and at.ledger.state == "OPEN"


@FAMILY.on(Kind.READ_RESULT)
def read_during_recovery(at: Occasion) -> bool:
    """An entry was read from a ledger that was being recovered."""
    return at.fields["code"] == OK and at.ledger.state == "IN_RECOVERY"


@FAMILY.on(Kind.LAC_ADV)
def lac_behind(at: Occasion) -> bool:
    """A reader was told of a last add confirmed below an entry that was acknowledged already."""
    return bool(at.fields["lac"] < at.ledger.acks)


@FAMILY.on(Kind.LAC_ADV)
def lac_rises(at: Occasion) -> bool:
    """A reader that asked again was told of a higher last add confirmed."""
    return at.actor in at.ledger.lac and at.fields["lac"] > at.ledger.lac[at.actor]


@FAMILY.on(Kind.LAC_ADV)
def entry_awaited(at: Occasion) -> bool:
    """A long poll was answered."""
    return bool(at.fields["source"] == "long-poll")


@FAMILY.on(Kind.OPEN_RESULT)
def opened_closed(at: Occasion) -> bool:
    """A client opened a closed ledger without recovery."""
    return not at.fields["recovery"] and at.fields["state"] == "CLOSED"


@FAMILY.on(Kind.OPEN_RESULT)
def failed_open(at: Occasion) -> bool:
    """Opening a ledger without recovery failed."""
    return not at.fields["recovery"] and at.fields["code"] != OK
