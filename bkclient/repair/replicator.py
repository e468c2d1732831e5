"""Copying a final fragment to new bookies, and then naming them in the metadata.

All data first, the metadata last: a copy that was given up half-way leaves nothing but spare entries on bookies that no client
asks. Each new bookie gets the entries that its position stores and no others. Copies are read from the
bookies that stay where possible, byte for byte with the writer's digest, and a digest that does not fit makes the next
replica be asked.

Memory is bounded by entries and by bytes. The size of an entry is known only after it was read, so as many are read at a
time as would fit if all were as large as the largest so far; the first one goes alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bkclient._client.core import ClientCore
from bkclient._client.updates import drive_update
from bkclient.errors import BookKeeperError, ClientClosed, NotEnoughBookies, ReplicationFailed, UnclosedFragment
from bkclient.ledger import BookieId, Versioned
from bkclient.protocol.quorum import QuorumSizes
from bkclient.repair.config import RepairConfig
from bkclient.repair.fragments import LedgerFragment, choose_replacements, replacement_update, shape_of
from bkclient.repair.ledger import OpenedLedger
from bkclient.repair.ranges import stored_at_any
from bkclient.repair.rate import ByteRate
from bkclient.repair.reads import read_any_copy, write_copies

__all__ = ["CopyWindow", "FragmentReplicator", "ReplicatedFragment", "UnreadableEntry"]


class UnreadableEntry(ReplicationFailed):
    """No replica gave an entry that has to be copied."""


@dataclass(frozen=True, slots=True)
class ReplicatedFragment:
    """A fragment that has new bookies, and the ledger's metadata that names them.

    ``unreplaced`` are positions for which there was no bookie; they are as bad as before.
    """

    fragment: LedgerFragment
    replacements: Mapping[int, BookieId]
    value: Versioned
    entries_copied: int = 0
    bytes_copied: int = 0
    unreplaced: tuple[int, ...] = field(default=())


class CopyWindow:
    """How many entries may be copied at a time: at most ``entries``, and as many as fit ``max_bytes``, but one always."""

    def __init__(self, entries: int, max_bytes: int) -> None:
        self._entries = entries
        self._max_bytes = max_bytes
        self._largest: int | None = None

    @property
    def size(self) -> int:
        """Entries in the next batch."""
        if self._largest is None:
            return 1
        return max(1, min(self._entries, self._max_bytes // max(1, self._largest)))

    def note(self, size: int) -> None:
        """An entry of ``size`` bytes was read."""
        self._largest = max(self._largest or 0, size)


class FragmentReplicator:
    """Copies fragments, one at a time or several; all share the rate limit of ``config``."""

    def __init__(self, core: ClientCore, config: RepairConfig) -> None:
        self._core = core
        self._config = config
        self._rate = ByteRate(config.copy_bytes_per_s)

    async def replicate(
        self,
        ledger: OpenedLedger,
        fragment: LedgerFragment,
        positions: Collection[int],
        *,
        excluded: Collection[BookieId] = (),
        on_copied: Callable[[int], None] | None = None,
    ) -> ReplicatedFragment:
        """Give ``positions`` of the fragment new bookies, none of them ``excluded``.

        New bookies come from placement, quarantined ones last. If there are some but not enough for all positions, those
        that can be are replaced. ``on_copied`` is called with the bytes of every entry.

        Raises :class:`~bkclient.errors.UnclosedFragment` for a fragment that is not final,
        :class:`~bkclient.errors.NotEnoughBookies` if there is not a single new bookie, :class:`UnreadableEntry` if an entry
        has no readable copy left, :class:`~bkclient.errors.ReplicationFailed` if a new bookie does not take its copies;
        then the metadata is unchanged. Errors of the metadata store leave open whether it was.
        """
        _check_final(fragment)
        shape = shape_of(ledger.metadata)
        chosen = choose_replacements(
            fragment.ensemble,
            positions,
            excluded,
            lambda ensemble, position, avoided: self._core.watcher.replace(shape, ensemble, position, avoided),
        )
        if not chosen:
            leaving = ", ".join(fragment.ensemble[position] for position in sorted(positions))
            raise NotEnoughBookies(
                f"no writable bookie can take the place of {leaving} in the fragment at entry {fragment.first_entry_id}",
                ledger_id=ledger.ledger_id,
            )
        done = await self.move(ledger, fragment, chosen, on_copied=on_copied)
        return replace(done, unreplaced=tuple(sorted(position for position in positions if position not in chosen)))

    async def move(
        self,
        ledger: OpenedLedger,
        fragment: LedgerFragment,
        replacements: Mapping[int, BookieId],
        *,
        on_copied: Callable[[int], None] | None = None,
    ) -> ReplicatedFragment:
        """Put the given bookies into positions of the fragment; raises as :meth:`replicate` does."""
        _check_final(fragment)
        entries, size = await self._copy(ledger, fragment, replacements, on_copied)
        local, update = replacement_update(ledger.value, fragment, replacements)
        await drive_update(update, self._core.metadata)
        if update.error is not None:
            raise update.error
        return ReplicatedFragment(fragment, replacements, local.value, entries, size)

    async def copy_missing(
        self,
        ledger: OpenedLedger,
        fragment: LedgerFragment,
        targets: Mapping[int, BookieId],
        is_missing: Callable[[int], bool],
    ) -> tuple[int, int]:
        """Give ``targets`` the entries of their positions that are missing there; returns how many, and their bytes.

        The metadata stays as it is. Raises :class:`UnreadableEntry` and :class:`~bkclient.errors.ReplicationFailed`.
        """
        return await self._copy(ledger, fragment, targets, None, is_missing)

    async def _copy(
        self,
        ledger: OpenedLedger,
        fragment: LedgerFragment,
        targets: Mapping[int, BookieId],
        on_copied: Callable[[int], None] | None,
        is_wanted: Callable[[int], bool] = lambda _: True,
    ) -> tuple[int, int]:
        sizes = QuorumSizes.of(ledger.metadata)
        window = CopyWindow(self._config.batch_entries, self._config.max_copy_bytes_in_flight)
        entry_ids = filter(is_wanted, stored_at_any(sizes, targets, fragment.first_entry_id, fragment.last_entry_id))
        entries = total = 0
        while batch := _take(entry_ids, window.size):
            copies = [self._copy_entry(ledger, fragment, targets, entry_id) for entry_id in batch]
            outcomes = await asyncio.gather(*copies, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                window.note(outcome)
                entries += 1
                total += outcome
                if on_copied is not None:
                    on_copied(outcome)
        return entries, total

    async def _copy_entry(
        self, ledger: OpenedLedger, fragment: LedgerFragment, targets: Mapping[int, BookieId], entry_id: int
    ) -> int:
        write_set = QuorumSizes.of(ledger.metadata).write_set(entry_id)
        body = await self.read(ledger, fragment, targets, entry_id)
        await self._rate.take(len(body))
        new = [targets[position] for position in write_set if position in targets]
        await write_copies(self._core, ledger.codec, entry_id, body, new)
        return len(body)

    async def read(
        self, ledger: OpenedLedger, fragment: LedgerFragment, leaving: Collection[int], entry_id: int
    ) -> bytes:
        """The body of an entry, from the bookies that stay if they have it; :class:`UnreadableEntry` if none does."""
        write_set = QuorumSizes.of(ledger.metadata).write_set(entry_id)
        preferred = sorted(write_set, key=lambda position: position in leaving)
        replicas = [fragment.ensemble[position] for position in preferred]
        # A bookie that is not registered can only cost time; but if none is registered, one may be up that could not register.
        available = [bookie_id for bookie_id in replicas if self._core.watcher.is_available(bookie_id)]
        try:
            _, body = await read_any_copy(self._core, ledger.codec, entry_id, available or replicas)
        except ClientClosed:
            raise
        except BookKeeperError as error:
            raise UnreadableEntry(
                f"no replica gives it: {error}", ledger_id=ledger.ledger_id, entry_id=entry_id
            ) from error
        return body


def _check_final(fragment: LedgerFragment) -> None:
    if not fragment.is_final:
        raise UnclosedFragment(
            f"the fragment at entry {fragment.first_entry_id} may still be written to", ledger_id=fragment.ledger_id
        )


def _take(entry_ids: Iterator[int], count: int) -> list[int]:
    return [entry_id for _, entry_id in zip(range(count), entry_ids, strict=False)]
