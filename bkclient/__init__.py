"""A native async client for Apache BookKeeper.

``async with bkclient.connect(uri) as bk:`` gives a :class:`BookKeeper`; it creates ledgers (:class:`LedgerWriter`) and opens them
(:class:`LedgerReader`). Errors are in :mod:`bkclient.errors`.
"""

from bkclient.client import BookKeeper
from bkclient.config import ClientConfig
from bkclient.connecting import connect
from bkclient.entry import Entry
from bkclient.errors import BookKeeperError
from bkclient.metadata.model import DigestType, Fragment, LedgerMetadata, LedgerState
from bkclient.reader import LedgerReader
from bkclient.writer import LedgerWriter
from bkclient.writer_advanced import AdvancedLedgerWriter

__all__ = [
    "AdvancedLedgerWriter",
    "BookKeeper",
    "BookKeeperError",
    "ClientConfig",
    "DigestType",
    "Entry",
    "Fragment",
    "LedgerMetadata",
    "LedgerReader",
    "LedgerState",
    "LedgerWriter",
    "connect",
]
