"""What a bookie holds, entry by entry, and what it has promised to hold."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from bkclient.ledger import DigestType
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import LAST_ENTRY, AddRequest, ReadLacRequest, ReadRequest, Request, WriteLacRequest
from tests.interop.raw import RawConnection, Stream, status_of

__all__ = [
    "Held",
    "Promised",
    "add",
    "body_of",
    "differences",
    "fence",
    "held_by",
    "is_torn",
    "payload_of",
    "write_lac",
]

KEY: Final = EntryCodec(1, DigestType.CRC32C, b"").master_key
_READS_AT_ONCE: Final = 400
_ABSENT: Final = ("ENOENTRY", "ENOLEDGER")
_DIFFERENCES_SHOWN: Final = 8
_TAKEN_OVER_AT: Final = 100
_SHORT_EVERY: Final = 10
#: A ledger that nobody ever wrote to.
UNKNOWN: Final = 987_654


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    """The payload of an entry: of many sizes, and none like another."""
    return random.Random((ledger_id << 32) + entry_id).randbytes(1 + entry_id * 37 % 1200)


def body_of(ledger_id: int, entry_id: int) -> bytes:
    """An entry as a bookie stores it."""
    payload = payload_of(ledger_id, entry_id)
    codec = EntryCodec(ledger_id, DigestType.CRC32C, b"")
    return codec.encode_header(entry_id, entry_id - 1, len(payload), payload) + payload


def is_torn(found: bytes | str, body: bytes) -> bool:
    """Whether ``found`` is ``body`` with zeros in place of its end.

    A process that is killed in a write leaves a part of it, whole pages of the file, and the rest of a journal is zeros, because
    its space is allocated ahead. A record of a journal has a length and no checksum, so a replay takes such an entry as it is;
    its digest tells readers.
    """
    if not isinstance(found, bytes) or len(found) != len(body) or found == body:
        return False
    kept = found.rstrip(b"\0")
    return body.startswith(kept)


def lac_body(ledger_id: int, lac: int) -> bytes:
    """An explicit LAC as a bookie stores it."""
    return EntryCodec(ledger_id, DigestType.CRC32C, b"").encode_lac(lac)


def add(ledger_id: int, entry_id: int, *, recovery: bool = False) -> AddRequest:
    """The add of an entry."""
    body = body_of(ledger_id, entry_id)
    return AddRequest(ledger_id, entry_id, KEY, body, b"", recovery=recovery, high_priority=recovery)


def fence(ledger_id: int) -> ReadRequest:
    """A fencing read."""
    return ReadRequest(ledger_id, LAST_ENTRY, fence_key=KEY, high_priority=True)


def write_lac(ledger_id: int, lac: int) -> WriteLacRequest:
    """What tells a bookie of an explicit LAC."""
    return WriteLacRequest(ledger_id, lac, KEY, lac_body(ledger_id, lac))


@dataclass
class Promised:
    """What was acknowledged, and the highest entry of each ledger that was ever sent.

    ``lacs`` are the explicit LACs that may be found: the last one acknowledged and those sent after it; -1 for none.
    """

    entries: dict[int, set[int]] = field(default_factory=dict)
    highest: dict[int, int] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    #: Ledgers whose fence was sent, and neither acknowledged nor refused.
    perhaps_fenced: set[int] = field(default_factory=set)
    #: Entries that were never acknowledged and are kept torn, by ledger and entry: what was found of each.
    torn: dict[tuple[int, int], bytes] = field(default_factory=dict)
    lacs: dict[int, set[int]] = field(default_factory=dict)
    lacs_sent: dict[int, set[int]] = field(default_factory=dict)

    def sent(self, requests: Iterable[Request]) -> None:
        """Requests were sent; each may have had its effect."""
        for request in requests:
            if isinstance(request, AddRequest):
                highest = self.highest.get(request.ledger_id, -1)
                self.highest[request.ledger_id] = max(highest, request.entry_id)
                self.entries.setdefault(request.ledger_id, set())
            elif isinstance(request, WriteLacRequest):
                self.lacs.setdefault(request.ledger_id, {-1}).add(request.lac)
                self.lacs_sent.setdefault(request.ledger_id, {-1}).add(request.lac)
            elif isinstance(request, ReadRequest) and request.fence_key is not None:
                self.perhaps_fenced.add(request.ledger_id)

    def acknowledged(self, requests: Iterable[Request]) -> None:
        """Requests, sent before, were acknowledged."""
        for request in requests:
            if isinstance(request, AddRequest):
                self.entries[request.ledger_id].add(request.entry_id)
            elif isinstance(request, WriteLacRequest):
                lacs = self.lacs[request.ledger_id]
                self.lacs[request.ledger_id] = {lac for lac in lacs if lac >= request.lac}
            elif isinstance(request, ReadRequest) and request.fence_key is not None:
                self.perhaps_fenced.discard(request.ledger_id)
                self.fenced.add(request.ledger_id)

    def streamed(self, stream: Stream) -> None:
        """The same for requests of which some were never answered."""
        self.sent(stream.sent)
        self.acknowledged(stream.acknowledged)

    async def ask(self, connection: RawConnection, *requests: Request) -> None:
        """Have requests acknowledged, all of them."""
        self.sent(requests)
        statuses = await connection.statuses(*requests)
        assert set(statuses) == {"EOK"}, statuses
        self.acknowledged(requests)

    def broken_by(self, held: Held, *, lacs_fall: bool) -> Iterator[str]:
        """What ``held`` should have and does not, in sentences; ``lacs_fall`` of a bookie that may go back to an older LAC."""
        for ledger_id, highest in self.highest.items():
            for entry_id in range(highest + 1):
                found = held.entries[ledger_id, entry_id]
                is_promised = entry_id in self.entries[ledger_id]
                wanted = self.torn.get((ledger_id, entry_id), body_of(ledger_id, entry_id))
                may_be = not is_promised and (found in _ABSENT or is_torn(found, wanted))
                if found != wanted and not may_be:
                    shown = found if isinstance(found, str) else f"{len(found)} other bytes"
                    yield f"entry {entry_id} of ledger {ledger_id} is {shown}"
            status, lac, last = held.lacs[ledger_id]
            there = [number for number in range(highest + 1) if held.entries[ledger_id, number] not in _ABSENT]
            if there and (status, last) != ("EOK", held.entries[ledger_id, there[-1]]):
                yield f"the last entry of ledger {ledger_id} is not {there[-1]}, and the answer is {status}"
            allowed = (self.lacs_sent if lacs_fall else self.lacs).get(ledger_id, {-1})
            if lac not in [lac_body(ledger_id, each) if each >= 0 else b"" for each in allowed]:
                yield f"the explicit LAC of ledger {ledger_id} is {lac.hex()} and not of {sorted(allowed)}"
            if ledger_id not in self.perhaps_fenced:
                expected = "EFENCED" if ledger_id in self.fenced else "EOK"
                if held.next_add[ledger_id] != expected:
                    yield f"an add to ledger {ledger_id} was answered with {held.next_add[ledger_id]}, not {expected}"

    def tried(self, held: Held) -> None:
        """The bookie that was asked for ``held`` goes on, with the entries that were added to find its fences."""
        for ledger_id, status in held.next_add.items():
            if status == "EOK":
                self.perhaps_fenced.discard(ledger_id)
                self.highest[ledger_id] += 1
                self.entries[ledger_id].add(self.highest[ledger_id])
            elif status == "EFENCED":
                self.perhaps_fenced.discard(ledger_id)
                self.fenced.add(ledger_id)
        for ledger_id, (_, lac, _) in held.lacs.items():
            known = self.lacs_sent.get(ledger_id, {-1})
            self.lacs[ledger_id] = {each for each in known if lac == (lac_body(ledger_id, each) if each >= 0 else b"")}
        for (ledger_id, entry_id), found in held.entries.items():
            if isinstance(found, bytes):
                self.entries[ledger_id].add(entry_id)
                if is_torn(found, body_of(ledger_id, entry_id)):
                    self.torn[ledger_id, entry_id] = found


@dataclass(frozen=True)
class Held:
    """What a bookie answers: bodies of entries, or the names of statuses in their places.

    ``lacs`` are answers to READ_LAC: status, explicit LAC, last entry. ``next_add`` is what becomes of an ordinary add of the
    entry after the highest that was ever sent: it shows a fence.
    """

    entries: Mapping[tuple[int, int], bytes | str]
    lacs: Mapping[int, tuple[str, bytes, bytes]]
    next_add: Mapping[int, str]
    unknown: str


async def held_by(connection: RawConnection, promised: Promised) -> Held:
    """Ask a bookie for everything."""
    entries: dict[tuple[int, int], bytes | str] = {}
    wanted = [(ledger, number) for ledger, highest in promised.highest.items() for number in range(highest + 1)]
    for first in range(0, len(wanted), _READS_AT_ONCE):
        some = wanted[first : first + _READS_AT_ONCE]
        answers = await connection.ask(*(ReadRequest(*each) for each in some))
        for each, answer in zip(some, answers, strict=True):
            status = status_of(answer)
            entries[each] = answer.readResponse.body if status == "EOK" else status
    ledgers = list(promised.highest)
    lacs = {}
    for ledger_id, answer in zip(ledgers, await connection.ask(*map(ReadLacRequest, ledgers)), strict=True):
        told = answer.readLacResponse
        lacs[ledger_id] = (status_of(answer), told.lacBody, told.lastEntryBody)
    adds = [add(ledger_id, highest + 1) for ledger_id, highest in promised.highest.items()]
    next_add = dict(zip(ledgers, await connection.statuses(*adds), strict=True))
    (unknown,) = await connection.statuses(ReadRequest(UNKNOWN, 0))
    return Held(entries, lacs, next_add, unknown)


def differences(one: Held, other: Held, *, lacs_fall: bool) -> list[str]:
    """Where two bookies differ, in sentences, the first few; without explicit LACs where one may go back to older ones."""
    found = [f"entry {each[1]} of ledger {each[0]}" for each in one.entries if one.entries[each] != other.entries[each]]
    for what, ones, others in (
        ("READ_LAC", _comparable(one, lacs_fall=lacs_fall), _comparable(other, lacs_fall=lacs_fall)),
        ("an add", one.next_add, other.next_add),
        ("an unknown ledger", {UNKNOWN: one.unknown}, {UNKNOWN: other.unknown}),
    ):
        found += [f"{what} of {each}: {ones[each]}, {others[each]}" for each in ones if ones[each] != others[each]]
    return found[:_DIFFERENCES_SHOWN]


def _comparable(held: Held, *, lacs_fall: bool) -> Mapping[int, object]:
    return {each: (status, b"" if lacs_fall else lac, last) for each, (status, lac, last) in held.lacs.items()}


class MidWrite:
    """Requests without end, on ledgers from ``first_ledger`` on: four are written in turn, the fourth is taken over on the way.

    Beside them short ones are written one after the other, each with an explicit LAC, every other one with a takeover. As with
    clients, a LAC and a takeover follow entries that were acknowledged; bookies may let one overtake requests under way.
    """

    def __init__(self, first_ledger: int) -> None:
        self._shared = range(first_ledger, first_ledger + 3)
        self._taken_over = first_ledger + 3
        self._short = self._taken_over
        self._waiting: deque[Request] = deque()
        self._turn = 0
        self._under_way = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Request:
        if not self._waiting:
            self._take_turn()
        return self._waiting.popleft()

    def _take_turn(self) -> None:
        turn, self._turn = self._turn, self._turn + 1
        self._waiting.extend(add(ledger_id, turn) for ledger_id in self._shared)
        if turn < _TAKEN_OVER_AT:
            self._under_way += 1
            self._waiting.append(add(self._taken_over, turn))
        if turn % _SHORT_EVERY == 0:
            self._short += 1
            self._waiting.append(add(self._short, 0))

    def acknowledged(self, request: Request) -> None:
        """One of the requests was acknowledged: what follows it comes next."""
        if not isinstance(request, AddRequest) or request.ledger_id in self._shared:
            return
        ledger_id, entry_id = request.ledger_id, request.entry_id
        if ledger_id == self._taken_over:
            self._under_way -= not request.recovery
            if self._turn >= _TAKEN_OVER_AT and self._under_way == 0:
                first = entry_id + 1 if request.recovery else _TAKEN_OVER_AT
                begin = [] if request.recovery else [fence(ledger_id)]
                self._waiting.extend([*begin, add(ledger_id, first, recovery=True)])
        elif entry_id == 0:
            self._waiting.extend([write_lac(ledger_id, 0), add(ledger_id, 1)])
        elif entry_id == 1 and ledger_id % 2:
            self._waiting.extend([fence(ledger_id), add(ledger_id, 2, recovery=True)])
