"""Acting on processes: what a step of a plan does to links, clients, bookies and the metadata service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from scenarios.plan import faults
from scenarios.playing.acts import Acts, ClientLife, Undo, directions, directions_across, message_acts
from scenarios.playing.ledgers import PlayedLedgers
from scenarios.processes.links import LinkWay

if TYPE_CHECKING:
    from scenarios.processes.stage import ProcessStage

__all__ = ["ProcessActs"]


class ProcessActs(Acts):
    """Does what :func:`~scenarios.processes.suitable.problems_of` finds nothing wrong with."""

    def __init__(
        self,
        stage: ProcessStage,
        ledgers: PlayedLedgers,
        clients: Mapping[str, ClientLife],
        start: Callable[[str], None],
    ) -> None:
        self._stage = stage
        super().__init__(stage.recorder, ledgers, clients, start)

    def acts(self) -> dict[type[faults.Fault], Callable[[Any], Undo | None]]:
        """See :class:`Acts`, as for the methods that follow."""
        return {
            faults.Cut: lambda fault: self._block(directions(fault.host, fault.other, fault.way)),
            faults.Clog: lambda fault: self._block(directions(fault.host, fault.other, fault.way)),
            faults.Partition: lambda fault: self._block(directions_across(fault)),
            faults.LinkWeather: self._weather,
            **message_acts(self._stage.interceptions.add),
            faults.Reset: self._reset,
            faults.Crash: self._crash,
            faults.Pause: self._pause,
            faults.KillClient: self._kill,
            faults.StoreDown: self._store_down,
            faults.LoseSession: self._lose_session,
        }

    def can_begin(self, fault: faults.Fault) -> bool:
        """See there."""
        bookies = self._stage.bookies
        if isinstance(fault, faults.Crash):
            return bookies[fault.host].is_alive
        if isinstance(fault, faults.Pause):
            if fault.host in bookies:
                return bookies[fault.host].is_alive and not bookies[fault.host].is_paused
            client = self._stage.clients.get(fault.host)
            return client is not None and client.is_alive and not client.is_paused
        return True

    def calm(self) -> None:
        """See there; chance has no part in this."""

    def _ways(self, pairs: list[tuple[str, str]]) -> list[LinkWay]:
        return [way for pair in pairs for way in self._stage.ways(*pair)]

    def _block(self, pairs: list[tuple[str, str]]) -> Undo:
        ways = self._ways(pairs)
        for way in ways:
            way.block()

        def unblock() -> None:
            for way in ways:
                way.unblock()

        return unblock

    def _weather(self, fault: faults.LinkWeather) -> Undo:
        ways = self._ways(directions(fault.host, fault.other, fault.way))
        ends = [self._in_force.begin(way, partial(setattr, way, "weather"), fault.network, None) for way in ways]
        return lambda: [end() for end in ends]

    def _reset(self, fault: faults.Reset) -> None:
        for link in self._stage.links_between(fault.host, fault.other):
            link.reset()

    def _crash(self, fault: faults.Crash) -> Undo:
        self._stage.crash_bookie(fault.host)
        return partial(self._stage.restart_bookie, fault.host)

    def _pause(self, fault: faults.Pause) -> Undo:
        bookie = self._stage.bookies.get(fault.host)
        if bookie is not None:
            bookie.pause()
            return bookie.resume
        client = self._clients[fault.host]
        client.pause()
        return client.resume

    def _kill(self, fault: faults.KillClient) -> None:
        if fault.host in self._clients:
            self._clients[fault.host].crash()

    def _store_down(self, _fault: faults.StoreDown) -> Undo:
        self._stage.stop_store()
        return self._stage.start_store

    def _lose_session(self, fault: faults.LoseSession) -> None:
        self._stage.lose_sessions(fault.host, fault.outage_s)
