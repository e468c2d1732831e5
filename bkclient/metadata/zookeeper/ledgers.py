"""Ledger metadata as znodes: create, read, compare-and-set, delete, list.

The version of a ledger's metadata is the version of its znode, so the service itself does the compare-and-set.
Directories above the ledgers are made when a create finds none, and removed when a delete leaves them empty (DEL-5);
two clients may do both at once, so a create begins again when its directory was removed under it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from random import Random
from typing import Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.states import ZnodeStat

from bkclient.errors import LedgerExists, MetadataStoreError, MetadataVersionConflict, NoSuchLedger
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.metadata.codec import decode_ledger_metadata, encode_ledger_metadata
from bkclient.metadata.creator_token import carries_creator_token, is_created_by, with_creator_token
from bkclient.metadata.paths import LedgerManager, is_digits, ledger_path, parse_ledger_path
from bkclient.metadata.zookeeper.session import ZooKeeperSession

__all__ = ["Ledgers"]

_CREATE_ATTEMPTS_MAX: Final = 20
_ZNODE_VERSION_MAX: Final = 2**31 - 1
_SHORT_WIDTHS: Final = (2, 4, 4)
_LONG_WIDTHS: Final = (3, 4, 4, 4, 4)
_FLAT_WIDTHS: Final = (10,)

_log = logging.getLogger(__name__)


class Ledgers:
    """The ledgers of one cluster, named by its ledger manager."""

    def __init__(self, session: ZooKeeperSession, root: str, manager: LedgerManager, rng: Random) -> None:
        self._session = session
        self._root = root
        self._manager = manager
        self._rng = rng

    def path(self, ledger_id: int) -> str:
        """The ledger's znode; :class:`~bkclient.errors.ArgumentError` for an id that the manager cannot name."""
        return ledger_path(self._root, self._manager, ledger_id)

    async def create(self, metadata: LedgerMetadata) -> Versioned:
        """Register a ledger.

        A create whose connection was lost is sent again, which is safe because the creator token tells one's own work
        (API-6). Without a token, in formats 1 and 2, it ends with :class:`~bkclient.errors.MetadataOutcomeUnknown`.
        """
        metadata = with_creator_token(metadata, self._rng)
        ledger_id = metadata.ledger_id
        path, data = self.path(ledger_id), encode_ledger_metadata(metadata)
        for _ in range(_CREATE_ATTEMPTS_MAX):
            try:
                _, stat = await self._session.request(
                    lambda client: client.create_async(path, data, include_data=True),
                    is_write=True,
                    is_repeatable=carries_creator_token(metadata),
                    ledger_id=ledger_id,
                )
            except NoNodeError:
                await self._make_directories(path, ledger_id)
            except NodeExistsError as error:
                present = await self._read_or_none(ledger_id)
                if present is None:
                    continue
                if is_created_by(present.metadata, metadata):
                    return present
                raise LedgerExists(ledger_id=ledger_id) from error
            else:
                return _versioned(ledger_id, data, stat)
        raise MetadataStoreError("its directory disappears as often as it is made", ledger_id=ledger_id)

    async def read(self, ledger_id: int) -> Versioned:
        """The value and its version; :class:`~bkclient.errors.NoSuchLedger` if there is none."""
        present = await self._read_or_none(ledger_id)
        if present is None:
            raise NoSuchLedger(ledger_id=ledger_id)
        return present

    async def watched_read(self, ledger_id: int) -> tuple[object, Versioned | None]:
        """The value with its stamp, the transaction that wrote it, and a watch for the next one (NR-7)."""
        path = self.path(ledger_id)
        while True:
            try:
                data, stat = await self._session.get(path, watch=True, ledger_id=ledger_id)
            except NoNodeError:
                # A watch on what is not there fires when it is created; if it just was, read it after all.
                if await self._session.exists(path, watch=True) is None:
                    return None, None
            else:
                return stat.mzxid, _versioned(ledger_id, data, stat)

    async def write(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        """Replace the value at ``expected_version``. Never repeated: an own success would look like a conflict."""
        ledger_id = metadata.ledger_id
        path, data = self.path(ledger_id), encode_ledger_metadata(metadata)
        if not 0 <= expected_version <= _ZNODE_VERSION_MAX:
            # To ZooKeeper -1 means any version, and greater numbers cannot be sent.
            present = await self.read(ledger_id)
            raise _conflict(ledger_id, expected_version, f"it is {present.version}")
        try:
            stat = await self._session.request(
                lambda client: client.set_async(path, data, version=expected_version),
                is_write=True,
                is_repeatable=False,
                ledger_id=ledger_id,
            )
        except NoNodeError as error:
            raise NoSuchLedger(ledger_id=ledger_id) from error
        except BadVersionError as error:
            raise _conflict(ledger_id, expected_version, "it is another") from error
        return _versioned(ledger_id, data, stat)

    async def delete(self, ledger_id: int) -> None:
        """Remove the ledger, of whatever version, if there is one, and the directories it leaves empty."""
        path = self.path(ledger_id)
        try:
            await self._session.delete(path, ledger_id=ledger_id)
        except NoNodeError:
            _log.warning("ledger %d was to be deleted and is not there", ledger_id)
        await self._remove_directories(path)

    async def ids(self) -> AsyncIterator[int]:
        """All ledger ids, ascending: the short tree before the long one, each in the order of its names."""
        trees: list[tuple[int, ...]] = []
        if self._manager is LedgerManager.FLAT:
            trees.append(_FLAT_WIDTHS)
        if self._manager.has_short_tree:
            trees.append(_SHORT_WIDTHS)
        if self._manager.has_long_tree:
            trees.append(_LONG_WIDTHS)
        for widths in trees:
            directories = [(self._root, 0)]
            while directories:
                directory, depth = directories.pop()
                names = await self._names(directory)
                paths = [f"{directory}/{name}" for name in names if _is_level(name, widths, depth)]
                if depth < len(widths) - 1:
                    directories += [(path, depth + 1) for path in reversed(paths)]
                    continue
                for path in paths:
                    yield parse_ledger_path(self._root, path)

    async def _read_or_none(self, ledger_id: int) -> Versioned | None:
        try:
            data, stat = await self._session.get(self.path(ledger_id), sync=True, ledger_id=ledger_id)
        except NoNodeError:
            return None
        return _versioned(ledger_id, data, stat)

    async def _make_directories(self, path: str, ledger_id: int) -> None:
        for directory in reversed(self._directories(path)):
            try:
                await self._session.create(directory)
            except NodeExistsError:
                continue
            except NoNodeError as error:
                if await self._session.exists(self._root) is None:
                    raise MetadataStoreError(
                        f"the cluster's root {self._root} is gone from {self._session.name}", ledger_id=ledger_id
                    ) from error
                return

    async def _remove_directories(self, path: str) -> None:
        """Best effort: what is left behind is an empty directory, which does no harm."""
        for directory in self._directories(path):
            try:
                await self._session.delete(directory)
            except NoNodeError:
                continue
            except NotEmptyError:
                return
            except MetadataStoreError as error:
                _log.warning("the empty directory %s stays: %s", directory, error)
                return

    def _directories(self, path: str) -> list[str]:
        """The directories between a ledger and the root, from the ledger upwards."""
        names = path.removeprefix(f"{self._root}/").split("/")[:-1]
        return ["/".join((self._root, *names[:depth])) for depth in range(len(names), 0, -1)]

    async def _names(self, directory: str) -> list[str]:
        try:
            return await self._session.children(directory)
        except NoNodeError:
            return []


def _is_level(name: str, widths: tuple[int, ...], depth: int) -> bool:
    """Whether ``name`` belongs into a tree of ledgers at this depth; the last level is that of the ledgers."""
    if depth < len(widths) - 1:
        return is_digits(name, widths[depth])
    return name.startswith("L") and is_digits(name[1:], widths[depth])


def _versioned(ledger_id: int, data: bytes, stat: ZnodeStat) -> Versioned:
    return Versioned(decode_ledger_metadata(ledger_id, data), stat.version, stat.ctime)


def _conflict(ledger_id: int, expected_version: int, present: str) -> MetadataVersionConflict:
    return MetadataVersionConflict(f"the version is not {expected_version} any more, {present}", ledger_id=ledger_id)
