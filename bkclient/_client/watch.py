"""Following the metadata of a ledger, for applications that care about its life more than about its entries.

What changes in quick succession is reported once, by the last state; nothing is queued, so a slow follower costs no memory
and always sees the present. CLOSED is final for state, last entry and length, but not the last change: re-replication may move
fragments to other bookies for as long as the ledger exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

from bkclient._client.core import ClientCore
from bkclient.errors import ClientClosed, NoSuchLedger
from bkclient.ledger import LedgerMetadata, Versioned

__all__ = ["watch_metadata"]


async def watch_metadata(core: ClientCore, ledger_id: int) -> AsyncIterator[LedgerMetadata]:
    """Yield the ledger's metadata as it is, and again after every change; ends when the ledger is deleted (T-165).

    Raises :class:`~bkclient.errors.NoSuchLedger` if there is none to begin with, and
    :class:`~bkclient.errors.ClientClosed` when the client is closed meanwhile.
    """
    if ledger_id < 0:
        raise NoSuchLedger("ledger ids are not negative", ledger_id=ledger_id)
    news = asyncio.Event()
    latest: Versioned | None = None
    is_gone = False

    def on_metadata(value: Versioned | None) -> None:
        nonlocal latest, is_gone
        if value is None:
            is_gone = True  # the id may be given to another ledger now
        elif not is_gone:
            latest = value
        news.set()

    with ExitStack() as stack:
        stack.callback(core.at_close(news.set))
        stack.callback(core.metadata.watch_ledger(ledger_id, on_metadata))
        seen = -1
        while True:
            await news.wait()
            news.clear()
            if core.is_closed:
                raise ClientClosed(ledger_id=ledger_id)
            if is_gone:
                if seen < 0:
                    raise NoSuchLedger(ledger_id=ledger_id)
                return
            if latest is not None and latest.version > seen:
                seen = latest.version
                yield latest.metadata
