"""The client for scripts and threads: every call waits until it is done, and may come from any thread.

::

    with bkclient.sync.connect("zk://localhost:2181/ledgers") as bk:
        with bk.create_ledger() as writer:
            writer.append(b"stored when this returns")

The shipped client runs on an event loop in a thread of its own; names, arguments and errors are those of :mod:`bkclient`.
``docs/using/sync.md`` shows how to use it.
"""

from bkclient.sync.client import PendingSyncClient, SyncBookKeeper, connect
from bkclient.sync.ledgers import SyncAdvancedLedgerWriter, SyncLedgerReader, SyncLedgerWriter
from bkclient.sync.logs import SyncLogConsumer, SyncLogCursor, SyncLogReader, SyncLogs, SyncLogWriter

__all__ = [
    "PendingSyncClient",
    "SyncAdvancedLedgerWriter",
    "SyncBookKeeper",
    "SyncLedgerReader",
    "SyncLedgerWriter",
    "SyncLogConsumer",
    "SyncLogCursor",
    "SyncLogReader",
    "SyncLogWriter",
    "SyncLogs",
    "connect",
]
