"""The registry of bookies: ephemeral znodes, which live as long as the session that made them.

A writable bookie is a znode in ``available``, a read-only one in ``available/readonly``. To change kind a bookie makes
the new znode before it removes the old one, so it never seems to be gone; a reader that sees both takes it for
read-only, because a bookie that may refuse writes must not be chosen for them.

When the session expires the service removes the znodes. They are made again in the session that replaces it, by one
task, for as long as the bookie is not withdrawn. The znode of a session that died without closing stays until the
service notices, so registering waits for it, up to the session timeout.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from kazoo.exceptions import NodeExistsError, NoNodeError

from bkclient.errors import BookieNotAvailable, MetadataStoreError
from bkclient.ledger import BookieId
from bkclient.metadata.base import BookieAddress, BookieSets
from bkclient.metadata.paths import check_bookie_id, is_valid_bookie_id, shortened
from bkclient.metadata.records import BookieServiceInfo, decode_service_info, encode_service_info
from bkclient.metadata.zookeeper.session import ZooKeeperSession
from bkclient.metadata.zookeeper.watches import REREAD_DELAY_S
from bkclient.observability import log

__all__ = ["Bookies"]

ADDRESSES_REMEMBERED_MAX: Final = 10_000
"""Last known addresses of bookies that are gone; beyond this the oldest are forgotten."""

IGNORED_REMEMBERED_MAX: Final = 1000
"""Invalid registrations that are logged, once each; further ones are ignored silently."""

_READ_ONLY: Final = "readonly"
_PATIENCE: Final = 1.25
"""How many session timeouts to wait for the znode of a dead session; the service counts in ticks, so it is late."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Announcement:
    """What a bookie of this session is registered as."""

    data: bytes = field(repr=False)
    read_only: bool


