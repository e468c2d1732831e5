"""Reading the metadata after new connections to bookies: the shell around :mod:`bkclient.protocol.reconnect`."""

from __future__ import annotations

import asyncio
from typing import Protocol

from bkclient._client.core import ClientCore
from bkclient._client.defects import ends_operation
from bkclient.errors import BookKeeperError, Code, UnexpectedCondition
from bkclient.ledger import Versioned
from bkclient.observability import log
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.reconnect import ReconnectCheck

__all__ = ["Ownership", "OwnershipPorts"]


class OwnershipPorts(Protocol):
    """The writer's shell, as seen from here."""

    @property
    def machine(self) -> AppendMachine:
        """The writer."""
        ...

    def on_ownership_read(self) -> None:
        """The metadata was read, or could not be, and the writer may have ended by it."""
        ...

    def on_defect(self, error: Exception) -> None:
        """What was to be done with it raised ``error``."""
        ...


class Ownership:
    """Asks, for one writer, whether its ledger is still its own.

    ``connection`` is the newest that was established before the ledger was created.
    """

    __slots__ = ("_core", "_ledger_id", "_loop", "_ports", "_timer", "_writer", "check")

    def __init__(self, core: ClientCore, ports: OwnershipPorts, connection: int) -> None:
        config = core.config
        self.check = ReconnectCheck(
            ports.machine,
            core.transport.connections,
            self,
            verified=connection if config.writing.check_metadata_after_reconnect else None,
            give_up_after_s=config.timeouts.add_quorum_s,
        )
        self._core = core
        self._ports = ports
        self._writer = ports.machine
        self._ledger_id = ports.machine.metadata.ledger_id
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """The writer has ended. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self.check.stop()

    def on_defect(self, error: Exception) -> None:
        """Defects end the writer."""
        self._ports.on_defect(error)

    # Ports of the check ------------------------------------------------------------------------------------------

    def read_metadata(self) -> None:
        """Port of :class:`~bkclient.protocol.reconnect.ReconnectCheck`."""
        # At the end of the client nothing is read any more; it ends its writers first.
        self._core.background.start(self._read, f"metadata of ledger {self._ledger_id}")

    def read_metadata_later(self, delay_s: float) -> None:
        """Port of :class:`~bkclient.protocol.reconnect.ReconnectCheck`."""
        self._timer = self._loop.call_later(delay_s, self._on_timer)

    @ends_operation
    def _on_timer(self) -> None:
        self._timer = None
        self.check.on_retry()

    # Reading -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            stored = await self._core.metadata.read_ledger(self._ledger_id)
        except BookKeeperError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - of a store, which is a plug-in; entries wait for the outcome
            why = f"the metadata store failed as it must not, with {error!r}"
            failure = UnexpectedCondition(why, ledger_id=self._ledger_id)
            failure.__cause__ = error
            self._failed(failure)
        else:
            self._arrived(stored)

    @ends_operation
    def _failed(self, error: BookKeeperError) -> None:
        self.check.on_read_failed(error, self._loop.time())
        self._ports.on_ownership_read()

    @ends_operation
    def _arrived(self, stored: Versioned) -> None:
        held, had_failed = self.check.held_count, self._writer.fatal_error is not None
        self.check.on_metadata(stored, self._loop.time())
        failed = self._writer.fatal_error
        if failed is not None and failed.code == Code.LEDGER_FENCED and not had_failed:
            log.TAKEOVER_FOUND(ledger_id=self._ledger_id, state=stored.metadata.state.name, held=held)
        self._ports.on_ownership_read()
