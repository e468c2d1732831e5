"""What the page shows, as plain data that is JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from scenarios.history.schema import Event, Kind
from scenarios.model import Violation
from scenarios.page.curves import curves_of
from scenarios.page.messages import messages_of
from scenarios.timeline_words import Words, by_number, others_of, short_labels

__all__ = ["EVENTS_MAX", "PageError", "content_of"]

EVENTS_MAX: Final = 20_000
"""Events of one page, some 8 MB. A run of the library has a few thousand."""

_GROUPS: Final[Mapping[str, tuple[Kind, ...]]] = MappingProxyType(
    {
        "adds": (Kind.ADD_SEND, Kind.ADD_RESP),
        "reads": (Kind.READ_SEND, Kind.READ_RESP),
        "recovery": (
            *(Kind.FENCE_SEND, Kind.FENCE_RESP, Kind.FENCE_SET, Kind.FENCE_LOST),
            *(Kind.REC_START, Kind.REC_READ_SEND, Kind.REC_READ_RESP, Kind.REC_DECIDE),
        ),
        "arrivals": (Kind.BK_RECV, Kind.BK_ANSWER),
        "metadata": (Kind.META_CAS, Kind.META_READ),
        "logs": tuple(kind for kind in Kind if kind.startswith("LOG_")),
        "bookies": (Kind.BK_STORE, Kind.BK_SYNC, Kind.BK_LAC, Kind.BK_LOSS, Kind.BK_LIMBO, Kind.BK_GC),
        "faults": (
            *(Kind.FAULT, Kind.BK_CRASH, Kind.BK_RESTART),
            *(Kind.CLIENT_START, Kind.CLIENT_CRASH, Kind.CLIENT_PAUSE, Kind.CLIENT_RESUME, Kind.RUN_END),
        ),
    }
)
_GROUP_OF: Final[Mapping[str, str]] = {kind: group for group, kinds in _GROUPS.items() for kind in kinds}
#: What applications call and are told.
_REST: Final = "applications"

_FROM_BOOKIES: Final = frozenset(
    {*_GROUPS["bookies"], *_GROUPS["arrivals"], Kind.FENCE_SET, Kind.FENCE_LOST, Kind.BK_CRASH, Kind.BK_RESTART}
)


class PageError(Exception):
    """The run does not fit on a page."""


def content_of(
    header: Mapping[str, Any],
    events: Iterable[Event],
    violations: Sequence[Violation] = (),
    *,
    ledger: int | None = None,
    verdict: str | None = None,
) -> dict[str, Any]:
    """Everything about a run, or about one ``ledger`` of it and what concerns no ledger.

    ``header`` is the history's. Raises :class:`PageError` for more than :data:`EVENTS_MAX` events, and if the ledger has none.
    """
    told = [event for event in events if ledger is None or event.ledger in {ledger, -1}]
    ledgers = sorted({event.ledger for event in told if event.ledger >= 0})
    if ledger is not None and ledger not in ledgers:
        raise PageError(f"the history has no event of ledger {ledger}")
    if len(told) > EVENTS_MAX:
        how = "" if ledger is not None else "; choose one ledger with --ledger"
        raise PageError(f"{len(told):,} events are too many for a page, which takes {EVENTS_MAX:,}{how}")
    told_violations = [each for each in violations if ledger in {None, each.ledger}]
    actors = _actors(told)
    labels = short_labels(list(actors))
    return {
        "title": _title(header),
        "facts": _facts(header, told),
        "verdict": verdict or ("violated" if violations else "ok"),
        "violations": [
            {"name": each.name, "ledger": each.ledger, "witness": each.witness, "seqs": list(each.seqs)}
            for each in told_violations
        ],
        "actors": [{"name": name, "short": labels[name], "is_bookie": is_bookie} for name, is_bookie in actors.items()],
        "groups": [*_GROUPS, _REST],
        "events": _rows(told, list(actors)),
        "messages": [[one.request, one.arrival, one.answer] for one in messages_of(told)],
        "faults": _lasting(told),
        "ledgers": [curves_of(each, told) for each in ledgers],
        "end_us": told[-1].time_us if told else 0,
    }


def _title(header: Mapping[str, Any]) -> str:
    seed = header.get("seed")
    return f"{header.get('scenario') or 'history'}{'' if seed is None else f', seed {seed}'}"


def _facts(header: Mapping[str, Any], events: Sequence[Event]) -> list[tuple[str, str]]:
    cluster = header.get("cluster") or {}
    facts = []
    if cluster:
        sizes = "/".join(
            str(cluster.get(name, "?")) for name in ("ensemble_size", "write_quorum_size", "ack_quorum_size")
        )
        facts.append(("cluster", f"{cluster.get('bookies', '?')} bookies, ledgers of {sizes}"))
    if header.get("mutant"):
        facts.append(("planted defect", str(header["mutant"])))
    seconds = events[-1].time_us / 1e6 if events else 0.0
    facts.append(("events", f"{len(events):,} in {seconds:.3f} simulated seconds"))
    if header.get("package_version"):
        facts.append(("recorded by", f"version {header['package_version']}"))
    return facts


def _actors(events: Sequence[Event]) -> dict[str, bool]:
    """Who takes part, and whether it is a bookie: clients in order of appearance, then bookies."""
    bookies = {event.actor for event in events if event.kind in _FROM_BOOKIES}
    bookies |= {other for event in events for other in (others_of(event)[0],) if other}
    clients = dict.fromkeys(event.actor for event in events if event.actor and event.actor not in bookies)
    return dict.fromkeys(clients, False) | dict.fromkeys(sorted(bookies, key=by_number), True)


def _rows(events: Sequence[Event], actors: Sequence[str]) -> list[list[Any]]:
    """Of each event: number, time, lane, ledger, group, phrase, lane of the other party or -1, kind, and its fields in words."""
    lanes = {name: lane for lane, name in enumerate(actors)}
    words = Words(lambda name: name)
    rows = []
    for event in events:
        other, _ = others_of(event)
        rows.append(
            [
                event.seq,
                event.time_us,
                lanes.get(event.actor, -1),
                event.ledger,
                _GROUP_OF.get(event.kind, _REST),
                words.phrase(event, [other] if other else []),
                lanes.get(other, -1),
                str(event.kind),
                [[name, _shown(value)] for name, value in event.fields.items() if value is not None and value != ""],
            ]
        )
    return rows


def _shown(value: Any) -> str:
    if isinstance(value, list):  # fragments
        return "; ".join(f"from {first}: {', '.join(members)}" for first, members in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _lasting(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Faults with what they are, from when to when; ``None`` for one that was never mended."""
    faults: list[dict[str, Any]] = []
    begun: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.kind != Kind.FAULT:
            continue
        fields = event.fields
        if fields["phase"] == "end":
            fault = begun.pop(fields["fault"], None)
            if fault is not None:
                fault["until_us"] = event.time_us
            continue
        fault = {
            "what": fields["cause"],
            "where": " ".join(part for part in (fields["target"], fields["other"]) if part),
            "from_us": event.time_us,
            "until_us": None if fields["phase"] == "begin" else event.time_us,
            "seq": event.seq,
        }
        faults.append(fault)
        if fields["phase"] == "begin":
            begun[fields["fault"]] = fault
    return faults
