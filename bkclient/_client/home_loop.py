"""The event loop that a client belongs to: asyncio's, the one it was entered in, and no other.

Nothing of a client is safe to touch from another thread, and asyncio itself notices that late or never: futures that nobody
completes, callbacks that wait for the next event. So calls look where they are made, which costs nothing beside what they do.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop as running_loop  # the only one that tells "none" without an exception

from bkclient.errors import IllegalOperation

__all__ = ["check_asyncio", "check_loop", "running_loop", "wrong_loop"]


def wrong_loop() -> IllegalOperation:
    """The error of a call that was made in another thread or event loop."""
    return IllegalOperation(
        "a client, its writers and readers belong to the event loop in which the client was entered, and this call came from "
        "another one or from another thread",
        advice="Call it there, for example by asyncio.run_coroutine_threadsafe; for threads there is bkclient.sync.",
    )


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise :class:`~bkclient.errors.IllegalOperation` unless ``loop`` is the one that runs in this thread."""
    if running_loop() is not loop:
        raise wrong_loop()


def check_asyncio() -> asyncio.AbstractEventLoop:
    """The running event loop; :class:`~bkclient.errors.IllegalOperation` where there is none of asyncio's, as on trio."""
    loop = running_loop()
    if loop is None:
        raise IllegalOperation(
            "bkclient runs on asyncio's event loop, and this code does not: it runs on trio, or on none",
            advice="Run it by asyncio.run, or by anyio.run with the backend asyncio; ordinary functions have bkclient.sync.",
        )
    return loop
