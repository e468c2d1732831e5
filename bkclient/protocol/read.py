"""Reading one entry from its write set.

An ordinary read asks one replica after the other (R-7): the first good answer wins, and "no such entry" is reported only
if every replica said so, because a single one proves nothing (R-14). When an answer is late, the next replica is asked
although the last one has not answered (R-11): this machine decides whether, a :class:`~bkclient._backoff.Backoff` when,
and whatever owns both has the clock.

A recovery read decides more: whether the ledger goes on with this entry or ends before it. It asks all replicas at
once, so that one silent bookie costs nothing. One good answer makes the entry recoverable (REC-19); explicit negatives
from ``Qw - Qa + 1`` replicas prove that no ack quorum ever had it (REC-18); anything less proves nothing, and the read
fails rather than guess (REC-20).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from enum import Enum
from typing import Final

from bkclient.errors import Code
from bkclient.ledger import BookieId
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES
from bkclient.protocol.value import Value, ends_once, moved

__all__ = ["EntryRead", "ReadOutcome", "outranks"]


class ReadOutcome(Enum):
    """What is known about the entry."""

    WAITING = "waiting"
    FOUND = "found"
    #: Explicit negatives suffice: the entry is not there. Ordinary reads need all of them, recovery reads Qw - Qa + 1.
    ABSENT = "absent"
    FAILED = "failed"


_NEXT: Final = ends_once(ReadOutcome.WAITING)
# Every answer asks for these, and members of an enumeration take longer to find.
_WAITING: Final = ReadOutcome.WAITING
_FOUND: Final = ReadOutcome.FOUND
_OK: Final = Code.OK
_CLIENT_CLOSED: Final = Code.CLIENT_CLOSED


def outranks(code: int, current: int) -> bool:
    """Whether ``code`` is to be reported instead of ``current`` (R-13); both are errors, or ``current`` is OK for none yet."""
    return (
        current == Code.OK
        or current in EXPLICIT_NEGATIVES
        or (current == Code.BOOKIE_NOT_AVAILABLE and code not in EXPLICIT_NEGATIVES)
    )


class EntryRead(Value):
    """One read of one entry. Ask :meth:`to_ask` after construction, after every answer, and when :meth:`on_late` says so.

    ``code`` is the result to report once ``outcome`` is not WAITING (R-13): any specific error outranks
    BOOKIE_NOT_AVAILABLE, which outranks explicit negatives. ``code_from`` is the replica that gave it. CLIENT_CLOSED ends
    the read and outranks everything (API-18).
    """

    __slots__ = (
        "_answered",
        "_asked",
        "_denied",
        "_is_parallel",
        "_negatives_to_deny",
        "_replicas",
        "_width",
        "code",
        "code_from",
        "entry_id",
        "outcome",
    )

    def __init__(
        self,
        entry_id: int,
        replicas: Iterable[BookieId],
        *,
        negatives_to_deny: int | None = None,
        parallel: bool = False,
    ) -> None:
        """``replicas`` is the write set in the order of preference; ``negatives_to_deny`` makes it a recovery read."""
        self.entry_id = entry_id
        self.outcome = _WAITING
        self.code: int = _OK
        self.code_from: BookieId | None = None
        # Old metadata may name a bookie twice; it has one answer to give.
        self._replicas = tuple(dict.fromkeys(replicas))
        self._negatives_to_deny = min(negatives_to_deny or len(self._replicas), len(self._replicas))
        self._is_parallel = parallel
        self._asked = 0
        #: How many replicas may be asked at a time: one, and one more for each time that an answer was late.
        self._width = 1
        self._answered = 0
        self._denied = 0

    def to_ask(self) -> tuple[BookieId, ...]:
        """The replicas to send the request to now; each replica is named once in the life of the read."""
        if self.outcome is not _WAITING:
            return ()
        first = self._asked
        if self._is_parallel:
            self._asked = len(self._replicas)
        elif first < self._width and first < len(self._replicas):
            self._asked = first + 1
        return self._replicas[first : self._asked]

    def on_late(self, answering: Container[BookieId] = ()) -> bool:
        """An answer is late: whether to ask another replica, which :meth:`to_ask` then names.

        Not if one of those asked is among ``answering``, those who answer other requests: it is busy, and asking more makes
        it busier (R-11). Not after the end, nor when all have been asked (R-12). Once refused, do not ask again.
        """
        if self.outcome is not _WAITING or self._asked >= len(self._replicas):
            return False
        if any(bookie_id in answering for bookie_id in self._replicas[: self._asked]):
            return False
        self._width = self._asked + 1
        return True

    @property
    def tried(self) -> int:
        """How many replicas were asked."""
        return self._asked

    @property
    def overtaken(self) -> tuple[BookieId, ...]:
        """Those who were asked before the last one and neither have the entry nor denied it: they are slow (RO-6).

        A bookie that denies an entry promptly lacks it, which is no reason to ask it later for others.
        """
        return tuple(
            bookie_id
            for i, bookie_id in enumerate(self._replicas[: max(0, self._asked - 1)])
            if bookie_id != self.code_from and not self._denied >> i & 1
        )

    @property
    def deniers(self) -> tuple[BookieId, ...]:
        """The replicas that sent an explicit negative."""
        return tuple(bookie_id for i, bookie_id in enumerate(self._replicas) if self._denied >> i & 1)

    def on_reply(self, bookie_id: BookieId, code: int) -> ReadOutcome:
        """Note the answer of a replica. An answer with a wrong digest or wrong ids is given as DIGEST_MATCH (R-3).

        Answers after the end, and second answers, change nothing (R-8).
        """
        bit = 1 << self._replicas.index(bookie_id)
        if self.outcome is not _WAITING or self._answered & bit:
            return self.outcome
        self._answered |= bit
        if code in (_OK, _CLIENT_CLOSED):
            self.code, self.code_from = code, bookie_id
            self.outcome = moved(_NEXT, self.outcome, _FOUND if code == _OK else ReadOutcome.FAILED)
            return self.outcome
        self._note_error(code, bookie_id)
        if code in EXPLICIT_NEGATIVES:
            self._denied |= bit
            if self._denied.bit_count() >= self._negatives_to_deny:
                self.code, self.code_from = code, bookie_id
                self.outcome = moved(_NEXT, self.outcome, ReadOutcome.ABSENT)
                return self.outcome
        assert not self._denied & ~self._answered, "a denial is an answer"
        answered = self._answered.bit_count()
        if answered == len(self._replicas):
            self.outcome = moved(_NEXT, self.outcome, ReadOutcome.FAILED)
        elif answered == self._asked:
            self._width = self._asked + 1  # the next after an error, unless an answer is outstanding
        return self.outcome

    def _note_error(self, code: int, bookie_id: BookieId) -> None:
        if outranks(code, self.code):
            self.code, self.code_from = code, bookie_id
