"""Endpoints about garbage collection: look, force, suspend, resume."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from simbookie.admin.answers import BadBody, body_object, json_answer, sentence
from simbookie.admin.endpoints import Administered, Answer
from simbookie.admin.http_server import HttpRequest, HttpResponse
from simbookie.storage.compaction.collector import EntryLogCollector
from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.compaction.runs import CollectorRuns
from simbookie.storage.journaled import JournaledStorage

__all__ = ["GC_ANSWERS"]

_MAJOR, _MINOR = CompactionKind.MAJOR, CompactionKind.MINOR


def _runs(subject: Administered) -> CollectorRuns | None:
    """The collectors of entry logs; none in memory, or while the bookie does not run."""
    storage = subject.bookie.storage
    return storage.garbage if isinstance(storage, JournaledStorage) else None


def _is_suspended(subject: Administered, kind: CompactionKind) -> bool:
    runs = _runs(subject)
    return runs is not None and runs.is_suspended(kind)


async def gc(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Whether a forced run is under way; PUT forces one."""
    if request.method == "PUT":
        try:
            subject.collector.force(_forced_kinds(subject, request))
        except BadBody:
            text = "Failed to handle the request, exception: Failed to deserialize Object from Json string"
            return sentence(HTTPStatus.BAD_REQUEST, text)
        return json_answer(f"Triggered GC on BookieServer: {subject.bookie.bookie_id}")
    if request.method == "GET":
        return json_answer({"is_in_force_gc": _text(subject.collector.is_in_forced_run)})
    text = "Not allowed method. Should be PUT to trigger GC, Or GET to get Force GC state."
    return sentence(HTTPStatus.METHOD_NOT_ALLOWED, text)


def _forced_kinds(subject: Administered, request: HttpRequest) -> frozenset[CompactionKind] | None:
    """What the body says; what it does not say is as suspended as it is."""
    if not request.body.strip():
        return None
    asked = body_object(request)
    return frozenset(
        kind
        for kind, name in ((_MAJOR, "forceMajor"), (_MINOR, "forceMinor"))
        if (_text(asked[name]) == "true" if name in asked else not _is_suspended(subject, kind))
    )


def _text(value: object) -> str:
    return str(value).lower()


async def gc_details(subject: Administered, request: HttpRequest) -> HttpResponse:
    """What each collector of entry logs does, and did last."""
    if request.method != "GET":
        text = "Only support GET method to retrieve GC details. If you want to trigger gc, send a POST to gc endpoint."
        return sentence(HTTPStatus.NOT_FOUND, text)
    runs = _runs(subject)
    ended = [(compaction.ended_at, compaction.done) for compaction in subject.location_compactions().values()]
    collectors = runs.collectors if runs is not None else []
    return json_answer(
        [
            _details(subject, collector, *(ended[number] if ended else (None, 0)))
            for number, collector in enumerate(collectors)
        ]
    )


def _details(
    subject: Administered, collector: EntryLogCollector, located_at: float | None, located: int
) -> dict[str, object]:
    epoch = subject.wall_clock() - asyncio.get_running_loop().time()
    schedule, stats = collector.schedule, collector.stats
    return {
        "forceCompacting": subject.collector.is_in_forced_run,
        "majorCompacting": collector.compacting is _MAJOR,
        "minorCompacting": collector.compacting is _MINOR,
        "lastMajorCompactionTime": round((epoch + schedule.last_major) * 1000),
        "lastMinorCompactionTime": round((epoch + schedule.last_minor) * 1000),
        "lastEntryLocationCompactionTime": 0 if located_at is None else round((epoch + located_at) * 1000),
        "majorCompactionCounter": stats.major_compactions,
        "minorCompactionCounter": stats.minor_compactions,
        "entryLocationCompactionCounter": located,
    }


def _asked(request: HttpRequest, verb: str) -> tuple[bool, bool] | HttpResponse:
    """What the body wants of major and minor compaction, or why it cannot be had."""
    if not request.body:
        return sentence(HTTPStatus.BAD_REQUEST, "Empty request body")
    asked: Mapping[str, Any] = body_object(request)
    names = (f"{verb}Major", f"{verb}Minor")
    values = [asked.get(name) for name in names]
    if values == [None, None]:
        return sentence(HTTPStatus.BAD_REQUEST, f"No {names[0]} or {names[1]} params found")
    if not all(value is None or isinstance(value, bool) for value in values):
        raise BadBody(f"{names[0]} and {names[1]} must be true or false")
    return values[0] is True, values[1] is True


