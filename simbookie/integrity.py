"""The check of a bookie that may have lost data: what it cannot vouch for it says so, and what it lacks it gets from the others.

It has two parts, as in BookKeeper. Before the bookie serves, every ledger is fenced that has the bookie in an ensemble: fences
may be lost, too, and a writer that was shut out by one may still send. A ledger that is not closed and whose last ensemble it is
in goes to *limbo* besides: of what the bookie has not of it the bookie says that it knows nothing, instead of denying
it. A denial would count when a recovery decides where the ledger ends. This is durable before the first request.

While it serves, each of its ledgers is brought in order: one in limbo is recovered and closed through a client, which ends its
limbo, and the entries that the bookie should have by the metadata and has not are copied from the other bookies. A ledger that
cannot be is tried again. That a check is needed is noted in a file until it is done, so a bookie that dies meanwhile goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bkclient.errors import BookKeeperError, NoSuchLedger
from bkclient.ledger import LedgerMetadata
from bkclient.metadata.base import MetadataStore
from simbookie.bookie import Bookie, BookieState
from simbookie.storage.base import StorageError
from simbookie.storage.conf_keys import values_of
from simbookie.storage.folders import Folder
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.waiting import until_done

if TYPE_CHECKING:
    from bkclient.repair.admin import RepairAdmin

__all__ = ["INTEGRITY_KEYS", "IntegrityCheck", "IntegrityConfig", "RunningMark"]

_log: Final = logging.getLogger(__name__)
#: Field of :class:`IntegrityConfig` -> key in BookKeeper's configuration.
INTEGRITY_KEYS: Final = {
    "enabled": ("dataIntegrityChecking", 1.0),
    "stamps_missing_cookies": ("dataIntegrityStampMissingCookies", 1.0),
}
#: The file that is there as long as a check is needed, and the one that is there while a bookie runs, which is BookKeeper's.
NEEDED_FILE: Final = "integrity-check"
RUNNING_FILE: Final = "DIRTY"


@dataclass(frozen=True, slots=True)
class IntegrityConfig:
    """When a bookie checks what it has; in brackets BookKeeper's keys."""

    #: Whether it does, after an unclean end of a bookie that does not journal entries (``dataIntegrityChecking``).
    enabled: bool = False
    #: And where cookies are missing or differ, which is refused otherwise (``dataIntegrityStampMissingCookies``).
    stamps_missing_cookies: bool = False
    #: Seconds between two tries.
    interval_s: float = 3.0

    def __post_init__(self) -> None:
        if not self.interval_s > 0:
            raise ValueError(f"integrity: interval_s must be > 0, got {self.interval_s}")
        if self.stamps_missing_cookies and not self.enabled:
            raise ValueError(
                "integrity: dataIntegrityStampMissingCookies needs dataIntegrityChecking: a bookie that lost a "
                "disk must not serve unchecked"
            )

    @classmethod
    def from_conf(cls, conf: Mapping[str, str]) -> IntegrityConfig:
        """What ``conf`` names by BookKeeper's keys; :class:`ValueError` if it cannot be."""
        found = values_of("integrity", INTEGRITY_KEYS, conf, dict.fromkeys(INTEGRITY_KEYS, bool))
        return cls(**found)  # type: ignore[arg-type]  # flags, all


class RunningMark:
    """A file in each of ``folders`` while a bookie runs; one that is found at a start was left by a bookie that was killed."""

    def __init__(self, folders: Sequence[Folder]) -> None:
        self._folders = folders

    def was_left(self) -> bool:
        """Whether the last bookie on these folders did not end in order."""
        return any(folder.exists(RUNNING_FILE) for folder in self._folders)

    async def leave(self) -> None:
        """A bookie runs from now on, durably."""
        for folder in self._folders:
            folder.write_small(RUNNING_FILE, b"")
            await until_done(folder.sync)

    def remove(self) -> None:
        """It has ended in order."""
        for folder in self._folders:
            folder.discard(RUNNING_FILE)


