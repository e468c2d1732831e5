"""Reporting operations to the statistics and the tracer of a client, where there are such."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from bkclient._client.core import ClientCore
from bkclient._client.create import CreatedLedger
from bkclient.errors import Code, code_of
from bkclient.observability.stats import ClientStats

__all__ = ["measured", "observed"]

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


async def observed(core: ClientCore, name: str, operation: Awaitable[T], ledger_id: int | None = None) -> T:
    """As :func:`measured`, with a span of its own if the client has a tracer; for what applications do a few times.

    ``ledger_id`` is the ledger it is about, as far as that is known before; a new one's is taken from its metadata.
    """
    if core.tracer is None:
        return await measured(core.stats, name, operation)
    with core.tracer.operation(name, ledger_id) as span:
        result = await measured(core.stats, name, operation)
        if ledger_id is None and isinstance(result, CreatedLedger):
            span.set_ledger(result.value.metadata.ledger_id)
        return result
