"""A native async client for Apache BookKeeper.

``async with bkclient.connect(uri) as bk:`` gives a :class:`BookKeeper`; it creates ledgers (:class:`LedgerWriter`) and opens them
(:class:`LedgerReader`). Errors are in :mod:`bkclient.errors`.
"""

from bkclient.client import BookKeeper
from bkclient.config import ClientConfig
from bkclient.connecting import connect
from bkclient.errors import BookKeeperError
from bkclient.metadata.model import DigestType, Fragment, LedgerMetadata, LedgerState
from bkclient.reading.entry import Entries, Entry, EntryResult, LastConfirmedAndEntry
from bkclient.reading.reader import LedgerReader
from bkclient.reading.tail import LedgerTail
from bkclient.writing.advanced import AdvancedLedgerWriter
from bkclient.writing.writer import LedgerWriter

__version__ = "0.1.0"

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
