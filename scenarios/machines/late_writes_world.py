"""A :mod:`~scenarios.machines.options_world` whose metadata store may make a write long after its client stopped waiting for it.

A request to the store that a broken connection leaves under way may still arrive, and a replica that lags may not show yet what
was written. To the client both look alike: no answer, and the old metadata. Bookies that are down are not offered to it.
"""

from __future__ import annotations

from types import MappingProxyType

from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.update import WriteMetadata
from scenarios.machines.clients import MachineClient
from scenarios.machines.options_world import OptionsWorld
from scenarios.machines.world import Configuration

__all__ = ["LateWritesWorld"]


class LateWritesWorld(OptionsWorld):
    """See the module."""

    #: Bookies come and go more often, so that there is none to be offered at times.
    weights = MappingProxyType(
        {
            **OptionsWorld.weights,
            "idle": 1.5,
            "bookie crashes": 0.4,
            "store acts": 3.0,
            "store will act and nobody knows": 1.0,
            "late write is made": 0.6,
        }
    )

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.late: list[tuple[MachineClient, WriteMetadata]] = []
        self.moves["store will act and nobody knows"] = (lambda: len(self._writes()), self._is_late)
        self.moves["late write is made"] = (lambda: len(self.late), self._late_write_is_made)

    def replace_bookie(self, ensemble: Ensemble, excluded: frozenset[BookieId]) -> BookieId | None:
        """A bookie that is up and allowed."""
        down = [name for name, bookie in self.bookies.items() if not bookie.is_up]
        return super().replace_bookie(ensemble, excluded.union(down))

    def _is_late(self, choice: int) -> None:
        index = self._writes()[choice]
        client, update = self.updates[index]
        assert isinstance(update.action, WriteMetadata), "it is one of the writes"
        self.late.append((client, update.action))
        update.on_conflict()
        self._finish_update(index)

    def _late_write_is_made(self, choice: int) -> None:
        client, write = self.late.pop(choice)
        before = self.store.value
        if not self.store.is_deleted and self.store.write(write.metadata, write.expected_version) is not None:
            self.guarantees.on_metadata(client, before.metadata)

    def _let_everything_arrive(self) -> None:
        while self.late:
            self.move("late write is made", 0)
        super()._let_everything_arrive()
