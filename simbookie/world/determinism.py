"""What must be changed outside our own code so that equal seeds give equal runs.

asyncio and anyio keep tasks and cancel scopes in sets and walk through them, above all to deliver cancellation. The order of a
set follows the hashes of its members, for ordinary objects their addresses, which differ from run to run. Tasks and futures get
deterministic hashes from the loop that makes them (:mod:`simbookie.world.loop`). Cancel scopes are made by anyio alone, so
while a simulated world runs, each new one keeps those inside it in the order in which they were entered.

anyio starts worker threads of its own for ``to_thread``; they would run in real time beside a virtual one, so they are refused.

Not covered, because no code here does it: walking through a set of other objects, or of strings (whose hashes depend on
``PYTHONHASHSEED``); bare coroutines handed to ``asyncio.as_completed``; the text of a cancellation (anyio writes addresses into
it), which must not go into a history.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, MutableSet
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from anyio._backends import _asyncio as backend

from simbookie.world.errors import RealWorldRefused, WorldError

__all__ = ["OrderedMembers", "deterministic_anyio", "forget_task"]

T = TypeVar("T")


class OrderedMembers(MutableSet[T]):
    """A set that is walked through in the order of insertion."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: dict[T, None] = {}

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __iter__(self) -> Iterator[T]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, value: T) -> None:
        """Add a member at the end, unless it is one already."""
        self._members[value] = None

    def discard(self, value: T) -> None:
        """Remove a member, if it is one."""
        self._members.pop(value, None)


_original_init: Final[Any] = backend.CancelScope.__init__
_original_to_thread: Final[Any] = backend.AsyncIOBackend.__dict__["run_sync_in_worker_thread"]
_lock: Final = threading.Lock()
_users = 0


def _ordered_init(scope: Any, *args: Any, **kwargs: Any) -> None:
    _original_init(scope, *args, **kwargs)
    scope._child_scopes = OrderedMembers()  # noqa: SLF001  the point of the patch


async def _to_thread(backend_class: Any, *args: Any, **kwargs: Any) -> Any:
    # asked at each call: another thread may run a real loop at the same time
    if getattr(asyncio.get_running_loop(), "is_virtual", False):
        raise RealWorldRefused("anyio.to_thread")
    return await _original_to_thread.__func__(backend_class, *args, **kwargs)


def forget_task(task: asyncio.Task[Any]) -> None:
    """Let anyio forget a task that will never end, and which it would otherwise keep for ever: its scopes refer back to it."""
    backend._task_states.pop(task, None)  # noqa: SLF001


def _check_anyio() -> None:
    scope: Any = backend.CancelScope.__new__(backend.CancelScope)
    _original_init(scope)
    if type(getattr(scope, "_child_scopes", None)) is not set:
        raise WorldError(
            f"this version of anyio keeps no set of child scopes: look at what it does instead, and adapt {__name__}"
        )


def _set_members(scope_init: Any, to_thread: Any) -> None:
    backend.CancelScope.__init__ = scope_init  # type: ignore[method-assign]
    backend.AsyncIOBackend.run_sync_in_worker_thread = to_thread  # type: ignore[method-assign]


@contextmanager
def deterministic_anyio() -> Iterator[None]:
    """Make anyio walk through nested cancel scopes in the order in which they were entered, for as long as the block lasts.

    Blocks may overlap, also in different threads: anyio works the same, just in a definite order, for everyone.
    :class:`~simbookie.world.errors.WorldError` where the installed anyio is not made the way this patch knows.
    """
    global _users  # noqa: PLW0603  one patch per process, however many worlds
    with _lock:
        if _users == 0:
            _check_anyio()
            _set_members(_ordered_init, classmethod(_to_thread))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _set_members(_original_init, _original_to_thread)
