"""The shells of writers by what their client wants to know: nothing, numbers, spans for every append, or both.

What is wanted per entry is in classes of its own, so that a client which wants nothing pays nothing.
"""

from __future__ import annotations

import asyncio

from bkclient._client.core import ClientCore
from bkclient._client.writing.measured import MeasuredWriterShell
from bkclient._client.writing.shell import Payload, WriterShell

__all__ = ["shell_class"]


class TracedWriterShell(WriterShell):
    """Opens a span for every append, which ends with its future."""

    def append(self, payload: Payload) -> asyncio.Future[int]:
        """See :class:`~bkclient._client.writing.shell.WriterShell`."""
        entry_id = self.machine.last_add_pushed + 1  # before, because an append may end the writer
        future = super().append(payload)
        self._trace(future, entry_id)
        return future

    def append_at(self, entry_id: int, payload: Payload) -> asyncio.Future[int]:
        """See :class:`~bkclient._client.writing.shell.WriterShell`."""
        future = super().append_at(entry_id, payload)
        self._trace(future, entry_id)
        return future

    def _trace(self, future: asyncio.Future[int], entry_id: int) -> None:
        tracer = self.core.tracer
        assert tracer is not None, "made for clients with a tracer"
        end = tracer.append(self.ledger_id, entry_id)

        def on_done(done: asyncio.Future[int]) -> None:
            end(asyncio.CancelledError() if done.cancelled() else done.exception())

        future.add_done_callback(on_done)


class TracedMeasuredWriterShell(TracedWriterShell, MeasuredWriterShell):
    """Both."""


def shell_class(core: ClientCore) -> type[WriterShell]:
    """The class of shell for the writers of one client."""
    if core.tracer is not None and core.tracer.wants_appends:
        return TracedWriterShell if core.stats is None else TracedMeasuredWriterShell
    return WriterShell if core.stats is None else MeasuredWriterShell
