"""The run of adds that is being made in this turn of the event loop, for all connections that one channel has to bookies.

An entry costs its places in a few lists; what has to be done for each connection is done once for the run, when it ends: at the
end of the turn, before anything else is sent over one of its connections, or when it is full. What sends over a connection, or
asks what is outstanding, ends its run first (:meth:`~bkclient.transport.request_stream.RequestStream.end_run`).

A run of entries for several write sets knows the set of each entry by a number, which is a byte. What goes to a connection is
selected by them, in loops of the interpreter's own, so a striped ledger costs little more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, compress, cycle, islice, pairwise
from operator import itemgetter
from typing import Any, Final
from weakref import WeakValueDictionary

from bkclient.transport.adds import AddReplies
from bkclient.transport.request_stream import RequestStream
from bkclient.transport.striped_tally import StripedTally
from bkclient.transport.tally import PLACES, HeldBack, Part, Tally
from bkclient.wire.envelope import EncodedAdds
from bkclient.wire.outstanding import Load
from bkclient.wire.runs import Run

__all__ = ["MOST_BYTES", "MOST_ENTRIES", "OpenRun", "WriteSets"]

#: A run has no more than this; what it has leaves then, and another one begins. So what a turn sends takes little memory however
#: much it is, and bookies need not wait for the turn's end.
MOST_ENTRIES: Final = 256
MOST_BYTES: Final = 1024 * 1024
#: Frames of up to so many bytes, on the average, leave as one buffer, which costs a copy and spares each connection many buffers.
_JOINED_BYTES: Final = 2048


_ItemsAt = Callable[[list[Any]], tuple[Any, ...]]


class WriteSets(dict[tuple[str, ...], tuple[RequestStream, ...]]):
    """The connections of one channel to write sets, as far as anybody has looked for them, and its open run."""

    __slots__ = ("_claimed", "held_back", "run")

    def __init__(self) -> None:
        super().__init__()
        self.run: OpenRun | None = None
        #: What answers are counted here and not told to writers.
        self.held_back: Final = HeldBack()
        #: By ledger, who hears of its entries in runs. What is outstanding in a run holds them, so who is gone has nothing there.
        self._claimed: WeakValueDictionary[int, AddReplies] | None = None

    def claim(self, ledger_id: int, replies: AddReplies) -> bool:
        """Whether entries of the ledger whose outcomes go to ``replies`` may be in runs, and no others as long as that is there.

        For protocol version 2, where answers of two senders of a ledger look alike. False as well for what cannot be referred to
        weakly.
        """
        if self._claimed is None:
            self._claimed = WeakValueDictionary()
        if ledger_id in self._claimed:
            return False
        try:
            self._claimed[ledger_id] = replies
        except TypeError:
            return False
        return True


class OpenRun:
    """See the module. ``left`` and ``room`` say how many more entries and bytes it takes; the last entry may exceed the bytes.

    What is known of an add is at its place in :attr:`entry_ids`, :attr:`sizes` and :attr:`acknowledgements`, so no object is made
    for it. An add whose sender is not that of the one before begins a new part.
    """

    __slots__ = (
        "_home",
        "acknowledgements",
        "buffers",
        "deadline",
        "entry_ids",
        "frame_size",
        "is_careful",
        "left",
        "numbers",
        "parts",
        "pieces",
        "quorum",
        "replies",
        "room",
        "sets",
        "sizes",
        "streams",
        "stripes",
    )

    def __init__(self, home: WriteSets, frame_size: int, deadline: float, quorum: int) -> None:
        self._home: Final = home
        #: Bytes of each acknowledgement.
        self.frame_size: Final = frame_size
        self.deadline: Final = deadline
        self.left = MOST_ENTRIES
        self.room = MOST_BYTES
        self.entry_ids: Final[list[int]] = []
        #: The bytes of the frame of each add.
        self.sizes: Final[list[int]] = []
        self.acknowledgements: Final[list[bytes]] = []
        #: The frames, one after the other.
        self.buffers: Final[list[bytes]] = []
        self.parts: Final[list[Part]] = []
        #: Who is told of the last add.
        self.replies: Any = None
        #: The write sets that it takes entries for, as connections, with the number of each; and the first of them.
        self.sets: Final[dict[tuple[RequestStream, ...], int]] = {}
        self.streams: tuple[RequestStream, ...] = ()
        #: Of each of them, the number of its newest connection.
        self.numbers: Final[list[int]] = []
        #: Where each add goes, as the number of a write set; None as long as there is one write set.
        self.stripes: bytearray | None = None
        #: If there are several, of how many buffers the frame of each add consists.
        self.pieces = bytearray()
        #: The ack quorum of all its adds if their answers are to be counted (:mod:`bkclient.transport.tally`), or 0.
        self.quorum = quorum
        #: Whether one of the connections may know a key otherwise than by a run: adds by themselves, or any that were given up.
        self.is_careful = False
        home.run = self

    def takes(self, streams: tuple[RequestStream, ...], frame_size: int) -> bool:
        """Whether it takes an entry for this write set, with an acknowledgement of so many bytes."""
        has_room = self.frame_size == frame_size and self.left > 0 and self.room > 0
        return has_room and (streams in self.sets or self.include(streams))

    def has_no_key_of(self, acknowledgement: bytes, streams: tuple[RequestStream, ...]) -> bool:
        """Whether no answer with this key may come there to an add that is in no run. Nobody has to ask unless it is careful."""
        return all(stream.connection.is_unknown(acknowledgement) for stream in streams)

    def include(self, streams: tuple[RequestStream, ...]) -> bool:
        """Take entries for this write set, too; False if one of its connections may not take any."""
        for stream in streams:
            if not stream.takes_adds:
                return False
        if not self.sets:
            self.streams = streams
        elif self.stripes is None:
            self.stripes = bytearray(len(self.entry_ids))
            self.pieces = _pieces(self.sizes, self.buffers)
        self.sets[streams] = len(self.sets)
        self.numbers.append(max(stream.number for stream in streams))
        entries, size = len(self.entry_ids), sum(self.sizes)
        for stream in streams:
            load: Load = stream.connection.load
            # As if all entries of the run went there: a run that ends too early is followed by the next.
            self.left = min(self.left, load.max_requests - load.requests - entries)
            self.room = min(self.room, load.max_bytes - load.bytes - size)
            outstanding = stream.connection.outstanding
            if outstanding.keys_recur and (stream.connection.adds or outstanding.given_up):
                self.is_careful = True
            if stream.run is not self:
                stream.join_run(self)
        return self.left > 0 and self.room > 0

    def take(self, entry_ids: Sequence[int], encoded: EncodedAdds, stripes: Sequence[int]) -> None:
        """Take these adds, which go to the write sets with these numbers in turn."""
        buffers, acknowledgements, sizes = encoded
        if self.stripes is not None:
            self.stripes.extend(islice(cycle(stripes), len(sizes)))
            self.pieces.extend(map(len, buffers))
        self.entry_ids.extend(entry_ids)
        self.sizes.extend(sizes)
        self.acknowledgements.extend(acknowledgements)
        self.buffers.extend(chain.from_iterable(buffers))
        self.left -= len(sizes)
        self.room -= sum(sizes)

    def end(self) -> None:
        """Register the adds with the connections, and hand these the frames."""
        self._home.run = None
        if self.stripes is None:
            run, buffers = self._all_adds()
            for stream in self.streams:
                stream.leave_run(run, buffers)
            return
        assert self.entry_ids, "a second write set comes with an entry that is not the first"
        selected = {stream: self._places_of(stream) for stream in self._connections()}
        tally, places = None, {stream.bookie_id: chosen for stream, chosen in selected.items()}
        # By its name a bookie is known once, so none may have two connections here.
        if self.quorum and len(places) == len(selected):
            tally = self._striped_tally(self.stripes, places)
        columns = _columns(self.buffers, self.pieces)
        for stream, chosen in selected.items():
            run, buffers = None, list[bytes]()
            if chosen:
                at = _items_at(chosen)
                run = self._run(chosen, at, tally)
                buffers = _selected(columns, at, len(chosen)) or _sought(self.buffers, self.pieces, chosen)
                buffers = _joined(buffers, run)
            stream.leave_run(run, buffers)

    def end_full(self) -> None:
        """End it because it takes no more, and send what it has."""
        self.end()
        for stream in self._connections():
            stream.send_now()

    def adds_to(self, stream: RequestStream) -> Run[Any] | None:
        """The adds that go there, if there are any, as a run whose answers are not counted."""
        places = self._places_of(stream)
        return self._run(places, _items_at(places), None) if places else None

    def _connections(self) -> Iterable[RequestStream]:
        return dict.fromkeys(chain.from_iterable(self.sets))

    def _places_of(self, stream: RequestStream) -> tuple[int, ...]:
        """The places of the adds that go over the connection."""
        if self.stripes is None:
            return PLACES[: len(self.entry_ids)]
        goes_there = bytes([stream in streams for streams in self.sets]).ljust(256, b"\0")
        return tuple(compress(PLACES, self.stripes.translate(goes_there)))

    def _all_adds(self) -> tuple[Run[Any] | None, list[bytes]]:
        """All adds, which go to one write set."""
        if not self.entry_ids:
            return None, []
        ids: Sequence[int] = self.entry_ids
        bookies, parts = [stream.bookie_id for stream in self.streams], self.parts
        if not self.quorum:
            owners: list[tuple[int, Any]] = [(first, replies) for first, replies, _ in parts]
        elif any(is_striped for _, _, is_striped in parts):
            ids = PLACES[: len(ids)]
            owners = [(0, self._striped_tally(bytes(len(ids)), dict.fromkeys(bookies, ids)))]
        else:
            tally = Tally(self._home.held_back, self.quorum, bookies, self.entry_ids, parts)
            ids, owners = tally.places, [(0, tally)]
        run: Run[Any] = Run(ids, owners, self.sizes, self.acknowledgements, self.deadline)
        return run, _joined(self.buffers, run)

    def _run(self, places: tuple[int, ...], at: _ItemsAt, tally: StripedTally | None) -> Run[Any]:
        """The adds at these places, whose answers ``tally`` counts."""
        ids: Sequence[int] = places
        owners: list[tuple[int, Any]] = [(0, tally)]
        if tally is None:
            ids, owners = at(self.entry_ids), _owners(self.parts, places)
        return Run(ids, owners, at(self.sizes), at(self.acknowledgements), self.deadline)

    def _striped_tally(self, stripes: bytes | bytearray, places: dict[str, tuple[int, ...]]) -> StripedTally:
        sets = [tuple([stream.bookie_id for stream in streams]) for streams in self.sets]
        return StripedTally(self._home.held_back, self.quorum, sets, stripes, places, self.entry_ids, self.parts)


def _joined(buffers: list[bytes], run: Run[Any]) -> list[bytes]:
    """The buffers of a run's frames as they leave: small ones as one."""
    return buffers if run.bytes > len(run) * _JOINED_BYTES else [b"".join(buffers)]


