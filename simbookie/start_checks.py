"""What a bookie process sees to around its start: that folders, bookie and cluster belong together, or are brought together.

With the data-integrity check a bookie whose disk was replaced, or that was killed without having journalled its entries, starts
all the same: it vouches for nothing until it is checked (:mod:`simbookie.integrity`), and the cookies are written anew when
that is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from bkclient.errors import BookKeeperError
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.records import Cookie
from simbookie.bookie import Bookie
from simbookie.cookies import InvalidCookie, check_cookies, is_known, leave_cookie, stamp_cookies
from simbookie.integrity import IntegrityCheck, IntegrityConfig, RunningMark
from simbookie.storage.folders import Folder
from simbookie.storage.journaled import JournaledStorage

if TYPE_CHECKING:
    from bkclient import BookKeeper

__all__ = ["StartChecks"]

_log: Final = logging.getLogger(__name__)


class StartChecks:
    """Those of ``bookie``, whose data belongs to ``cookie``, if it is on disk.

    A metadata store that ``forgets`` everything remembers no bookie. ``connect`` gives a client of the cluster, to be closed.
    """

    def __init__(
        self,
        bookie: Bookie,
        metadata: MetadataStore,
        cookie: Cookie | None,
        config: IntegrityConfig,
        connect: Callable[[], Awaitable[BookKeeper]],
        *,
        forgets: bool = False,
    ) -> None:
        self._bookie = bookie
        self._metadata = metadata
        self._cookie = cookie
        self._forgets = forgets
        self._connect = connect
        self._folders: tuple[Folder, ...] = ()
        self._mark: RunningMark | None = None
        self.check: IntegrityCheck | None = None
        storage = bookie.storage
        if isinstance(storage, JournaledStorage):
            self._folders = tuple(
                dict.fromkeys((*storage.journal_folders, *storage.ledger_folders, *storage.index_folders))
            )
            if config.enabled and not forgets:
                self._mark = RunningMark(storage.ledger_folders)
                self.check = IntegrityCheck(bookie, metadata, storage.ledger_folders[0], config)
        #: Whether nothing may be vouched for at this start, and whether cookies are to be written after that.
        self.is_doubtful = self._is_to_be_stamped = False

    async def verify(self) -> None:
        """Before the storage is opened; :class:`~simbookie.cookies.InvalidCookie` if what does not fit is not to be mended."""
        try:
            await self.belong_together()
        except InvalidCookie as error:
            check, cookie = self.check, self._cookie
            assert cookie is not None, "nothing else is invalid"
            if check is None or not check.config.stamps_missing_cookies or not await is_known(self._metadata, cookie):
                raise
            _log.warning("bookie %s is checked: %s", self._bookie.bookie_id, error)
            self.is_doubtful = self._is_to_be_stamped = True
        storage = self._bookie.storage
        if self._mark is not None and isinstance(storage, JournaledStorage):
            if self._mark.was_left() and not storage.config.journal.write_data:
                _log.warning(
                    "bookie %s was killed, and does not journal entries: it is checked", self._bookie.bookie_id
                )
                self.is_doubtful = True
            await self._mark.leave()

    async def belong_together(self) -> None:
        """Whether the bookie, its folders and its cluster do; :class:`~simbookie.cookies.InvalidCookie` if not."""
        if self._cookie is not None:
            await check_cookies(None if self._forgets else self._metadata, self._cookie, self._folders)
        if self._forgets or self._cookie is None:
            await leave_cookie(self._metadata, self._bookie.bookie_id)

    async def before_serving(self) -> None:
        """When the storage is open, before the first request."""
        if self.check is None or not self.is_doubtful:
            return
        await self.check.before_serving()
        if self._is_to_be_stamped:
            assert self._cookie is not None, "it did not match"
            await stamp_cookies(self._metadata, self._cookie, self._folders)

    async def run(self) -> None:
        """While the bookie serves: make the full check, if one is needed. A cluster that does not answer is asked again."""
        if self.check is None or not self.check.is_needed:
            return
        from bkclient.repair.admin import RepairAdmin  # noqa: PLC0415  a bookie seldom is a client

        client = await self._client(self.check.config.interval_s)
        try:
            await self.check.run(RepairAdmin(client))
        finally:
            await asyncio.shield(client.aclose())

    async def _client(self, interval_s: float) -> BookKeeper:
        while True:
            try:
                return await self._connect()
            except BookKeeperError as error:
                _log.warning("bookie %s could not be checked: %s", self._bookie.bookie_id, error)
            await asyncio.sleep(interval_s)

    def ended(self) -> None:
        """The bookie has ended in order."""
        if self._mark is not None:
            self._mark.remove()
