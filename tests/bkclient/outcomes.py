"""Every outcome that a request can have, and bookies that answer as a test says, one kind of request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Container, Iterable
from dataclasses import dataclass, field
from enum import Enum

import pytest

from bkclient.errors import BookKeeperError, Code, Refusal, UnexpectedCondition, error_for
from bkclient.ledger import LedgerMetadata
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES, QuorumSizes
from bkclient.wire.messages import (
    LAST_ENTRY,
    AddRequest,
    BatchReadRequest,
    ForceLedgerRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    Response,
    WriteLacRequest,
)
from tests.bkclient.fakes import Answer, FakeBookie, FakeCluster

__all__ = [
    "DENIALS",
    "FAILURES",
    "REFUSED",
    "UNKNOWN",
    "Kind",
    "Script",
    "fails",
    "is_answer",
    "name_of",
    "script",
    "told",
    "well_stored",
]

UNKNOWN = -4711
"""A number that no version of BookKeeper knows."""

REFUSED = Refusal(Code.UNAUTHORIZED, "the handshake failed")
"""About the bookie, where the same number as an answer is about the ledger."""

FAILURES: list[int] = [
    *(code for code in Code if code is not Code.OK),
    REFUSED,
    Refusal(Code.SECURITY, "a strange certificate"),
    Refusal(Code.BOOKIE_NOT_AVAILABLE, "held back"),
    UNKNOWN,
]
"""Every outcome but success: all of BookKeeper's codes, those of connections that were refused, and a number nobody knows."""

DENIALS = [Code(code) for code in sorted(EXPLICIT_NEGATIVES)]
"""The only outcomes that say something about an entry; every other one says nothing."""


def name_of(code: int) -> str:
    """For the names of tests."""
    if isinstance(code, Refusal):
        return f"refused-{Code(code).name}"
    return code.name if isinstance(code, Code) else f"unknown{code}"


class Kind(Enum):
    """What a request is for."""

    FENCE = "fence"
    RECOVERY_READ = "recovery read"
    WRITE_BACK = "write-back"
    ADD = "add"
    READ = "read"
    LAST_ENTRY = "last entry"
    POLL = "poll"
    BATCH = "batch"
    LAC = "lac"
    WRITE_LAC = "write lac"
    FORCE = "force"
    OTHER = "other"


def kind_of(request: Request) -> Kind:
    """What ``request`` is for."""
    if isinstance(request, AddRequest):
        return Kind.WRITE_BACK if request.recovery else Kind.ADD
    if isinstance(request, ReadRequest):
        if request.long_poll is not None:
            return Kind.POLL
        if request.fence_key is not None:
            return Kind.FENCE if request.entry_id == LAST_ENTRY else Kind.RECOVERY_READ
        return Kind.LAST_ENTRY if request.entry_id == LAST_ENTRY else Kind.READ
    kinds = {
        BatchReadRequest: Kind.BATCH,
        ReadLacRequest: Kind.LAC,
        WriteLacRequest: Kind.WRITE_LAC,
        ForceLedgerRequest: Kind.FORCE,
    }
    return kinds.get(type(request), Kind.OTHER)


@dataclass(eq=False)
class Script(FakeBookie):
    """Answers requests of some kinds as it is told, and does nothing for them; all others as a bookie does."""

    outcomes: dict[Kind, Answer] = field(default_factory=dict)

    def answer(self, request: Request) -> Answer:
        return self.outcomes.get(kind_of(request)) or super().answer(request)


def script(
    where: FakeCluster, kind: Kind, code: int | None, bookies: Iterable[str], response: Response | None = None
) -> None:
    """From now on ``bookies`` answer requests of ``kind`` with ``code``; None has them answer as bookies do."""
    for bookie_id in bookies:
        bookie = where.transport.bookies[bookie_id]
        if not isinstance(bookie, Script):
            bookie = where.transport.bookies[bookie_id] = Script(bookie.entries, bookie.fenced)
        if code is None:
            bookie.outcomes.pop(kind, None)
        else:
            bookie.outcomes[kind] = (code, response)


def told(code: int) -> type[BookKeeperError]:
    """The error that tells a caller of ``code``."""
    return UnexpectedCondition if code == UNKNOWN else type(error_for(code))


def is_answer(code: int, codes: Container[int]) -> bool:
    """Whether a bookie answered one of ``codes``; a refused connection is not an answer, whatever its number."""
    return code in codes and not isinstance(code, Refusal)


async def fails(call: Awaitable[object], code: int) -> BookKeeperError:
    """The error tells of ``code``, and of a refused connection why."""
    with pytest.raises(BookKeeperError) as caught:
        async with asyncio.timeout(60):
            await call
    assert type(caught.value) is told(code)
    if code == UNKNOWN:
        assert str(UNKNOWN) in caught.value.message
    if isinstance(code, Refusal):
        assert code.reason in caught.value.message
    return caught.value


def well_stored(where: FakeCluster, metadata: LedgerMetadata) -> bool:
    """Whether every entry of a closed ledger is on an ack quorum of the bookies that its metadata names for it."""
    sizes = QuorumSizes.of(metadata)
    for entry_id in range(metadata.last_entry_id + 1):
        ensemble = metadata.ensemble_at(entry_id)
        copies = [
            ensemble[position]
            for position in sizes.write_set(entry_id)
            if (metadata.ledger_id, entry_id) in where.transport.bookies[ensemble[position]].entries
        ]
        if len(copies) < sizes.ack_quorum_size:
            return False
    return True
