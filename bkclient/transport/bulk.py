"""Adds over links: one encoding for a whole write set, handed to each bookie's connection.

Writers send one entry after the other to the same few write sets. The connections to each are remembered, for all writers
together, as long as all of them stand. The entries of one turn are sent as a run (:mod:`bkclient.transport.open_run`), which
costs each of them one encoding and its places in a few lists. Everything else is rare and goes the way of any other request, one
for each bookie: connections that are being made or are full, keys in use, and frames that are too large. Answers to a run are
counted for writers that want it (:mod:`bkclient.transport.tally`).

In protocol version 2 an answer is known by the ids of ledger and entry only, so a run takes an entry if no other answer with its
key may come. Three things together make sure of that:

* the entry's id is above all ids that this sender has put into runs;
* no other sender puts entries of the ledger into runs (:meth:`~bkclient.transport.open_run.WriteSets.claim`);
* no connection awaits an add with that key that is in no run, or has given one up. That is looked at only where there are any
  (:attr:`~bkclient.transport.open_run.OpenRun.is_careful`).

Any other entry is registered by itself with each connection, which knows whether its key is in use: one that is sent again after
a change of the ensemble, one that comes behind a higher id, one of a ledger's second sender.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from bkclient._core import has_twins
from bkclient.errors import IllegalOperation
from bkclient.transport.adds import AddReplies, EachReplica, Submits
from bkclient.transport.open_run import OpenRun, WriteSets
from bkclient.transport.request_stream import RequestStream
from bkclient.wire import v2, v3
from bkclient.wire.connection import ClientConnection
from bkclient.wire.envelope import EncodedAdd, EncodedAdds
from bkclient.wire.messages import AddTemplate
from bkclient.wire.outstanding import Load, Outstanding

__all__ = ["LedgerAdds", "Links"]


#: How many write sets are remembered.
_WRITE_SETS_MAX: Final = 4096


class Links(Submits, Protocol):
    """What sends adds needs of the transport with the links."""

    @property
    def txn_ids(self) -> Iterator[int]:
        """The transaction ids that all its connections take theirs from."""
        ...

    def write_sets_of(self, ledger_id: int) -> WriteSets:
        """Where connections that were found are remembered, for all ledgers that share them; emptied when any has changed."""
        ...

    def streams_to(self, bookies: tuple[str, ...], ledger_id: int) -> tuple[RequestStream, ...]:
        """The connections that take adds of the ledger now; none if any of these bookies has none that stands."""
        ...


class _Encoder(Protocol):
    def encode(self, txn_id: int, entry_id: int, header: bytes, payload: bytes) -> EncodedAdd: ...

    def encode_all(
        self, txn_ids: Sequence[int], entry_ids: Sequence[int], headers: Sequence[bytes], payloads: Sequence[bytes]
    ) -> EncodedAdds: ...


class LedgerAdds(EachReplica):
    """Sends the adds of one writer over links that speak ``protocol_version``."""

    __slots__ = (
        "_counts_up_to",
        "_encoder",
        "_is_striped",
        "_keys_recur",
        "_last_in_run",
        "_links",
        "_max_frame_size",
        "_quorum",
        "_streams",
        "_timeout_s",
        "_txn_ids",
    )

    def __init__(
        self,
        links: Links,
        template: AddTemplate,
        replies: AddReplies,
        *,
        protocol_version: int,
        timeout_s: float,
        max_frame_size: int,
    ) -> None:
        super().__init__(links, template, replies)
        self._links: Final = links
        self._txn_ids: Final = links.txn_ids
        self._timeout_s: Final = timeout_s
        self._max_frame_size: Final = max_frame_size
        self._keys_recur: Final = protocol_version == 2
        self._encoder: Final = _encoder_of(template, protocol_version)
        self._streams: Final = links.write_sets_of(template.ledger_id)
        #: Runs take entries above this one: where keys recur, the highest that was in one, or any if no entry may be in one.
        self._last_in_run = -1
        if self._keys_recur and not self._streams.claim(template.ledger_id, replies):
            self._last_in_run = sys.maxsize
        #: How many bookies make an ack quorum, and the newest connection whose answers are counted; none by default.
        self._quorum = 0
        self._counts_up_to = -1
        #: Whether the entries whose answers are counted go to several write sets.
        self._is_striped = False

    def count(self, ack_quorum_size: int, connection: int, *, is_striped: bool) -> None:
        """See :class:`~bkclient.transport.adds.CountsQuorums`."""
        self._quorum, self._counts_up_to, self._is_striped = ack_quorum_size, connection, is_striped

    def tell(self) -> None:
        """See :class:`~bkclient.transport.adds.CountsQuorums`."""
        if self._streams.run is not None:
            self._streams.run.quorum = 0
        self._streams.held_back.tell()

    def count_no_more(self) -> None:
        """See :class:`~bkclient.transport.adds.CountsQuorums`."""
        self._quorum, self._counts_up_to = 0, -1
        self.tell()

    def send(self, bookies: tuple[str, ...], entry_id: int, header: bytes, payload: bytes) -> None:
        """See :class:`~bkclient.transport.adds.AddSender`."""
        streams = self._streams.get(bookies)
        if streams is None:
            streams = self._find(bookies)
        encoder = self._encoder
        if not streams or encoder is None:
            super().send(bookies, entry_id, header, payload)
            return
        buffers, acknowledgement, size = encoder.encode(next(self._txn_ids), entry_id, header, payload)
        if size > self._max_frame_size:
            super().send(bookies, entry_id, header, payload)
            return
        run, stripe = self._streams.run, 0
        if (
            run is None
            or run.frame_size != len(acknowledgement)
            or run.left <= 0
            or run.room <= 0
            or (streams is not run.streams and (stripe := run.sets.get(streams, -1)) < 0)
            or entry_id <= self._last_in_run
            or run.is_careful
        ):
            run = self._run_for(streams, entry_id, acknowledgement)
            stripe = 0 if run is None else run.sets[streams]
        if run is not None:
            if run.replies is not self._replies:
                run.parts.append((len(run.entry_ids), self._replies, self._is_striped))
                run.replies = self._replies
                if run.quorum != self._quorum or (run.stripes is None and run.numbers[0] > self._counts_up_to):
                    run.quorum = 0
            if run.stripes is not None:
                run.stripes.append(stripe)
                run.pieces.append(len(buffers))
                if run.numbers[stripe] > self._counts_up_to:
                    run.quorum = 0
            run.entry_ids.append(entry_id)
            run.sizes.append(size)
            run.acknowledgements.append(acknowledgement)
            run.buffers.extend(buffers)
            run.left -= 1
            run.room -= size
            if self._keys_recur:
                self._last_in_run = entry_id
            return
        self._send_by_itself(streams, entry_id, header, payload, (buffers, acknowledgement, size))

    def send_all(
        self,
        write_sets: Sequence[tuple[str, ...]],
        entry_ids: Sequence[int],
        headers: Sequence[bytes],
        payloads: Sequence[bytes],
    ) -> None:
        """See :class:`~bkclient.transport.adds.SendsMany`."""
        first, count = 0, len(entry_ids)
        while first < count:
            end = self._end_of_connected(write_sets, entry_ids, first)
            sent = self._send_connected(write_sets, entry_ids[first:end], headers[first:end], payloads[first:end])
            if not sent:
                bookies = write_sets[entry_ids[first] % len(write_sets)]
                super().send(bookies, entry_ids[first], headers[first], payloads[first])
            first += sent or 1

    def _end_of_connected(self, write_sets: Sequence[tuple[str, ...]], entry_ids: Sequence[int], first: int) -> int:
        """Up to which of the entries from this place on there are connections to their write sets."""
        for place in range(first, min(first + len(write_sets), len(entry_ids))):
            if not self._connections_to(write_sets[entry_ids[place] % len(write_sets)]):
                return place
        return len(entry_ids)

    def _send_connected(
        self,
        write_sets: Sequence[tuple[str, ...]],
        entry_ids: Sequence[int],
        headers: Sequence[bytes],
        payloads: Sequence[bytes],
    ) -> int:
        """Send these entries as long as there are connections to their write sets; returns how many were sent."""
        encoder = self._encoder
        first, count = 0, len(entry_ids)
        if encoder is None or not count:
            return 0
        encoded = encoder.encode_all(list(islice(self._txn_ids, count)), entry_ids, headers, payloads)
        buffers, acknowledgements, sizes = encoded
        while first < count:
            bookies = write_sets[entry_ids[first] % len(write_sets)]
            streams = self._connections_to(bookies)  # again, because a connection may have ended by what was sent
            if not streams:
                break
            put = 0
            entry = entry_ids[first], headers[first], payloads[first]
            if sizes[first] > self._max_frame_size:
                super().send(bookies, *entry)
            elif not (put := self._put_in_run(streams, write_sets, entry_ids, encoded, first)):
                self._send_by_itself(streams, *entry, (buffers[first], acknowledgements[first], sizes[first]))
            first += put or 1
        return first

    def _put_in_run(
        self,
        streams: tuple[RequestStream, ...],
        write_sets: Sequence[tuple[str, ...]],
        entry_ids: Sequence[int],
        encoded: EncodedAdds,
        first: int,
    ) -> int:
        """Have the entries from this place on in the open run, or in a new one; returns how many were taken, as one by one.

        ``streams`` are the connections for the first of them, whose frame is not too large.
        """
        buffers, acknowledgements, sizes = encoded
        run = self._run_for(streams, entry_ids[first], acknowledgements[first])
        if run is None:
            return 0
        stripes = [run.sets[streams], *self._stripes_after(run, write_sets, entry_ids, first)]
        end = len(sizes) if len(stripes) == len(write_sets) else first + len(stripes)
        end = self._end_in_run(run, acknowledgements, sizes, first, end)
        taken = slice(first, end)
        if run.replies is not self._replies:
            run.parts.append((len(run.entry_ids), self._replies, self._is_striped))
            run.replies = self._replies
        run.take(entry_ids[taken], (buffers[taken], acknowledgements[taken], sizes[taken]), stripes)
        if (
            run.quorum != self._quorum
            or max([run.numbers[each] for each in stripes[: end - first]]) > self._counts_up_to
        ):
            run.quorum = 0
        if self._keys_recur:
            self._last_in_run = entry_ids[end - 1]
        return end - first

    def _stripes_after(
        self, run: OpenRun, write_sets: Sequence[tuple[str, ...]], entry_ids: Sequence[int], first: int
    ) -> list[int]:
        """The numbers of the write sets after that of the entry at this place, in order, as far as the run takes them."""
        stripes: list[int] = []
        for entry_id in entry_ids[first + 1 : first + min(len(write_sets), run.left)]:
            streams = self._connections_to(write_sets[entry_id % len(write_sets)])
            if not streams or not run.takes(streams, run.frame_size):
                break
            stripes.append(run.sets[streams])
        return stripes

    def _end_in_run(
        self, run: OpenRun, acknowledgements: Sequence[bytes], sizes: Sequence[int], first: int, end: int
    ) -> int:
        """Up to where the run takes the entries between these places.

        It takes the first one in any case, whatever room the connections of those that follow leave.
        """
        end = min(end, first + (1 if run.is_careful else max(1, run.left)))
        most = self._max_frame_size
        are_alike = len(acknowledgements[end - 1]) == run.frame_size  # ids count up, and so does what they take
        if are_alike and sum(sizes[first:end]) <= run.room and max(sizes[first:end]) <= most:
            return end
        room = run.room - sizes[first]
        for place in range(first + 1, end):
            if len(acknowledgements[place]) != run.frame_size or room <= 0 or sizes[place] > most:
                return place
            room -= sizes[place]
        return end

    def _send_by_itself(
        self, streams: tuple[RequestStream, ...], entry_id: int, header: bytes, payload: bytes, encoded: EncodedAdd
    ) -> None:
        """Send an entry that goes into no run."""
        buffers, acknowledgement, size = encoded
        first = streams[0]
        for stream in streams:
            stream.connection.take_apart()
        now = first.turn_began if first.buffers else first.now
        add = (entry_id, self._replies, now + self._timeout_s, size)
        for stream in streams:
            connection = stream.connection
            load = connection.load
            # As ClientConnection.send_add(), whose call every replica would cost, where nothing was given up.
            if (
                load.requests >= load.max_requests
                or load.bytes >= load.max_bytes
                or (stream.has_expired and stream.is_paused and stream.is_overfull)
                or (connection.outstanding.given_up and not connection.is_free_for(acknowledgement))
                or connection.adds.setdefault(acknowledgement, add) is not add
            ):
                super().send((stream.bookie_id,), entry_id, header, payload)
                continue
            load.requests += 1
            load.bytes += size
            if not stream.buffers:
                stream.begin_turn()
            stream.buffers += buffers

    def _run_for(self, streams: tuple[RequestStream, ...], entry_id: int, acknowledgement: bytes) -> OpenRun | None:
        """A run for an entry that goes there; None, and no run is open, if the entry has to go by itself."""
        run = self._streams.run
        may_be = entry_id > self._last_in_run
        if may_be and (run is None or not run.takes(streams, len(acknowledgement))):
            if run is not None:
                if run.left <= 0 or run.room <= 0:
                    run.end_full()
                else:
                    run.end()
            run = OpenRun(self._streams, len(acknowledgement), streams[0].now + self._timeout_s, self._quorum)
            may_be = run.include(streams)
        if run is None or (may_be and not (run.is_careful and not run.has_no_key_of(acknowledgement, streams))):
            return run
        run.end()
        return None

    def _connections_to(self, bookies: tuple[str, ...]) -> tuple[RequestStream, ...]:
        """Those to this write set; none if not all of them stand."""
        streams = self._streams.get(bookies)
        return self._find(bookies) if streams is None else streams

    def _find(self, bookies: tuple[str, ...]) -> tuple[RequestStream, ...]:
        # Entries of a ledger go to the same bookies in one order after the other, and all of them are to share runs.
        ordered = tuple(sorted(bookies))
        streams = self._streams.get(ordered)
        if streams is None:
            streams = self._links.streams_to(ordered, self._template.ledger_id)
            if len(set(streams)) < len(streams):
                streams = ()  # old metadata may name a bookie twice, which answers once for each place
        if len(self._streams) + 1 >= _WRITE_SETS_MAX:
            self._streams.clear()
        self._streams[ordered] = self._streams[bookies] = streams
        return streams


has_twins(
    "sending",
    LedgerAdds,
    "send",
    knows=(EachReplica, RequestStream, ClientConnection, Load, Outstanding, OpenRun, WriteSets),
)


def _encoder_of(template: AddTemplate, protocol_version: int) -> _Encoder | None:
    """None for what the version cannot express."""
    try:
        return v2.AddPacketEncoder(template) if protocol_version == 2 else v3.AddEncoder(template)
    except IllegalOperation:
        return None
