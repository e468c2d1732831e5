"""Events as phrases in BookKeeper's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from scenarios.history.schema import Event, Kind

__all__ = ["INBOUND", "Words", "by_number", "code_name", "others_of", "short_labels"]

_CODES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "ok",
        -1: "read failed",
        -5: "digest mismatch",
        -6: "not enough bookies",
        -7: "no such ledger",
        -8: "bookie not available",
        -9: "metadata store failed",
        -10: "recovery failed",
        -11: "ledger closed",
        -12: "write failed",
        -13: "no such entry",
        -17: "metadata version conflict",
        -19: "client closed",
        -21: "ack quorum timeout",
        -23: "timeout",
        -25: "no such ledger",
        -101: "fenced",
        -102: "unauthorized",
        -104: "read-only",
        -105: "too many requests",
        -108: "data unknown",
    }
)

#: Kinds that concern another party than the actor, and whether the message goes there (or comes from there).
_OUTBOUND: Final = frozenset({Kind.ADD_SEND, Kind.FENCE_SEND, Kind.READ_SEND, Kind.REC_READ_SEND})
INBOUND: Final = frozenset({Kind.ADD_RESP, Kind.FENCE_RESP, Kind.READ_RESP, Kind.REC_READ_RESP})


def code_name(code: int | None) -> str:
    """A result code in words."""
    return "unknown" if code is None else _CODES.get(code, f"code {code}")


def others_of(event: Event) -> tuple[str, bool]:
    """The other party of a message and whether the message goes to it; ("", False) if it is none."""
    if event.kind in _OUTBOUND:
        return event.fields["bookie"] or "", True
    if event.kind in INBOUND:
        return event.fields["bookie"] or "", False
    return "", False


def by_number(name: str) -> tuple[str, int, str]:
    """The order of actors: by what they are, then by number."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1), name


def short_labels(names: Sequence[str]) -> dict[str, str]:
    """A short label for each name: its first letter and its number, or more letters where that is not unique."""
    labels: dict[str, str] = {}
    for name in names:
        stem = name.rstrip("0123456789")
        number = name[len(stem) :]
        stem = stem.rstrip("-_")
        taken = set(labels.values())
        candidates = [stem[:length] + number for length in range(1, len(stem) + 1)]
        labels[name] = next((label for label in candidates if label not in taken), name)
    return labels


_LOG_PHRASES: Final[Mapping[str, Callable[[Event, Mapping[str, Any], str], str]]] = MappingProxyType(
    {
        Kind.LOG_CLAIM: lambda _e, f, _t: f"owns log {f['log']} in epoch {f['epoch']}",
        Kind.LOG_RELEASE: lambda _e, f, _t: f"leaves log {f['log']} without an owner",
        Kind.LOG_LEDGER: lambda _e, f, _t: f"has made the ledger for log {f['log']}",
        Kind.LOG_APPEND: lambda _e, f, _t: f"appends the ledger to log {f['log']}, epoch {f['epoch']}",
        Kind.LOG_END: lambda _e, f, _t: f"notes in log {f['log']} that the ledger ends at e{f['last_entry']}",
        Kind.LOG_TRIM: lambda _e, f, _t: f"trims the ledger off log {f['log']}",
        Kind.LOG_CURSOR: lambda e, f, _t: (
            f"cursor {f['cursor']} of log {f['log']} {f['cause']}"
            + (f" at {e.ledger}:{f['entry']}" if f["cause"] in {"opened", "stored"} else "")
        ),
        Kind.LOG_COMPACT: lambda _e, f, _t: (
            f"compaction of log {f['log']} {f['cause']}"
            + (f" through {f['through']}:{f['entry']}" if f["through"] >= 0 else "")
        ),
        Kind.LOG_MEMBER: lambda _e, f, _t: (
            f"{f['cause']} group {f['cursor']} of log {f['log']} as {f['mode']} consumer {f['member']}"
        ),
        Kind.LOG_PUB: lambda _e, f, _t: f"publishes {f['epoch']}/{f['message']} to log {f['log']}",
        Kind.LOG_ACK: lambda e, f, _t: f"{f['epoch']}/{f['message']} is acknowledged as {_place(e)}",
        Kind.LOG_FAIL: lambda _e, f, _t: f"{f['epoch']}/{f['message']} failed: {code_name(f['code'])}",
        Kind.LOG_LOST: lambda _e, f, _t: f"is told that it lost log {f['log']}: {code_name(f['code'])}",
        Kind.LOG_READ_START: lambda _e, f, _t: (
            f"begins to read log {f['log']}" + (f["cursor"] and f" by {f['cursor']}")
        ),
        Kind.LOG_READ: lambda e, f, _t: f"gets {_place(e)} of log {f['log']}",
        Kind.LOG_READ_END: lambda _e, f, _t: f"comes to the end of log {f['log']}",
    }
)


