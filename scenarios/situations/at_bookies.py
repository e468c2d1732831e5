"""Situations at bookies: what they store, lose and forget."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from scenarios.situations.base import Occasion, SituationFamily

__all__ = ["FAMILY"]

FAMILY: Final = SituationFamily()

# Storing -----------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.BK_STORE, recovery=False)
def late_store(at: Occasion) -> bool:
    """A bookie stored an entry of the writer above the end of the closed ledger."""
    return at.ledger.end is not None and at.entry > at.ledger.end


@FAMILY.on(Kind.BK_STORE, recovery=False)
def overtaken_add(at: Occasion) -> bool:
    """A bookie stored an entry of the writer after a later one."""
    is_new = at.actor not in at.ledger.stored.get(at.entry, ())
    return is_new and at.entry < at.ledger.top.get(at.actor, -1)


@FAMILY.on(Kind.BK_STORE, recovery=False)
def stored_twice(at: Occasion) -> bool:
    """A bookie stored an entry of the writer that it had."""
    return at.actor in at.ledger.stored.get(at.entry, ())


@FAMILY.on(Kind.BK_STORE, recovery=False)
def stored_by_former_member(at: Occasion) -> bool:
    """A bookie stored an entry of the writer when it was no member of the last ensemble any more."""
    fragments = at.ledger.fragments
    return bool(fragments) and at.actor not in fragments[-1][1]


@FAMILY.on(Kind.BK_STORE, recovery=False)
def stored_for_dead_writer(at: Occasion) -> bool:
    """A bookie stored an entry while the ledger was recovered."""
    return bool(at.ledger.recovering)


# Dying -------------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.BK_CRASH)
def bookie_lost_in_recovery(at: Occasion) -> bool:
    """A bookie crashed while a client recovered a ledger."""
    return any(ledger.recovering for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.BK_CRASH)
def bookie_lost_in_append(at: Occasion) -> bool:
    """A bookie crashed with appends in flight."""
    return any(ledger.adds for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.BK_CRASH)
def another_bookie_lost(at: Occasion) -> bool:
    """A bookie crashed while another one was down."""
    return bool(at.run.down - {at.actor})


@FAMILY.on(Kind.BK_CRASH)
def bookie_lost_again(at: Occasion) -> bool:
    """A bookie crashed that had been restarted."""
    return at.run.restarts[at.actor] > 0


@FAMILY.on(Kind.BK_CRASH)
def crash_before_sync(at: Occasion) -> bool:
    """A bookie crashed with entries that it had not synced."""
    return any(
        at.actor in bookies and (at.actor, entry) not in ledger.synced
        for ledger in at.run.ledgers.values()
        for entry, bookies in ledger.stored.items()
    )


@FAMILY.on(Kind.BK_CRASH)
def crash_before_fence_is_durable(at: Occasion) -> bool:
    """A bookie crashed with a fence that was not durable yet."""
    return any(not ledger.fenced.get(at.actor, (True, 0))[0] for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.BK_RESTART)
def bookie_back_before_close(at: Occasion) -> bool:
    """A bookie was restarted that has entries of a ledger that is not closed."""
    return any(ledger.end is None and at.actor in ledger.top for ledger in at.run.ledgers.values())


# Losing ------------------------------------------------------------------------------------------------------------


@FAMILY.on(Kind.BK_LOSS)
def unsynced_copy_lost(at: Occasion) -> bool:
    """A bookie lost a copy that it had not synced."""
    return (at.actor, at.entry) not in at.ledger.synced


@FAMILY.on(Kind.BK_LOSS)
def synced_copy_lost(at: Occasion) -> bool:
    """A bookie lost a copy that it had synced, or the copy was altered."""
    return (at.actor, at.entry) in at.ledger.synced


@FAMILY.on(Kind.BK_LOSS)
def acknowledged_copy_lost(at: Occasion) -> bool:
    """A bookie lost its copy of an entry that was acknowledged."""
    return at.entry in at.ledger.acked


@FAMILY.on(Kind.FENCE_LOST)
def forgotten_fence(_: Occasion) -> bool:
    """A bookie that was killed forgot a fence."""
    return True


@FAMILY.on(Kind.BK_LIMBO, verdict="on")
def limbo(at: Occasion) -> bool:
    """A bookie stopped vouching for what it does not have of a ledger that is not closed."""
    return at.ledger.end is None


@FAMILY.on(Kind.BK_GC)
def garbage_collected(_: Occasion) -> bool:
    """A bookie dropped everything of a ledger."""
    return True


@FAMILY.on(Kind.BK_GC)
def collected_in_recovery(at: Occasion) -> bool:
    """A bookie dropped everything of a ledger while a client recovered it."""
    return bool(at.ledger.recovering)
