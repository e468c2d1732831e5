"""A native async client for Apache BookKeeper.

``async with bkclient.connect(uri) as bk:`` gives a :class:`BookKeeper`; it creates ledgers (:class:`LedgerWriter`) and opens them
(:class:`LedgerReader`). Errors are in :mod:`bkclient.errors`.

Names are imported when they are first used, so that a command line can begin to handle Ctrl-C and missing packages before
most of the client is loaded.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036  installers look at this, a source tree on the path does not
    raise ImportError(
        "bkclient needs Python 3.11 or newer, and this is " + sys.version.split()[0] + ": " + sys.executable
    )

if TYPE_CHECKING:
    from bkclient import errors as errors
    from bkclient._client.client import BookKeeper as BookKeeper
    from bkclient._client.connect import PendingClient as PendingClient
    from bkclient._client.connect import connect as connect
    from bkclient._client.reading.reader import LedgerReader as LedgerReader
    from bkclient._client.reading.reads import LedgerReads as LedgerReads
    from bkclient._client.reading.tail import LedgerTail as LedgerTail
    from bkclient._client.writing.advanced import AdvancedLedgerWriter as AdvancedLedgerWriter
    from bkclient._client.writing.outcomes import AppendFuture as AppendFuture
    from bkclient._client.writing.writer import LedgerWriter as LedgerWriter
    from bkclient._core import core_in_use as core_in_use
    from bkclient.config import AdminSettings as AdminSettings
    from bkclient.config import ClientConfig as ClientConfig
    from bkclient.config import ConnectionSettings as ConnectionSettings
    from bkclient.config import HealthSettings as HealthSettings
    from bkclient.config import LimitSettings as LimitSettings
    from bkclient.config import MetadataSettings as MetadataSettings
    from bkclient.config import PlacementSettings as PlacementSettings
    from bkclient.config import ReadingSettings as ReadingSettings
    from bkclient.config import TimeoutSettings as TimeoutSettings
    from bkclient.config import TlsSettings as TlsSettings
    from bkclient.config import WritingSettings as WritingSettings
    from bkclient.entry import Entries as Entries
    from bkclient.entry import Entry as Entry
    from bkclient.entry import EntryResult as EntryResult
    from bkclient.entry import LastConfirmedAndEntry as LastConfirmedAndEntry
    from bkclient.errors import BookKeeperError as BookKeeperError
    from bkclient.ledger import DigestType as DigestType
    from bkclient.ledger import Fragment as Fragment
    from bkclient.ledger import LedgerMetadata as LedgerMetadata
    from bkclient.ledger import LedgerState as LedgerState
    from bkclient.metadata.base import BookieSets as BookieSets

__version__ = "0.1.0"

__all__ = [
    "AdminSettings",
    "AdvancedLedgerWriter",
    "AppendFuture",
    "BookKeeper",
    "BookKeeperError",
    "BookieSets",
    "ClientConfig",
    "ConnectionSettings",
    "DigestType",
    "Entries",
    "Entry",
    "EntryResult",
    "Fragment",
    "HealthSettings",
    "LastConfirmedAndEntry",
    "LedgerMetadata",
    "LedgerReader",
    "LedgerReads",
    "LedgerState",
    "LedgerTail",
    "LedgerWriter",
    "LimitSettings",
    "MetadataSettings",
    "PendingClient",
    "PlacementSettings",
    "ReadingSettings",
    "TimeoutSettings",
    "TlsSettings",
    "WritingSettings",
    "connect",
    "core_in_use",
    "errors",
]

_MODULES = {
    "AdminSettings": "bkclient.config",
    "AdvancedLedgerWriter": "bkclient._client.writing.advanced",
    "AppendFuture": "bkclient._client.writing.outcomes",
    "BookKeeper": "bkclient._client.client",
    "BookKeeperError": "bkclient.errors",
    "BookieSets": "bkclient.metadata.base",
    "ClientConfig": "bkclient.config",
    "ConnectionSettings": "bkclient.config",
    "DigestType": "bkclient.ledger",
    "Entries": "bkclient.entry",
    "Entry": "bkclient.entry",
    "EntryResult": "bkclient.entry",
    "Fragment": "bkclient.ledger",
    "HealthSettings": "bkclient.config",
    "LastConfirmedAndEntry": "bkclient.entry",
    "LedgerMetadata": "bkclient.ledger",
    "LedgerReader": "bkclient._client.reading.reader",
    "LedgerReads": "bkclient._client.reading.reads",
    "LedgerState": "bkclient.ledger",
    "LedgerTail": "bkclient._client.reading.tail",
    "LedgerWriter": "bkclient._client.writing.writer",
    "LimitSettings": "bkclient.config",
    "MetadataSettings": "bkclient.config",
    "PendingClient": "bkclient._client.connect",
    "PlacementSettings": "bkclient.config",
    "ReadingSettings": "bkclient.config",
    "TimeoutSettings": "bkclient.config",
    "TlsSettings": "bkclient.config",
    "WritingSettings": "bkclient.config",
    "connect": "bkclient._client.connect",
    "core_in_use": "bkclient._core",
}
"""Where the names above are defined, for those who import them; type checkers read the imports at the top."""


if not TYPE_CHECKING:  # type checkers take a module with this function to have every name

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
