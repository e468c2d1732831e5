"""What a writer asks of its driver, and of who tells it of entries that an ack quorum stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bkclient.errors import BookKeeperError, LedgerTruncated
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.adds import NewEntry

__all__ = ["AppendPorts", "Quorums"]


class Quorums(Protocol):
    """Which bookies stored some entries that a writer is told of. Nearly always it does not matter, and nobody asks."""

    def bookies_of(self, place: int) -> tuple[BookieId, ...]:
        """Those that stored the entry at this place among them: an ack quorum of its write set, or more."""
        ...


class AppendPorts(Protocol):
    """What the machine asks of its shell. None of these may call back into the machine."""

    def send_add(self, entry: NewEntry, bookies: tuple[BookieId, ...]) -> None:
        """Send the entry to each of ``bookies``.

        Report the answers through :meth:`~bkclient.protocol.append.AppendMachine.on_add_reply`. Called once per entry with its
        write set, and again with those it has to be sent to again.
        """
        ...

    def send_adds(self, entries: Sequence[NewEntry], write_sets: tuple[tuple[BookieId, ...], ...]) -> None:
        """What :meth:`send_add` does for each of these entries, whose ids count up.

        The bookies of entry ``n`` are the write set at ``n`` modulo E.
        """
        ...

    def confirm_adds(self, entries: list[NewEntry]) -> None:
        """One entry or more are acknowledged, and durable unless sync is deferred; tell the application. Called in id order."""
        ...

    def fail_add(self, entry: NewEntry, error: BookKeeperError) -> None:
        """The entry was not acknowledged; whether it is part of the ledger is decided when it is closed."""
        ...

    def run_update(self, number: int) -> None:
        """Drive a metadata update in the background, then call :meth:`~bkclient.protocol.append.AppendMachine.on_update_done`.

        :class:`~bkclient.protocol.update.UpdateHandle` says how.
        """
        ...

    def replace_bookie(self, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        """A writable bookie for ``position``, or None."""
        ...

    def is_ensemble_change_disabled(self) -> bool:
        """Whether the ensemble must not be changed now (W-26). Asked when bookies failed, never per entry."""
        ...

    def retry_later(self, delay_s: float) -> None:
        """Call :meth:`~bkclient.protocol.append.AppendMachine.on_retry` in ``delay_s`` seconds.

        At most one such call is outstanding.
        """
        ...

    def spans_fault_domains(self, bookies: tuple[BookieId, ...]) -> bool:
        """Whether acknowledgements of ``bookies`` span enough fault domains; asked only if the options say so (W-19)."""
        ...

    def ledger_truncated(self, error: LedgerTruncated) -> None:
        """The ledger was closed below what was confirmed: entries were lost. Called once, before anything fails with it."""
        ...

    def close_finished(self, error: BookKeeperError | None) -> None:
        """The ledger is closed in the metadata store, or could not be closed. Called once."""
        ...