class IntegrityCheck:
    """The check of ``bookie``; ``folder`` keeps the note that it is needed, which is lost with the object without one."""

    def __init__(
        self,
        bookie: Bookie,
        metadata: MetadataStore,
        folder: Folder | None = None,
        config: IntegrityConfig | None = None,
        *,
        quirks: frozenset[Quirk] = REPAIRED,
    ) -> None:
        self.config = config if config is not None else IntegrityConfig()
        self._quirks = quirks
        self._bookie = bookie
        self._metadata = metadata
        self._folder = folder
        self._is_needed = False
        #: What was done since the object was made.
        self.ledgers_in_limbo = self.ledgers_fenced = self.ledgers_done = self.entries_copied = 0

    @property
    def is_needed(self) -> bool:
        """Whether a full check has to be made."""
        return self._folder.exists(NEEDED_FILE) if self._folder is not None else self._is_needed

    async def before_serving(self) -> None:
        """Have the bookie, which runs and does not serve yet, vouch for nothing that it may have lost; durable afterwards.

        Raises as the metadata store and the disks do.
        """
        await self._note_need()
        async for ledger_id in self._metadata.list_ledgers():
            metadata = await self._read(ledger_id)
            if metadata is None:
                continue
            if not metadata.is_closed and self._bookie.bookie_id in metadata.fragments[-1].ensemble:
                self._bookie.set_limbo(ledger_id, in_limbo=True)
                self.ledgers_in_limbo += 1
            elif Quirk.OTHER_LEDGERS_UNFENCED not in self._quirks and self._is_in_an_ensemble(metadata):
                self._fence(ledger_id)
                self.ledgers_fenced += 1
        await self._flush()
        _log.info(
            "bookie %s vouches for nothing of %d ledgers yet, and has fenced %d others",
            self._bookie.bookie_id,
            self.ledgers_in_limbo,
            self.ledgers_fenced,
        )

    def _is_in_an_ensemble(self, metadata: LedgerMetadata) -> bool:
        return any(self._bookie.bookie_id in fragment.ensemble for fragment in metadata.fragments)

    def _fence(self, ledger_id: int) -> None:
        """Fence the ledger, without a key if it is not known here: who enters limbo is fenced, and stays so."""
        info = self._bookie.storage.ledger(ledger_id)
        if info is None or not info.in_limbo:
            self._bookie.set_limbo(ledger_id, in_limbo=True)
            self._bookie.set_limbo(ledger_id, in_limbo=False)

    async def run(self, admin: RepairAdmin) -> None:
        """Make full checks, as long as one is needed, at intervals."""
        while self.is_needed and self._runs():
            if not await self.full_check(admin):
                await asyncio.sleep(self.config.interval_s)

    def _runs(self) -> bool:
        return self._bookie.state is BookieState.RUNNING

    async def full_check(self, admin: RepairAdmin) -> bool:
        """Bring every ledger of the bookie in order; returns whether all are. Its failures are logged, and tried again."""
        failed = 0
        try:
            ledger_ids = [ledger_id async for ledger_id in self._metadata.list_ledgers()]
            for ledger_id in sorted(ledger_ids, reverse=True):
                failed += not await self._bring_in_order(ledger_id, admin)
            await self._flush()
            if not failed:
                await self._note_done()
        except (BookKeeperError, StorageError) as error:
            _log.warning("bookie %s could not be checked: %s", self._bookie.bookie_id, error)
            return False
        return not failed

    async def _bring_in_order(self, ledger_id: int, admin: RepairAdmin) -> bool:
        from bkclient.repair.fragments import stores_entries  # noqa: PLC0415  a bookie seldom is a client

        bookie = self._bookie
        metadata = await self._read(ledger_id)
        if not self._runs():
            return False
        info = bookie.storage.ledger(ledger_id)
        is_in_limbo = info is not None and info.in_limbo
        if metadata is None or not (is_in_limbo or stores_entries(metadata, bookie.bookie_id)):
            return True
        try:
            if is_in_limbo:
                await admin.close_ledger(ledger_id)
                if not self._runs():
                    return False
                bookie.set_limbo(ledger_id, in_limbo=False)
            known = set(bookie.storage.entry_ids(ledger_id)) if bookie.storage.ledger(ledger_id) is not None else set()
            restored = await admin.restore_copies(bookie.bookie_id, ledger_id, has_entry=known.__contains__)
        except NoSuchLedger:
            return True  # it was deleted meanwhile
        except BookKeeperError as error:
            _log.warning("bookie %s: ledger %d could not be brought in order: %s", bookie.bookie_id, ledger_id, error)
            return False
        self.ledgers_done += 1
        self.entries_copied += restored.entries_copied
        return True

    async def _read(self, ledger_id: int) -> LedgerMetadata | None:
        try:
            return (await self._metadata.read_ledger(ledger_id)).metadata
        except NoSuchLedger:
            return None

    async def _flush(self) -> None:
        storage = self._bookie.storage
        if isinstance(storage, JournaledStorage):
            await until_done(lambda on_done: storage.store.flush(on_done, None))

    async def _note_need(self) -> None:
        self._is_needed = True
        if self._folder is not None:
            folder = self._folder
            folder.write_small(NEEDED_FILE, b"")
            await until_done(folder.sync)

    async def _note_done(self) -> None:
        self._is_needed = False
        if self._folder is not None:
            folder = self._folder
            folder.discard(NEEDED_FILE)
            await until_done(folder.sync)
        _log.info("bookie %s is checked: %d entries were copied", self._bookie.bookie_id, self.entries_copied)
