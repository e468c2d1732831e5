"""What a writer reads of its own ledger: it knows best how far that is confirmed, so no bookie is asked."""

from __future__ import annotations

from collections.abc import Sequence

from bkclient._client.core import ClientCore
from bkclient._client.reading.reads import LedgerReads
from bkclient._client.writing.shell import WriterShell
from bkclient.entry import Entry
from bkclient.ledger import BookieId, LedgerMetadata
from bkclient.protocol.append import AppendMachine

__all__ = ["OwnReads"]


class _Known:
    """What a writer knows of its ledger, as reads want to see it. Reads have nothing to teach a writer."""

    def __init__(self, machine: AppendMachine) -> None:
        self._machine = machine

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as known now."""
        return self._machine.metadata

    @property
    def last_add_confirmed(self) -> int:
        """How far confirmed reads may go: not beyond the end of a closed ledger."""
        return self._machine.known_end

    @property
    def told_by(self) -> BookieId | None:
        """No bookie had to tell."""
        return None

    def on_entries_read(
        self, entries: Sequence[Entry], told: Sequence[int | None] = (), told_by: BookieId | None = None
    ) -> None:
        """Nothing new."""

    def on_last_add_confirmed(self, last_add_confirmed: int, told_by: BookieId | None = None) -> None:
        """Nothing new."""


class OwnReads(LedgerReads):
    """Reads of a writer's ledger, up to its last add confirmed, or to where it ends."""

    def __init__(self, core: ClientCore, shell: WriterShell) -> None:
        throttle = None if shell.admission is None else shell.admission.throttle
        super().__init__(core, _Known(shell.machine), shell.codec, throttle)
        shell.on_metadata_changed = self._polls.on_metadata

    async def read_last_add_confirmed(self) -> int:
        """As :attr:`last_add_confirmed`, of which the writer knows best."""
        self._reads.check_open()
        return self._view.last_add_confirmed

    async def try_read_last_add_confirmed(self) -> int:
        """As :meth:`read_last_add_confirmed`."""
        return await self.read_last_add_confirmed()
