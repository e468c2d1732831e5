"""Reporting operations to :class:`~bkclient.stats.ClientStats`, where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from bkclient.errors import Code, code_of
from bkclient.stats import ClientStats

__all__ = ["measured"]

T = TypeVar("T")


async def measured(stats: ClientStats | None, name: str, operation: Awaitable[T]) -> T:
    """The result of ``operation``, whose duration and outcome are reported as ``name``.

    One whose caller was cancelled has no outcome and is not reported.
    """
    if stats is None:
        return await operation
    began = stats.now()
    try:
        result = await operation
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        stats.operation(name, stats.now() - began, code_of(error))
        raise
    stats.operation(name, stats.now() - began, Code.OK)
    return result
