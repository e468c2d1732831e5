"""Whether the client of a connection makes progress: what deadlines look at."""

from __future__ import annotations

from simbookie.tcp.config import ServerConfig

__all__ = ["PeerProgress"]


class PeerProgress:
    """What has been seen of one connection, opened at ``now``. Times in seconds of a monotonic clock."""

    __slots__ = ("_answers_seen", "_config", "_frame_seen_at", "_opened_at", "has_served", "is_established")

    def __init__(self, config: ServerConfig, now: float) -> None:
        self._config = config
        self._opened_at = now
        #: Whether requests were carried out since the last look.
        self.has_served = False
        #: Whether the connection may be silent from now on.
        self.is_established = False
        self._frame_seen_at: float | None = None
        self._answers_seen: tuple[float, int] | None = None

    def look(self, now: float, *, unsent: int, has_partial_frame: bool, is_halted: bool) -> str | None:
        """Why the connection is to be closed now, if it is.

        ``unsent`` are bytes of answers that the client has not taken; a halted connection owes the client something, not the
        client us.
        """
        config = self._config
        served, self.has_served = self.has_served, False
        if served:
            self.is_established = True
        if not self.is_established and now - self._opened_at > config.handshake_timeout_s:
            return f"no request came and was admitted within {config.handshake_timeout_s:g} s"
        if unsent:
            return self._look_at_answers(now, unsent)
        self._answers_seen = None
        if is_halted or served or not has_partial_frame:
            self._frame_seen_at = None
        elif self._frame_seen_at is None:
            self._frame_seen_at = now
        elif now - self._frame_seen_at > config.frame_timeout_s:
            return f"a frame was not complete after {config.frame_timeout_s:g} s"
        return None

    def _look_at_answers(self, now: float, unsent: int) -> str | None:
        timeout_s = self._config.answers_timeout_s
        if self._answers_seen is None or self._answers_seen[1] != unsent:
            self._answers_seen = (now, unsent)
        elif now - self._answers_seen[0] > timeout_s:
            return f"it took none of its answers for {timeout_s:g} s"
        return None
