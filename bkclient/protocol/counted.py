"""A writer's part in answers that were counted before it hears of them: :mod:`bkclient.transport.tally`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bkclient.ledger import BookieId
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.append_ports import AppendPorts, Quorums
from bkclient.protocol.machine import LedgerMachine
from bkclient.protocol.writer_state import WriterState

__all__ = ["TakesCounted"]

_CHANGING: Final = WriterState.CHANGING


class TakesCounted(LedgerMachine):
    """What :class:`~bkclient.protocol.append.AppendMachine` does about an ack quorum's answers at once."""

    __slots__ = ()

    state: WriterState
    options: AppendOptions
    ports: AppendPorts

    def acknowledged_by(self, quorums: Quorums, entry_ids: Sequence[int]) -> bool:
        """An ack quorum stored each of these entries, whose ids count up; ``quorums`` knows which bookies.

        Does what :meth:`acknowledged` does for each of these bookies. Nearly always no bookie has failed, and the entries are the
        next to be done; then nothing of them has to be counted. Tells whether nothing of them is pending any more.
        """
        adds, done = self.adds, None
        if self.state is not _CHANGING and not self.options.enforce_fault_domains:
            done = adds.take_stored(entry_ids)
        if done is not None:
            self.ports.confirm_adds(done)
            return True
        for place, entry_id in enumerate(entry_ids):
            for bookie_id in quorums.bookies_of(place):
                self.acknowledged(bookie_id, (entry_id,))
        return entry_ids[-1] not in adds.pending

    def acknowledged(self, bookie_id: BookieId, entry_ids: Sequence[int]) -> None:
        """The bookie stored these entries."""
        raise NotImplementedError
