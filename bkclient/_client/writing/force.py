"""Running a force: the shell around :class:`~bkclient.protocol.force.ForceMachine`."""

from __future__ import annotations

import asyncio

from bkclient._client.core import ClientCore
from bkclient._client.defects import defect
from bkclient._client.exchange import outcomes
from bkclient._fresh import fresh
from bkclient.errors import BookKeeperError
from bkclient.ledger import BookieId
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.force import ForceMachine
from bkclient.protocol.reconnect import ReconnectCheck
from bkclient.wire.messages import ForceLedgerRequest, Request

__all__ = ["force_ledger"]


async def force_ledger(core: ClientCore, writer: AppendMachine, check: ReconnectCheck) -> None:
    """Make durable what ``writer`` has acknowledged so far (LAC-12); raises the first error of a bookie.

    Successes count as ``check`` says, as those of adds do (W-60).

    Cancelling abandons the outcome, not the force: what the bookies make durable stays so, and the LAC moves if all do.
    """
    await _Force(core, writer, check).finished


class _Force:
    """The ports of one force."""

    def __init__(self, core: ClientCore, writer: AppendMachine, check: ReconnectCheck) -> None:
        self._core = core
        self.note_failure = core.watcher.on_request_failed
        self._check = check
        self._request = ForceLedgerRequest(writer.metadata.ledger_id)
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._machine = ForceMachine(writer, self)
        self._machine.start()

    def send_force(self, bookie_id: BookieId) -> None:
        self._core.transport.submit(bookie_id, self._request, self._on_reply)

    @outcomes
    def _on_reply(self, bookie_id: BookieId, _request: Request, code: int, _value: None) -> None:
        if not code and self._check.connections[bookie_id] > self._check.verified:
            self._check.on_forced(bookie_id, self._machine)
            return
        self._machine.on_force_reply(bookie_id, code)

    def force_finished(self, error: BookKeeperError | None) -> None:
        if self.finished.done():
            return
        if error is None:
            self.finished.set_result(None)
        else:
            self.finished.set_exception(fresh(error, ledger_id=self._request.ledger_id))
            self.finished.exception()  # who gave up waiting is not complained about

    def on_defect(self, error: Exception) -> None:
        """The handler of an answer raised."""
        self.force_finished(defect(error, "a force", ledger_id=self._request.ledger_id))
