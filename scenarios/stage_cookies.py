"""The cookies of a bookie on the stage: who checks them, and what is there to be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.records import Cookie, encode_cookie
from simbookie.bookie import Bookie
from simbookie.cookies import COOKIE_FILE
from simbookie.integrity import IntegrityConfig
from simbookie.start_checks import StartChecks
from simbookie.storage.base import LedgerStorage
from simbookie.storage.journaled import JournaledStorage
from simbookie.world.files import disk_of
from simbookie.world.metadata import SimulatedMetadataStore

if TYPE_CHECKING:
    from bkclient import BookKeeper

__all__ = ["StageCookies"]

_JOURNALS: Final = ("/journal",)
_LEDGERS: Final = ("/ledgers",)
_STRANGER: Final = "stranger:3181"


class StageCookies:
    """Those of the bookie ``bookie_id``; ``checks``: whether it starts in doubt rather than not at all.

    What is found is looked up in the files and in the metadata service themselves, and not asked of the code that is under test.
    """

    def __init__(self, service: MemoryMetadataService, bookie_id: str, storage: LedgerStorage, *, checks: bool) -> None:
        self._service = service
        self._bookie_id = bookie_id
        self._storage = storage
        self._checks = checks
        #: Whether the bookie's last life ended otherwise than in order.
        self.was_killed: Callable[[], bool] = lambda: False

    def start_checks(self, bookie: Bookie, metadata: SimulatedMetadataStore) -> StartChecks:
        """What checks the bookie at a start, as in a process that serves one."""
        config = IntegrityConfig(enabled=self._checks, stamps_missing_cookies=self._checks)
        cookie = Cookie(self._bookie_id, _JOURNALS, _LEDGERS)
        return StartChecks(bookie, metadata, cookie, config, _no_client)

    def found(self) -> str:
        """``matched``, ``missing`` or ``foreign``; ``doubted`` where that, or no journal, makes the bookie check itself."""
        storage = self._storage
        assert isinstance(storage, JournaledStorage), "the plan has seen to it"
        texts = [folder.read_small(COOKIE_FILE) for folder in (*storage.journal_folders, *storage.ledger_folders)]
        known = self._service.tree.get(f"cookies/{self._bookie_id}", None)
        stored = None if known is None else known.data
        state = "matched" if all(text == stored for text in texts) else "missing" if None in texts else "foreign"
        lost_entries = self.was_killed() and not storage.config.journal.write_data
        return "doubted" if self._checks and (state != "matched" or lost_entries) else state

    @staticmethod
    def make_foreign(storage: LedgerStorage) -> None:
        """Have the folders say, durably, that they are another bookie's."""
        assert isinstance(storage, JournaledStorage), "the plan has seen to it"
        disk = disk_of(storage)
        for folder in dict.fromkeys((*storage.journal_folders, *storage.ledger_folders)):
            if folder.exists(COOKIE_FILE):
                disk.remove(folder.file(COOKIE_FILE))
            disk.put(folder.file(COOKIE_FILE), encode_cookie(Cookie(_STRANGER, _JOURNALS, _LEDGERS)))


async def _no_client() -> BookKeeper:
    raise AssertionError("a bookie on the stage makes no full check")
