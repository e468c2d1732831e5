"""Answers belong to requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["AnswersMatch"]

#: What only a bookie can say. Every other outcome may arise at the client.
_SAID_BY_BOOKIES: Final = frozenset({codes.OK, codes.FENCED, *codes.NEGATIVES})

_OPERATIONS: Final[Mapping[str, str]] = {
    Kind.FENCE_SEND: "fence",
    Kind.FENCE_RESP: "fence",
    Kind.READ_SEND: "read",
    Kind.READ_RESP: "read",
    Kind.REC_READ_SEND: "recovery-read",
    Kind.REC_READ_RESP: "recovery-read",
}
#: What a request is answered with.
_ANSWERS: Final[Mapping[str, str]] = {
    Kind.ADD_SEND: Kind.ADD_RESP,
    Kind.FENCE_SEND: Kind.FENCE_RESP,
    Kind.READ_SEND: Kind.READ_RESP,
    Kind.REC_READ_SEND: Kind.REC_READ_RESP,
}


#: What both say alike. A fence names no entry.
_ALIKE: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    Kind.ADD_SEND: itemgetter("bookie", "entry", "recovery"),
    Kind.FENCE_SEND: itemgetter("bookie"),
    Kind.READ_SEND: itemgetter("bookie", "entry"),
    Kind.REC_READ_SEND: itemgetter("bookie", "entry"),
}


_Asked = tuple[str, str, int]
"""What a request is about: bookie, operation, entry; -1 for a fence, whose answer names the last entry that the bookie has."""


def _asked(event: Event) -> _Asked:
    fields = event.fields
    operation = _OPERATIONS.get(event.kind) or ("write-back" if fields["recovery"] else "add")
    return fields["bookie"], operation, -1 if operation == "fence" else fields["entry"]


def _is_about_same(sent: Event, answer: Event) -> bool:
    """Whether an answer is about what the request is about."""
    kind = sent.kind
    if _ANSWERS[kind] != answer.kind:
        return False
    said = _ALIKE[kind]
    same: bool = said(sent.fields) == said(answer.fields)
    return same


class AnswersMatch(Family):
    """An answer is to one request (M1), and says what the bookie said (M2).

    Requests without a number are passed over. M2 is checked for bookies that record what arrives at them; an answer of theirs to
    a request whose number they did not know may be to any request that asks for the same.
    """

    clauses = ("M1", "M2")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        #: By client and number, the requests that await an answer.
        self._open: dict[tuple[str, int], Event] = {}
        #: By client, bookie and number, the codes that the bookie answered with.
        self._said: dict[tuple[str, str, int], tuple[int, ...]] = {}
        self._said_to_any: set[tuple[str, _Asked, int]] = set()
        self._telling: set[str] = set()

    def handlers(self) -> Mapping[Kind, Handler]:
        """Requests and answers, at clients and bookies."""
        sends = (Kind.ADD_SEND, Kind.FENCE_SEND, Kind.READ_SEND, Kind.REC_READ_SEND)
        answers = (Kind.ADD_RESP, Kind.FENCE_RESP, Kind.READ_RESP, Kind.REC_READ_RESP)
        return {
            **dict.fromkeys(sends, self.on_send),
            **dict.fromkeys(answers, self.on_answer),
            Kind.BK_RECV: self.on_arrival,
            Kind.BK_ANSWER: self.on_said,
        }

    def on_send(self, event: Event) -> None:
        """A client asks."""
        number = event.fields.get("request")
        if number is not None:
            self._open[event.actor, number] = event

    def on_arrival(self, event: Event) -> None:
        """The bookie records what arrives."""
        self._telling.add(event.actor)

    def on_said(self, event: Event) -> None:
        """A bookie answers."""
        fields, bookie = event.fields, event.actor
        number, source, code = fields["request"], fields["source"], fields["code"]
        if number is None:
            self._said_to_any.add((source, (bookie, fields["operation"], fields["entry"]), code))
            return
        said = self._said.get((source, bookie, number))
        self._said[source, bookie, number] = (code,) if said is None else (*said, code)

    def on_answer(self, event: Event) -> None:
        """A client hears the outcome of a request."""
        fields, client = event.fields, event.actor
        number = fields.get("request")
        if number is None:
            return
        self.checked["M1"] += 1
        sent = self._open.pop((client, number), None)
        if sent is None:
            self.broken("M1", f"{client} got an answer to request {number}, which awaited none", event.seq)
            return
        if not _is_about_same(sent, event):
            (to, what, entry), (bookie, operation, other) = _asked(sent), _asked(event)
            self.broken(
                "M1",
                f"{client} asked {to} for entry {entry} ({what}, request {number}), and got the answer of {bookie} about entry "
                f"{other} ({operation})",
                sent.seq,
                event.seq,
            )
        bookie, code = fields["bookie"], fields["code"]
        said = self._said.pop((client, bookie, number), ())
        if code not in _SAID_BY_BOOKIES or bookie not in self._telling:
            return
        self.checked["M2"] += 1
        if code not in said and (client, _asked(event), code) not in self._said_to_any:
            _, operation, entry = _asked(event)
            heard = f"answered with {', '.join(map(str, sorted(set(said))))}" if said else "had not answered"
            self.broken(
                "M2",
                f"{client} heard code {code} from {bookie} about entry {entry} ({operation}), "
                f"which {heard} request {number}",
                sent.seq,
                event.seq,
            )
