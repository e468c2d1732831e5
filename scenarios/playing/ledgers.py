"""The ledgers of a plan while it is played: names, ids, and what became of them."""

from __future__ import annotations

import asyncio

from scenarios.history import Event, Kind
from scenarios.plan.words import member_of

__all__ = ["PlayedLedgers"]


class PlayedLedgers:
    """Knows the ledgers by their names in the plan. Fed with the run's events."""

    def __init__(self) -> None:
        #: The ids of the ledgers that were created.
        self.ids: dict[str, int] = {}
        #: The last entries of those that are closed.
        self.ends: dict[int, int] = {}
        self.deleted: set[int] = set()
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

    def place(self, host: str) -> str:
        """The bookie at a position of a ledger's last ensemble; a name of a host as it is, and so if there is no such bookie."""
        member = member_of(host)
        if member is None:
            return host
        ledger, position = member
        ensemble = self._ensembles.get(self.ids.get(ledger, -1), ())
        return ensemble[position] if position < len(ensemble) else host

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        if event.kind == Kind.META_CAS and event.fields["outcome"] == "ok":
            self._ensembles[event.ledger] = tuple(event.fields["fragments"][-1][1])
            if event.fields["cause"] == "delete":
                self.deleted.add(event.ledger)
            elif event.fields["state"] == "CLOSED":
                self.ends[event.ledger] = event.fields["last_entry"]

    def _event(self, name: str) -> asyncio.Event:
        return self._created.setdefault(name, asyncio.Event())
