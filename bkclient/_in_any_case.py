"""Work at the end of a block that is done even if the block is left by a cancelled task."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import anyio

__all__ = ["in_any_case"]

_PATIENCE_S: Final = 5.0


async def in_any_case(work: Coroutine[Any, Any, None], name: str) -> None:
    """Await ``work``, which runs in a task called ``name`` and is not interrupted; raises what it raises.

    A caller that is cancelled meanwhile, or was before by a scope of anyio, waits 5 seconds more, or until it is cancelled once
    more, and then lets the work go on by itself.
    """
    task = asyncio.create_task(work, name=name)
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.add_done_callback(_note_outcome)
        with anyio.move_on_after(_PATIENCE_S, shield=True):
            await asyncio.wait((task,))
        raise
    task.result()


def _note_outcome(task: asyncio.Task[None]) -> None:
    """An error whose caller was cancelled is not reported as one that nobody collected."""
    if not task.cancelled():
        task.exception()
