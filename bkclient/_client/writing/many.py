"""Appending many entries at once: what costs every append is done once for all of them.

Entries go the way of single ones, through the same functions: pushed by the machine, given a header, encoded, put into the run
of this turn. What is left out is what goes around that for each of them: a coroutine, a look whether the writer takes entries,
two windows, a future, a port and a sender. Where an append may come to more than that (a rate limit, statistics, a tracer, a
bookie that has failed, an ensemble that is being changed), entries are appended one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from bkclient._client.core import ClientCore
from bkclient._client.home_loop import running_loop
from bkclient._client.window import WriterWindow
from bkclient._client.writing.admission import WriterAdmission
from bkclient._client.writing.outcomes import AppendOutcomes
from bkclient._client.writing.payloads import Payload
from bkclient.errors import BookKeeperError
from bkclient.ledger import BookieId
from bkclient.protocol.adds import NewEntry
from bkclient.protocol.append import AppendMachine
from bkclient.transport.adds import AddSender, sends_many
from bkclient.wire.entry import EntryCodec

__all__ = ["AppendsMany"]

_BYTES: Final = {bytes}
_BYTES_LIKE: Final = {bytes, bytearray, memoryview}


class AppendsMany:
    """The part of a writer's shell that takes many entries at once."""

    __slots__ = ()

    _adds: AddSender
    _is_watched: bool
    _stats: Any
    _tracer: Any
    admission: WriterAdmission | None
    codec: EntryCodec
    core: ClientCore
    loop: asyncio.AbstractEventLoop
    machine: AppendMachine
    max_payload: int
    outcomes: AppendOutcomes
    window: WriterWindow

    def append_some(self, payloads: Sequence[Payload]) -> range:
        """Send the first of these payloads under the next ids, as many as there is room for; returns the ids that they got.

        Raises as ``try_append()`` does if the first of them is refused.
        """
        first = self.machine.last_add_pushed + 1
        if not self.appends_plainly or running_loop() is not self.loop:
            return self._one_by_one(payloads, first)
        kinds = set(map(type, payloads))
        if kinds <= _BYTES:
            data: Sequence[bytes] = payloads  # type: ignore[assignment]  # as was just seen
        elif kinds <= _BYTES_LIKE:
            data = list(map(bytes, payloads))  # the caller may change its buffers while entries are in flight
        else:
            return self._one_by_one(payloads, first)
        sizes = list(map(len, data))
        if max(sizes, default=0) > self.max_payload:
            return self._one_by_one(payloads, first)
        count = self.window.take_many(sizes)
        if count:
            self.append_all(data[:count], sizes[:count], first)
        return range(first, first + count)

    @property
    def appends_plainly(self) -> bool:
        """Whether there is nothing to an append but sending the entry."""
        extras = self.admission or self._stats or self._tracer
        return extras is None and not self.core.is_closed and self.machine.takes_many

    def append_all(self, payloads: Sequence[bytes], sizes: Sequence[int], first: int) -> None:
        """Send entries of these sizes from id ``first`` on, whose places in the windows are taken."""
        if not self._is_watched:
            self._watch()
        try:
            self.machine.append_all(payloads)
        except Exception as error:  # noqa: BLE001 - some of them may have been sent
            self._on_append_defect(error, first, sizes)

    def send_adds(self, entries: Sequence[NewEntry], write_sets: tuple[tuple[BookieId, ...], ...]) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        sender = self._adds
        if not sends_many(sender):
            for entry in entries:
                self.send_add(entry, write_sets[entry.entry_id % len(write_sets)])
            return
        entry_ids, payloads, lacs, lengths = zip(*entries, strict=True)
        headers = self.codec.encode_headers(entry_ids, lacs, lengths, payloads)
        sender.send_all(write_sets, entry_ids, headers, payloads)

    def _one_by_one(self, payloads: Sequence[Payload], first: int) -> range:
        try:
            for payload in payloads:
                if self.try_append(payload) is None:
                    break
        except BookKeeperError:
            if self.machine.last_add_pushed < first:
                raise  # else the next call does, which begins with the one that was refused
        return range(first, self.machine.last_add_pushed + 1)

    def _on_append_defect(self, error: Exception, first: int, sizes: Sequence[int]) -> None:
        """Appending entries of these sizes, from id ``first`` on, has raised."""
        self.on_defect(error)
        assert self.machine.fatal_error is not None, "the writer was stopped"
        for entry_id, size in enumerate(sizes, start=first):
            if self.outcomes.fail(entry_id, self.machine.fatal_error):  # the entry had not become one that is pending
                self.window.give_back(size)

    def try_append(self, payload: Payload) -> object | None:
        """Send one entry under the next id; None if a window is full."""
        raise NotImplementedError

    def send_add(self, entry: NewEntry, bookies: tuple[BookieId, ...]) -> None:
        """Send an entry to these bookies."""
        raise NotImplementedError

    def _watch(self) -> None:
        """There are entries to look after."""
        raise NotImplementedError

    def on_defect(self, error: Exception) -> None:
        """What was to be done raised ``error``."""
        raise NotImplementedError
