"""Waiting at the bookies for the next entry of a ledger that is being written.

A long poll asks a bookie to answer once it knows a last add confirmed at or above one entry, or when a time has passed; and
to send the entry along if it has it (R-40). Bookies are asked one after the other, from the one that should store the entry on,
through the whole ensemble (R-41): with striping the news of a confirmed entry reaches other bookies than the entry itself.

An *empty* answer says that the time passed without news. One proves nothing; ``E - Qa + 1`` of them leave no ack quorum that
could have any (R-44). A poll that ends without news is no failure: the caller polls again (R-45).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from bkclient.errors import Code, Refusal
from bkclient.ledger import BookieId
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES, QuorumSizes
from bkclient.protocol.read import outranks
from bkclient.protocol.value import Value, ends_once, moved

__all__ = ["LongPollRead", "PollOutcome"]


class PollOutcome(Enum):
    """How a poll stands."""

    WAITING = "waiting"
    #: With the entry, with a LAC that reached it, or without news.
    ENDED = "ended"
    FAILED = "failed"


_NEXT: Final = ends_once(PollOutcome.WAITING)


class LongPollRead(Value):
    """One poll for one entry. Ask :meth:`to_ask` after construction, after every answer, and when :meth:`on_late` says so.

    ``last_add_confirmed`` is the greatest LAC heard, or known before; ``found_by`` who sent the entry. ``code`` and
    ``code_from`` tell the error to report once ``outcome`` is FAILED (R-13).
    """

    __slots__ = (
        "_answered",
        "_asked",
        "_candidates",
        "_empty",
        "_enough",
        "_has_answer",
        "_is_parallel",
        "_negatives",
        "_width",
        "code",
        "code_from",
        "entry_id",
        "found_by",
        "last_add_confirmed",
        "outcome",
    )

    def __init__(
        self,
        sizes: QuorumSizes,
        entry_id: int,
        candidates: Iterable[BookieId],
        *,
        last_add_confirmed: int = -1,
        parallel: bool = False,
    ) -> None:
        """``candidates`` are the members of the ensemble in the order in which to ask them."""
        self.entry_id = entry_id
        self.last_add_confirmed = last_add_confirmed
        self.outcome = PollOutcome.WAITING
        self.found_by: BookieId | None = None
        self.code: int = Code.OK
        self.code_from: BookieId | None = None
        self._candidates = tuple(dict.fromkeys(candidates))
        self._enough = min(sizes.ensemble_size - sizes.ack_quorum_size + 1, len(self._candidates))
        self._is_parallel = parallel
        self._width = len(self._candidates) if parallel else 1
        self._asked = 0
        self._answered: dict[BookieId, None] = {}
        self._has_answer = False
        self._empty = 0
        self._negatives = 0

    def to_ask(self) -> tuple[BookieId, ...]:
        """The bookies to poll now; each is named once in the life of the poll."""
        if self.outcome is not PollOutcome.WAITING:
            return ()
        first, self._asked = self._asked, min(self._width, len(self._candidates))
        return self._candidates[first : self._asked]

    def on_late(self) -> bool:
        """No news for a while: whether to poll another bookie as well, which :meth:`to_ask` then names."""
        if self.outcome is not PollOutcome.WAITING or self._asked == len(self._candidates):
            return False
        self._width = self._asked + 1
        return True

    def on_reply(
        self, bookie_id: BookieId, code: int, last_add_confirmed: int = -1, *, has_entry: bool = False
    ) -> PollOutcome:
        """Note an answer; ``has_entry`` if it brought the entry, verified.

        Answers after the end, and second answers, change nothing. An entry counts only with a LAC that covers it: without
        one the bookie has not said that it is confirmed.
        """
        if self.outcome is not PollOutcome.WAITING or bookie_id in self._answered:
            return self.outcome
        self._answered[bookie_id] = None
        if code == Code.OK:
            self._on_answer(bookie_id, last_add_confirmed, has_entry=has_entry)
        elif code in (Code.UNAUTHORIZED, Code.CLIENT_CLOSED) and not isinstance(code, Refusal):
            self._fail(code, bookie_id)
        else:
            self._negatives += code in EXPLICIT_NEGATIVES
            if outranks(code, self.code):
                self.code, self.code_from = code, bookie_id
        if self.outcome is PollOutcome.WAITING:
            self._go_on()
        return self.outcome

    def _on_answer(self, bookie_id: BookieId, last_add_confirmed: int, *, has_entry: bool) -> None:
        self._has_answer = True
        self.last_add_confirmed = max(self.last_add_confirmed, last_add_confirmed)
        if has_entry and last_add_confirmed >= self.entry_id:
            self.found_by = bookie_id
            self.outcome = moved(_NEXT, self.outcome, PollOutcome.ENDED)
        elif self.last_add_confirmed >= self.entry_id:
            self.outcome = moved(_NEXT, self.outcome, PollOutcome.ENDED)
        else:
            self._empty += 1
            if self._empty >= self._enough:
                self.outcome = moved(_NEXT, self.outcome, PollOutcome.ENDED)

    def _go_on(self) -> None:
        answered = len(self._answered)
        assert self._empty + self._negatives <= answered, "what is counted was answered"
        denied = self._negatives >= self._enough
        if answered == len(self._candidates) or (self._is_parallel and denied):
            if self._has_answer:
                self.outcome = moved(_NEXT, self.outcome, PollOutcome.ENDED)
            else:
                unavailable = self.code == Code.BOOKIE_NOT_AVAILABLE and denied
                self._fail(Code.NO_SUCH_ENTRY if unavailable else self.code, self.code_from)
        elif answered == self._asked:
            self._width = self._asked + 1

    def _fail(self, code: int, bookie_id: BookieId | None) -> None:
        self.code, self.code_from = code, bookie_id
        self.outcome = moved(_NEXT, self.outcome, PollOutcome.FAILED)
