"""What becomes of an operation one of whose handlers raised.

A handler is called by an event loop or a transport, neither of which knows who waits for the operation. So the shell that
owns the operation ends it with a typed error, and the loop's exception handler gets the error itself: it is a defect of this
client, or of something plugged in, and worth a report whatever becomes of the operation.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from bkclient.errors import UnexpectedCondition

__all__ = ["defect", "ends_operation", "report"]

P = ParamSpec("P")


class _Operation(Protocol):
    def on_defect(self, error: Exception) -> None:
        """A handler raised ``error``: end, and tell everybody who waits. Does nothing after the end."""
        ...


S = TypeVar("S", bound=_Operation)


def ends_operation(handler: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Have a handler that raises end the operation it belongs to, by ``on_defect``; nothing is raised then.

    Handlers that are called for every entry have the same in their own body, which saves the call.
    """

    @functools.wraps(handler)
    def handle(operation: S, /, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            handler(operation, *arguments, **options)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the operation
            operation.on_defect(error)

    return handle


def defect(
    error: Exception, what: str, *, ledger_id: int | None = None, entry_id: int | None = None
) -> UnexpectedCondition:
    """Report ``error``, which a handler of ``what`` raised, and return the error to end the operation with."""
    report(error, f"a handler of {what} raised")
    failure = UnexpectedCondition(f"a handler of {what} raised {error!r}", ledger_id=ledger_id, entry_id=entry_id)
    failure.__cause__ = error
    return failure


def report(error: Exception, message: str) -> None:
    """Hand ``error`` to the event loop's exception handler, which logs it unless the application set another."""
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
