"""Ledger ids from ZooKeeper's sequence counters.

A short id is the counter that ZooKeeper appends to an ephemeral sequential znode. The counter has 31 bits. Once it has
run over, ids have two halves: the number of a directory ``HOB-<n>`` ("high order bits") and a counter inside that
directory. So ids are below 2^31 - 1 or from 2^32 on, and which clients switched first does not matter: a client that finds
the directory of long ids uses it.

The znode that served as the counter is removed at once, without waiting; if that fails the session takes it along when
it ends. A request that is repeated after a lost connection skips an id, which does no harm.
"""

from __future__ import annotations

import logging
from typing import Final

from kazoo.exceptions import NodeExistsError, NoNodeError

from bkclient.errors import LedgerIdOverflow, MetadataStoreError
from bkclient.metadata.paths import SHORT_LEDGER_ID_LIMIT, LedgerManager, is_digits, sequence_number
from bkclient.metadata.zookeeper.session import ZooKeeperSession

__all__ = ["LedgerIdGenerator"]

HIGH_BITS_KEPT: Final = 3
"""How many directories of long ids stay; older ones are removed."""

_ATTEMPTS_MAX: Final = 10
_HIGH_BITS_MAX: Final = 2**31 - 1
_LOW_BITS: Final = 32

_log = logging.getLogger(__name__)


class LedgerIdGenerator:
    """Generates ids as every client of the cluster does, by the cluster's ledger manager."""

    def __init__(self, session: ZooKeeperSession, root: str, manager: LedgerManager) -> None:
        self._session = session
        self._short_prefix = f"{root}/ID-" if manager is LedgerManager.FLAT else f"{root}/idgen/ID-"
        self._long_directory = f"{root}/idgen-long" if manager.has_long_tree else None

    async def generate(self) -> int:
        """An id that no earlier call returned; :class:`~bkclient.errors.LedgerIdOverflow` if there are no more."""
        if self._long_directory is not None and await self._session.exists(self._long_directory) is not None:
            return await self._long(self._long_directory)
        number = await self._next(self._short_prefix)
        if number is not None:
            return number
        if self._long_directory is None:
            raise LedgerIdOverflow(f"all ids below {SHORT_LEDGER_ID_LIMIT} are given out")
        await self._ensure(self._long_directory)
        return await self._long(self._long_directory)

    async def _long(self, directory: str) -> int:
        high_bits = await self._high_bits(directory)
        high = high_bits[-1] if high_bits else await self._open_high_bits(directory, 1)
        for _ in range(_ATTEMPTS_MAX):
            low = await self._next(f"{_high_directory(directory, high)}/ID-")
            if low is not None:
                return high << _LOW_BITS | low
            high = await self._open_high_bits(directory, high + 1)
        raise MetadataStoreError(f"the last {_ATTEMPTS_MAX} directories of ledger ids in {directory} are used up")

    async def _high_bits(self, directory: str) -> list[int]:
        names = await self._session.children(directory)
        return sorted(int(name[4:]) for name in names if name.startswith("HOB-") and is_digits(name[4:], 10))

    async def _open_high_bits(self, directory: str, high: int) -> int:
        if high > _HIGH_BITS_MAX:
            raise LedgerIdOverflow("no ledger id is left: all 63-bit ids are in use")
        await self._ensure(_high_directory(directory, high))
        for old in (await self._high_bits(directory))[:-HIGH_BITS_KEPT]:
            self._session.delete_later(_high_directory(directory, old))
        return high

    async def _next(self, prefix: str) -> int | None:
        """The next number of the counter at ``prefix``, ``None`` once it is exhausted."""
        for _ in range(_ATTEMPTS_MAX):
            try:
                path = await self._session.create(prefix, ephemeral=True, sequence=True)
            except NoNodeError:
                await self._ensure(prefix.rpartition("/")[0])
                continue
            self._session.delete_later(path)
            number = sequence_number(path, prefix)
            return number if 0 <= number < SHORT_LEDGER_ID_LIMIT else None
        raise MetadataStoreError(f"the directory of {prefix} disappears as often as it is made")

    async def _ensure(self, path: str) -> None:
        try:
            await self._session.create(path)
        except NodeExistsError:
            _log.debug("%s is there already", path)


def _high_directory(directory: str, high: int) -> str:
    return f"{directory}/HOB-{high:010d}"
