"""Every append ends."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["AddResolves"]

Append = tuple[str, int, int]


class AddResolves(Family):
    """Every append ends with an acknowledgement or a failure, unless the application cancelled it (L2).

    Checked at RUN_END. By then every append has an outcome if the run completed and the client neither crashed nor is still
    paused; appends that were open when the writer's close returned have one in any case. A history without RUN_END is not
    checked: its recorder may not record cancelled appends either.
    """

    clauses = ("L2",)

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._open: dict[Append, int] = {}
        self._left: dict[Append, tuple[int, int]] = {}
        self._paused: set[str] = set()
        self._appends = 0

    def handlers(self) -> Mapping[Kind, Handler]:
        """Appends and their outcomes, closes, crashes and pauses of clients, and the end of the run."""
        return {
            Kind.APP_ADD: self.on_add,
            Kind.APP_ACK: self.on_outcome,
            Kind.APP_FAIL: self.on_outcome,
            Kind.APP_CANCEL: self.on_outcome,
            Kind.CLOSE_RESULT: self.on_close,
            Kind.CLIENT_CRASH: self.on_crash,
            Kind.CLIENT_PAUSE: self.on_pause,
            Kind.CLIENT_RESUME: self.on_resume,
            Kind.RUN_END: self.on_end,
        }

    def on_add(self, event: Event) -> None:
        """An append begins."""
        self._appends += 1
        self._open[event.actor, event.fields["incarnation"], event.fields["entry"]] = event.seq

    def on_outcome(self, event: Event) -> None:
        """An append ends."""
        append = (event.actor, event.fields["incarnation"], event.fields["entry"])
        self._open.pop(append, None)
        self._left.pop(append, None)

    def on_close(self, event: Event) -> None:
        """Note the appends without an outcome: the close should have failed them."""
        for append, seq in self._open.items():
            if append[0] == event.actor:
                self._left[append] = (seq, event.seq)

    def on_crash(self, event: Event) -> None:
        """Forget the appends of a crashed client."""
        for append in [append for append in self._open if append[0] == event.actor]:
            del self._open[append]
            self._left.pop(append, None)

    def on_pause(self, event: Event) -> None:
        """A paused client gets no outcomes."""
        self._paused.add(event.actor)

    def on_resume(self, event: Event) -> None:
        """The client gets outcomes again."""
        self._paused.discard(event.actor)

    def on_end(self, event: Event) -> None:
        """Report every append without an outcome."""
        self.checked["L2"] += self._appends
        for append, (seq, closed) in self._left.items():
            self._report_open(append, "when its close had returned", seq, closed, event.seq)
        if event.fields["completed"]:
            for append, seq in self._open.items():
                if append[0] not in self._paused:
                    self._report_open(append, "when the run was over", seq, event.seq)

    def _report_open(self, append: Append, when: str, *seqs: int) -> None:
        self.broken(
            "L2",
            f"the application of {append[0]} was never told what became of entry {append[2]}, not even {when}",
            *seqs,
        )
