"""The metadata store of a client process: the shipped driver, with the ways to bookies that the run gives."""

from __future__ import annotations

from collections.abc import Mapping

from bkclient.ledger import BookieId, LedgerMetadata, Versioned
from bkclient.metadata.base import BookieAddress, MetadataStore
from scenarios.recording.recorders import Recorder
from scenarios.recording.store import LearnedStore

__all__ = ["ProcessStore"]


class ProcessStore(LearnedStore):
    """Reaches each bookie by the port in ``routes``, where a link of the run listens for this client.

    What the store does is recorded where it is done, at the service; here only what the client does not learn.
    """

    def __init__(self, inner: MetadataStore, recorder: Recorder, actor: str, routes: Mapping[str, int]) -> None:
        super().__init__(inner, recorder, actor)
        self._routes = routes

    async def bookie_address(self, bookie_id: BookieId) -> BookieAddress:
        """The link to the bookie. Raises what the store does if the bookie is not registered."""
        address = await self._inner.bookie_address(bookie_id)
        port = self._routes.get(bookie_id)
        return address if port is None else BookieAddress("127.0.0.1", port)

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned:
        """Forwarded; the recorder learns how to read the ledger's entries."""
        created = self._learned(await self._inner.create_ledger(metadata))
        self._recorder.causes.created(self._actor, created)
        return created

    async def read_ledger(self, ledger_id: int) -> Versioned:
        """The same; and what later writes build on."""
        return self._learned(await self._inner.read_ledger(ledger_id))

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        """The same."""
        return self._learned(await super().write_ledger(metadata, expected_version))

    def _learned(self, value: Versioned) -> Versioned:
        self._recorder.learn(value.metadata)
        self._recorder.causes.learn(value)
        return value
