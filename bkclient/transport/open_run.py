"""The run of adds that is being made in this turn of the event loop, for all connections that one channel has to bookies.

An entry costs one tuple in a list; what has to be done for each connection is done once for the run, when it ends: at the end of
the turn, before anything else is sent over one of its connections, or when it is full. What sends over a connection, or asks what
is outstanding, ends its run first (:meth:`~bkclient.transport.request_stream.RequestStream.end_run`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Final
from weakref import WeakValueDictionary

from bkclient.transport.adds import AddReplies
from bkclient.transport.request_stream import RequestStream
from bkclient.wire.outstanding import Load
from bkclient.wire.runs import Run

__all__ = ["MOST_BYTES", "MOST_ENTRIES", "OpenRun", "RunAdd", "WriteSets"]

#: A run has no more than this; what it has leaves then, and another one begins. So what a turn sends takes little memory however
#: much it is, and bookies need not wait for the turn's end.
MOST_ENTRIES: Final = 256
MOST_BYTES: Final = 1024 * 1024
#: Frames of up to so many bytes, on the average, leave as one buffer, which costs a copy and spares each connection many buffers.
_JOINED_BYTES: Final = 2048

RunAdd = tuple[int, Any, int, bytes, tuple[bytes, ...], tuple[RequestStream, ...]]
"""``(entry id, who is told, bytes of the frame, acknowledgement, buffers of the frame, connections to its write set)``."""


class WriteSets(dict[tuple[str, ...], tuple[RequestStream, ...]]):
    """The connections of one channel to write sets, as far as anybody has looked for them, and its open run."""

    __slots__ = ("_claimed", "run")

    def __init__(self) -> None:
        super().__init__()
        self.run: OpenRun | None = None
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
    """See the module. ``left`` and ``room`` say how many more entries and bytes it takes; the last entry may exceed the bytes."""

    __slots__ = ("_home", "add", "adds", "deadline", "frame_size", "is_careful", "left", "room", "sets")

    def __init__(self, home: WriteSets, frame_size: int, deadline: float) -> None:
        self._home: Final = home
        #: Bytes of each acknowledgement.
        self.frame_size: Final = frame_size
        self.deadline: Final = deadline
        self.left = MOST_ENTRIES
        self.room = MOST_BYTES
        self.adds: Final[list[RunAdd]] = []
        self.add: Final[Callable[[RunAdd], None]] = self.adds.append
        #: The write sets that it takes entries for.
        self.sets: Final[list[tuple[RequestStream, ...]]] = []
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
        entries, size = len(self.adds), sum([add[2] for add in self.adds])
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

    def end(self) -> None:
        """Register the adds with the connections, and hand these the frames."""
        self._home.run = None
        adds = self.adds
        if len(self.sets) == 1:
            streams = self.sets[0]
            run, buffers = (Run(adds, self.deadline), _frames_of(adds)) if adds else (None, [])
            for stream in streams:
                stream.leave_run(run, buffers)
            return
        for stream in dict.fromkeys(chain.from_iterable(self.sets)):
            own = [add for add in adds if stream in add[5]]
            if own:
                stream.leave_run(Run(own, self.deadline), _frames_of(own))
            else:
                stream.leave_run(None, [])

    def end_full(self) -> None:
        """End it because it takes no more, and send what it has."""
        self.end()
        for stream in dict.fromkeys(chain.from_iterable(self.sets)):
            stream.send_now()


def _frames_of(adds: list[RunAdd]) -> list[bytes]:
    buffers = [buffer for add in adds for buffer in add[4]]
    if sum([add[2] for add in adds]) > len(adds) * _JOINED_BYTES:
        return buffers
    return [b"".join(buffers)]
