"""Defects of creating ledgers: whose ledger it is that a writer gets."""

from __future__ import annotations

from typing import Final

from bkclient._client import create
from bkclient._client.core import ClientCore
from bkclient._client.create import CreatedLedger
from bkclient.ledger import LedgerMetadata, LedgerState
from scenarios.mutants.base import Function, Mutant, Replacement

__all__ = ["CREATING_MUTANTS"]


def _going_on_with_an_open_one(register: Function) -> Function:
    """In place of a new ledger there is the one with the id before, as long as nobody has marked or closed it."""

    async def mutated(core: ClientCore, metadata: LedgerMetadata) -> CreatedLedger:
        if metadata.ledger_id > 0:
            before = await core.metadata.read_ledger(metadata.ledger_id - 1)
            if before.metadata.state is LedgerState.OPEN:
                return CreatedLedger(before, max(core.transport.connections.values(), default=0))
        made: CreatedLedger = await register(core, metadata)
        return made

    return mutated


CREATING_MUTANTS: Final = (
    Mutant(
        name="writer-goes-on-with-an-open-ledger",
        summary="a client that creates a ledger writes to an open one of another client, from its first entry on",
        clauses=("A8", "D9", "D14", "E8", "G1"),
        in_runs=True,
        past="M33",
        replaces=(Replacement(create, "_register", _going_on_with_an_open_one),),
    ),
)
