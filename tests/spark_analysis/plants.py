"""Planted violations, each the smallest story that breaks an invariant, and near misses, which are lawful but look alike.

A plant names every invariant that it breaks, so that an accusation too many is noticed as well as one too few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, FENCED, NO_LEDGER, TIMEOUT, Story

__all__ = ["HONEST", "NEAR_MISSES", "PLANTS", "Plant", "honest_life"]

#: The history of :func:`honest_life`.
HONEST: Final = "plants/honest.bkh"

_PLANTS: Final[list[Plant]] = []
_NEAR_MISSES: Final[list[Plant]] = []


@dataclass(frozen=True)
class Plant:
    """One story told to break ``invariant`` (or hardly not to); ``says`` has to be part of the witness."""

    invariant: str
    name: str
    story: Story
    says: str = ""
    also: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        return f"plants/{self.invariant}/{self.name}.bkh"


def _open(sizes: str = "3/3/2", entries: int = 2) -> Story:
    """A ledger just created, with ``entries`` entries acknowledged."""
    story = Story(sizes)
    story.create()
    if entries:
        story.write_all(0, entries - 1)
    return story


def plant(invariant: str, says: str, *also: str, sizes: str = "3/3/2", entries: int = 2) -> Callable[[_Tell], _Tell]:
    """The decorated function tells, of an open ledger, what breaks ``invariant``, and inevitably ``also`` these."""

    def tell(function: _Tell) -> _Tell:
        story = _open(sizes, entries)
        function(story)
        _PLANTS.append(Plant(invariant, function.__name__, story, says, also))
        return function

    return tell


def near_miss(invariant: str, *, sizes: str = "3/3/2", entries: int = 2) -> Callable[[_Tell], _Tell]:
    """The decorated function tells, of an open ledger, what looks like a violation of ``invariant`` and is none."""

    def tell(function: _Tell) -> _Tell:
        story = _open(sizes, entries)
        function(story)
        _NEAR_MISSES.append(Plant(invariant, f"near_{function.__name__}", story))
        return function

    return tell


_Tell = Callable[[Story], object]


def honest_life() -> Story:
    """A ledger with everything in its life that any invariant looks at: replaced bookie, takeover, rewrite, readers."""
    story = _open()
    story.change(2, "b0", "b1", "b3")
    story.write(2)
    story.event(Kind.LAC_ADV, "reader", lac=1)
    story.send(3, *story.write_set(3), lac=2)
    story.store(3, "b1")
    story.mark()
    story.fence("b0", "b1", lac=2)
    story.find(3, "b1")
    story.rewrite(3, "b0", "b3", lac=2)
    story.rule_out(4, "b0", "b1")
    story.close(3, "r0")
    story.opened()
    story.fail(3)
    story.look("reader")
    story.read(3)
    return story


# NoLacTruncation -----------------------------------------------------------------------------------------------------


@plant("NoLacTruncation", "entry 2 was acknowledged (event ", entries=3)
def closed_below_an_acknowledged_entry(story: Story) -> None:
    story.close(1)


@plant("NoLacTruncation", "the ledger is closed after entry 1", "FencedStaysFenced", "AckHasQuorum")
def acknowledged_above_the_end(story: Story) -> None:
    story.close(1)
    story.ack(2)


@near_miss("NoLacTruncation")
def closed_below_an_entry_that_nobody_acknowledged(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2")
    story.answer(2, "b0", "b1", "b2")
    story.close(1)


@near_miss("NoLacTruncation")
def closed_below_an_acknowledgement_that_promised_no_durability(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2", sync=False)
    story.answer(2, "b0", "b1", "b2")
    story.ack(2, durable=False)
    story.close(1)


# AckedReadable -------------------------------------------------------------------------------------------------------


@plant("AckedReadable", "no bookie of the write set of entry", "ClosedAtQuorum")
def closed_on_bookies_that_have_nothing(story: Story) -> None:
    story.close(1, "r0", fragments=[(0, ("b3", "b4", "b5"))])


@plant("AckedReadable", "entry 1 was acknowledged (event ")
def denied_to_a_reader_of_the_closed_ledger(story: Story) -> None:
    story.close(1)
    story.read(1, code=DENIED)


@plant("AckedReadable", "read with content 55")
def delivered_with_another_content(story: Story) -> None:
    story.close(1)
    story.read(1)
    story.read(1, content=55)


@near_miss("AckedReadable")
def denied_to_a_reader_with_old_metadata(story: Story) -> None:
    version = story.version
    story.close(1)
    story.read(1, code=DENIED, version=version)


@near_miss("AckedReadable")
def lost_by_an_ack_quorum_and_denied(story: Story) -> None:
    story.close(1)
    story.lose(1, "b0", "b1")
    story.read(1, "b0", code=DENIED)


@near_miss("AckedReadable")
def denied_above_the_end(story: Story) -> None:
    story.close(1)
    story.read(2, code=DENIED)


@near_miss("AckedReadable")
def lost_everywhere_after_the_ledger_was_deleted(story: Story) -> None:
    story.close(1)
    story.cas("delete", "writer", state="CLOSED")
    for bookie in ("b0", "b1", "b2"):
        story.event(Kind.BK_GC, bookie)


# RecoveriesAgree -----------------------------------------------------------------------------------------------------


@plant("RecoveriesAgree", "but also entry 2, length 30")
def told_another_end_than_the_stored_one(story: Story) -> None:
    story.close(1)
    story.opened("r1", last_entry=2, length=30)


@plant("RecoveriesAgree", "the end is entry 1, length 10 (event ")
def seen_closed_with_another_length(story: Story) -> None:
    story.close(1)
    story.look("r0", length=10)


@plant("RecoveriesAgree", "2 metadata writes closed the ledger")
def closed_twice_at_the_same_end(story: Story) -> None:
    story.close(1)
    story.close(1, "r0")


@plant("RecoveriesAgree", "is closed (event ", "FragmentsWellFormed")
def opened_again(story: Story) -> None:
    story.close(1)
    story.cas("recover", "r0", state="IN_RECOVERY")


@near_miss("RecoveriesAgree")
def a_second_close_was_refused(story: Story) -> None:
    story.close(1)
    story.close(0, "r0", expected=0, outcome="conflict")
    story.opened("r0", last_entry=1, length=20)


@near_miss("RecoveriesAgree")
def a_failed_opening_tells_no_end(story: Story) -> None:
    story.close(1)
    story.opened("r0", code=TIMEOUT, last_entry=-1, length=0)


@near_miss("RecoveriesAgree")
def a_closed_ledger_is_replicated_again(story: Story) -> None:
    story.close(1)
    story.store(0, "b3", source="auditor")
    story.store(1, "b3", source="auditor")
    story.cas("rereplicate", "auditor", fragments=[(0, ("b0", "b1", "b3"))], last_entry=1, length=20)


# LacHonest -----------------------------------------------------------------------------------------------------------


@plant("LacHonest", "entry 2 was called the last add confirmed (event ")
def an_add_claims_itself_confirmed(story: Story) -> None:
    story.write(2, lac=2)


@plant("LacHonest", "some entry up to it never was on 2 bookies")
def a_reader_advances_to_what_one_bookie_has(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.event(Kind.LAC_ADV, "reader", lac=2)


@plant("LacHonest", "entry 3 was called the last add confirmed")
def a_bookie_is_told_more_than_is_confirmed(story: Story) -> None:
    story.event(Kind.BK_LAC, "b0", lac=3)


@plant("LacHonest", "entry 2 was called the last add confirmed")
def a_fragment_starts_too_high(story: Story) -> None:
    story.change(3, "b0", "b1", "b3")


@near_miss("LacHonest")
def confirmed_by_stores_alone_before_any_answer(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b2")
    story.event(Kind.BK_LAC, "b0", lac=2)


@near_miss("LacHonest")
def confirmed_on_replacements_that_recovery_alone_knows(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.mark()
    story.rewrite(2, "b4", "b5", lac=1)
    story.close(2, "r0", fragments=[(0, ("b0", "b1", "b2")), (2, ("b0", "b4", "b5"))])


# FencedStaysFenced ---------------------------------------------------------------------------------------------------


@plant("FencedStaysFenced", "the writer was told that it is out")
def acknowledged_after_the_writer_was_told(story: Story) -> None:
    story.fail(3)
    story.write(2)


@plant("FencedStaysFenced", "bookie b1 was fenced")
def stored_after_a_durable_fence(story: Story) -> None:
    story.fence_set("b1")
    story.crash("b1")
    story.send(2, "b1", lac=1)
    story.store(2, "b1")


@plant("FencedStaysFenced", "the ledger was closed after entry 1", "NoLacTruncation")
def acknowledged_above_the_end_after_the_close(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2")
    story.answer(2, "b0", "b1", "b2")
    story.close(1)
    story.ack(2)


@near_miss("FencedStaysFenced")
def stored_after_a_fence_that_was_not_durable(story: Story) -> None:
    story.fence_set("b1", durable=False)
    story.crash("b1")
    story.write(2)


@near_miss("FencedStaysFenced")
def a_recovery_add_is_stored_in_spite_of_the_fence(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", "b2", lac=0)
    story.rewrite(1, "b0", "b1", "b2")
    story.close(1, "r0")


@near_miss("FencedStaysFenced", entries=1)
def a_slow_writer_learns_after_the_close_what_was_decided(story: Story) -> None:
    story.send(1, "b0", "b1", "b2", lac=0)
    story.store(1, "b0", "b1", "b2")
    story.close(1, "r0")
    story.answer(1, "b0", "b1", "b2")
    story.ack(1)


# FragmentsWellFormed -------------------------------------------------------------------------------------------------


@plant("FragmentsWellFormed", "an ensemble does not have E distinct bookies")
def a_refused_write_names_a_bookie_twice(story: Story) -> None:
    story.change(2, "b0", "b0", "b1", outcome="conflict")


@plant("FragmentsWellFormed", "the first fragment does not start at entry 0", entries=0)
def the_first_fragment_starts_at_one(story: Story) -> None:
    story.cas("ensemble", "writer", fragments=[(1, ("b0", "b1", "b2"))], outcome="conflict")


@plant("FragmentsWellFormed", "first entries do not ascend")
def fragments_descend(story: Story) -> None:
    members = ("b0", "b1", "b2")
    story.cas("recover", "r0", fragments=[(0, members), (2, members), (1, members)], outcome="conflict")


@plant("FragmentsWellFormed", "not E >= Qw >= Qa >= 1", entries=0)
def an_ack_quorum_above_the_write_quorum(story: Story) -> None:
    story.cas("create", "writer", sizes=(3, 2, 3), outcome="conflict")


@plant("FragmentsWellFormed", "the last fragment starts above the end")
def closed_below_the_last_fragment(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.close(0, outcome="conflict")


@plant("FragmentsWellFormed", "a bookie that stays changed its position")
def a_bookie_that_stays_moves(story: Story) -> None:
    story.change(2, "b1", "b0", "b3")


@plant("FragmentsWellFormed", "fragments changed while the ledger is in recovery")
def recovery_stores_its_replacements_before_the_close(story: Story) -> None:
    story.cas("recover", "r0", state="IN_RECOVERY", fragments=[(0, ("b0", "b1", "b3"))])


@plant("FragmentsWellFormed", "the new version does not follow the expected one")
def a_version_is_skipped(story: Story) -> None:
    story.close(1, version=story.version + 2)


@plant("FragmentsWellFormed", "the boundary of an existing fragment moved")
def a_boundary_moves(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.close(1, fragments=[(0, ("b0", "b1", "b2")), (1, ("b0", "b1", "b3"))])


@plant("FragmentsWellFormed", "a fragment other than the last one changed")
def an_earlier_fragment_changes(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.close(1, fragments=[(0, ("b0", "b1", "b4")), (2, ("b0", "b1", "b3"))])


@near_miss("FragmentsWellFormed")
def an_empty_last_fragment(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.close(1)


@near_miss("FragmentsWellFormed")
def a_step_hidden_by_a_write_of_unknown_outcome(story: Story) -> None:
    story.cas("ensemble", "writer", fragments=[(0, ("b0", "b1", "b2")), (2, ("b0", "b1", "b3"))], outcome="unknown")
    story.close(1, expected=1, fragments=[(0, ("b0", "b1", "b2")), (2, ("b0", "b1", "b3"))])


# AcksInOrder ---------------------------------------------------------------------------------------------------------


def _confirm(story: Story, *entries: int) -> None:
    """Everything but the acknowledgement."""
    for entry in entries:
        story.send(entry, "b0", "b1", "b2", lac=-1)
        story.store(entry, "b0", "b1", "b2")
        story.answer(entry, "b0", "b1", "b2")


@plant("AcksInOrder", "entry 3 was acknowledged (event ")
def an_entry_is_passed_over(story: Story) -> None:
    _confirm(story, 2, 3)
    story.ack(3)


@plant("AcksInOrder", "before entry 2")
def two_entries_are_acknowledged_the_wrong_way_round(story: Story) -> None:
    _confirm(story, 2, 3)
    story.ack(3)
    story.ack(2)


@plant("AcksInOrder", "entry 1 was acknowledged 2 times")
def an_entry_is_acknowledged_twice(story: Story) -> None:
    story.ack(1)


@near_miss("AcksInOrder")
def answers_come_in_the_wrong_order(story: Story) -> None:
    _confirm(story, 3, 2)
    story.ack(2)
    story.ack(3)


# AckHasQuorum --------------------------------------------------------------------------------------------------------


@plant("AckHasQuorum", "on the word of 1 bookies of its write set instead of 2: [b0]")
def acknowledged_on_one_answer(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2")
    story.answer(2, "b0")
    story.answer(2, "b1", code=TIMEOUT)
    story.ack(2)
    story.answer(2, "b2")


@plant("AckHasQuorum", "on the word of 1 bookies of its write set instead of 2: [b1]", sizes="3/2/2", entries=0)
def acknowledged_on_the_answer_of_a_bookie_outside_the_write_set(story: Story) -> None:
    story.write(0, "b1", "b2")


@plant("AckHasQuorum", "instead of 2: [b0]", "EnsembleChangeAboveAcks")
def acknowledged_on_bookies_that_are_not_stored_yet(story: Story) -> None:
    story.send(2, "b0", "b3", "b4", lac=1)
    story.store(2, "b0", "b3", "b4")
    story.answer(2, "b0", "b3", "b4")
    story.ack(2)
    story.change(2, "b0", "b3", "b4")


@plant("AckHasQuorum", "instead of 2: [b0]")
def a_bookie_is_counted_twice(story: Story) -> None:
    story.send(2, "b0", "b0", "b1", lac=1)
    story.store(2, "b0", "b0", "b1")
    story.answer(2, "b0", "b0")
    story.ack(2)


@near_miss("AckHasQuorum")
def acknowledged_on_exactly_an_ack_quorum(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b2")
    story.answer(2, "b0", "b2")
    story.ack(2)


@near_miss("AckHasQuorum")
def an_answer_from_before_the_ensemble_change_counts(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.answer(2, "b0")
    story.change(2, "b0", "b3", "b4")
    story.send(2, "b3", "b4", lac=1)
    story.store(2, "b3")
    story.answer(2, "b3")
    story.ack(2)


# ClosedAtQuorum ------------------------------------------------------------------------------------------------------


@plant("ClosedAtQuorum", "entry 2 is on 1 bookies of its write set, not 2", "LacHonest")
def closed_with_an_entry_on_one_bookie(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.close(2, "r0")


@plant("ClosedAtQuorum", "closed after entry 2 (event ", "LacHonest")
def closed_after_an_entry_that_nobody_sent(story: Story) -> None:
    story.close(2, "r0")


@plant("ClosedAtQuorum", "entry 0 is on 1 bookies of its write set, not 2, and bookies lost 0 copies")
def closed_on_bookies_of_which_one_has_the_entry(story: Story) -> None:
    story.close(1, "r0", fragments=[(0, ("b0", "b3", "b4"))])


@near_miss("ClosedAtQuorum")
def a_bookie_lost_a_durable_copy(story: Story) -> None:
    story.close(1)
    story.lose(1, "b0", "b1")


@near_miss("ClosedAtQuorum")
def an_entry_above_the_end_is_on_one_bookie(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.close(1, "r0")


# EnsembleChangeAboveAcks ---------------------------------------------------------------------------------------------


@plant("EnsembleChangeAboveAcks", "entry 1 was acknowledged (event ")
def an_acknowledged_entry_is_handed_to_others(story: Story) -> None:
    story.change(1, "b0", "b1", "b3")


@near_miss("EnsembleChangeAboveAcks")
def the_change_starts_right_above_the_acknowledgements(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.write(2)


@near_miss("EnsembleChangeAboveAcks")
def the_change_was_refused(story: Story) -> None:
    story.change(1, "b0", "b1", "b3", outcome="conflict")


# ReplicasAgree -------------------------------------------------------------------------------------------------------


@plant("ReplicasAgree", "entry 2 was sent or stored with content 66")
def a_bookie_stores_something_else(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1")
    story.store(2, "b2", content=66)


@plant("ReplicasAgree", "with content 9999")
def recovery_writes_something_else_back(story: Story) -> None:
    story.mark()
    story.send(1, "b0", actor="r0", recovery=True, content=9999)


@near_miss("ReplicasAgree")
def recovery_rewrites_with_its_own_header(story: Story) -> None:
    story.mark()
    story.rewrite(1, "b0", "b1", "b2", lac=0)


# RecoveryReads -------------------------------------------------------------------------------------------------------


@plant("RecoveryReads", "recovery by r0 read entry 1")
def recovery_reads_an_earlier_fragment(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.mark()
    story.ask(1, "b0")


@plant("RecoveryReads", "recovery by r0 asked b3 for entry 2")
def recovery_asks_its_own_replacement(story: Story) -> None:
    story.mark()
    story.ask(2, "b0", "b1", "b3")


@plant("RecoveryReads", "recovery by r0 asked b1 for entry 2", sizes="3/2/2")
def recovery_asks_a_bookie_outside_the_write_set(story: Story) -> None:
    story.mark()
    story.ask(2, "b2", "b0")
    story.ask(2, "b1")


@near_miss("RecoveryReads")
def recovery_reads_the_first_entry_of_the_last_fragment(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.mark()
    story.ask(2, "b0", "b1", "b3")


# NegativeCoverage ----------------------------------------------------------------------------------------------------


@plant("NegativeCoverage", "declared entry 2 absent (event ")
def ruled_out_by_one_bookie(story: Story) -> None:
    story.mark()
    story.rule_out(2, "b0")


@plant("NegativeCoverage", "on the word of 1 bookies instead of 2: [b0]")
def a_timeout_taken_for_a_denial(story: Story) -> None:
    story.mark()
    story.ask(2)
    story.told(2, "b0", code=DENIED)
    story.told(2, "b1", code=TIMEOUT)
    story.decide(2, "negative", "b0", "b1")
    story.told(2, "b2", code=DENIED)


@plant("NegativeCoverage", "instead of 2: [b2]", "RecoveryReads", sizes="4/3/2")
def a_bookie_outside_the_write_set_is_believed(story: Story) -> None:
    story.mark()
    story.ask(2, "b1", "b2")
    story.told(2, "b1", "b2", code=DENIED)
    story.decide(2, "negative", "b1", "b2")


@near_miss("NegativeCoverage")
def ruled_out_by_just_enough_bookies(story: Story) -> None:
    story.mark()
    story.ask(2)
    story.told(2, "b0", code=DENIED)
    story.told(2, "b1", code=TIMEOUT)
    story.told(2, "b2", code=NO_LEDGER)
    story.decide(2, "negative", "b0", "b2")


@near_miss("NegativeCoverage")
def found_on_the_only_bookie_that_has_it(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.fail(2, FENCED)
    story.mark()
    story.told(2, "b1", code=DENIED)
    story.find(2, "b0")


PLANTS: Final = tuple(_PLANTS)
NEAR_MISSES: Final = tuple(_NEAR_MISSES)
