"""The tree of nodes in ZooKeeper, where they are znodes below the root of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from bkclient.errors import MetadataStoreError
from bkclient.metadata.base import Cancel
from bkclient.metadata.tree import TreeNode
from bkclient.metadata.zookeeper.session import ZooKeeperSession
from bkclient.metadata.zookeeper.watches import Watched

__all__ = ["ZooKeeperTree"]

_ATTEMPTS_MAX: Final = 20


class ZooKeeperTree:
    """Implements :class:`bkclient.metadata.tree.NodeTree` for one session."""

    def __init__(self, session: ZooKeeperSession, root: str) -> None:
        self._session = session
        self._root = root
        self._watched: dict[str, Watched[None]] = {}

    async def aclose(self) -> None:
        """End the watches. The ephemeral nodes go with the session."""
        for watched in tuple(self._watched.values()):
            await watched.aclose()

    async def get(self, path: str) -> TreeNode | None:
        """See :class:`~bkclient.metadata.tree.NodeTree`, as for all that follows. Reads what the leader knows."""
        try:
            data, stat = await self._session.get(self._absolute(path), sync=True)
        except NoNodeError:
            return None
        is_own = stat.ephemeralOwner != 0 and stat.ephemeralOwner == self._session.session_id
        return TreeNode(data, stat.version, is_own)

    async def children(self, path: str) -> list[str]:
        """See there."""
        try:
            return await self._session.children(self._absolute(path))
        except NoNodeError:
            return []

    async def create(
        self, path: str, data: bytes = b"", *, is_ephemeral: bool = False, is_sequential: bool = False
    ) -> str | None:
        """See the protocol. Directories above may be removed meanwhile by a client that found them empty; they are made again."""
        absolute = self._absolute(path)
        for _ in range(_ATTEMPTS_MAX):
            try:
                name = await self._session.create(absolute, data, ephemeral=is_ephemeral, sequence=is_sequential)
            except NodeExistsError:
                return None
            except NoNodeError:
                await self._make_directories(path)
            else:
                return name.removeprefix(f"{self._root}/")
        raise MetadataStoreError(f"the directory of {absolute} disappears as often as it is made")

    async def write(self, path: str, data: bytes, version: int) -> bool:
        """See there."""
        try:
            await self._session.request(
                lambda client: client.set_async(self._absolute(path), data, version=version),
                is_write=True,
                is_repeatable=False,
            )
        except (NoNodeError, BadVersionError):
            return False
        return True

    async def delete(self, path: str, version: int | None = None) -> bool:
        """See there."""
        try:
            await self._session.request(
                lambda client: client.delete_async(self._absolute(path), version=-1 if version is None else version),
                is_write=True,
            )
        except NoNodeError:
            return True
        except (BadVersionError, NotEmptyError):
            return False
        return True

    def watch(self, path: str, listener: Callable[[], None]) -> Cancel:
        """See there."""
        self._session.check_open()
        watched = self._watched.get(path)
        if watched is None:
            absolute = self._absolute(path)
            watched = Watched(
                self._session, (absolute,), partial(self._stamp, absolute), lambda: self._watched.pop(path, None)
            )
            self._watched[path] = watched
        return watched.add(lambda _: listener())

    async def _stamp(self, absolute: str) -> tuple[object, None]:
        """The transactions that made and last changed the node and its children; both kinds of watch are armed."""
        stat = await self._session.exists(absolute, watch=True)
        if stat is None:
            return None, None
        with suppress(NoNodeError):
            await self._session.children(absolute, watch=True)
        # Armed before it is read, so that nothing is missed in between.
        stat = await self._session.exists(absolute, watch=True)
        return None if stat is None else (stat.czxid, stat.mzxid, stat.pzxid), None

    async def _make_directories(self, path: str) -> None:
        names = path.split("/")[:-1]
        for depth in range(1, len(names) + 1):
            with suppress(NodeExistsError, NoNodeError):
                await self._session.create(self._absolute("/".join(names[:depth])))

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{path}"