class Bookies:
    """The registered bookies of one cluster, and those that this session keeps registered."""

    def __init__(self, session: ZooKeeperSession, root: str) -> None:
        self._session = session
        self.directories = (f"{root}/available", f"{root}/available/{_READ_ONLY}")
        self._own: dict[BookieId, _Announcement] = {}
        self._ignored: set[str] = set()
        self._lock = asyncio.Lock()
        self._last_addresses: dict[BookieId, BookieAddress] = {}
        self._is_renewal_due = asyncio.Event()
        session.on_renewal(self._is_renewal_due.set)
        self._renewing = asyncio.get_running_loop().create_task(self._renew(), name=f"registrations in {root}")

    async def aclose(self) -> None:
        """Stop renewing. The znodes go with the session."""
        self._renewing.cancel()
        await asyncio.wait([self._renewing])

    async def sets(self) -> BookieSets:
        """The bookies registered now."""
        return await self._read_sets(watch=False)

    async def watched_sets(self) -> tuple[object, BookieSets]:
        """The bookies registered now, as their own stamp, and watches for the next change (PL-1)."""
        sets = await self._read_sets(watch=True)
        return sets, sets

    async def address(self, bookie_id: BookieId) -> BookieAddress:
        """Where the bookie listens, or did when this session last asked.

        While ZooKeeper is away, what it said last is the best there is, and bookies can be connected to without it.
        """
        check_bookie_id(bookie_id)
        remembered = self._last_addresses.get(bookie_id)
        if remembered is not None and not self._session.is_connected:
            return remembered
        for directory in self.directories:
            try:
                data, _ = await self._session.get(f"{directory}/{bookie_id}")
            except NoNodeError:
                continue
            return self._remember(bookie_id, data)
        address = self._last_addresses.get(bookie_id)
        if address is None:
            raise BookieNotAvailable("it is not registered", bookie_id=bookie_id)
        return address

    async def register(self, bookie_id: BookieId, address: BookieAddress, *, read_only: bool) -> None:
        """Announce a bookie, or move it, and keep it announced.

        :class:`~bkclient.errors.MetadataStoreError` if another session holds the id and keeps it.
        """
        check_bookie_id(bookie_id)
        announcement = _Announcement(encode_service_info(BookieServiceInfo.of_address(address)), read_only)
        async with self._lock:
            await self._announce(bookie_id, announcement)
            self._own[bookie_id] = announcement

    async def unregister(self, bookie_id: BookieId) -> None:
        """Withdraw a bookie if this session announced it. Idempotent."""
        check_bookie_id(bookie_id)
        async with self._lock:
            for directory in self.directories:
                await self._remove_own(f"{directory}/{bookie_id}")
            self._own.pop(bookie_id, None)

    async def _read_sets(self, *, watch: bool) -> BookieSets:
        # Both requests leave together, so that a bookie that changes kind is hardly ever missed in between.
        writable, read_only = await asyncio.gather(*[self._names(path, watch=watch) for path in self.directories])
        read_only = self._valid(read_only)
        away = set(read_only)
        return BookieSets(
            tuple(name for name in self._valid(writable) if name not in away),
            tuple(read_only),
        )

    def _valid(self, names: list[str]) -> list[str]:
        """Those of ``names`` that may name bookies. No other name could be stored in a ledger's metadata."""
        valid = [name for name in names if is_valid_bookie_id(name)]
        if len(valid) < len(names):
            for name in set(names).difference(valid, self._ignored, (_READ_ONLY,)):
                if len(self._ignored) < IGNORED_REMEMBERED_MAX:
                    self._ignored.add(name)
                    log.METADATA_REGISTRATION_IGNORED(name=shortened(name))
        return valid

    async def _names(self, directory: str, *, watch: bool) -> list[str]:
        while True:
            try:
                return await self._session.children(directory, watch=watch)
            except NoNodeError:
                if not watch or await self._session.exists(directory, watch=True) is None:
                    return []

    def _remember(self, bookie_id: BookieId, data: bytes) -> BookieAddress:
        address = decode_service_info(bookie_id, data).rpc_address()
        if address is None:
            raise BookieNotAvailable("its registration names no endpoint for clients", bookie_id=bookie_id)
        self._last_addresses.pop(bookie_id, None)
        self._last_addresses[bookie_id] = address
        if len(self._last_addresses) > ADDRESSES_REMEMBERED_MAX:
            del self._last_addresses[next(iter(self._last_addresses))]
        return address

    async def _announce(self, bookie_id: BookieId, announcement: _Announcement) -> None:
        to, away = (f"{directory}/{bookie_id}" for directory in self.directories)
        if announcement.read_only:
            to, away = away, to
        await self._make_own(to, announcement.data, bookie_id)
        await self._remove_own(away)

    async def _make_own(self, path: str, data: bytes, bookie_id: BookieId) -> None:
        patience_s = self._session.session_timeout_s * _PATIENCE
        wake = asyncio.Event()
        self._session.add_waker(path, wake)
        try:
            async with asyncio.timeout(patience_s):
                while not await self._try_to_make_own(path, data):
                    await wake.wait()
                    wake.clear()
        except TimeoutError as error:
            raise MetadataStoreError(
                f"another session has registered this bookie id and kept it for {patience_s:g} s", bookie_id=bookie_id
            ) from error
        finally:
            self._session.remove_waker(path, wake)

    async def _try_to_make_own(self, path: str, data: bytes) -> bool:
        """Make the znode, or take it for made if this session owns it; ``False``, with a watch set, if another does."""
        while True:
            try:
                await self._session.create(path, data, ephemeral=True)
            except NodeExistsError:
                stat = await self._session.exists(path, watch=True)
            else:
                return True
            if stat is None:
                continue
            if stat.ephemeralOwner != self._session.session_id:
                return False
            try:
                await self._session.request(lambda client: client.set_async(path, data), is_write=True)
            except NoNodeError:
                continue
            return True

    async def _remove_own(self, path: str) -> None:
        stat = await self._session.exists(path)
        if stat is not None and stat.ephemeralOwner == self._session.session_id:
            with suppress(NoNodeError):
                await self._session.delete(path)

    async def _renew(self) -> None:
        while True:
            await self._is_renewal_due.wait()
            self._is_renewal_due.clear()
            async with self._lock:
                for bookie_id, announcement in tuple(self._own.items()):
                    try:
                        await self._announce(bookie_id, announcement)
                    except MetadataStoreError:
                        _log.exception("bookie %s is not registered in the new session yet", bookie_id)
                        self._is_renewal_due.set()
            await asyncio.sleep(REREAD_DELAY_S)
