"""Mutants: known defects, switched on from outside the shipped code.

A checker that never complains may be right or blind; mutants tell which. Each is a defect that BookKeeper clients really
had, put in either by wrapping the transport (what the client sends is falsified on its way) or by replacing one named
function for the duration of a run. The shipped code has no switch for any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType, ModuleType
from typing import Any, Final

import bkclient.protocol.recovery
from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.transport.wrapping import WrappingTransport
from bkclient.wire.messages import ReadRequest, Request, Response

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted defect. ``invariants`` are those of which at least one must be seen broken to call it caught."""

    name: str
    summary: str
    invariants: tuple[str, ...]
    wrap_transport: Callable[[BookieTransport], BookieTransport] | None = field(default=None, repr=False)
    replaces: tuple[ModuleType, str, Any] | None = field(default=None, repr=False)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the replaced function in place for as long as the block lasts."""
        if self.replaces is None:
            yield
            return
        module, name, replacement = self.replaces
        original = getattr(module, name)
        setattr(module, name, replacement)
        try:
            yield
        finally:
            setattr(module, name, original)


class _WithoutFenceOnReads(WrappingTransport):
    """Forwards everything, but takes the fence flag off reads of particular entries."""

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Forward, falsified where it is a recovery read."""
        if not (isinstance(request, ReadRequest) and request.fence_key is not None and request.entry_id >= 0):
            self.inner.submit(bookie_id, request, reply_to)
            return

        def answer(bookie: str, _falsified: Request, code: int, response: Response | None) -> None:
            reply_to(bookie, request, code, response)

        self.inner.submit(bookie_id, replace(request, fence_key=None), answer)


def _start_at_found_lac(found_lac: int, first_entry_id: int) -> int:  # noqa: ARG001 - the defect is not to use it
    return found_lac


_ALL: Final = (
    Mutant(
        name="recovery-reads-do-not-fence",
        summary="only the LAC phase of recovery fences; a bookie that denies an entry may store it afterwards (issue 2614)",
        invariants=("NoLacTruncation", "FencedStaysFenced", "NegativeStays"),
        wrap_transport=_WithoutFenceOnReads,
    ),
    Mutant(
        name="recovery-starts-below-last-fragment",
        summary="recovery trusts the LAC of bookies that joined with the last fragment and never saw the earlier ones "
        "(issue 2615)",
        invariants=("NoLacTruncation", "RecoveryStart"),
        replaces=(bkclient.protocol.recovery, "starting_lac", _start_at_found_lac),
    ),
)

MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType({mutant.name: mutant for mutant in _ALL})
