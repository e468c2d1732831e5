"""What the ZooKeeper library logs, without what must not be in a log.

The library shows whole requests and answers at its DEBUG level: the metadata of ledgers, with their passwords, and the key
of the session. Here its lines go to one logger of this driver, and of their arguments only plain facts are shown; of
everything else, requests and answers and data of znodes among it, the name of its type.

What becomes of a connection is told by the events of ``bkclient.metadata``. The library's own words about it are details,
so they are DEBUG. What it calls an error is a WARNING: a server sent what the library does not expect, and the session goes
on. Tracebacks are for DEBUG.
"""

from __future__ import annotations

import logging
from typing import Any, Final

__all__ = ["LIBRARY_LOGGER", "LibraryLog"]

LIBRARY_LOGGER: Final = "bkclient.metadata.zookeeper.library"

_PLAIN: Final = (str, int, float, type(None))


class LibraryLog:
    """Has the methods of a logger that the library calls."""

    def __init__(self) -> None:
        self._logger = logging.getLogger(LIBRARY_LOGGER)

    def log(self, level: int, message: str, *arguments: Any, exc_info: Any = None) -> None:
        """Pass a line on, as the docstring of the module says. Lines below DEBUG are dropped."""
        if level < logging.DEBUG:
            return
        level = logging.WARNING if level >= logging.ERROR else logging.DEBUG
        if self._logger.isEnabledFor(level):
            trace = exc_info if self._logger.isEnabledFor(logging.DEBUG) else None
            self._logger.log(level, message, *map(_shown, arguments), exc_info=trace)

    def debug(self, message: str, *arguments: Any) -> None:
        """See :meth:`log`, as for all that follows."""
        self.log(logging.DEBUG, message, *arguments)

    def info(self, message: str, *arguments: Any) -> None:
        """See there."""
        self.log(logging.INFO, message, *arguments)

    def warning(self, message: str, *arguments: Any) -> None:
        """See there."""
        self.log(logging.WARNING, message, *arguments)

    warn = warning

    def error(self, message: str, *arguments: Any) -> None:
        """See there."""
        self.log(logging.ERROR, message, *arguments)

    def exception(self, message: str, *arguments: Any) -> None:
        """See there. The traceback goes along; it shows code, no values."""
        self.log(logging.ERROR, message, *arguments, exc_info=True)


def _shown(value: object) -> object:
    if isinstance(value, _PLAIN):
        return value
    return f"{type(value).__name__} {value}" if isinstance(value, Exception) else f"<{type(value).__name__}>"
