"""Planted defects of compaction by key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from bkclient.log import compaction
from bkclient.log.format.message import LogMessage
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.compacting import BeginCompaction
from bkclient.log.machine.manifest import CompactedLedger, LogLedger, LogManifest
from scenarios.mutants.base import Function, Mutant, Replacement

__all__ = ["LOG_COMPACTION_MUTANTS"]

Messages = AsyncIterator[LogMessage]
Kept = dict[str, MessageId]


def _oldest(_newest: Function) -> Function:
    """Of each key the message that was seen first is kept."""

    async def mutated(messages: Messages, _max_keys: int) -> Kept:
        kept: Kept = {}
        async for message in messages:
            if message.key is not None and message.payload:
                kept.setdefault(message.key, message.id)
            elif message.key is not None:
                kept.pop(message.key, None)
        return kept

    return mutated


def _one_left_out(newest: Function) -> Function:
    """The last key is forgotten."""

    async def mutated(messages: Messages, max_keys: int) -> Kept:
        kept: Kept = await newest(messages, max_keys)
        if kept:
            del kept[max(kept, key=lambda key: kept[key])]
        return kept

    return mutated


def _deletions_passed_over(newest: Function) -> Function:
    """Empty messages are no news."""

    async def mutated(messages: Messages, max_keys: int) -> Kept:
        kept: Kept = await newest((message async for message in messages if message.payload), max_keys)
        return kept

    return mutated


def _pointed_to_at_once(applied: Function) -> Function:
    """The announcement of a compaction counts as its end."""

    def mutated(self: BeginCompaction, manifest: LogManifest) -> LogManifest:
        ends = [ledger.end for ledger in manifest.ledgers if ledger.end is not None]
        announced: LogManifest = applied(self, manifest)
        if not ends:
            return announced
        made = CompactedLedger(self.ledger_id, ends[-1].ledger_id, ends[-1].last_entry_id, 0)
        return replace(announced, compacted=made)

    return mutated


def _old_one_dropped(applied: Function) -> Function:
    """What the log was compacted to is deleted before there is something else."""

    def mutated(self: BeginCompaction, manifest: LogManifest) -> LogManifest:
        announced: LogManifest = applied(self, manifest)
        old = () if manifest.compacted is None else (manifest.compacted.ledger_id,)
        return replace(announced, dropped=(*announced.dropped, *old))

    return mutated


def _whatever_there_is(applied: Function) -> Function:
    """It is not asked whether the log was compacted meanwhile."""

    def mutated(self: BeginCompaction, manifest: LogManifest) -> LogManifest:
        announced: LogManifest = applied(replace(self, basis=manifest.compacted), manifest)
        return announced

    return mutated


def _when_ended(_may_be_trimmed: Function) -> Function:
    def mutated(_self: LogManifest, ledger: LogLedger) -> bool:
        return ledger.end is not None

    return mutated


LOG_COMPACTION_MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="log-compaction-keeps-the-oldest",
        summary="a compaction keeps the oldest message of each key instead of the newest",
        clauses=("H15", "H16"),
        in_runs=True,
        replaces=(Replacement(compaction, "_newest", _oldest),),
    ),
    Mutant(
        name="log-compaction-drops-a-key",
        summary="a compaction leaves out the key that changed last",
        clauses=("H15",),
        in_runs=True,
        replaces=(Replacement(compaction, "_newest", _one_left_out),),
    ),
    Mutant(
        name="log-compaction-forgets-deletions",
        summary="a compaction passes over empty messages, and keeps what they delete",
        clauses=("H16",),
        in_runs=True,
        replaces=(Replacement(compaction, "_newest", _deletions_passed_over),),
    ),
    Mutant(
        name="log-compaction-points-to-an-open-ledger",
        summary="the log points to a compacted ledger when it is announced, and not when it is whole",
        clauses=("H15", "H17"),
        in_runs=True,
        replaces=(Replacement(BeginCompaction, "applied", _pointed_to_at_once),),
    ),
    Mutant(
        name="log-compaction-deletes-first",
        summary="what the log was compacted to is deleted before the next compaction is concluded",
        clauses=("H17",),
        in_runs=True,
        replaces=(Replacement(BeginCompaction, "applied", _old_one_dropped),),
    ),
    Mutant(
        name="log-compaction-ignores-another",
        summary="a compaction does not ask whether the log was compacted since it began to read",
        clauses=("H15", "H16", "H18"),
        in_runs=True,
        replaces=(Replacement(BeginCompaction, "applied", _whatever_there_is),),
    ),
    Mutant(
        name="log-trim-ignores-compaction",
        summary="a trim takes ledgers that the last compaction does not cover",
        clauses=("H15", "H18"),
        in_runs=True,
        replaces=(Replacement(LogManifest, "may_be_trimmed", _when_ended),),
    ),
)
