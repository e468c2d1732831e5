"""The bookies of a world, and the requests to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from bkclient.errors import Code
from bkclient.ledger import BookieId
from bkclient.protocol.adds import NewEntry
from bkclient.protocol.value import Value

if TYPE_CHECKING:
    from scenarios.machines.clients import MachineClient

__all__ = ["Asked", "MachineBookie", "Message", "StoredEntry"]


class StoredEntry(NamedTuple):
    """An entry as a bookie stores it."""

    payload: bytes
    last_add_confirmed: int
    length: int


class Asked(Protocol):
    """What a request asks of a bookie; see :class:`Message`."""

    @property
    def kind(self) -> str:
        """What is asked."""
        ...

    @property
    def entry_id(self) -> int:
        """The entry, or -1."""
        ...

    @property
    def fence(self) -> bool:
        """Whether the bookie is to fence the ledger first."""
        ...

    @property
    def add(self) -> NewEntry | None:
        """The entry to store, if any."""
        ...


class MachineBookie(Value):
    """Stores every entry unless it is fenced; a crash loses nothing."""

    __slots__ = ("entries", "is_fenced", "is_up")

    def __init__(self) -> None:
        self.entries: dict[int, StoredEntry] = {}
        self.is_fenced = False
        self.is_up = True

    def handle(self, asked: Asked, *, of_writer: bool) -> tuple[int, StoredEntry | None]:
        """Carry out a request; returns the code of the answer and the entry in it."""
        if not self.is_up:
            return Code.BOOKIE_NOT_AVAILABLE, None
        if asked.fence:
            self.is_fenced = True
        if asked.add is not None:
            if self.is_fenced and of_writer:
                return Code.LEDGER_FENCED, None
            add = asked.add
            self.entries[add.entry_id] = StoredEntry(add.payload, add.last_add_confirmed, add.length)
            return Code.OK, None
        entry_id = max(self.entries, default=-1) if asked.kind == "fence" else asked.entry_id
        entry = self.entries.get(entry_id)
        return (Code.NO_SUCH_ENTRY, None) if entry is None else (Code.OK, entry)


@dataclass(eq=False)
class Message:
    """One request and its state. The client gets exactly one outcome; the bookie may get the request never, once or more.

    ``kind`` is ``add``, ``fence`` (the last entry, with fencing), ``read`` (an entry, by a recovery that decides about it),
    ``measure`` (an entry, by a recovery that lacks a length), or what a world adds.
    """

    client: MachineClient
    bookie_id: BookieId
    kind: str
    entry_id: int = -1
    fence: bool = False
    add: NewEntry | None = None
    answer: tuple[int, StoredEntry | None] | None = None
    is_answered: bool = False

    def copy(self, clients: Mapping[MachineClient, MachineClient]) -> Self:
        """The same message of the copy of its client."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), client=clients[self.client])
        return twin

    def __str__(self) -> str:
        what = self.kind if self.entry_id < 0 else f"{self.kind} {self.entry_id}"
        return f"{what} of {self.client.name} to {self.bookie_id}"
