"""What a shell completes that the cluster knows: ledgers, logs, bookies.

A completion asks the cluster that the command line or the environment names, for a short time at most. Where there is none, or it
does not answer, nothing is completed, and nothing is said.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import typer

from bkclient import BookKeeper
from bkclient.cli.access import METADATA_VARIABLE, connection_for

__all__ = ["complete_bookie", "complete_ledger", "complete_log"]

_PATIENCE_S: Final = 2.0
_OFFERED_MAX: Final = 200


def complete_ledger(context: typer.Context, incomplete: str) -> list[str]:
    """The ids of ledgers that begin with what was typed."""

    async def ids(client: BookKeeper) -> AsyncIterator[str]:
        async for ledger_id in client.list_ledgers():
            yield str(ledger_id)

    return _asked(context, incomplete, ids)


def complete_log(context: typer.Context, incomplete: str) -> list[str]:
    """The names of logs."""
    from bkclient.log import Logs  # noqa: PLC0415  few commands are about logs

    return _asked(context, incomplete, lambda client: Logs(client).names())


def complete_bookie(context: typer.Context, incomplete: str) -> list[str]:
    """The ids of registered bookies."""

    async def ids(client: BookKeeper) -> AsyncIterator[str]:
        found = await client.bookies()
        for bookie_id in (*found.writable, *found.read_only):
            yield bookie_id

    return _asked(context, incomplete, ids)


def _asked(context: typer.Context, incomplete: str, names: Callable[[BookKeeper], AsyncIterator[str]]) -> list[str]:
    async def ask() -> list[str]:
        given: dict[str, Any] = context.params
        metadata = given.get("metadata") or os.environ.get(METADATA_VARIABLE)
        config = given.get("config")
        access = connection_for(metadata, Path(config) if config else None, given.get("settings"))
        found: list[str] = []
        async with asyncio.timeout(_PATIENCE_S), access.connect() as client:
            async for name in names(client):
                if name.startswith(incomplete):
                    found.append(name)
                if len(found) == _OFFERED_MAX:
                    break
        return found

    try:
        return asyncio.run(ask())
    except Exception:  # noqa: BLE001  whatever is wrong, the command itself will tell
        return []
