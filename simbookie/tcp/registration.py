"""The announcement of a bookie in the metadata store, kept in line with its mode."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from bkclient.errors import BookKeeperError
from bkclient.metadata.base import BookieAddress, BookieRegistry
from simbookie.bookie import Bookie

__all__ = ["Registration"]

_log: Final = logging.getLogger(__name__)

#: Seconds between attempts to bring the registration in line with the bookie's mode.
_RETRY_S: Final = 1.0


class Registration:
    """Announces ``bookie`` in ``registry`` at what ``address`` returns; ``timeout_s`` bounds the withdrawal."""

    def __init__(
        self, bookie: Bookie, registry: BookieRegistry, address: Callable[[], BookieAddress], timeout_s: float
    ) -> None:
        self._bookie = bookie
        self._registry = registry
        self._address = address
        self._timeout_s = timeout_s
        self._mode_changed = asyncio.Event()
        #: Set while the announcement is that of the bookie's mode, or is not kept any more.
        self._is_current = asyncio.Event()
        self._registrar: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Announce the bookie, and anew whenever it turns read-only or writable."""
        read_only = self._bookie.read_only
        await self._registry.register_bookie(self._bookie.bookie_id, self._address(), read_only=read_only)
        self._mode_changed.clear()
        self._registrar = asyncio.create_task(self._follow(read_only=read_only))

    async def current(self) -> None:
        """Wait until the announcement is that of the bookie's mode, or is not kept in line any more."""
        await self._is_current.wait()

    def abandon(self) -> None:
        """Leave the announcement as it is."""
        self._is_current.set()
        if self._registrar is not None:
            self._registrar.cancel()
            self._registrar = None

    async def end(self) -> None:
        """Withdraw the announcement; a registry that fails or takes too long is warned of, and no more."""
        if self._registrar is not None:
            registrar, self._registrar = self._registrar, None
            registrar.cancel()
            await asyncio.gather(registrar, return_exceptions=True)
        self._is_current.set()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._registry.unregister_bookie(self._bookie.bookie_id)
        except (BookKeeperError, TimeoutError) as error:
            _log.warning("bookie %s cannot be unregistered: %s", self._bookie.bookie_id, error)

    def _mode_was_set(self, _read_only: bool) -> None:  # noqa: FBT001  a callback
        self._is_current.clear()
        self._mode_changed.set()

    async def _follow(self, *, read_only: bool) -> None:
        """Follow the bookie's mode until cancelled; a registry that fails is asked again."""
        stop_watching = self._bookie.watch_read_only(self._mode_was_set)
        try:
            while True:
                if self._bookie.read_only == read_only:
                    self._is_current.set()
                    await self._mode_changed.wait()
                    self._mode_changed.clear()
                    continue
                wanted = self._bookie.read_only
                try:
                    await self._registry.register_bookie(self._bookie.bookie_id, self._address(), read_only=wanted)
                except BookKeeperError as error:
                    _log.warning("bookie %s cannot change its registration: %s", self._bookie.bookie_id, error)
                    await asyncio.sleep(_RETRY_S)
                else:
                    read_only = wanted
        finally:
            stop_watching()
