"""The timeline of a run: the events of one ledger, on one page.

A run has thousands of events; a few dozen of them explain a violation. The timeline shows all events of a few entries, and of
the ledger's metadata, fences and recoveries; other events are summarized where they happened. The entries shown are those of
the violation, or else those around the end of the ledger.

Each line is one event, or several of a kind that belong together (the same add to three bookies), at its time in
milliseconds of simulated time. Every actor has a lane on the left; an arrow is a message. Events of the violation are
marked with ``!``.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from scenarios.history.schema import Event, Kind
from scenarios.model import Violation
from scenarios.timeline_words import INBOUND, Words, by_number, others_of, short_labels

__all__ = ["render"]

_ROWS_MAX: Final = 60
_ENTRIES_MAX: Final = 3
_LANES_MAX: Final = 16
#: Omitted events get a summary line when there are so many of them, or when one of them is an outcome.
_SUM_UP_AFTER: Final = 24
_CONSEQUENTIAL: Final = frozenset({Kind.APP_ACK, Kind.APP_FAIL, Kind.REC_DECIDE})
_SUMMED_UP: Final[Mapping[str, str]] = {
    Kind.APP_ACK: "acknowledged",
    Kind.REC_DECIDE: "recovered",
    Kind.READ_RESULT: "read",
}

_BOOKIE_KINDS: Final = frozenset(
    {
        Kind.BK_RECV,
        Kind.BK_STORE,
        Kind.BK_SYNC,
        Kind.BK_LAC,
        Kind.FENCE_SET,
        Kind.FENCE_LOST,
        Kind.BK_CRASH,
        Kind.BK_RESTART,
        Kind.BK_LOSS,
        Kind.BK_LIMBO,
    }
)

#: The rank of an event if its entry is shown: 1 is shown first, 2 is dropped first if there are too many rows.
_RANK_OF_ENTRY_KINDS: Final[Mapping[str, int]] = {
    Kind.APP_ACK: 1,
    Kind.APP_FAIL: 1,
    Kind.REC_DECIDE: 1,
    Kind.BK_LOSS: 1,
    Kind.ADD_SEND: 2,
    Kind.ADD_RESP: 2,
    Kind.BK_STORE: 2,
    Kind.REC_READ_SEND: 2,
    Kind.REC_READ_RESP: 2,
    Kind.READ_RESULT: 2,
}

#: The same for events that concern no entry.
_RANK_OF_OTHER_KINDS: Final[Mapping[str, int]] = {
    Kind.META_CAS: 1,
    Kind.CLIENT_CRASH: 1,
    Kind.CLIENT_PAUSE: 1,
    Kind.CLIENT_RESUME: 1,
    Kind.BK_CRASH: 1,
    Kind.BK_RESTART: 1,
    Kind.BK_LIMBO: 1,
    Kind.BK_GC: 1,
    Kind.FENCE_LOST: 1,
    Kind.FAULT: 1,
    Kind.REC_START: 1,
    Kind.LOG_CLAIM: 1,
    Kind.LOG_RELEASE: 1,
    Kind.LOG_APPEND: 1,
    Kind.LOG_END: 1,
    Kind.LOG_TRIM: 1,
    Kind.LOG_CURSOR: 1,
    Kind.LOG_COMPACT: 1,
    Kind.LOG_MEMBER: 1,
    Kind.LOG_LOST: 1,
    Kind.LOG_LEDGER: 2,
    Kind.LOG_PUB: 2,
    Kind.LOG_ACK: 2,
    Kind.LOG_FAIL: 2,
    Kind.LOG_READ_START: 2,
    Kind.LOG_READ: 2,
    Kind.LOG_READ_END: 2,
    Kind.CLOSE_START: 2,
    Kind.CLOSE_RESULT: 2,
    Kind.FAULT_DOMAINS: 2,
    Kind.FORCE_START: 2,
    Kind.FORCE_RESULT: 2,
    Kind.OPEN_START: 2,
    Kind.OPEN_RESULT: 2,
    Kind.FENCE_SEND: 2,
    Kind.FENCE_RESP: 2,
    Kind.FENCE_SET: 2,
}
_LEFT_OUT: Final = 9


@dataclass
class _Row:
    """One line: an event, the equal messages it is shown with, and the events omitted before it."""

    event: Event
    others: list[str]
    rank: int
    is_witness: bool
    last_entry: int | None = None
    left_out: list[Event] = field(default_factory=list)

    def add(self, event: Event, rank: int, *, is_witness: bool) -> None:
        """Show ``event`` in this line too."""
        other, _ = others_of(event)
        if other:
            self.others.append(other)
        else:
            self.last_entry = event.fields["entry"]
        self.rank = min(self.rank, rank)
        self.is_witness |= is_witness


def render(
    header: Mapping[str, Any],
    events: Iterable[Event],
    *,
    ledger: int | None = None,
    focus: Violation | None = None,
    width: int = 120,
    color: bool = True,
    rows_max: int = _ROWS_MAX,
) -> str:
    """The timeline as text, in at most about ``rows_max`` lines of ``width`` columns; ``color`` adds terminal colours.

    ``header`` is the history's. ``ledger`` is by default that of ``focus``, else the one with the most events. With ``focus`` the
    violation's events are marked, and the timeline ends at the last of them.
    """
    told = list(events)
    if ledger is None:
        ledger = focus.ledger if focus is not None else _busiest_ledger(told)
    ours = [event for event in told if event.ledger in {ledger, -1}]
    witness = frozenset(focus.seqs) if focus is not None else frozenset()
    rows, rest = _rows(ours, _entries_to_tell(ours, focus), witness)
    rows = _fit(rows, rows_max)
    lanes = _Lanes(ours, rows)
    lines = [*_title(header, ledger, focus), Text(), *lanes.heading()]
    for row in rows:
        if row.left_out:
            lines.append(_summary(row.left_out))
        lines.append(lanes.line(row, width))
    if rest:
        lines.append(_summary(rest))
    return _printed(lines, width, color=color)


def _busiest_ledger(events: Sequence[Event]) -> int:
    counts: dict[int, int] = {}
    for event in events:
        if event.ledger >= 0:
            counts[event.ledger] = counts.get(event.ledger, 0) + 1
    return max(counts, key=lambda ledger: counts[ledger], default=-1)


# What is told ------------------------------------------------------------------------------------------------------


def _entries_to_tell(events: Sequence[Event], focus: Violation | None) -> frozenset[int]:
    """The few entries of which all events are shown."""
    if focus is not None:
        seqs = set(focus.seqs)
        named = {
            event.fields["entry"] for event in events if event.seq in seqs and event.fields.get("entry") is not None
        }
    else:
        named = set()
    if not named:
        ends = [
            event.fields["last_entry"]
            for event in events
            if event.kind == Kind.META_CAS and event.fields["state"] == "CLOSED" and event.fields["outcome"] == "ok"
        ]
        named = {ends[-1], ends[-1] + 1} if ends and ends[-1] is not None else set()
    chosen = sorted(named)
    return frozenset(chosen if len(chosen) <= _ENTRIES_MAX else [chosen[0], chosen[-1]])


def _arrives_late(event: Event, over: set[tuple[str, int]]) -> bool:
    """Whether a request arrives whose sender has its outcome, or that has arrived before; ``over`` remembers those."""
    number = event.fields.get("request")
    if number is None:
        return False
    if event.kind == Kind.BK_RECV:
        request = (event.fields["source"], number)
        is_late = request in over
        over.add(request)
        return is_late
    if event.kind in INBOUND:
        over.add((event.actor, number))
    return False


def _rank(event: Event, entries: frozenset[int], fenced: set[str], *, is_late: bool = False) -> int:
    if is_late:
        return 2 if event.fields["entry"] in {*entries, -1} else _LEFT_OUT
    if event.kind == Kind.FENCE_SET:
        if event.actor in fenced:
            return _LEFT_OUT
        fenced.add(event.actor)
    if event.kind == Kind.REC_DECIDE and event.fields["verdict"] != "positive":
        return 1
    if event.kind in _RANK_OF_ENTRY_KINDS:
        return _RANK_OF_ENTRY_KINDS[event.kind] if event.fields["entry"] in entries else _LEFT_OUT
    return _RANK_OF_OTHER_KINDS.get(event.kind, _LEFT_OUT)


def _rows(events: Sequence[Event], entries: frozenset[int], witness: frozenset[int]) -> tuple[list[_Row], list[Event]]:
    """The rows, and the events after the last of them."""
    rows: list[_Row] = []
    left_out: list[Event] = []
    fenced: set[str] = set()
    over: set[tuple[str, int]] = set()
    end = max(witness, default=None)
    for event in events:
        is_witness = event.seq in witness
        is_late = _arrives_late(event, over)
        rank = 0 if is_witness else _rank(event, entries, fenced, is_late=is_late)
        if rank == _LEFT_OUT or (end is not None and event.seq > end):
            left_out.append(event)
            continue
        if rows and _belongs_to(rows[-1], event):
            rows[-1].add(event, rank, is_witness=is_witness)
            continue
        other, _ = others_of(event)
        row = _Row(event, [other] if other else [], rank, is_witness)
        is_much = len(left_out) >= _SUM_UP_AFTER and rank <= 1
        if is_much or any(hidden.kind in _CONSEQUENTIAL for hidden in left_out):
            row.left_out, left_out = left_out, []
        rows.append(row)
    return rows, left_out


def _belongs_to(row: _Row, event: Event) -> bool:
    """Whether the event is the same message to another bookie at the same moment, or the next acknowledgement."""
    first = row.event
    if (event.kind, event.actor, event.time_us) != (first.kind, first.actor, first.time_us):
        return False
    if event.kind == Kind.APP_ACK:
        last = first.fields["entry"] if row.last_entry is None else row.last_entry
        return bool(event.fields["entry"] == last + 1)
    return others_of(event)[1] and all(
        value == event.fields[name]
        for name, value in first.fields.items()
        if name not in {"bookie", "incarnation", "request"}
    )


def _fit(rows: list[_Row], rows_max: int) -> list[_Row]:
    """Drop rows of the lowest rank, from the front, until the rest fits; events of the violation stay."""
    excess = len(rows) - rows_max
    for rank in (2, 1):
        if excess <= 0:
            break
        droppable = [i for i, row in enumerate(rows) if row.rank == rank]
        drop = set(droppable[:excess])
        excess -= len(drop)
        kept: list[_Row] = []
        carried: list[Event] = []
        for i, row in enumerate(rows):
            if i in drop:
                carried += [*row.left_out, row.event]
            else:
                row.left_out = [*carried, *row.left_out]
                carried = []
                kept.append(row)
        rows = kept
    return rows


# Lanes -------------------------------------------------------------------------------------------------------------


class _Lanes:
    """One column per actor: clients in order of appearance, then bookies."""

    def __init__(self, events: Sequence[Event], rows: Sequence[_Row]) -> None:
        bookies = {event.actor for event in events if event.kind in _BOOKIE_KINDS}
        bookies |= {other for row in rows for other in row.others}
        shown = dict.fromkeys(name for row in rows for name in (row.event.actor, *row.others))
        clients = [name for name in shown if name not in bookies]
        self._actors = [*clients, *sorted((name for name in shown if name in bookies), key=by_number)][:_LANES_MAX]
        self._labels = short_labels([*self._actors, *sorted(bookies - set(self._actors), key=by_number)])
        self._position = {name: i for i, name in enumerate(self._actors)}
        self._column = max((len(self.short(name)) for name in self._actors), default=1) + 1
        self._words = Words(self.short)

    def short(self, name: str) -> str:
        """The label of an actor."""
        return self._labels.get(name, name)

    @property
    def indent(self) -> int:
        """Columns before the words."""
        return 13 + self._column * len(self._actors)

    def heading(self) -> list[Text]:
        """The legend of short names, and the labels over the lanes."""
        legend = Text("  ".join(f"{self.short(name)} = {name}" for name in self._actors if self.short(name) != name))
        legend.stylize("dim")
        labels = "".join(self.short(name).ljust(self._column) for name in self._actors)
        return [*([legend] if legend.plain else []), Text(f"{'ms':>11}  {labels}", style="bold")]

    def line(self, row: _Row, width: int) -> Text:
        """One row: mark, time, lanes, words."""
        event = row.event
        mark = "!" if row.is_witness else " "
        _, is_outbound = others_of(event)
        words = self._words.phrase(event, row.others)
        if row.last_entry is not None:
            words += f" to e{row.last_entry}"
        text = Text(f"{mark}{event.time_us / 1000:>10.2f}  {self._drawn(row, is_outbound=is_outbound)}")
        text.append(words if event.actor in self._position else f"{event.actor}: {words}")
        if row.is_witness:
            text.stylize("bold red")
        elif event.kind in {Kind.META_CAS, Kind.APP_ACK, Kind.REC_DECIDE}:
            text.stylize("cyan", self.indent)
        elif event.kind in {
            Kind.FAULT,
            Kind.BK_CRASH,
            Kind.CLIENT_CRASH,
            Kind.CLIENT_PAUSE,
            Kind.BK_LOSS,
            Kind.APP_FAIL,
        }:
            text.stylize("yellow", self.indent)
        text.truncate(width, overflow="ellipsis")
        return text

    def _drawn(self, row: _Row, *, is_outbound: bool) -> str:
        size = self._column
        cells = ["│".ljust(size) for _ in self._actors]
        at = self._position.get(row.event.actor)
        if at is None:
            return "".join(cells)
        far = sorted(self._position[other] for other in row.others if other in self._position)
        if far:
            low, high = min(at, far[0]), max(at, far[-1])
            for lane in range(low, high):
                cells[lane] = "─" * size
        for lane in far:
            head = ("▶" if lane > at else "◀") if is_outbound else "○"
            cells[lane] = head + cells[lane][1:]
        own = "●" if is_outbound or not far else ("◀" if far[0] > at else "▶")
        cells[at] = own + cells[at][1:]
        return "".join(cells)


# Words around it ---------------------------------------------------------------------------------------------------


def _title(header: Mapping[str, Any], ledger: int, focus: Violation | None) -> list[Text]:
    cluster = header.get("cluster") or {}
    sizes = "/".join(str(cluster.get(name, "?")) for name in ("ensemble_size", "write_quorum_size", "ack_quorum_size"))
    parts = [f"{header.get('scenario', 'history')}, seed {header.get('seed', '?')}", f"ledger {ledger}"]
    if cluster:
        parts.append(f"{sizes} of {cluster.get('bookies', '?')} bookies")
    if header.get("mutant"):
        parts.append(f"with the defect {header['mutant']}")
    lines = [Text(", ".join(parts), style="bold")]
    if focus is not None:
        lines.append(Text(f"{focus.name}: {focus.witness}", style="bold red"))
    return lines


def _summary(events: Sequence[Event]) -> Text:
    """Omitted events, in one line."""
    entries: dict[str, list[int]] = {}
    for event in events:
        word = _SUMMED_UP.get(event.kind)
        if word is not None and event.fields["entry"] is not None and event.fields.get("code", 0) == 0:
            entries.setdefault(word, []).append(event.fields["entry"])
        elif event.kind == Kind.APP_FAIL and event.fields["entry"] is not None:
            entries.setdefault("failed", []).append(event.fields["entry"])
    parts = [f"{_counted(found)} {word}" for word, found in entries.items()]
    parts.append(f"{len(events)} event{'s' if len(events) > 1 else ''}")
    return Text(f"{'':13}... {', '.join(parts)} ...", style="dim")


def _counted(entries: Sequence[int]) -> str:
    low, high = min(entries), max(entries)
    if low == high:
        return f"e{low}" if len(entries) == 1 else f"e{low} {len(entries)} times"
    return f"{len(entries)} entries (e{low} to e{high})"


def _printed(lines: Iterable[Text], width: int, *, color: bool) -> str:
    if not color:
        return "".join(f"{line.plain.rstrip()}\n" for line in lines)
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system="standard", highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True)
    return out.getvalue()
