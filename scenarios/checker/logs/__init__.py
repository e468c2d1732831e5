"""The part of the online checker that judges logs: messages, owners, lists of ledgers, trimming."""

from scenarios.checker.logs.families import LOG_FAMILIES, LogsChecker

__all__ = ["LOG_FAMILIES", "LogsChecker"]
