"""Entries that a writer takes many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.append_ports import AppendPorts
from bkclient.protocol.ensemble_change import Membership
from bkclient.protocol.machine import LedgerMachine
from bkclient.protocol.writer_state import WriterState

__all__ = ["TakesMany"]

_OPEN: Final = WriterState.OPEN


class TakesMany(LedgerMachine):
    """What :class:`~bkclient.protocol.append.AppendMachine` does about many entries at once."""

    __slots__ = ()

    state: WriterState
    options: AppendOptions
    ports: AppendPorts
    members: Membership

    @property
    def takes_many(self) -> bool:
        """Whether an append comes to nothing but pushing and sending its entry, so that :meth:`append_all` may be called."""
        return self.state is _OPEN and not self.members.late and not self.options.entry_ids_given

    def append_all(self, payloads: Sequence[bytes]) -> None:
        """Accept entries under the next ids and send them; does what ``append()`` does for each of them, in order.

        The caller checks :attr:`takes_many` first.
        """
        assert self.takes_many, "the shell appends one by one where an append may come to more"
        adds = self.adds
        self.ports.send_adds(adds.push_all(payloads, adds.last_add_confirmed), adds.write_sets)
