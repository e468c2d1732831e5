"""Answers of bookies that are counted where they arrive, as far as a writer's shell has to do with them.

See :mod:`bkclient.transport.tally`: a sender counts, and is asked for what it holds back before it matters which bookies stored
what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bkclient.protocol.append import AppendMachine
from bkclient.protocol.append_ports import Quorums
from bkclient.protocol.reconnect import ReconnectCheck
from bkclient.transport.adds import AddSender, counts_quorums

__all__ = ["CountedAnswers"]


class CountedAnswers:
    """The part of a writer's shell that takes :class:`~bkclient.transport.adds.CountedReplies`."""

    __slots__ = ("_adds", "_check", "_done_before", "loop", "machine")

    _adds: AddSender
    _check: ReconnectCheck
    loop: asyncio.AbstractEventLoop
    machine: AppendMachine

    def _count_answers(self) -> None:
        """Have answers counted, as far as nothing else than their number matters; again when more connections are verified."""
        #: Up to which entry all were done when that was looked at last.
        self._done_before = -1
        machine = self.machine
        if (
            counts_quorums(self._adds)
            and not machine.adds.failure_codes
            and not machine.options.enforce_fault_domains
            and not machine.options.entry_ids_given  # an entry above a gap waits, whatever bookies say
        ):
            sizes = machine.adds.sizes
            self._adds.count(sizes.ack_quorum_size, self._check.verified, is_striped=sizes.is_striped)

    def _count_no_more(self) -> None:
        """A bookie failed, so it matters from now on which bookies stored what."""
        if counts_quorums(self._adds):
            self._adds.count_no_more()

    def on_adds_stored_by(self, quorums: Quorums, entry_ids: Sequence[int]) -> None:
        """See :class:`~bkclient.transport.adds.CountedReplies`."""
        try:
            if not self.machine.acknowledged_by(quorums, entry_ids):
                self._tell()  # they wait for another entry or a change, so it may matter what other bookies say
        except Exception as error:  # noqa: BLE001 - as in ends_operation(), whose call would cost every answer
            self.on_defect(error)

    def _check_quorum_timeout(self) -> None:
        """Look for entries that wait too long."""
        done = self.machine.last_add_acknowledged
        if self.machine.pending_count and done == self._done_before:
            self._tell()  # an entry waits, and what bookies said of it goes into the error
        self._done_before = done
        self.machine.check_quorum_timeout(self.loop.time())

    def _tell(self) -> None:
        if counts_quorums(self._adds):
            self._adds.tell()

    def on_defect(self, error: Exception) -> None:
        """What was to be done raised ``error``."""
        raise NotImplementedError
