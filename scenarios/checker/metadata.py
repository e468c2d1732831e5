"""A ledger's metadata as the store held it, version after version, derived from the history alone.

A META_CAS with outcome ok is recorded when the store applied it, so the last one is what is stored. A write whose client never
learned the outcome may have been applied without such an event (in histories of real processes); it counts as applied from
the first later event that shows it: a META_READ of its version, or a META_CAS that builds on it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Final

from scenarios.history.schema import Event

__all__ = ["CLOSED", "IN_RECOVERY", "OPEN", "Metadata", "MetadataTimeline", "changed_ranges"]

OPEN: Final = "OPEN"
IN_RECOVERY: Final = "IN_RECOVERY"
CLOSED: Final = "CLOSED"

Fragment = tuple[int, tuple[str, ...]]


class Metadata:
    """One version, or one attempt to write a version."""

    __slots__ = (
        "_firsts",
        "_last_first",
        "_last_sets",
        "ack_quorum_size",
        "author",
        "cause",
        "ensemble_size",
        "fragments",
        "is_sound",
        "last_entry",
        "length",
        "seq",
        "state",
        "version",
        "write_quorum_size",
    )

    def __init__(self, event: Event, *, author: str, cause: str, version: int) -> None:
        fields: Mapping[str, Any] = event.fields
        self.seq = event.seq
        self.author = author
        self.cause = cause
        self.version = version
        self.state: str = fields["state"]
        self.last_entry: int = fields["last_entry"]
        self.length: int = fields["length"]
        self.ensemble_size: int = fields["ensemble_size"]
        self.write_quorum_size: int = fields["write_quorum_size"]
        self.ack_quorum_size: int = fields["ack_quorum_size"]
        self.fragments: tuple[Fragment, ...] = tuple(
            [(first, tuple(members)) for first, members in fields["fragments"]]
        )
        self._firsts = [first for first, _ in self.fragments]
        #: Whether write sets can be computed. FragmentsWellFormed reports metadata that is not well formed.
        self.is_sound = (
            self.ensemble_size >= self.write_quorum_size >= self.ack_quorum_size >= 1
            and self._firsts[:1] == [0]
            and self._firsts == sorted(set(self._firsts))
            and {len(members) for _, members in self.fragments} == {self.ensemble_size}
        )
        self._last_first = self._firsts[-1] if self._firsts else 0
        self._last_sets = (
            [self._window(self.fragments[-1][1], i) for i in range(self.ensemble_size)] if self.is_sound else []
        )

    def _window(self, ensemble: tuple[str, ...], entry: int) -> tuple[str, ...]:
        start = entry % len(ensemble)
        return (ensemble + ensemble)[start : start + self.write_quorum_size]  # which is no longer than the ensemble

    def write_set(self, entry: int) -> tuple[str, ...]:
        """The bookies that store ``entry``: Qw of its ensemble, from position ``entry mod E`` on. Sound metadata only."""
        if entry >= self._last_first:
            return self._last_sets[entry % self.ensemble_size]
        return self._window(self.ensemble_at(entry), entry)

    def ensemble_at(self, entry: int) -> tuple[str, ...]:
        """The ensemble of the fragment that holds ``entry``; empty if there is none."""
        index = bisect_right(self._firsts, entry)
        return self.fragments[index - 1][1] if index else ()

    def has_member(self, bookie: str) -> bool:
        """Whether any fragment is on ``bookie``."""
        return any(bookie in members for _, members in self.fragments)

    def same_content(self, other: Metadata) -> bool:
        """Whether both have the same content; author and version may differ."""
        return (self.state, self.fragments, self.last_entry, self.length) == (
            other.state,
            other.fragments,
            other.last_entry,
            other.length,
        )


def changed_ranges(old: Metadata, new: Metadata) -> Iterator[tuple[int, int | None]]:
    """The ranges ``[first, end)`` of entries whose ensemble differs; an end of None means all following entries."""
    bounds = sorted({first for first, _ in old.fragments} | {first for first, _ in new.fragments})
    for i, first in enumerate(bounds):
        if old.ensemble_at(first) != new.ensemble_at(first):
            yield first, bounds[i + 1] if i + 1 < len(bounds) else None


class MetadataTimeline:
    """What the store holds of one ledger now, and what it held before.

    ``current`` is what is stored now, ``previous`` what it replaced (None where that is not known), ``versions`` everything
    that was ever seen stored, by version. ``end`` is what the ledger was seen closed with, of several the one with the lowest
    last entry: a second close does not make up for the first, nor does a deletion. ``was_deleted`` says whether the ledger was,
    or may have been, deleted.
    """

    def __init__(self) -> None:
        self.current: Metadata | None = None
        self.previous: Metadata | None = None
        self.versions: dict[int, Metadata] = {}
        self.end: Metadata | None = None
        self.creator = ""
        self.was_deleted = False
        self._unknown: dict[int, list[Metadata]] = {}
        self._writer_version: dict[str, int] = {}

    def on_cas(self, event: Event) -> None:
        """Take in a META_CAS."""
        fields = event.fields
        outcome, cause, expected = fields["outcome"], fields["cause"], fields["expected_version"]
        if cause == "delete" and outcome != "conflict":
            self.was_deleted = True
        if outcome == "ok":
            if cause == "delete":
                self.previous, self.current = self.current, None
                return
            written = Metadata(event, author=event.actor, cause=cause, version=fields["version"])
            if cause == "create" and self._is_known(written):
                return  # repeated after an unknown outcome, it found its own creation
            self._bridge(expected)
            self._apply(written, expected)
        elif outcome in {"unknown", "error"} and cause != "delete" and expected >= self._version:
            attempt = Metadata(event, author=event.actor, cause=cause, version=expected + 1)
            self._unknown.setdefault(expected, []).append(attempt)

    def begins_anew(self, event: Event) -> bool:
        """Whether a META_CAS creates another ledger of the same id, after this one was deleted, or may have been."""
        return self.was_deleted and (event.fields["cause"], event.fields["outcome"]) == ("create", "ok")

    def on_read(self, event: Event) -> None:
        """Take in a META_READ; an answer older than what is known changes nothing."""
        fields = event.fields
        version = fields["version"]
        if fields["outcome"] != "ok" or version < 0:
            return
        if self.current is not None and version <= self.current.version:
            if fields["state"] == CLOSED and self.end is not None and fields["last_entry"] < self.end.last_entry:
                self.end = Metadata(event, author="", cause="", version=version)
            return
        found = Metadata(event, author="", cause="", version=version)
        for attempt in self._unknown.get(version - 1, ()):
            if attempt.same_content(found):
                found.author, found.cause = attempt.author, attempt.cause
                break
        self._apply(found, version - 1)

    @property
    def _version(self) -> int:
        return self.current.version if self.current is not None else -1

    def writer_versions(self, actor: str) -> Iterator[Metadata]:
        """What was stored since ``actor`` last created the ledger or changed its ensemble, newest first.

        Later versions are by other clients; until the writer learns of them, it may use the older state.
        """
        oldest = self._writer_version.get(actor, 0)
        return (stored for version, stored in sorted(self.versions.items(), reverse=True) if version >= oldest)

    def _is_known(self, written: Metadata) -> bool:
        known = self.versions.get(written.version)
        return known is not None and known.author == written.author and known.same_content(written)

    def _bridge(self, expected: int) -> None:
        """Adopt the one write of unknown outcome that leads to version ``expected``, if there is just one."""
        while self.current is not None and self.current.version < expected:
            candidates = self._unknown.get(self.current.version, [])
            if len(candidates) != 1:
                return
            self._apply(candidates[0], self.current.version)

    def _apply(self, stored: Metadata, expected: int) -> None:
        is_next = self.current is not None and self.current.version == expected
        self.previous = self.current if is_next else None
        self.current = stored
        if stored.state == CLOSED and (self.end is None or stored.last_entry < self.end.last_entry):
            self.end = stored
        self.versions[stored.version] = stored
        if stored.cause in {"create", "ensemble"}:
            self._writer_version[stored.author] = stored.version
        if stored.cause == "create":
            self.creator = stored.author
