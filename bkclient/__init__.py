"""A native async client for Apache BookKeeper.

``async with bkclient.connect(uri) as bk:`` gives a :class:`BookKeeper`; it creates ledgers (:class:`LedgerWriter`) and opens them
(:class:`LedgerReader`). Errors are in :mod:`bkclient.errors`.

Names are imported when they are first used, so that a command line can begin to handle Ctrl-C and missing packages before
most of the client is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bkclient import errors as errors
    from bkclient.client import BookKeeper as BookKeeper
    from bkclient.config import ClientConfig as ClientConfig
    from bkclient.connecting import connect as connect
    from bkclient.errors import BookKeeperError as BookKeeperError
    from bkclient.metadata.model import DigestType as DigestType
    from bkclient.metadata.model import Fragment as Fragment
    from bkclient.metadata.model import LedgerMetadata as LedgerMetadata
    from bkclient.metadata.model import LedgerState as LedgerState
    from bkclient.reading.entry import Entries as Entries
    from bkclient.reading.entry import Entry as Entry
    from bkclient.reading.entry import EntryResult as EntryResult
    from bkclient.reading.entry import LastConfirmedAndEntry as LastConfirmedAndEntry
    from bkclient.reading.reader import LedgerReader as LedgerReader
    from bkclient.reading.tail import LedgerTail as LedgerTail
    from bkclient.writing.advanced import AdvancedLedgerWriter as AdvancedLedgerWriter
    from bkclient.writing.writer import LedgerWriter as LedgerWriter

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
    "errors",
]

_MODULES = {
    "AdvancedLedgerWriter": "bkclient.writing.advanced",
    "BookKeeper": "bkclient.client",
    "BookKeeperError": "bkclient.errors",
    "ClientConfig": "bkclient.config",
    "DigestType": "bkclient.metadata.model",
    "Entries": "bkclient.reading.entry",
    "Entry": "bkclient.reading.entry",
    "EntryResult": "bkclient.reading.entry",
    "Fragment": "bkclient.metadata.model",
    "LastConfirmedAndEntry": "bkclient.reading.entry",
    "LedgerMetadata": "bkclient.metadata.model",
    "LedgerReader": "bkclient.reading.reader",
    "LedgerState": "bkclient.metadata.model",
    "LedgerTail": "bkclient.reading.tail",
    "LedgerWriter": "bkclient.writing.writer",
    "connect": "bkclient.connecting",
}
"""Where the names above are defined, for those who import them; type checkers read the imports at the top."""


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("bkclient.errors")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
