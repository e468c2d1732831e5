"""What a client writes to the log: every kind of line is declared here, as an event with a name and fields.

Lines go to loggers of the standard library, one for each part of the client (``bkclient.transport``, ``bkclient.writer``, ...),
which an application configures like any others; without configuration nothing is written. A record carries its event's
name and what it is about as attributes, for formatters and filters: ``event``, ``ledger_id``, ``entry_id``, ``bookie_id`` and
``code`` (None where it is about none), and ``details`` (a dict).

Events are about changes: a connection, an ensemble, a recovery. There is none for an entry, so a client that works writes
nothing however much it writes and reads, and an event whose level is off builds no record. Passwords and payloads are
never logged.

The machines under :mod:`bkclient.protocol` do not log; their shells do. ``docs/using/observability.md`` lists the events.
"""

from __future__ import annotations

import logging
from typing import Any, Final

__all__ = ["EVENTS", "LogEvent", "LogThrottle"]

#: Every event, by logger and name.
EVENTS: Final[dict[tuple[str, str], LogEvent]] = {}

logging.getLogger("bkclient").addHandler(logging.NullHandler())


class LogEvent:
    """One kind of line. Call it with the fields that its ``template`` names."""

    __slots__ = ("_logger", "level", "logger_name", "name", "template")

    def __init__(self, area: str, name: str, level: int, template: str) -> None:
        self.logger_name = f"bkclient.{area}"
        self.name = name
        self.level = level
        self.template = template
        self._logger = logging.getLogger(self.logger_name)
        assert (self.logger_name, name) not in EVENTS, f"{name} is declared twice"
        EVENTS[self.logger_name, name] = self

    @property
    def is_enabled(self) -> bool:
        """Whether anybody wants it; to be asked where its fields are costly to come by."""
        return self._logger.isEnabledFor(self.level)

    def __call__(
        self,
        *,
        ledger_id: int | None = None,
        entry_id: int | None = None,
        bookie_id: str | None = None,
        code: int | None = None,
        **details: Any,
    ) -> None:
        """It happened."""
        if not self._logger.isEnabledFor(self.level):
            return
        about = {"ledger_id": ledger_id, "entry_id": entry_id, "bookie_id": bookie_id, "code": code}
        extra = about | {"event": self.name, "details": details}
        self._logger.log(self.level, self.template, about | details, extra=extra, stacklevel=2)


