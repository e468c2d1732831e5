"""Defects of bookies: what they promise to keep, and do not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import simbookie.bookie
from bkclient.wire.messages import AddRequest, Status
from scenarios.mutants.base import Function, Mutant, Replacement, always
from simbookie.garbage import GarbageCollector
from simbookie.ledgers import FencedGraveyard, LedgerHandle, LedgerTable
from simbookie.reads import ReadDesk
from simbookie.storage.indexes.ledger_cache import LedgerCache
from simbookie.storage.interleaved import InterleavedLedgerStore
from simbookie.storage.journal.journal import Journal

__all__ = ["BOOKIE_MUTANTS"]

Collect = Callable[..., Awaitable[list[int]]]


def _forgets_when_evicted(add_handle: Function) -> Function:
    """The header that has to go for another one is not written first."""

    def mutated(self: Any, ledger_id: int, handle: Any) -> None:
        if len(self._handles) >= self.config.open_files_max:
            oldest = next(iter(self._handles.values()))
            oldest.is_dirty = False
        add_handle(self, ledger_id, handle)

    return mutated


def _acknowledges_at_once(append: Function) -> Function:
    """A record counts as durable as soon as the journal has it in memory."""

    def mutated(self: Any, *args: Any) -> None:
        ledger_id, entry_id, body, on_durable, token, *rest = args
        append(self, ledger_id, entry_id, body, None, None, *rest)
        if on_durable is not None:
            asyncio.get_running_loop().call_soon(on_durable, token, None)

    return mutated


def _believes_listings(_collect: Collect) -> Collect:
    """What a listing leaves out was deleted; nothing is looked up once more."""

    async def mutated(self: Any) -> list[int]:
        stored = self._bookie.ledger_ids()
        known = {ledger_id async for ledger_id in self._metadata.list_ledgers()}
        return [ledger_id for ledger_id in stored if ledger_id not in known and self._removes(ledger_id)]

    return mutated


def _looks_once(is_overreplicated: Callable[..., Awaitable[bool]]) -> Callable[..., Awaitable[bool]]:
    """Whether a copy is needed is looked up before the ledger is locked, and not again."""
    found: dict[tuple[Any, int], bool] = {}

    async def mutated(self: Any, ledger_id: int) -> bool:
        if (self, ledger_id) not in found:
            found[self, ledger_id] = await is_overreplicated(self, ledger_id)
        return found[self, ledger_id]

    return mutated


def _moved_too_early(move_entries: Function) -> Function:
    """The index leads to copies that nothing has made durable."""

    def mutated(self: Any, *args: Any, **options: Any) -> None:
        move_entries(self, *args, **(options | {"are_durable": True}))

    return mutated


def _fencing_known_ledgers(locate: Function) -> Function:
    def mutated(self: ReadDesk, request: Any, source: str) -> LedgerHandle | Status:
        if request.fence_key and self._table.find(request.ledger_id) is None:
            return Status.NO_LEDGER
        found: LedgerHandle | Status = locate(self, request, source)
        return found

    return mutated


def _fenced_for_everybody(add_refusal: Function) -> Function:
    def mutated(request: AddRequest, handle: LedgerHandle, entry_id: int) -> Status:
        return Status.FENCED if handle.fenced else add_refusal(request, handle, entry_id)

    return mutated


def _durable_at_once(_when_fence_is_durable: Function) -> Function:
    return lambda _self, _handle, callback, token: callback(token, None)


def _taking_any_add(add_refusal: Function) -> Function:
    """Adds below an entry that is there are taken although the ledger is fenced."""

    def mutated(request: AddRequest, handle: LedgerHandle, entry_id: int) -> Status:
        status: Status = add_refusal(request, handle, entry_id)
        return Status.OK if status is Status.FENCED and entry_id <= handle.lac + 1 else status

    return mutated


BOOKIE_MUTANTS: Final = (
    Mutant(
        name="bookie-fences-known-ledgers-only",
        summary="a bookie that has nothing of a ledger drops the fence",
        clauses=("A1", "D3", "E5"),
        in_runs=True,
        past="M48",
        replaces=(Replacement(ReadDesk, "_locate", _fencing_known_ledgers),),
    ),
    Mutant(
        name="bookie-refuses-recovery-adds",
        summary="a fenced bookie refuses the adds of a recovery too, which never ends",
        clauses=("D13", "L1"),
        in_runs=True,
        past="M49",
        replaces=(Replacement(simbookie.bookie, "add_refusal", _fenced_for_everybody),),
    ),
    Mutant(
        name="bookie-forgets-what-was-deleted",
        summary="a late add makes a ledger anew that was fenced and deleted",
        clauses=("A1", "D1", "E5"),
        in_runs=True,
        past="M51",
        replaces=(Replacement(FencedGraveyard, "holds", always(lambda *_: False)),),
    ),
    Mutant(
        name="fence-is-answered-before-it-is-durable",
        summary="a bookie answers a fencing read before the fence is on disk",
        clauses=("D2",),
        in_runs=True,
        replaces=(Replacement(LedgerTable, "when_fence_is_durable", _durable_at_once),),
    ),
    Mutant(
        name="fenced-bookie-fills-gaps",
        summary="a fenced bookie takes the entry after the LAC that it knows",
        clauses=("A1", "D1", "E5"),
        in_runs=True,
        replaces=(Replacement(simbookie.bookie, "add_refusal", _taking_any_add),),
    ),
    Mutant(
        name="bookie-forgets-fence-when-evicted",
        summary="a bookie that needs room for another ledger's header drops one with a fence that is not written",
        clauses=("D1", "E5"),
        in_runs=True,
        past="M44",
        replaces=(Replacement(LedgerCache, "_add_handle", _forgets_when_evicted),),
    ),
    Mutant(
        name="journal-acknowledges-before-sync",
        summary="a bookie acknowledges an entry that its journal has in memory only",
        clauses=("A1",),
        in_runs=True,
        past="M43",
        replaces=(Replacement(Journal, "append", _acknowledges_at_once),),
    ),
    Mutant(
        name="bookie-believes-listings",
        summary="a bookie drops a ledger that a listing has left out",
        clauses=("A4", "A5", "A9", "B4", "D12", "L1"),
        in_runs=True,
        past="M52",
        replaces=(Replacement(GarbageCollector, "collect", _believes_listings),),
    ),
    Mutant(
        name="bookie-drops-what-it-got-again",
        summary="a bookie drops a surplus copy that a repair has made its own again since it looked",
        clauses=("A5", "B4", "D12"),
        in_runs=True,
        past="M53",
        replaces=(Replacement(GarbageCollector, "_is_overreplicated", _looks_once),),
    ),
    Mutant(
        name="compaction-moves-before-it-flushes",
        summary="a compaction sets the locations of copies that are not durable",
        clauses=("L1",),
        in_runs=True,
        past="M54",
        replaces=(Replacement(InterleavedLedgerStore, "move_entries", _moved_too_early),),
    ),
)
