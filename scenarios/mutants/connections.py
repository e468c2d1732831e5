"""Defects of connections: which request an answer is taken for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from bkclient.wire import v2
from scenarios.mutants.base import Mutant, Replacement
from simbookie.world.calls import ResponseMessage
from simbookie.world.object_stream import ObjectConnection

__all__ = ["CONNECTION_MUTANTS"]

Received = Callable[[ObjectConnection, ResponseMessage], Iterator[Any]]


def _by_what_was_asked(received: Received) -> Received:
    """An answer that nobody awaits any more is taken for that to the oldest request for the same."""

    def mutated(self: ObjectConnection, message: ResponseMessage) -> Iterator[Any]:
        if self.protocol_version == 3 and message.call_id.to_bytes(8, "big") not in self.outstanding.entries:
            key = v2.match_of(message.request)
            for match, entry in self.outstanding.entries.items():
                if entry is not None and key is not None and v2.match_of(entry[0]) == key:
                    message = ResponseMessage(int.from_bytes(match, "big"), entry[0], message.response)
                    break
        return received(self, message)

    return mutated


CONNECTION_MUTANTS: Final = (
    Mutant(
        name="late-answers-are-taken-for-new-ones",
        summary="the answer to a request that was given up counts as that to the next request for the same entry",
        clauses=("M2",),
        in_runs=True,
        replaces=(Replacement(ObjectConnection, "received", _by_what_was_asked),),
    ),
)
