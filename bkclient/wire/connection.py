"""The client's end of a connection, without the connection: requests in, bytes out; bytes in, answers out.

A :class:`ClientConnection` serves one connection of one protocol version. It encodes requests, remembers the outstanding ones
under their match bytes, and recognises their answers. It is told the time as plain numbers, and holds no clock, socket or
task.

Guarantees:

* Every request that :meth:`ClientConnection.send` accepted comes back once: from :meth:`~ClientConnection.receive` with its
  answer, from :meth:`~ClientConnection.expire` after its deadline, or from :meth:`~ClientConnection.abandon`.
* No answer passes for the answer to another request. In version 3 transaction ids ascend on a connection. Version 2
  identifies most requests by operation, ledger and entry only; there :meth:`~ClientConnection.send` refuses a request with
  :class:`~bkclient.wire.outstanding.KeyInUse` while an answer to another one with these ids may come, also if that one has
  expired.
* After a :class:`~bkclient.wire.errors.WireError` the connection is unusable: receiving raises it again.

Adds are most of what is sent, and that an entry was stored is most of what is answered. The whole frame of that answer is known
when an add is sent (:class:`~bkclient.wire.envelope.EncodedRequest`), so outstanding adds are kept under it:
:meth:`ClientConnection.acknowledged` looks up frame after frame as it is, in whatever order they come. Any other answer to
an add goes the way of all answers. An add may be encoded once and registered with the connections to its whole write set.
Adds that follow each other are registered together, as a run (:meth:`ClientConnection.send_run`), and what arrives is compared
with what is next. That order is likely, and no more: where answers come in another one, or an add fails, the
runs are taken apart into adds that are looked up.

Ordinary reads have a method of their own as well: :meth:`ClientConnection.send_reads` takes any number of them, and
:meth:`ClientConnection.found` takes good answers out of what was received, compared and not decoded
(:mod:`bkclient.wire.v3_read`, :mod:`bkclient.wire.v2_read`). Every other answer to them comes as if they had been sent one by
one.

The number and size of outstanding requests is bounded by the caller, who sees both.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from bkclient._core import has_twins
from bkclient.wire import chunks, v2, v3
from bkclient.wire.answers import check_answer
from bkclient.wire.chunks import FoundBody, SentAdd, SentRead
from bkclient.wire.envelope import EncodedRequest
from bkclient.wire.errors import FrameTooLarge, MalformedMessage, WireError
from bkclient.wire.framing import DEFAULT_MAX_FRAME_SIZE, PREFIX_SIZE, FrameBuffer, frame
from bkclient.wire.messages import AddRequest, AddResponse, Operation, ReadRequest, Request, Response, Status
from bkclient.wire.outstanding import KeyInUse, Load, Outstanding
from bkclient.wire.runs import Acknowledged, Run, Runs, add_told
from bkclient.wire.v2_read import ReadPacketEncoder
from bkclient.wire.v3_read import ReadEncoder

__all__ = ["Answer", "ClientConnection", "FoundBody", "SentAdd", "SentRead"]

Token = TypeVar("Token")

Answer = tuple[Request | int, Token, Status, Response | None]
"""``(request, token, status, response)``; the response is ``None`` for adds, whose answer is the status alone.

