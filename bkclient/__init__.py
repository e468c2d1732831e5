"""A native async client for Apache BookKeeper.

``async with bkclient.connect(uri) as bk:`` gives a :class:`BookKeeper`; it creates ledgers (:class:`LedgerWriter`) and opens them
(:class:`LedgerReader`). Errors are in :mod:`bkclient.errors`.
"""

from bkclient.client import BookKeeper
from bkclient.config import ClientConfig
from bkclient.connecting import connect
from bkclient.entry import Entries, Entry, EntryResult, LastConfirmedAndEntry
from bkclient.errors import BookKeeperError
from bkclient.metadata.model import DigestType, Fragment, LedgerMetadata, LedgerState
from bkclient.reader import LedgerReader
from bkclient.tail import LedgerTail
from bkclient.writer import LedgerWriter
from bkclient.writer_advanced import AdvancedLedgerWriter

__all__ = [
    "AdvancedLedgerWriter",
    "BookKeeper",
    "BookKeeperError",
    "ClientConfig",
    "DigestType",
    "Entries",
    "Entry",
    "EntryResult",
    "Fragment",
    "LastConfirmedAndEntry",
    "LedgerMetadata",
    "LedgerReader",
    "LedgerState",
    "LedgerTail",
    "LedgerWriter",
    "connect",
]
