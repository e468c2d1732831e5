"""The ledgers and logs of a plan while it is played: names, ids, and what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar, Final

from scenarios.history import Event, Kind
from scenarios.plan.words import member_of

__all__ = ["PlayedLedgers"]

# Every event asks for these, and members of an enumeration take longer to find.
_LOG_LEDGER: Final = Kind.LOG_LEDGER
_META_CAS: Final = Kind.META_CAS


class PlayedLedgers:
    """Knows the ledgers by their names in the plan. Fed with the run's events of these kinds."""

    KINDS: ClassVar = (_LOG_LEDGER, _META_CAS)

    def __init__(self) -> None:
        #: The ids of the ledgers that were created.
        self.ids: dict[str, int] = {}
        #: The last entries of those that are closed.
        self.ends: dict[int, int] = {}
        self.deleted: set[int] = set()
        #: The logs that were created.
        self.logs: list[str] = []
        #: By log, the ledger that was made for it last.
        self._heads: dict[str, int] = {}
        self._ensembles: dict[int, tuple[str, ...]] = {}
        self._created: dict[str, asyncio.Event] = {}

    def created(self, name: str, ledger_id: int) -> None:
        """Note that a client has created a ledger and got the answer."""
        self.ids[name] = ledger_id
        self._event(name).set()

    async def id_of(self, name: str) -> int:
        """Wait until the ledger is created, and return its id."""
        await self._event(name).wait()
        return self.ids[name]

    def log_created(self, name: str) -> None:
        """Note that a client has created a log and got the answer."""
        self.logs.append(name)
        self._event(name).set()

    async def log_made(self, name: str) -> None:
        """Wait until the log is created."""
        await self._event(name).wait()

    @property
    def known(self) -> Mapping[str, int]:
        """What the names of the plan stand for: a ledger, or the last one of a log."""
        return self._heads | self.ids if self._heads else self.ids

    def place(self, host: str) -> str:
        """The bookie at a position of a ledger's last ensemble; a name of a host as it is, and so if there is no such bookie."""
        member = member_of(host)
        if member is None:
            return host
        ledger, position = member
        ensemble = self._ensembles.get(self.known.get(ledger, -1), ())
        return ensemble[position] if position < len(ensemble) else host

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        if event.kind == _LOG_LEDGER:
            self._heads[event.fields["log"]] = event.ledger
        if event.kind == _META_CAS and event.fields["outcome"] == "ok":
            self._ensembles[event.ledger] = tuple(event.fields["fragments"][-1][1])
            if event.fields["cause"] == "delete":
                self.deleted.add(event.ledger)
            elif event.fields["state"] == "CLOSED":
                self.ends[event.ledger] = event.fields["last_entry"]

    def _event(self, name: str) -> asyncio.Event:
        return self._created.setdefault(name, asyncio.Event())
