"""The end of a bookie whose storage fails in a way that it does not know.

What a disk or a folder may do is a :class:`~simbookie.storage.base.StorageError` with a place in the storage's rules. Any other
exception in its code is a defect, and leaves an operation behind that nobody ends: a flush that never comes to its end holds up
every later one, and the bookie would wait for it for ever, registered and useful to nobody. Everything that it acknowledged is in
its journal. So the process ends at once, as if it were killed, and the next one replays.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from simbookie.storage.base import StorageError

__all__ = ["end_on_defects_of_storage"]

_log: Final = logging.getLogger(__name__)
_STORAGE: Final = "simbookie.storage."


def end_on_defects_of_storage(loop: asyncio.AbstractEventLoop, end: Callable[[int], object] = os._exit) -> None:
    """From now on call ``end`` with 1 after an exception in the storage that nobody caught; others are logged, as before."""

    def on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        error = context.get("exception")
        if (
            isinstance(error, Exception)
            and not isinstance(error, StorageError)
            and _passed_storage(error.__traceback__)
        ):
            _log.critical(
                "the storage failed in a way that it does not know (%s: %s): the bookie ends, and replays its journal when it is "
                "started again",
                *(type(error).__name__, error),
            )
            end(1)

    loop.set_exception_handler(on_exception)


def _passed_storage(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if str(traceback.tb_frame.f_globals.get("__name__", "")).startswith(_STORAGE):
            return True
        traceback = traceback.tb_next
    return False