def _done(subject: Administered, verb: str, wanted: tuple[bool, bool]) -> HttpResponse:
    """What BookKeeper says it did: the comma belongs to the second half, whether there is a first or not."""
    server = f"Bookie Server listening on {subject.address()} with id {subject.bookie.bookie_id}"
    text = f"{verb} majorGC on BookieServer: {server}" if wanted[0] else ""
    return json_answer(text + (f", {verb} minorGC on BookieServer: {server}" if wanted[1] else ""))


async def suspend_compaction(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Which kinds of compaction are suspended; PUT suspends."""
    if request.method == "GET":
        return json_answer(
            {f"is{kind.name.title()}GcSuspended": _text(_is_suspended(subject, kind)) for kind in (_MINOR, _MAJOR)}
        )
    if request.method != "PUT":
        text = "Not found method. Should be PUT to suspend major or minor compaction, Or GET to get compaction state."
        return sentence(HTTPStatus.NOT_FOUND, text)
    wanted = _asked(request, "suspend")
    if isinstance(wanted, HttpResponse):
        return wanted
    runs = _runs(subject)
    if runs is not None:
        for kind, is_wanted in zip((_MAJOR, _MINOR), wanted, strict=True):
            if is_wanted:
                runs.suspend(kind)
    return _done(subject, "Suspend", wanted)


async def resume_compaction(subject: Administered, request: HttpRequest) -> HttpResponse:
    """PUT resumes what was suspended."""
    if request.method != "PUT":
        text = "Not found method. Should be PUT to resume major or minor compaction, Or GET to get compaction state."
        return sentence(HTTPStatus.NOT_FOUND, text)
    wanted = _asked(request, "resume")
    if isinstance(wanted, HttpResponse):
        return wanted
    runs = _runs(subject)
    if runs is not None:
        for kind, is_wanted in zip((_MAJOR, _MINOR), wanted, strict=True):
            if is_wanted:
                runs.resume(kind)
    return _done(subject, "Resume", wanted)


async def entry_location_compact(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Which databases of locations are compacted; PUT compacts some, or all. A store without has none of them."""
    compactions = subject.location_compactions()
    running = {path: compaction.is_running for path, compaction in compactions.items()}
    if request.method == "GET":
        return json_answer(running)
    if request.method != "PUT":
        text = (
            "Not found method. Should be PUT to trigger entry location compact,"
            " Or GET to get entry location compact state."
        )
        return sentence(HTTPStatus.METHOD_NOT_ALLOWED, text)
    if not request.body.strip():
        return sentence(HTTPStatus.BAD_REQUEST, "Empty request body")
    asked = body_object(request)
    if asked.get("entryLocationRocksDBCompact", False) is not True:
        return sentence(HTTPStatus.OK, "Not trigger Entry Location RocksDB compact.")
    locations = asked.get("entryLocations", "")
    if not isinstance(locations, str):
        raise BadBody("entryLocations must be paths, with commas in between")
    wanted, name = list(running), subject.bookie.bookie_id
    text = f"Triggered entry Location RocksDB compact on bookie:{name}"
    if locations.strip():
        wanted = locations.strip().split(",")
        text = f"Triggered entry Location RocksDB: {locations} compact on bookie:{name}."
    if not set(wanted) <= set(running):
        known = ", ".join(running)
        text = (
            f"Specified trigger compact entryLocations: {locations} is invalid. "
            f"Bookie entry location RocksDB path: [{known}]."
        )
        return HttpResponse(HTTPStatus.BAD_REQUEST, json_answer(text).body)
    for path in wanted:
        compactions[path].begin()
    return json_answer(text)


_BASE: Final = "/api/v1/bookie"
GC_ANSWERS: Final[dict[str, Answer]] = {
    f"{_BASE}/gc": gc,
    f"{_BASE}/gc_details": gc_details,
    f"{_BASE}/gc/suspend_compaction": suspend_compaction,
    f"{_BASE}/gc/resume_compaction": resume_compaction,
    f"{_BASE}/entry_location_compact": entry_location_compact,
}
