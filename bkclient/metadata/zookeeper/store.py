"""The store itself: the parts of this driver behind the methods of the seam."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from types import TracebackType
from typing import Final, Self

from bkclient.ledger import BookieId, LedgerMetadata, Versioned
from bkclient.metadata.base import BookieAddress, BookieListener, BookieSets, Cancel, LedgerListener
from bkclient.metadata.paths import LedgerManager
from bkclient.metadata.uri import ZooKeeperUri
from bkclient.metadata.zookeeper.cluster import initialise_cluster, open_cluster
from bkclient.metadata.zookeeper.ids import LedgerIdGenerator
from bkclient.metadata.zookeeper.ledgers import Ledgers
from bkclient.metadata.zookeeper.registry import Bookies
from bkclient.metadata.zookeeper.session import ZooKeeperSession
from bkclient.metadata.zookeeper.tree import ZooKeeperTree
from bkclient.metadata.zookeeper.watches import Watched

__all__ = ["OPERATION_TIMEOUT_S_DEFAULT", "ZooKeeperMetadataStore", "connect_zookeeper"]

OPERATION_TIMEOUT_S_DEFAULT: Final = 30.0


class ZooKeeperMetadataStore:
    """A session with a BookKeeper cluster in ZooKeeper; implements :class:`bkclient.metadata.base.MetadataStore`.

    Made by :func:`connect_zookeeper`. Belongs to the event loop it was made in. Operations wait for a lost connection
    to return, up to the operation timeout; what they mean when it does not is told in
    :mod:`bkclient.metadata.zookeeper.session`. After :meth:`aclose` they raise :class:`~bkclient.errors.ClientClosed`.
    """

    def __init__(self, session: ZooKeeperSession, root: str, manager: LedgerManager, rng: Random) -> None:
        self.manager = manager
        self._session = session
        self._ids = LedgerIdGenerator(session, root, manager)
        self._ledgers = Ledgers(session, root, manager, rng)
        self._bookies = Bookies(session, root)
        self._tree = ZooKeeperTree(session, root)
        self._parent_tree = ZooKeeperTree(session, root.rpartition("/")[0])
        self._watched_ledgers: dict[int, Watched[Versioned | None]] = {}
        self._watched_bookies: Watched[BookieSets] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def generate_ledger_id(self) -> int:
        """An id from the cluster's counters; :class:`~bkclient.errors.LedgerIdOverflow` if they are exhausted."""
        self._session.check_open()
        return await self._ids.generate()

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned:
        """Register a ledger; :class:`~bkclient.errors.LedgerExists` if another creator has the id (API-6)."""
        return await self._ledgers.create(metadata)

    async def read_ledger(self, ledger_id: int) -> Versioned:
        """The present value, as the leader of the service knows it."""
        return await self._ledgers.read(ledger_id)

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        """Replace the value if its version still is ``expected_version``, as the seam says."""
        return await self._ledgers.write(metadata, expected_version)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Remove the ledger, whatever its version, if there is one (DEL-1, DEL-2, DEL-5)."""
        await self._ledgers.delete(ledger_id)

    def list_ledgers(self) -> AsyncIterator[int]:
        """All ledger ids, ascending; not a snapshot (DEL-6)."""
        return self._ledgers.ids()

    def watch_ledger(self, ledger_id: int, listener: LedgerListener) -> Cancel:
        """Follow one ledger's metadata, over lost connections and expired sessions (NR-7)."""
        self._session.check_open(ledger_id=ledger_id)
        watched = self._watched_ledgers.get(ledger_id)
        if watched is None:
            path = self._ledgers.path(ledger_id)
            watched = Watched(
                self._session,
                (path,),
                lambda: self._ledgers.watched_read(ledger_id),
                lambda: self._watched_ledgers.pop(ledger_id, None),
            )
            self._watched_ledgers[ledger_id] = watched
        return watched.add(listener)

    async def bookies(self) -> BookieSets:
        """The bookies registered now."""
        return await self._bookies.sets()

    def watch_bookies(self, listener: BookieListener) -> Cancel:
        """Follow the registered bookies (PL-1)."""
        self._session.check_open()
        if self._watched_bookies is None:
            self._watched_bookies = Watched(
                self._session, self._bookies.directories, self._bookies.watched_sets, self._forget_watched_bookies
            )
        return self._watched_bookies.add(listener)

    async def bookie_address(self, bookie_id: BookieId) -> BookieAddress:
        """Where the bookie listens, or did when this session last asked.

        :class:`~bkclient.errors.BookieNotAvailable` if it is not registered and this session never saw it,
        :class:`~bkclient.errors.MetadataSerializationError` if its registration cannot be read.
        """
        return await self._bookies.address(bookie_id)

    async def register_bookie(self, bookie_id: BookieId, address: BookieAddress, *, read_only: bool = False) -> None:
        """Announce a bookie for as long as this session, or the one that replaces it after an expiry, lives."""
        await self._bookies.register(bookie_id, address, read_only=read_only)

    async def unregister_bookie(self, bookie_id: BookieId) -> None:
        """Withdraw a bookie if this session announced it. Idempotent."""
        await self._bookies.unregister(bookie_id)

    def node_tree(self) -> ZooKeeperTree:
        """The znodes below the root of the cluster, for :mod:`bkclient.metadata.tree`."""
        self._session.check_open()
        return self._tree

    def parent_tree(self) -> ZooKeeperTree:
        """The znodes beside the root of the cluster, where programs that use it keep theirs; for the same."""
        self._session.check_open()
        return self._parent_tree

    async def aclose(self) -> None:
        """End the session: its bookies and nodes disappear and its listeners are called no more. Idempotent."""
        for watched in tuple(self._watched_ledgers.values()):
            await watched.aclose()
        if self._watched_bookies is not None:
            await self._watched_bookies.aclose()
        await self._tree.aclose()
        await self._bookies.aclose()
        await self._session.aclose()

    def _forget_watched_bookies(self) -> None:
        self._watched_bookies = None


async def connect_zookeeper(
    target: ZooKeeperUri,
    *,
    rng: Random,
    session_timeout_s: float,
    connect_timeout_s: float | None,
    operation_timeout_s: float = OPERATION_TIMEOUT_S_DEFAULT,
    initialise: bool = False,
) -> ZooKeeperMetadataStore:
    """Open a session with the cluster that ``target`` names; see :func:`bkclient.metadata.opening.open_store`.

    ``operation_timeout_s`` is how long an operation waits for a lost connection to return.
    """
    session = await ZooKeeperSession.open(
        ",".join(target.hosts),
        session_timeout_s=session_timeout_s,
        connect_timeout_s=connect_timeout_s,
        operation_timeout_s=operation_timeout_s,
        name=str(target),
    )
    try:
        if initialise:
            await initialise_cluster(session, target, rng)
        manager = await open_cluster(session, target)
    except BaseException:
        await session.aclose()
        raise
    return ZooKeeperMetadataStore(session, target.root, manager, rng)
