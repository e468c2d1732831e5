"""Telling bookies the LAC besides entries, from a timer or on demand: the shell around :mod:`bkclient.protocol.explicit_lac`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from bkclient._backoff import Backoff
from bkclient._client.core import ClientCore
from bkclient._client.defects import defect
from bkclient._client.exchange import outcomes
from bkclient.errors import BookKeeperError, Code, code_of, error_for
from bkclient.ledger import BookieId
from bkclient.observability import stats as names
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.explicit_lac import ExplicitLac, LacWrite
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import Request, WriteLacRequest

__all__ = ["LacTimer", "write_lac"]

#: The longest interval between two attempts while bookies do not take the LAC, unless a longer one is configured.
_MAX_DELAY_S: Final = 10.0


class _LacWrite:
    """One LAC on its way to bookies."""

    def __init__(
        self,
        core: ClientCore,
        codec: EntryCodec,
        lac: int,
        on_reply: Callable[[BookieId, int], None],
        fail: Callable[[BookKeeperError], None],
    ) -> None:
        self._submit = core.transport.submit
        self.note_failure = core.watcher.on_request_failed
        self._request = WriteLacRequest(codec.ledger_id, lac, codec.master_key, codec.encode_lac(lac))
        self._on_outcome = on_reply
        self._fail = fail

    def send(self, bookie_id: BookieId) -> None:
        self._submit(bookie_id, self._request, self._on_reply)

    @outcomes
    def _on_reply(self, bookie_id: BookieId, _request: Request, code: int, _value: None) -> None:
        self._on_outcome(bookie_id, code)

    def on_defect(self, error: Exception) -> None:
        """See :class:`~bkclient._client.exchange.Requester`."""
        self._fail(defect(error, "the writing of an explicit LAC", ledger_id=self._request.ledger_id))


async def write_lac(core: ClientCore, codec: EntryCodec, writer: AppendMachine) -> int:
    """Tell the write set of the LAC about it now; returns the LAC once an ack quorum knows it (LAC-7).

    Raises the error of the bookie that made that impossible. Without any entry confirmed there is nothing to tell.
    """
    lac = writer.last_add_confirmed
    if lac < 0:
        return lac
    write = LacWrite(writer.sizes, writer.ensemble, lac)
    finished: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_reply(bookie_id: BookieId, code: int) -> None:
        if not write.on_reply(bookie_id, code) or finished.done():
            return
        if write.code == Code.OK:
            finished.set_result(lac)
        else:
            why = f"too few bookies took the explicit LAC {lac}"
            fail(error_for(code, why, ledger_id=codec.ledger_id, bookie_id=bookie_id))

    def fail(error: BookKeeperError) -> None:
        if not finished.done():
            finished.set_exception(error)
            finished.exception()  # who gave up waiting is not complained about

    request = _LacWrite(core, codec, lac, on_reply, fail)
    for bookie_id in write.bookies:
        request.send(bookie_id)
    return await finished


class LacTimer:
    """Tells the LAC of a writer that pauses, between one and two intervals after its last entry (LAC-5). Best effort.

    It runs only while there is something to tell; :meth:`start` says that there may be, and ``on_idle`` is called when there is
    nothing any more. While bookies do not take the LAC the intervals grow.
    """

    def __init__(
        self,
        core: ClientCore,
        codec: EntryCodec,
        writer: AppendMachine,
        interval_s: float,
        on_idle: Callable[[], None],
    ) -> None:
        self._core = core
        self._codec = codec
        self._writer = writer
        self._delays: Final = Backoff(interval_s, max(interval_s, _MAX_DELAY_S))
        self._delay_s = interval_s
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._machine = ExplicitLac(writer, self)
        self._began_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """The LAC may move; does nothing while the timer runs."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._delay_s, self._on_tick)

    def _on_tick(self) -> None:
        self._timer = None
        if not self._writer.is_writable or self._core.is_closed:
            return
        try:
            self._machine.on_tick()
        except Exception as error:  # noqa: BLE001 - there is no waiter, but the LAC of an idle writer is told nevertheless
            self._on_defect(defect(error, "the timer of the explicit LAC", ledger_id=self._codec.ledger_id))
        if self._machine.is_done:
            self._on_idle()
        else:
            self.start()

    def stop(self) -> None:
        """No more ticks. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def send_write_lac(self, bookie_id: BookieId, last_add_confirmed: int) -> None:
        """Port of :class:`~bkclient.protocol.explicit_lac.ExplicitLac`."""
        if self._core.stats is not None:
            self._began_at = self._core.stats.now()

        def on_reply(answered_by: BookieId, code: int) -> None:
            self._machine.on_write_lac_reply(answered_by, last_add_confirmed, code)

        _LacWrite(self._core, self._codec, last_add_confirmed, on_reply, self._on_defect).send(bookie_id)

    def _on_defect(self, error: BookKeeperError) -> None:  # noqa: ARG002 - it was reported, and there is no waiter
        self._machine.give_up()
        self._wait_longer()

    def _wait_longer(self) -> None:
        self._delay_s = self._delays.after(self._delay_s)

    def write_lac_finished(self, last_add_confirmed: int, error: BookKeeperError | None) -> None:  # noqa: ARG002
        """Port of :class:`~bkclient.protocol.explicit_lac.ExplicitLac`."""
        if error is None:
            self._delay_s = self._delays.first_s
        else:
            self._wait_longer()
        stats = self._core.stats
        if stats is not None:
            code = Code.OK if error is None else code_of(error)
            stats.operation(names.WRITE_LAC, stats.now() - self._began_at, code)
