"""An unbounded, named, replicated log over ledgers: publish under a name for ever, read from any position.

:class:`Logs` creates, opens, trims and deletes logs. ``docs/using/log.md`` shows how to use them.
"""

from bkclient.log.checking import LogLedgerReport
from bkclient.log.consumer import LogConsumer
from bkclient.log.cursor import LogCursor
from bkclient.log.cursor_admin import CursorInfo
from bkclient.log.errors import ConsumerRefused, LogDeposed, LogExists, LogTooLong, LogTrimmed, NoSuchLog
from bkclient.log.format.message import LogMessage
from bkclient.log.format.message_id import MessageId
from bkclient.log.logs import Logs
from bkclient.log.machine.manifest import CompactedLedger, LedgerEnd, LogLedger, LogManifest, LogState
from bkclient.log.membership import ConsumerMode
from bkclient.log.reader import LogReader
from bkclient.log.settings import LogSettings, PublishSettings
from bkclient.log.writer import LogWriter

__all__ = [
    "CompactedLedger",
    "ConsumerMode",
    "ConsumerRefused",
    "CursorInfo",
    "LedgerEnd",
    "LogConsumer",
    "LogCursor",
    "LogDeposed",
    "LogExists",
    "LogLedger",
    "LogLedgerReport",
    "LogManifest",
    "LogMessage",
    "LogReader",
    "LogSettings",
    "LogState",
    "LogTooLong",
    "LogTrimmed",
    "LogWriter",
    "Logs",
    "MessageId",
    "NoSuchLog",
    "PublishSettings",
]