For what :meth:`ClientConnection.send_add` registered the request is the entry id.
"""

# (request, token, deadline, bytes of the frame)
_Entry = tuple[Request, Token, float, int]

_FOREVER: Final = float("inf")
#: Of the content of a frame, in bytes; with the longest ids it has 46 in version 3.
_LARGEST_ACKNOWLEDGEMENT: Final = 64


class _Dialect(Protocol):
    """What the modules of both protocol versions offer a client."""

    def encode_request(self, request: Request, txn_id: int) -> EncodedRequest: ...

    def decode_response(self, content: bytes) -> tuple[bytes, Response]: ...

    def acknowledgement_of(self, match: bytes, response: Response) -> bytes | None: ...

    def match_of_acknowledgement(self, acknowledgement: bytes) -> bytes: ...

    def is_whole_answer_to_add(self, chunk: bytes, position: int) -> bool: ...


_ReadEncoder = ReadPacketEncoder | ReadEncoder
_DIALECTS: Final[dict[int, _Dialect]] = {2: v2, 3: v3}


class ClientConnection(Generic[Token]):
    """One connection to a bookie; see the module's text for what it guarantees.

    ``txn_ids`` yields ascending transaction ids and is shared by connections that shall share encoded adds. ``load`` counts
    outstanding requests and is shared by connections that share a limit. ``wanted`` holds the keys that somebody waits for:
    those of them whose request here is answered or given up are added to :attr:`changed`.
    """

    __slots__ = (
        "_dialect",
        "_error",
        "_last_txn_id",
        "_txn_ids",
        "_wanted",
        "adds",
        "changed",
        "frames",
        "load",
        "outstanding",
        "protocol_version",
        "reads",
        "runs",
        "unmatched_answers",
    )

    def __init__(
        self,
        protocol_version: int = 3,
        max_frame_size: int = DEFAULT_MAX_FRAME_SIZE,
        txn_ids: Iterator[int] | None = None,
        load: Load | None = None,
        wanted: Collection[bytes] = (),
    ) -> None:
        if protocol_version not in _DIALECTS:
            raise ValueError(f"protocol_version must be 2 or 3, got {protocol_version}")
        self.protocol_version = protocol_version
        #: How many requests await their answer, and the bytes of their frames; on all connections that share it.
        self.load = Load() if load is None else load
        #: Which requests but adds await their answer here, and which of all were given up.
        self.outstanding: Outstanding[_Entry[Token]] = Outstanding(keys_recur=protocol_version == 2)
        #: Which adds await their answer here, by the frame that says that the entry was stored.
        self.adds: dict[bytes, SentAdd[Token]] = {}
        #: Runs of adds that await their answers here, in this order. They were sent after everything in :attr:`adds`.
        self.runs: Runs[Token] = Runs()
        #: Which reads that :meth:`send_reads` registered await their answer here, by their match bytes.
        self.reads: dict[bytes, SentRead[Token]] = {}
        #: Keys that were wanted when their request was answered or given up, until the owner takes them out.
        self.changed: list[bytes] = []
        #: Answers that belong to no outstanding request: late ones, as a rule.
        self.unmatched_answers = 0
        self._dialect = _DIALECTS[protocol_version]
        self._txn_ids = itertools.count(1) if txn_ids is None else txn_ids
        self._last_txn_id = 0
        #: What was received and is in no answer yet.
        self.frames: Final = FrameBuffer(max_frame_size)
        self._error: WireError | None = None
        self._wanted = wanted

    @property
    def outstanding_requests(self) -> int:
        """How many requests await their answer here."""
        in_runs = self.runs.outstanding if self.runs else 0
        outstanding = self.outstanding
        return len(outstanding.entries) - outstanding.given_up + len(self.adds) + len(self.reads) + in_runs

    @property
    def outstanding_bytes(self) -> int:
        """The bytes of the frames of outstanding requests, of all connections that share the load."""
        return self.load.bytes

    def send(self, request: Request, token: Token, deadline: float = _FOREVER) -> tuple[bytes, ...]:
        """Register ``request`` as outstanding until ``deadline`` and return the buffers to send, in order.

        Raises, and registers nothing, :class:`~bkclient.errors.IllegalOperation` for what the protocol version cannot
        express, :class:`~bkclient.wire.errors.FrameTooLarge` for what the bookie would close the connection over, and in
        version 2 :class:`~bkclient.wire.outstanding.KeyInUse`. The caller has looked whether the load is full.
        """
        encoded = self._encode(request)
        size = encoded.size
        assert encoded.txn_id > self._last_txn_id, "transaction ids ascend"
        self._last_txn_id = encoded.txn_id
        if size > self.frames.max_frame_size:
            raise FrameTooLarge(size, self.frames.max_frame_size)
        acknowledgement = encoded.acknowledgement
        if acknowledgement is None:
            if encoded.match in self.reads:
                raise KeyInUse(encoded.match)
            self.outstanding.add(encoded.match, (request, token, deadline, size))
            self.load.put_on(size)
        else:
            assert isinstance(request, AddRequest), "nothing else is acknowledged"
            if not self.send_add(acknowledgement, (request, token, deadline, size)):
                raise KeyInUse(encoded.match)
        return encoded.buffers

    def send_add(self, acknowledgement: bytes, add: SentAdd[Token]) -> bool:
        """Register an add that was encoded elsewhere, with a new transaction id.

        False, and nothing is registered, if the load is full or the key in use. The caller has checked the size of the frame.
        """
        if self.runs:
            self.take_apart()
        load = self.load
        if load.requests >= load.max_requests or load.bytes >= load.max_bytes:
            return False
        if self.outstanding.given_up and not self.is_free_for(acknowledgement):
            return False
        if self.adds.setdefault(acknowledgement, add) is not add:
            return False
        load.requests += 1
        load.bytes += add[3]
        return True

    def send_run(self, run: Run[Token]) -> None:
        """Register a run of adds, with new transaction ids or, in version 2, of which no other answer with their keys may come.

        The caller has seen to that, and that the load takes them, and has checked the sizes of the frames.
        """
        self.runs.append(run)
        self.load.requests += len(run.entry_ids)
        self.load.bytes += run.bytes

    def take_apart(self) -> None:
        """Keep each add of the runs under its acknowledgement, for what is not in the order in which they were sent."""
        self.adds.update(self.runs.take())

    def awaited(self) -> list[bytes]:
        """The frames that will acknowledge the adds that are outstanding here, in the order in which they were sent."""
        return [*self.adds, *[frame for frame, _ in self.runs.adds()]]

    def is_unknown(self, acknowledgement: bytes) -> bool:
        """Whether no answer with the key of ``acknowledgement`` may come, but to an add in a run."""
        return acknowledgement not in self.adds and self.is_free_for(acknowledgement)

    def is_free_for(self, acknowledgement: bytes) -> bool:
        """Whether no answer that an add of other bytes awaits, or was given up with, has the key of ``acknowledgement``."""
        return self.outstanding.is_free(self._dialect.match_of_acknowledgement(acknowledgement))

    def send_reads(
        self, encoder: _ReadEncoder, ledger_id: int, entry_ids: Sequence[int], token: Token, deadline: float
    ) -> list[bytes]:
        """Register ordinary reads of ``ledger_id``, which ``encoder`` is for, and return their frames, in order.

        ``encoder`` is one for this protocol version. There are fewer frames than entries if the load becomes full or a key is in
        use, and none if they are larger than the bookie takes: the rest is not registered.
        """
        load, reads, used = self.load, self.reads, self.outstanding.entries
        count = min(len(entry_ids), load.max_requests - load.requests)
        if count <= 0:
            return []
        txn_ids = list(itertools.islice(self._txn_ids, count))
        assert txn_ids[0] >= self._last_txn_id, "transaction ids ascend"
        self._last_txn_id = txn_ids[-1]
        frames, matches, starts = encoder.encode_all(txn_ids, entry_ids[:count])
        sizes = list(map(len, frames))
        are_free = not self.outstanding.keys_recur or (
            reads.keys().isdisjoint(matches) and used.keys().isdisjoint(matches) and len(set(matches)) == count
        )
        if not are_free or sum(sizes) >= load.max_bytes - load.bytes or max(sizes) > self.frames.max_frame_size:
            sizes = sizes[: self._sendable(sizes, matches)]
        tokens, deadlines, ledger_ids = map(itertools.repeat, (token, deadline, ledger_id))
        sent = zip(starts, entry_ids, tokens, deadlines, sizes, ledger_ids, strict=False)
        reads.update(zip(matches, sent, strict=False))
        load.requests += len(sizes)
        load.bytes += sum(sizes)
        return list(frames[: len(sizes)])

    def _sendable(self, sizes: Sequence[int], matches: Sequence[bytes]) -> int:
        """How many of these reads may be sent before the load is full, a frame is too large or a key in use."""
        room, keys_in_use = self.load.max_bytes - self.load.bytes, set[bytes]()
        if self.outstanding.keys_recur:
            keys_in_use.update(self.reads, self.outstanding.entries)
        for count, (size, match) in enumerate(zip(sizes, matches, strict=True)):
            if room <= 0 or size > self.frames.max_frame_size or match in keys_in_use:
                return count
            room -= size
            if self.outstanding.keys_recur:
                keys_in_use.add(match)
        return len(sizes)

    def is_free(self, key: bytes) -> bool:
        """Whether no answer with ``key`` may come."""
        if not self.outstanding.keys_recur:
            return True
        if not self.outstanding.is_free(key) or key in self.reads:
            return False
        acknowledgement = v2.acknowledgement_with(key)
        return acknowledgement is None or not (acknowledgement in self.adds or self.runs.have(acknowledgement))

    def get_buffer(self) -> memoryview:
        """Where the next received bytes belong; see :meth:`buffer_updated`."""
        return self.frames.get_buffer()

    def buffer_updated(self, size: int) -> list[Acknowledged[Token]]:
        """``size`` bytes were received into the start of :meth:`get_buffer`: the adds that the first of them acknowledge.

        Their answers go up to the first that says anything else; :meth:`answers` has it and what follows. Those that come one
        after the other for one token are together.
        """
        self.frames.commit(size)
        if not (self.adds or self.runs) or self._wanted or self._error is not None:
            return []
        chunk = self.frames.small()
        told: list[Acknowledged[Token]] = []
        if self.adds:
            acknowledged, position, size = chunks.taken(chunk, self.adds)
            if acknowledged:
                self.frames.skip(position)
                self.load.take_off(size, len(acknowledged))
                told = chunks.runs_of(acknowledged)
                chunk = chunk[position:]
        if self.runs:
            position, count, size = self.runs.follow(chunk, told)
            if count:
                self.frames.skip(position)
                self.load.take_off(size, count)
            if position < len(chunk) and self.runs and self._dialect.is_whole_answer_to_add(chunk, position):
                self.take_apart()
                for token, added in self.buffer_updated(0):
                    add_told(told, token, added)
        return told

    def found(self) -> list[tuple[Token, list[FoundBody]]]:
        """The good answers to what :meth:`send_reads` registered, up to the first that is anything else.

        Those that come one after the other for one token are together. To be called after :meth:`buffer_updated`, and before
        :meth:`answers`, which has the rest.
        """
        if not self.reads or self._wanted or self._error is not None:
            return []
        most = self.frames.max_frame_size - PREFIX_SIZE
        found, position, count, size = chunks.bodies_in(self.frames.whole(), self.reads, self.protocol_version, most)
        if count:
            self.frames.skip(position)
            self.load.take_off(size, count)
        return found

    def answers(self) -> Iterator[Answer[Token]]:
        """The answers in the rest of what was received.

        They are matched one by one as the caller takes them, who may send meanwhile. Raises
        :class:`~bkclient.wire.errors.WireError` where the bytes stop making sense.
        """
        return self._answers(self.frames.frames())

    def receive(self, data: bytes) -> Iterator[Answer[Token]]:
        """The answers in ``data``, for callers that receive chunks; otherwise like :meth:`answers`."""
        return self._answers(self.frames.feed(data))

    def expire(self, now: float) -> list[tuple[Request | int, Token]]:
        """Give up the outstanding requests whose deadline is not after ``now``; takes time linear in all outstanding.

        Returns requests, or entry ids of adds as :meth:`send_add` registered them, with their tokens: adds after other requests,
        then what :meth:`send_reads` registered, and each in the order in which they were sent.
        """
        outstanding, adds = self.outstanding, self.adds
        if self.runs and any(run.deadline <= now for run in self.runs):
            self.take_apart()
        expired: list[tuple[Request | int, Token]] = []
        due = [(key, entry) for key, entry in outstanding.entries.items() if entry is not None and entry[2] <= now]
        for key, entry in due:
            outstanding.give_up(key)
            self._settle(key, entry[3])
            expired.append((entry[0], entry[1]))
        for acknowledgement, add in [(key, add) for key, add in adds.items() if add[2] <= now] if adds else ():
            del adds[acknowledgement]
            key = self._dialect.match_of_acknowledgement(acknowledgement)
            outstanding.never_mind(key)
            self._settle(key, add[3])
            expired.append((add[0], add[1]))
        reads = self.reads
        for key, read in [(key, read) for key, read in reads.items() if read[3] <= now] if reads else ():
            del reads[key]
            outstanding.never_mind(key)
            self._settle(key, read[4])
            expired.append((_request_of(read), read[2]))
        return expired

    def abandon(self) -> list[tuple[Request | int, Token]]:
        """Give up all outstanding requests."""
        abandoned = self.expire(_FOREVER)
        assert not self.outstanding_requests, "nothing is outstanding on a connection that was abandoned"
        self.check()
        return abandoned

    def check(self) -> tuple[int, int]:
        """Assert that what is counted is what is there; returns how many requests are outstanding here, and their bytes.

        Takes time linear in all outstanding.
        """
        outstanding, load = self.outstanding, self.load
        entries = outstanding.entries
        requests = size = 0
        for entry in entries.values():  # of which there are few where this is called often
            if entry is not None:
                requests += 1
                size += entry[3]
        assert requests == len(entries) - outstanding.given_up, "a request that was given up is counted"
        if self.adds or self.runs or self.reads:  # which connections of objects have none of
            sizes = [add[3] for add in self.adds.values()]
            sizes += [read[4] for read in self.reads.values()]
            if self.runs:
                sizes += self.runs.sizes()
                self._check_runs()
            requests += len(sizes)
            size += sum(sizes)
        assert load.requests >= requests, "what is outstanding here is part of the load"
        assert load.bytes >= size, "what is outstanding here is part of the load"
        return requests, size

    def _check_runs(self) -> None:
        if self.protocol_version == 3:
            if self.adds:
                ids = [v3.txn_id_of(v3.match_of_acknowledgement(frame)) for frame in self.awaited()]
                assert ids == sorted(ids), "runs were sent after all other adds"
            return
        awaited = self.awaited()
        assert len(set(awaited)) == len(awaited), "one add awaits the answer with a key"
        assert not self.outstanding.given_up or all(map(self.is_free_for, awaited)), (
            "a key that was given up is not used"
        )

    def _settle(self, key: bytes, size: int) -> None:
        """The request with ``key``, whose frame had ``size`` bytes, awaits no answer any more."""
        self.load.take_off(size)
        if key in self._wanted:
            self.changed.append(key)

    def _encode(self, request: Request) -> EncodedRequest:
        encoded = self._dialect.encode_request(request, next(self._txn_ids))
        assert encoded.size == sum(map(len, encoded.buffers)), "the size of a frame is that of its buffers"
        return encoded

    def _answers(self, frames: Iterator[bytes]) -> Iterator[Answer[Token]]:
        if self._error is not None:
            raise self._error
        outstanding, adds, match_of = self.outstanding, self.adds, self._dialect.match_of_acknowledgement
        try:
            for content in frames:
                whole = frame(content) if len(content) <= _LARGEST_ACKNOWLEDGEMENT else b""
                add = adds.pop(whole, None)
                if add is None and self.runs:
                    add = self.runs.answered(whole)
                if add is not None:
                    self._settle(match_of(whole), add[3])
                    yield add[0], add[1], Status.OK, None
                    continue
                match, response = self._dialect.decode_response(content)
                add = self._answered_add(match, response) if adds or self.runs else None
                if add is not None:
                    self._settle(match, add[3])
                    yield add[0], add[1], response.status, None
                    continue
                read = self.reads.get(match)
                if read is not None:
                    request = _request_of(read)
                    check_answer(request, response)
                    del self.reads[match]
                    self._settle(match, read[4])
                    yield request, read[2], response.status, response
                    continue
                entry = outstanding.entries.get(match)
                if entry is not None:
                    check_answer(entry[0], response)
                settled = outstanding.answered(match)
                assert settled is entry, "an answer settles the request it was matched with"
                if entry is None:
                    if match in self._wanted:
                        self.changed.append(match)
                    self.unmatched_answers += 1
                    continue
                self._settle(match, entry[3])
                yield entry[0], entry[1], response.status, response
        except WireError as error:
            self._error = error
            raise

    def _answered_add(self, match: bytes, response: Response) -> SentAdd[Token] | None:
        """The add that ``response`` belongs to, which says that it was not carried out, or so in other bytes."""
        if response.operation is not Operation.ADD_ENTRY:
            return None
        if self.runs:
            self.take_apart()
        acknowledgement = self._dialect.acknowledgement_of(match, response)
        if acknowledgement is not None and acknowledgement in self.adds:
            return self.adds.pop(acknowledgement)
        if self.outstanding.keys_recur:
            return None  # the ids are all that an answer is known by
        oldest = v3.match_of_acknowledgement(next(iter(self.adds)))
        if v3.txn_id_of(match) < v3.txn_id_of(oldest):
            return None  # transaction ids ascend, so it is late
        found = next((key for key in self.adds if key.startswith(match, PREFIX_SIZE)), None)
        if found is None:
            return None
        if isinstance(response, AddResponse):
            raise MalformedMessage(
                f"an answer about entry {response.entry_id} of ledger {response.ledger_id} to the add of another"
            )
        return self.adds.pop(found)  # a refusal need not name any


has_twins(
    "answers",
    ClientConnection,
    "buffer_updated",
    bind="bind_connection",
    knows=(Load, Runs, add_told),
)


def _request_of(read: SentRead[Token]) -> ReadRequest:
    return ReadRequest(read[5], read[1])