def _place(event: Event) -> str:
    """Where in its log a message is."""
    return f"{event.ledger}:{event.fields['entry']}:{event.fields['batch']}"


def _request(fields: Mapping[str, Any]) -> str:
    """What a bookie was asked, and by which client."""
    number = "" if fields["request"] is None else f", request {fields['request']}"
    entry = "" if fields["entry"] < 0 else f" e{fields['entry']}"
    return f"{fields['operation']}{entry} of {fields['source']}{number}"


class Words:
    """Turns events into phrases; ``short`` gives the label under which an actor appears."""

    def __init__(self, short: Callable[[str], str]) -> None:
        self._short = short
        self._phrases: dict[str, Callable[[Event, Mapping[str, Any], str], str]] = {
            Kind.META_CAS: self._cas,
            Kind.META_READ: lambda _e, f, _t: f"reads metadata v{f['version']} {f['state']}",
            Kind.APP_ADD: lambda _e, f, _t: f"appends e{f['entry']}",
            Kind.APP_ACK: lambda _e, f, _t: f"acked e{f['entry']}" + ("" if f["durable"] else " (not durable)"),
            Kind.APP_FAIL: lambda _e, f, _t: f"append of e{f['entry']} failed: {code_name(f['code'])}",
            Kind.APP_CANCEL: lambda _e, f, _t: f"cancels its append of e{f['entry']}",
            Kind.OPEN_START: lambda _e, f, _t: "opens the ledger" + (" with recovery" if f["recovery"] else ""),
            Kind.OPEN_RESULT: self._open_result,
            Kind.CLOSE_START: lambda _e, _f, _t: "closes the ledger",
            Kind.CLOSE_RESULT: self._close_result,
            Kind.FAULT_DOMAINS: lambda _e, f, _t: f"demands copies in several racks: {f['racks']}",
            Kind.FORCE_START: lambda _e, _f, _t: "forces the ledger",
            Kind.FORCE_RESULT: lambda _e, f, _t: f"force: {code_name(f['code'])}",
            Kind.READ_RESULT: lambda _e, f, _t: f"read e{f['entry']}: {code_name(f['code'])}",
            Kind.LAC_ADV: lambda _e, f, _t: f"learns LAC {f['lac']} ({f['source']})",
            Kind.ADD_SEND: self._add_send,
            Kind.ADD_RESP: self._add_resp,
            Kind.FENCE_SEND: lambda _e, _f, to: f"fences {to}",
            Kind.FENCE_RESP: self._fence_resp,
            Kind.READ_SEND: lambda _e, f, to: f"read e{f['entry']} from {to}",
            Kind.READ_RESP: lambda _e, f, to: f"read e{f['entry']} from {to}: {code_name(f['code'])}",
            Kind.REC_START: self._rec_start,
            Kind.REC_READ_SEND: self._rec_read_send,
            Kind.REC_READ_RESP: lambda _e, f, to: f"recovery read e{f['entry']} from {to}: {code_name(f['code'])}",
            Kind.REC_DECIDE: self._rec_decide,
            Kind.BK_RECV: lambda _e, f, _t: f"{_request(f)} arrives",
            Kind.BK_ANSWER: lambda _e, f, _t: f"answers {_request(f)}: {code_name(f['code'])}",
            Kind.BK_STORE: self._store,
            Kind.BK_SYNC: lambda _e, f, _t: f"e{f['entry']} is on disk",
            Kind.BK_LAC: lambda _e, f, _t: f"has LAC {f['lac']}",
            Kind.FENCE_SET: self._fence_set,
            Kind.FENCE_LOST: lambda _e, _f, _t: "loses its fence",
            Kind.BK_CRASH: lambda _e, f, _t: "shuts down" if f["clean"] else f"crashes ({f['detail']})",
            Kind.BK_RESTART: lambda _e, f, _t: f"restarts ({f['detail']})",
            Kind.BK_LOSS: lambda _e, f, _t: f"loses e{f['entry']} ({f['detail']})",
            Kind.BK_LIMBO: lambda _e, f, _t: "is in limbo" if f["verdict"] == "on" else "is out of limbo",
            Kind.BK_GC: lambda _e, _f, _t: "collects the ledger",
            Kind.CLIENT_START: lambda _e, f, _t: f"starts ({f['detail']})" if f["detail"] else "starts",
            Kind.CLIENT_CRASH: lambda _e, _f, _t: "crashes",
            Kind.CLIENT_PAUSE: lambda _e, _f, _t: "is paused",
            Kind.CLIENT_RESUME: lambda _e, _f, _t: "resumes",
            Kind.RUN_END: lambda _e, f, _t: "the run ends" if f["completed"] else "the run is cut short",
            Kind.FAULT: lambda _e, f, _t: ": ".join(part for part in (f["cause"], f["detail"]) if part),
            **_LOG_PHRASES,
        }

    def phrase(self, event: Event, others: Sequence[str]) -> str:
        """``event`` in words; ``others`` are the other parties of it and of its like that it stands for."""
        to = ", ".join(self._short(other) for other in others)
        known = self._phrases.get(event.kind)
        return known(event, event.fields, to) if known is not None else event.kind

    def _names(self, joined: str | None) -> str:
        return ", ".join(self._short(name) for name in (joined or "").split(",") if name)

    def _cas(self, _event: Event, fields: Mapping[str, Any], _to: str) -> str:
        cause, state, outcome = fields["cause"], fields["state"], fields["outcome"]
        fragments = fields["fragments"] or [[0, []]]
        first, members = fragments[-1]
        placed = ", ".join(self._short(member) for member in members)
        if cause == "create":
            what = f"creates the ledger on {placed}"
        elif cause == "delete":
            what = "deletes the ledger"
        elif state == "CLOSED":
            last = fields["last_entry"]
            what = "CLOSED" if last is None else f"CLOSED at e{last}" if last >= 0 else "CLOSED, empty"
        elif cause == "ensemble":
            what = f"ensemble {placed} from e{first}"
        else:
            what = state
        version = f"v{fields['version']}" if outcome == "ok" else f"on v{fields['expected_version']}"
        return f"CAS {version} {what} {'ok' if outcome == 'ok' else f'-- {outcome}'}"

    def _open_result(self, _event: Event, fields: Mapping[str, Any], _to: str) -> str:
        if fields["code"] != 0:
            return f"cannot open the ledger: {code_name(fields['code'])}"
        end = f" at e{fields['last_entry']}" if fields["state"] == "CLOSED" and fields["last_entry"] >= 0 else ""
        return f"has opened the ledger, {fields['state']}{end}"

    def _close_result(self, _event: Event, fields: Mapping[str, Any], _to: str) -> str:
        if fields["code"] != 0:
            return f"cannot close the ledger: {code_name(fields['code'])}"
        return f"has closed the ledger at e{fields['last_entry']}"

    def _add_send(self, _event: Event, fields: Mapping[str, Any], to: str) -> str:
        return f"{'recovery add' if fields['recovery'] else 'add'} e{fields['entry']} -> {to} LAC {fields['lac']}"

    def _add_resp(self, _event: Event, fields: Mapping[str, Any], to: str) -> str:
        return (
            f"{'recovery add' if fields['recovery'] else 'add'} e{fields['entry']} at {to}: {code_name(fields['code'])}"
        )

    def _fence_resp(self, _event: Event, fields: Mapping[str, Any], to: str) -> str:
        told = f"LAC {fields['lac']}" if fields["code"] == 0 else code_name(fields["code"])
        return f"fence answered by {to}: {told}"

    def _rec_start(self, _event: Event, fields: Mapping[str, Any], _to: str) -> str:
        return f"recovers v{fields['version']}: last fragment from e{fields['first_entry']} on {self._names(fields['bookies'])}"

    def _rec_read_send(self, _event: Event, fields: Mapping[str, Any], to: str) -> str:
        return f"recovery read e{fields['entry']} from {to}" + ("" if fields["fence"] else ", not fencing")

    def _rec_decide(self, _event: Event, fields: Mapping[str, Any], _to: str) -> str:
        names = self._names(fields["bookies"])
        verdicts = {
            "positive": f"e{fields['entry']} is recovered from {names}",
            "negative": f"e{fields['entry']} is ruled out by {names}",
        }
        return verdicts.get(fields["verdict"], f"e{fields['entry']} cannot be decided")

    def _store(self, _event: Event, fields: Mapping[str, Any], _to: str) -> str:
        return f"stores e{fields['entry']}{' for recovery' if fields['recovery'] else ''} of {fields['source']}"

    def _fence_set(self, _event: Event, fields: Mapping[str, Any], _to: str) -> str:
        return f"fenced by {fields['source'] or 'itself'}" + (", on disk" if fields["durable"] else "")
