"""One audit: which bookies count as gone."""

from __future__ import annotations

from random import Random

import pytest

from bkclient import Fragment, LedgerMetadata
from bkclient.metadata.base import BookieSets
from bkclient.metadata.memory import MemoryMetadataService, MemoryMetadataStore
from bkclient.metadata.tree import tree_of
from bkclient.repair.audit import AuditReport, audit_bookies
from bkclient.repair.underreplication.marks import UnderReplication

pytestmark = pytest.mark.rule("AR-17")


class Registry(MemoryMetadataStore):
    """A store that answers each question for the registered bookies with the next of ``answers``."""

    answers: list[BookieSets]

    async def bookies(self) -> BookieSets:
        return self.answers.pop(0)


async def audited(*answers: BookieSets, enabled: bool = True) -> tuple[AuditReport, list[tuple[int, tuple[str, ...]]]]:
    """An audit of two ledgers, on abc and on abd, while the registered bookies are these, first and again later."""
    store = Registry(MemoryMetadataService(), rng=Random(1))
    store.answers = list(answers)
    for ledger_id, last in enumerate("cd"):
        await store.create_ledger(LedgerMetadata(ledger_id, 3, 2, 2, (Fragment(0, ("a", "b", last)),)))
    marks = UnderReplication(tree_of(store), name="auditor", wall_clock_ms=lambda: 1, rng=Random(1))
    await marks.open()
    if not enabled:
        await marks.disable()
    told: list[tuple[int, tuple[str, ...]]] = []
    report = await audit_bookies(store, marks, lambda ledger_id, missing: told.append((ledger_id, missing)))
    assert [(mark.ledger_id, mark.missing) async for mark in marks.marks()] == told
    return report, told


async def test_whoever_is_registered_as_writable_or_read_only_is_there() -> None:
    report, told = await audited(BookieSets(("a", "b"), ("c", "d")))
    assert (report.ledgers, report.marked, told) == (2, [], [])


async def test_ledgers_are_marked_for_exactly_those_of_their_bookies_that_are_gone() -> None:
    gone = BookieSets(("b", "c"))
    report, told = await audited(gone, gone)
    assert told == [(0, ("a",)), (1, ("a", "d"))]
    assert report.missing == {"a": [0, 1], "d": [1]}


async def test_a_bookie_that_comes_while_the_ledgers_are_read_is_not_gone() -> None:
    report, told = await audited(BookieSets(("b", "c")), BookieSets(("b", "c", "d"), ("a",)))
    assert (report.marked, report.missing, told) == ([], {}, [])


async def test_an_audit_that_finds_auto_recovery_switched_off_marks_nothing_and_says_so() -> None:
    gone = BookieSets(("b", "c"))
    report, told = await audited(gone, gone, enabled=False)
    assert (report.is_complete, told) == (False, [])
