"""Defects planted in the bookies that BookKeeper's own tests meet: the proof that those tests can fail on ours.

``python -m tests.interop.java_tests --defects`` runs the methods beside each defect with bookies that have it; one must fail. The
process that starts bookies (:mod:`tests.interop.java_tests.fork_server`) plants it. A defect replaces one function of the shipped
code, which itself has no switch for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from simbookie.bookie import Bookie
from simbookie.ledgers import LedgerTable
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.sorted import SortedLedgerStore

__all__ = ["DEFECTS", "VARIABLE", "ServedDefect"]

#: The environment variable that names the defect to plant.
VARIABLE: Final = "SERVED_DEFECT"


@dataclass(frozen=True, slots=True)
class ServedDefect:
    """``owner.name`` becomes ``replacement``, and one of ``methods`` of the class ``tests`` fails, all if it has none."""

    tests: str
    methods: tuple[str, ...]
    owner: Any
    name: str
    replacement: Callable[..., Any]

    def plant(self) -> None:
        """For good: the process has it from now on."""
        setattr(self.owner, self.name, self.replacement)


def _nothing(*_arguments: Any) -> None:
    """Do nothing."""


_fence = LedgerTable.fence


def _fence_for_a_moment(self: LedgerTable, handle: Any, source: str) -> None:
    def unfence() -> None:
        handle.fenced = False

    _fence(self, handle, source)
    asyncio.get_running_loop().call_soon(unfence)


def _flushed_at_once(_self: SortedLedgerStore, on_done: Callable[..., None], token: object) -> None:
    asyncio.get_running_loop().call_soon(on_done, token, None)


def _lac_acknowledged(
    _self: JournaledStorage, _ledger: int, _lac: int, _body: bytes, on_durable: Callable[..., None], token: object
) -> None:
    asyncio.get_running_loop().call_soon(on_durable, token, None)


DEFECTS: Final[Mapping[str, ServedDefect]] = {
    "a fence holds for one turn of the loop": ServedDefect(
        "client.TestFencing", ("testBasicFencing",), LedgerTable, "fence", _fence_for_a_moment
    ),
    "a checkpoint moves the mark and writes nothing": ServedDefect(
        "client.TestFencing", ("testFencingAndRestartBookies",), SortedLedgerStore, "flush", _flushed_at_once
    ),
    "explicit LACs are acknowledged and dropped": ServedDefect(
        "client.ExplicitLacTest",
        ("testExplicitLACIsPersisted",),
        JournaledStorage,
        "set_explicit_lac",
        _lac_acknowledged,
    ),
    "the LAC that entries tell wakes no long poll": ServedDefect(
        "client.TestReadLastConfirmedLongPoll", (), LedgerTable, "advance_lac", _nothing
    ),
    "garbage stays": ServedDefect(
        "test.LedgerDeleteTest", ("testLedgerDelete",), JournaledStorage, "delete_ledger", _nothing
    ),
    "a bookie stays writable, whatever its operator says": ServedDefect(
        "test.ReadOnlyBookieTest",
        ("testLedgerCreationShouldFailWithReadonlyBookie",),
        Bookie,
        "set_read_only",
        _nothing,
    ),
}
