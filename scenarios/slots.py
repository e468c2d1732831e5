"""What a scenario waits for: a ledger that a client will create, a call that is held back."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import anyio

from bkclient import AdvancedLedgerWriter, BookKeeper, LedgerWriter
from scenarios.conditions import Conditions
from simbookie.world.faults import Interception
from simbookie.world.metadata_service import MetadataAction

__all__ = ["PATIENCE_S", "HeldCall", "LedgerSlot"]

#: The longest wait of a scenario for an event that may not occur.
PATIENCE_S: Final = 20.0


class LedgerSlot:
    """The ledger of a scenario, before and after its creation."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._created = asyncio.Event()
        #: The ledger id, -1 before the creation.
        self.created_id = -1

    async def create(self, client: BookKeeper) -> LedgerWriter:
        """Create the ledger, with the sizes from the run's conditions."""
        writer = await client.create_ledger(**self._options())
        self._note(writer.ledger_id)
        return writer

    async def create_advanced(self, client: BookKeeper) -> AdvancedLedgerWriter:
        """Create the ledger with entry ids from the application."""
        writer = await client.create_advanced_ledger(**self._options())
        self._note(writer.ledger_id)
        return writer

    def _options(self) -> dict[str, Any]:
        conditions = self._conditions
        return {
            "ensemble_size": conditions.ensemble_size,
            "write_quorum_size": conditions.write_quorum_size,
            "ack_quorum_size": conditions.ack_quorum_size,
            "digest_type": conditions.digest_type,
        }

    def _note(self, ledger_id: int) -> None:
        self.created_id = ledger_id
        self._created.set()

    async def id(self) -> int:
        """Wait until the ledger is created, and return its id."""
        await self._created.wait()
        return self.created_id

    @property
    def is_created(self) -> bool:
        """Whether a client has created the ledger and got the answer."""
        return self._created.is_set()


class HeldCall:
    """A call to the metadata service that is held back when it is made."""

    def __init__(self, interception: Interception[MetadataAction], is_there: asyncio.Event) -> None:
        self._is_there = is_there
        #: Release the call.
        self.release = interception.release

    async def made(self) -> None:
        """Wait until the call is made and held back, at most 20 simulated seconds."""
        with anyio.move_on_after(PATIENCE_S):
            await self._is_there.wait()
