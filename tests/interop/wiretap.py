"""Listening in on a client and a bookie, frame by frame."""

from __future__ import annotations

from tests.proxy import Direction, RecordingProxy

__all__ = ["Wiretap", "frames_in"]


def frames_in(stream: bytes) -> list[bytes]:
    """The contents of the frames of a stream, length prefixes taken off."""
    frames, position = [], 0
    while position < len(stream):
        size = int.from_bytes(stream[position : position + 4], "big")
        frames.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    return frames


class Wiretap(RecordingProxy):
    """A proxy that knows where frames begin."""

    @property
    def requests(self) -> list[bytes]:
        """Frames sent so far by clients, connection after connection."""
        return [frame for stream in self.heard(Direction.REQUESTS) for frame in frames_in(stream)]
