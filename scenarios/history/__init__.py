"""Recorded histories: what happened in a run, as a self-describing stream of flat events (docs/reference/history-format.md)."""

from scenarios.history.reader import History, HistoryError, read_history
from scenarios.history.schema import FIELDS, KINDS, SCHEMA_VERSION, Event, FieldType, Kind
from scenarios.history.writer import HistoryWriter

__all__ = [
    "FIELDS",
    "KINDS",
    "SCHEMA_VERSION",
    "Event",
    "FieldType",
    "History",
    "HistoryError",
    "HistoryWriter",
    "Kind",
    "read_history",
]