class LogThrottle:
    """Lets one of many equal lines pass in ``interval_s``, for each of the things they are about; counts the others."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._held_back: dict[str, tuple[float, int]] = {}

    def passes(self, subject: str, now: float) -> int | None:
        """None to be silent about ``subject``; else how many lines were held back since the last one that passed."""
        next_at, count = self._held_back.get(subject, (now, 0))
        if now < next_at:
            self._held_back[subject] = (next_at, count + 1)
            return None
        self._held_back[subject] = (now + self._interval_s, 0)
        return count

    def reset(self, subject: str) -> None:
        """What comes next about ``subject`` is news."""
        self._held_back.pop(subject, None)


# Transport -----------------------------------------------------------------------------------------------------------

CONNECTION_MADE: Final = LogEvent(
    "transport", "connection_made", logging.INFO, "connected to bookie %(bookie_id)s at %(address)s"
)
CONNECTION_LOST: Final = LogEvent(
    "transport",
    "connection_lost",
    logging.WARNING,
    "lost the connection to bookie %(bookie_id)s with %(outstanding)d requests under way: %(reason)s",
)
CONNECTION_CLOSED: Final = LogEvent(
    "transport",
    "connection_closed",
    logging.INFO,
    "closed a further connection to bookie %(bookie_id)s that is not needed any more",
)
BOOKIE_UNAVAILABLE: Final = LogEvent(
    "transport",
    "bookie_unavailable",
    logging.WARNING,
    "cannot connect to bookie %(bookie_id)s: %(reason)s (%(held_back)d such failures since the last line about it)",
)

# Client --------------------------------------------------------------------------------------------------------------

CLIENT_CONNECTED: Final = LogEvent("client", "connected", logging.INFO, "connected to the metadata service %(uri)s")
CLIENT_CLOSED: Final = LogEvent("client", "closed", logging.INFO, "closed the client of %(uri)s")

# Recovery ------------------------------------------------------------------------------------------------------------

RECOVERY_STARTED: Final = LogEvent("recovery", "recovery_started", logging.INFO, "recovering ledger %(ledger_id)d")
RECOVERY_FINISHED: Final = LogEvent(
    "recovery",
    "recovery_finished",
    logging.INFO,
    "recovered ledger %(ledger_id)d: it ends at entry %(entry_id)d, %(found)d entries were found beyond what was confirmed and "
    "%(written)d written back, in %(seconds).3f s",
)
RECOVERY_LENGTH_UNCERTAIN: Final = LogEvent(
    "recovery",
    "recovery_length_uncertain",
    logging.WARNING,
    "the length of ledger %(ledger_id)d, %(length)d bytes, may be wrong: entry %(entry_id)d, where it ends, could not be read "
    "when it was recovered; its entries are not affected",
)
RECOVERY_FAILED: Final = LogEvent(
    "recovery",
    "recovery_failed",
    logging.WARNING,
    "could not recover ledger %(ledger_id)d in %(seconds).3f s: %(reason)s [%(code)d]",
)

# Reader --------------------------------------------------------------------------------------------------------------

END_BELOW_CONFIRMED: Final = LogEvent(
    "reader",
    "end_below_confirmed",
    logging.ERROR,
    "ledger %(ledger_id)d was closed at entry %(entry_id)d, although its bookies had told that entry %(confirmed)d is confirmed: "
    "entries were lost",
)
END_CHANGED: Final = LogEvent(
    "reader",
    "end_changed",
    logging.ERROR,
    "ledger %(ledger_id)d, closed at entry %(entry_id)d, is now stored as %(state)s at entry %(stored)d, which is ignored: the "
    "end of a ledger is final",
)

# Writer --------------------------------------------------------------------------------------------------------------

ENSEMBLE_CHANGED: Final = LogEvent(
    "writer",
    "ensemble_changed",
    logging.INFO,
    "ledger %(ledger_id)d is stored by %(ensemble)s from entry %(entry_id)d on",
)
WRITER_FENCED: Final = LogEvent(
    "writer", "fenced", logging.WARNING, "another client has taken over ledger %(ledger_id)d at entry %(entry_id)d"
)
TAKEOVER_FOUND: Final = LogEvent(
    "writer",
    "takeover_found",
    logging.WARNING,
    "another client has taken over ledger %(ledger_id)d, which is stored as %(state)s: its writer read that after it had "
    "connected to bookies anew, and %(held)d answers of bookies that may have forgotten their fence do not count",
)
WRITER_FAILED: Final = LogEvent(
    "writer",
    "failed",
    logging.WARNING,
    "the writer of ledger %(ledger_id)d ends at entry %(entry_id)d: %(reason)s [%(code)d]",
)
ACKNOWLEDGED_LOST: Final = LogEvent(
    "writer",
    "acknowledged_lost",
    logging.ERROR,
    "another client closed ledger %(ledger_id)d at entry %(entry_id)d, although its writer had acknowledged entries up to "
    "%(confirmed)d: entries were lost",
)
LEDGER_CLOSED: Final = LogEvent("writer", "closed", logging.DEBUG, "closed ledger %(ledger_id)d at entry %(entry_id)d")
CLOSE_FAILED: Final = LogEvent(
    "writer", "close_failed", logging.WARNING, "could not close ledger %(ledger_id)d: %(reason)s [%(code)d]"
)

# Metadata ------------------------------------------------------------------------------------------------------------

METADATA_DISCONNECTED: Final = LogEvent(
    "metadata", "disconnected", logging.WARNING, "lost the connection to %(name)s; requests wait for the next one"
)
METADATA_SESSION_LOST: Final = LogEvent(
    "metadata", "session_lost", logging.WARNING, "the session with %(name)s expired; what it had registered is gone"
)
METADATA_SESSION_ABANDONED: Final = LogEvent(
    "metadata",
    "session_abandoned",
    logging.WARNING,
    "%(name)s did not confirm the end of the session within %(seconds)g s and was left; it ends the session itself later",
)
METADATA_REGISTRATION_IGNORED: Final = LogEvent(
    "metadata",
    "registration_ignored",
    logging.WARNING,
    "%(name)s is registered as a bookie but is not a valid bookie id; it is ignored",
)
METADATA_CONNECTED: Final = LogEvent("metadata", "connected", logging.INFO, "connected to %(name)s")

# Placement -----------------------------------------------------------------------------------------------------------

BOOKIES_CHANGED: Final = LogEvent(
    "placement", "bookies_changed", logging.INFO, "%(kind)s bookies: %(count)d; new %(came)s; gone %(left)s"
)
BOOKIE_QUARANTINED: Final = LogEvent(
    "placement",
    "bookie_quarantined",
    logging.WARNING,
    "bookie %(bookie_id)s failed too often and is avoided for %(seconds)s s",
)
BOOKIE_RELEASED: Final = LogEvent(
    "placement", "bookie_released", logging.INFO, "bookie %(bookie_id)s is avoided no more"
)
QUARANTINE_LIFTED: Final = LogEvent(
    "placement",
    "quarantine_lifted",
    logging.INFO,
    "health checks are switched off: bookies %(bookies)s are avoided no more",
)

# Auto-recovery -------------------------------------------------------------------------------------------------------

REPAIR_ACTION: Final = LogEvent("repair", "action", logging.INFO, "%(subject)s: %(what)s")
REPAIR_FAILED: Final = LogEvent("repair", "failed", logging.WARNING, "%(subject)s: %(detail)s")

# Logs over ledgers ---------------------------------------------------------------------------------------------------

LOG_CLAIMED: Final = LogEvent("log", "claimed", logging.INFO, "took log %(log)s over in epoch %(epoch)d, as %(owner)s")
LOG_LEDGER_BEGUN: Final = LogEvent("log", "ledger_begun", logging.INFO, "log %(log)s goes on in ledger %(ledger_id)d")
LOG_LEDGER_FAILED: Final = LogEvent(
    "log",
    "ledger_failed",
    logging.WARNING,
    "ledger %(ledger_id)d of log %(log)s did not take an entry and is replaced by another: %(reason)s",
)
LOG_RELEASED: Final = LogEvent("log", "released", logging.INFO, "left log %(log)s, which was owned in epoch %(epoch)d")
LOG_OWNER_ENDED: Final = LogEvent(
    "log",
    "owner_ended",
    logging.WARNING,
    "the owner of log %(log)s in epoch %(epoch)d has ended with %(entries)d entries not acknowledged: %(reason)s [%(code)d]",
)
LOG_CURSOR_LOST: Final = LogEvent(
    "log", "cursor_lost", logging.WARNING, "cursor %(cursor)s of log %(log)s is not this program's any more"
)
LOG_CURSOR_NOT_STORED: Final = LogEvent(
    "log",
    "cursor_not_stored",
    logging.WARNING,
    "cursor %(cursor)s of log %(log)s could not be stored: %(reason)s [%(code)d]",
)
LOG_READ_FAILED: Final = LogEvent(
    "log",
    "read_failed",
    logging.WARNING,
    "a consumer of log %(log)s could not read on, and tries again in %(seconds).1f s: %(reason)s [%(code)d]",
)
