"""The run of adds that is being made in this turn of the event loop, for all connections that one channel has to bookies.

An entry costs its places in a few lists; what has to be done for each connection is done once for the run, when it ends: at the
end of the turn, before anything else is sent over one of its connections, or when it is full. What sends over a connection, or
asks what is outstanding, ends its run first (:meth:`~bkclient.transport.request_stream.RequestStream.end_run`).
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any, Final
from weakref import WeakValueDictionary

from bkclient.transport.adds import AddReplies
from bkclient.transport.request_stream import RequestStream
from bkclient.transport.tally import HeldBack, Tally
from bkclient.wire.outstanding import Load
from bkclient.wire.runs import Run

__all__ = ["MOST_BYTES", "MOST_ENTRIES", "OpenRun", "WriteSets"]

#: A run has no more than this; what it has leaves then, and another one begins. So what a turn sends takes little memory however
#: much it is, and bookies need not wait for the turn's end.
MOST_ENTRIES: Final = 256
MOST_BYTES: Final = 1024 * 1024
#: Frames of up to so many bytes, on the average, leave as one buffer, which costs a copy and spares each connection many buffers.
_JOINED_BYTES: Final = 2048

_Part = tuple[int, int, Any, tuple[RequestStream, ...]]
"""``(first place, its first buffer, who is told, connections to the write set)``: adds of one sender to one write set."""


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
    for it. An add whose sender or write set is not that of the one before begins a new part.
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
        "number",
        "parts",
        "quorum",
        "replies",
        "room",
        "sets",
        "sizes",
        "streams",
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
        self.parts: Final[list[_Part]] = []
        #: Who is told of the last add, and the connections to its write set.
        self.replies: Any = None
        self.streams: tuple[RequestStream, ...] = ()
        #: The write sets that it takes entries for.
        self.sets: Final[list[tuple[RequestStream, ...]]] = []
        #: The ack quorum of all its adds if their answers are to be counted (:mod:`bkclient.transport.tally`), or 0.
        self.quorum = quorum
        #: That of its newest connection.
        self.number = 0
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
        self.sets.append(streams)
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
            self.number = max(self.number, stream.number)
        return self.left > 0 and self.room > 0

    def end(self) -> None:
        """Register the adds with the connections, and hand these the frames."""
        self._home.run = None
        if len(self.sets) == 1:
            run, buffers = self.adds_to(None)
            for stream in self.sets[0]:
                stream.leave_run(run, buffers)
            return
        for stream in dict.fromkeys(chain.from_iterable(self.sets)):
            stream.leave_run(*self.adds_to(stream))

    def adds_to(self, stream: RequestStream | None) -> tuple[Run[Any] | None, list[bytes]]:
        """The adds that go there, or all of them, as a run, if there are any; and their frames."""
        entry_ids, sizes, acknowledgements, buffers = self.entry_ids, self.sizes, self.acknowledgements, self.buffers
        parts = self.parts
        if stream is not None:
            entry_ids, sizes, acknowledgements, buffers, parts = [], [], [], [], []
            end: _Part = (len(self.entry_ids), len(self.buffers), None, ())
            for (first, first_buffer, replies, streams), (last, last_buffer, _, _) in pairwise([*self.parts, end]):
                if stream in streams:
                    parts.append((len(entry_ids), len(buffers), replies, streams))
                    entry_ids += self.entry_ids[first:last]
                    sizes += self.sizes[first:last]
                    acknowledgements += self.acknowledgements[first:last]
                    buffers += self.buffers[first_buffer:last_buffer]
        if not entry_ids:
            return None, []
        if stream is None and self.quorum:
            bookies = [each.bookie_id for each in self.sets[0]]
            tally = Tally(
                self._home.held_back, self.quorum, bookies, entry_ids, [(first, each) for first, _, each, _ in parts]
            )
            run: Run[Any] = Run(tally.places, [(0, tally)], sizes, acknowledgements, self.deadline)
        else:
            owners: list[tuple[int, Any]] = []
            owner: Any = None
            for first, _, replies, _ in parts:
                if replies is not owner:
                    owners.append((first, replies))
                    owner = replies
            run = Run(entry_ids, owners, sizes, acknowledgements, self.deadline)
        if run.bytes > len(entry_ids) * _JOINED_BYTES:
            return run, buffers
        return run, [b"".join(buffers)]

    def end_full(self) -> None:
        """End it because it takes no more, and send what it has."""
        self.end()
        for stream in dict.fromkeys(chain.from_iterable(self.sets)):
            stream.send_now()
