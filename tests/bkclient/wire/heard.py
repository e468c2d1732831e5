"""Which frames that the tests of the codecs hold were heard, as they are, from Apache BookKeeper.

A frame counts as heard if, apart from what differs from run to run, the same bytes were sent by a Java client (requests) or by
a real bookie (answers). A request that no Java client was heard to send may still have been sent by us to a real bookie that
answered it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.bkclient.wire import test_v2, test_v3
from tests.bkclient.wire.golden_files import CLOSED, golden_files, without_chance

__all__ = ["Vector", "table", "vectors"]

_PREFIX_SIZE: Final = 4


@dataclass(frozen=True, slots=True)
class Vector:
    """One frame of ours, and the versions of BookKeeper it was heard from; ``answered_by`` is for requests of ours."""

    wire: int
    is_request: bool
    name: str
    heard_from: tuple[str, ...]
    answered_by: tuple[str, ...] = ()


def vectors() -> list[Vector]:
    """Every vector of both versions of the protocol, in the order of the tests."""
    sent, answered, answers = _heard()
    found = []
    cases: list[tuple[int, bool, str, str]] = [
        *((2, True, name, frame) for name, _, frame in test_v2.REQUESTS),
        *((2, False, name, frame) for name, _, frame in test_v2.RESPONSES),
        *((3, True, name, frame) for name, _, _, frame in test_v3.REQUESTS),
        *((3, False, name, frame) for name, _, _, frame in test_v3.RESPONSES),
    ]
    for wire, is_request, name, frame in cases:
        content = without_chance(bytes.fromhex(frame)[_PREFIX_SIZE:], wire, is_request=is_request)
        heard = (sent if is_request else answers).get((wire, content), {})
        also = answered.get((wire, content), {}) if is_request else {}
        found.append(Vector(wire, is_request, name, tuple(sorted(heard)), tuple(sorted(also))))
    return found


_Frames = dict[tuple[int, bytes], dict[str, None]]


def _heard() -> tuple[_Frames, _Frames, _Frames]:
    """Requests of Java clients, requests of ours that were answered, and answers, each with the versions they belong to."""
    sent: _Frames = {}
    answered: _Frames = {}
    answers: _Frames = {}

    def note(frames: _Frames, content: str, wire: int, version: str, *, is_request: bool) -> None:
        raw = bytes.fromhex(content)
        if is_request and wire == 2 and raw[0] != 2:
            wire = 3  # what version 2 lacks goes over a connection in version 3
        key = wire, without_chance(raw, wire, is_request=is_request)
        frames.setdefault(key, {})[version] = None

    for golden in golden_files():
        for request in golden.requests:
            note(sent, request, golden.wire, golden.version, is_request=True)
        for exchange in golden.exchanges:
            if exchange.answer != CLOSED:
                note(answered, exchange.request, golden.wire, golden.version, is_request=True)
                note(answers, exchange.answer, golden.wire, golden.version, is_request=False)
    return sent, answered, answers


def table() -> str:
    """The vectors as a table in Markdown."""
    lines = ["| wire | frame | heard from |", "|---|---|---|"]
    for vector in vectors():
        kind = "request" if vector.is_request else "answer"
        lines.append(f"| v{vector.wire} | {kind}: {vector.name} | {_said(vector)} |")
    return "\n".join(lines) + "\n"


def _said(vector: Vector) -> str:
    if vector.heard_from:
        return f"{'clients' if vector.is_request else 'bookies'} of {', '.join(vector.heard_from)}"
    if vector.answered_by:
        return f"us; answered by bookies of {', '.join(vector.answered_by)}"
    return "nobody"
