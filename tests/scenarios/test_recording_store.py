"""Metadata is recorded at the moment it changes, and an outcome that stays unknown where it is learned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bkclient import LedgerMetadata
from bkclient.errors import BookKeeperError, MetadataOutcomeUnknown, MetadataVersionConflict
from bkclient.ledger import Fragment, LedgerState, Versioned
from bkclient.metadata.base import BookieAddress, BookieSets
from bkclient.metadata.memory import MemoryMetadataService, MemoryMetadataStore
from scenarios.recording.recorders import metadata_fields
from scenarios.recording.store import AppliedStore, LearnedStore
from tests.scenarios.notes import LEDGER, METADATA, Notes


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
async def store() -> AsyncIterator[MemoryMetadataStore]:
    session = MemoryMetadataService().session(rng=Random(1))
    yield session
    await session.aclose()


class Lost(LearnedStore):
    """Loses the answers to all writes."""

    def __init__(self, inner: MemoryMetadataStore) -> None:
        super().__init__(inner, Notes().recorder, "")

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        raise MetadataOutcomeUnknown


def cas(cause: str, outcome: str, expected: int, metadata: LedgerMetadata, version: int = -1) -> dict[str, Any]:
    fields = metadata_fields(metadata, version)
    return {"cause": cause, "outcome": outcome, "expected_version": expected, **fields}


async def test_what_the_service_applies_is_recorded_when_it_does(notes: Notes, store: MemoryMetadataStore) -> None:
    applied = AppliedStore(store, notes.recorder, "writer")
    created = await applied.create_ledger(METADATA)
    assert notes.told() == [("META_CAS", "writer", LEDGER, cas("create", "ok", -1, METADATA, 0))]
    changed = created.metadata.with_ensemble(4, ("b0", "b1", "b3"))
    await applied.write_ledger(changed, 0)
    assert notes.told() == [("META_CAS", "writer", LEDGER, cas("ensemble", "ok", 0, changed, 1))]
    with pytest.raises(MetadataVersionConflict):
        await applied.write_ledger(changed, 0)
    assert notes.told() == [("META_CAS", "writer", LEDGER, cas("ensemble", "conflict", 0, changed))]
    recovering = changed.with_state(LedgerState.IN_RECOVERY)
    await applied.write_ledger(recovering, 1)
    assert notes.told() == [("META_CAS", "writer", LEDGER, cas("recover", "ok", 1, recovering, 2))]
    closed = recovering.closed(9, 99)
    assert await applied.write_ledger(closed, 2) == Versioned(closed, 3)
    assert notes.told() == [("META_CAS", "writer", LEDGER, cas("close", "ok", 2, closed, 3))]
    assert await applied.read_ledger(LEDGER) == Versioned(closed, 3)
    read = {"outcome": "ok", **metadata_fields(closed, 3)}
    assert notes.told() == [("META_READ", "writer", LEDGER, read)]
    await applied.delete_ledger(LEDGER)
    assert notes.told() == [("META_CAS", "writer", LEDGER, cas("delete", "ok", -1, closed, 3))]
    with pytest.raises(BookKeeperError):
        await applied.write_ledger(closed, 3)
    assert notes.told() == [("META_CAS", "writer", LEDGER, cas("close", "error", 3, closed))]
    with pytest.raises(BookKeeperError):
        await applied.read_ledger(LEDGER)
    assert notes.told() == []


def test_metadata_is_recorded_field_by_field() -> None:
    metadata = METADATA.with_ensemble(4, ("b0", "b1", "b3")).closed(9, 99)
    assert metadata_fields(metadata, 3) == {
        "version": 3,
        "state": "CLOSED",
        "fragments": [[0, ["b0", "b1", "b2"]], [4, ["b0", "b1", "b3"]]],
        "last_entry": 9,
        "length": 99,
        "ensemble_size": 3,
        "write_quorum_size": 2,
        "ack_quorum_size": 2,
    }


async def test_a_writer_that_is_no_client_gives_its_own_cause(notes: Notes, store: MemoryMetadataStore) -> None:
    created = await store.create_ledger(METADATA)
    await AppliedStore(store, notes.recorder, "intruder", cause="rereplicate").write_ledger(created.metadata, 0)
    assert notes.told() == [("META_CAS", "intruder", LEDGER, cas("rereplicate", "ok", 0, METADATA, 1))]


async def test_who_replaces_bookies_of_what_was_closed_repairs_it(notes: Notes, store: MemoryMetadataStore) -> None:
    """And who writes another end, or builds on a version that nobody knows of, closes it."""
    created = await store.create_ledger(METADATA)
    closed = created.metadata.with_ensemble(4, ("b0", "b1", "b3")).closed(9, 99)
    await store.write_ledger(closed, 0)
    applied = AppliedStore(store, notes.recorder, "operator")
    repaired = METADATA.with_ensemble(4, ("b0", "b4", "b3")).closed(9, 99)
    truncated = METADATA.with_ensemble(4, ("b0", "b4", "b3")).closed(8, 90)
    await applied.write_ledger(repaired, 1)
    await applied.read_ledger(LEDGER)
    applied = AppliedStore(store, notes.recorder, "operator")  # its next session
    await applied.write_ledger(closed, 2)
    await applied.write_ledger(truncated, 3)
    causes = [fields["cause"] for kind, _, _, fields in notes.told() if kind == "META_CAS"]
    assert causes == ["close", "rereplicate", "close"]


OLDER_REPAIRED = (Fragment(0, ("b0", "b4", "b2")), Fragment(4, ("b0", "b1", "b3")))


@pytest.mark.parametrize("state", LedgerState)
@pytest.mark.parametrize("actor", ["writer", "operator"])
async def test_who_replaces_bookies_of_an_older_fragment_repairs_it(
    notes: Notes, store: MemoryMetadataStore, state: LedgerState, actor: str
) -> None:
    """In every state, also the writer itself, and whether the write is refused, or its outcome unknown."""
    created = await AppliedStore(store, notes.recorder, "writer").create_ledger(METADATA)
    found = replace(created.metadata.with_ensemble(4, ("b0", "b1", "b3")), state=state)
    if state is LedgerState.CLOSED:
        found = found.closed(9, 99)
    await AppliedStore(store, notes.recorder, "writer").write_ledger(found, 0)
    applied = AppliedStore(store, notes.recorder, actor)
    await applied.read_ledger(LEDGER)
    repaired = replace(found, fragments=OLDER_REPAIRED)
    notes.told()
    await applied.write_ledger(repaired, 1)
    with pytest.raises(MetadataVersionConflict):
        await applied.write_ledger(repaired, 1)
    with pytest.raises(MetadataOutcomeUnknown):
        await LearnedStore(Lost(store), notes.recorder, actor).write_ledger(repaired, 1)
    assert [(fields["cause"], fields["outcome"]) for _, _, _, fields in notes.told()] == [
        ("rereplicate", "ok"),
        ("rereplicate", "conflict"),
        ("rereplicate", "unknown"),
    ]


@pytest.mark.parametrize(("state", "cause"), [(LedgerState.OPEN, "ensemble"), (LedgerState.IN_RECOVERY, "recover")])
async def test_who_replaces_bookies_of_the_last_fragment_before_the_end_does_not_repair(
    notes: Notes, store: MemoryMetadataStore, state: LedgerState, cause: str
) -> None:
    """So a recovery that stores its changes before it closes is recorded as what it is."""
    applied = AppliedStore(store, notes.recorder, "writer")
    created = await applied.create_ledger(METADATA)
    found = created.metadata.with_state(state)
    await applied.write_ledger(found, 0)
    for version, changed in enumerate((found.with_ensemble(0, ("b0", "b4", "b2")), found), start=1):
        await applied.write_ledger(changed, version)
    causes = [fields["cause"] for kind, _, _, fields in notes.told() if kind == "META_CAS"]
    assert causes == ["create", cause, cause, cause]


async def test_an_outcome_that_stays_unknown_is_recorded_where_it_is_learned(
    notes: Notes, store: MemoryMetadataStore
) -> None:
    learned = LearnedStore(store, notes.recorder, "writer")
    created = await learned.create_ledger(METADATA)
    closed = created.metadata.closed(1, 2)
    await learned.write_ledger(created.metadata, 0)
    with pytest.raises(MetadataVersionConflict):
        await learned.write_ledger(created.metadata, 0)
    assert notes.told() == []
    with pytest.raises(MetadataOutcomeUnknown):
        await LearnedStore(Lost(store), notes.recorder, "writer").write_ledger(closed, 1)
    assert notes.told() == [("META_CAS", "writer", LEDGER, cas("close", "unknown", 1, closed))]


@pytest.mark.parametrize("wrapper", [AppliedStore, LearnedStore])
async def test_a_recorded_store_forwards_everything(
    notes: Notes, store: MemoryMetadataStore, wrapper: Callable[..., Any]
) -> None:
    wrapped = wrapper(store, notes.recorder, "bookie-0")
    ledgers: list[Versioned | None] = []
    bookies: list[BookieSets] = []
    await wrapped.register_bookie("b0", BookieAddress("host", 1), read_only=True)
    assert await wrapped.bookies() == BookieSets(read_only=("b0",))
    assert await wrapped.bookie_address("b0") == BookieAddress("host", 1)
    cancel = wrapped.watch_bookies(bookies.append)
    await wrapped.unregister_bookie("b0")
    assert await wrapped.generate_ledger_id() == 0
    stop = wrapped.watch_ledger(LEDGER, ledgers.append)
    created = await wrapped.create_ledger(METADATA)
    assert [ledger_id async for ledger_id in wrapped.list_ledgers()] == [LEDGER]
    assert await wrapped.read_ledger(LEDGER) == created
    await wrapped.delete_ledger(LEDGER)
    for _ in range(5):
        await asyncio.sleep(0)
    assert bookies[-1] == BookieSets()
    assert ledgers[-1] is None
    cancel()
    stop()
    await wrapped.aclose()
    with pytest.raises(BookKeeperError):
        await store.bookies()
