"""Sessions: who is known, until when, and who may come back. Times are seconds of a clock that the caller reads."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from simbookie.zookeeper.messages import PASSWORD_SIZE

__all__ = ["Session", "SessionTable"]

_ID_MAX: Final = 2**63 - 1


@dataclass(slots=True, eq=False)
class Session:
    """One session; it expires at ``deadline`` unless something is heard of its client before."""

    session_id: int
    password: bytes = field(repr=False)
    timeout_s: float
    deadline: float

    @property
    def timeout_ms(self) -> int:
        """The timeout as it is told."""
        return round(self.timeout_s * 1000)

    def touch(self, now: float) -> None:
        """Note that the client was heard of."""
        self.deadline = now + self.timeout_s


class SessionTable:
    """All sessions by id.

    ``random_bytes`` makes passwords, without which a session cannot be taken over. Ids count up from ``first_id``. Timeouts that
    clients wish for are brought between ``timeout_min_s`` and ``timeout_max_s``.
    """

    def __init__(
        self,
        *,
        first_id: int,
        random_bytes: Callable[[int], bytes],
        sessions_max: int,
        timeout_min_s: float,
        timeout_max_s: float,
    ) -> None:
        self._next_id = first_id
        self._random_bytes = random_bytes
        self._sessions_max = sessions_max
        self._timeout_min_s = timeout_min_s
        self._timeout_max_s = timeout_max_s
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """All sessions, oldest first."""
        return iter(tuple(self._sessions.values()))

    def open(self, timeout_ms: int, now: float) -> Session | None:
        """A new session, ``None`` if there are too many."""
        if len(self._sessions) >= self._sessions_max:
            return None
        session = Session(self._next_id, self._random_bytes(PASSWORD_SIZE), self._negotiated(timeout_ms), 0)
        session.touch(now)
        self._next_id = self._next_id % _ID_MAX + 1
        self._sessions[session.session_id] = session
        return session

    def reopen(self, session_id: int, password: bytes, timeout_ms: int, now: float) -> Session | None:
        """The session of a client that comes back, ``None`` if it is not known or the password is wrong."""
        session = self._sessions.get(session_id)
        if session is None or not hmac.compare_digest(session.password, password):
            return None
        session.timeout_s = self._negotiated(timeout_ms)
        session.touch(now)
        return session

    def close(self, session: Session) -> bool:
        """Forget a session; whether it was known."""
        return self._sessions.pop(session.session_id, None) is not None

    def expired(self, now: float) -> list[Session]:
        """Those whose time is up."""
        return [session for session in self._sessions.values() if session.deadline <= now]

    def next_deadline(self) -> float | None:
        """When the next session expires, as of now; ``None`` without sessions."""
        return min((session.deadline for session in self._sessions.values()), default=None)

    def _negotiated(self, timeout_ms: int) -> float:
        return min(max(timeout_ms / 1000, self._timeout_min_s), self._timeout_max_s)
