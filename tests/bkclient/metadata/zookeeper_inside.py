"""The inside of sessions with ZooKeeper, for tests of what goes wrong below them; as :mod:`tests.bkclient.inside`."""

from __future__ import annotations

from typing import Any

from bkclient.metadata.zookeeper.ledgers import Ledgers
from bkclient.metadata.zookeeper.session import ZooKeeperSession
from bkclient.metadata.zookeeper.store import ZooKeeperMetadataStore

__all__ = ["kazoo_of", "ledgers_of", "session_of"]


def session_of(store: ZooKeeperMetadataStore) -> ZooKeeperSession:
    """The session of a store."""
    return store._session


def kazoo_of(session: ZooKeeperSession) -> Any:
    """The client of the library, through which a test loses answers and sees requests."""
    return session._client


def ledgers_of(store: ZooKeeperMetadataStore) -> Ledgers:
    """The layout of a store's ledgers, which knows their paths."""
    return store._ledgers