def _pieces(sizes: Sequence[int], buffers: Sequence[bytes]) -> bytearray:
    """Of how many of the buffers each frame consists, if they have these sizes. None begins with an empty buffer."""
    pieces, left, place = bytearray(len(sizes)), 0, -1
    for buffer in buffers:
        if not left and buffer:
            place += 1
            left = sizes[place]
        left -= len(buffer)
        pieces[place] += 1
    return pieces


def _items_at(places: tuple[int, ...]) -> _ItemsAt:
    """Takes what is at these places, of which there is one at least, out of a list."""
    return itemgetter(*places) if len(places) > 1 else lambda items: (items[places[0]],)


def _columns(buffers: list[bytes], pieces: bytearray) -> list[list[bytes]]:
    """The first buffers of all frames, the second, and so on; nothing unless all frames have the same number of them."""
    each = pieces[0] if pieces else 0
    return [buffers[number::each] for number in range(each)] if pieces.count(each) == len(pieces) else []


def _selected(columns: list[list[bytes]], at: _ItemsAt, count: int) -> list[bytes]:
    """The buffers of the frames at so many places; nothing if there are no columns."""
    each = len(columns)
    buffers: list[bytes] = [b""] * (each * count)
    for number, column in enumerate(columns):  # a list of pairs would be so many objects for the garbage collector
        buffers[number::each] = at(column)
    return buffers


def _sought(buffers: list[bytes], pieces: bytearray, places: tuple[int, ...]) -> list[bytes]:
    """The buffers of the frames at these places, whatever number of them each has."""
    ends = list(accumulate(pieces))
    return [buffer for place in places for buffer in buffers[ends[place] - pieces[place] : ends[place]]]


def _owners(parts: Sequence[Part], places: tuple[int, ...]) -> list[tuple[int, Any]]:
    """Who is told of the adds at these places: from each of the numbers among them on, that writer."""
    owners: list[tuple[int, Any]] = []
    number, last = 0, None
    for (_, replies, _), (end, _, _) in pairwise([*parts, (len(PLACES), None, False)]):
        if number < len(places) and places[number] < end and replies is not last:
            owners.append((number, replies))
            last = replies
        number = bisect_left(places, end, number)
    return owners
