"""Which vectors that the tests of the codecs hold were heard, as they are, from Apache BookKeeper.

A frame counts as heard if, apart from what differs from run to run, the same bytes were sent by a Java client (requests) or by
a real bookie (answers). A request that no Java client was heard to send may still have been sent by us to a real bookie that
answered it. A body counts as heard if a Java client sent it along with the master key of its password, and a key if
a Java client sent it (master keys) or sent a digest made with it (keys of HMAC digests, which never travel).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bkclient.ledger import DigestType
from bkclient.wire.digest import KEY_SIZE, master_key
from bkclient.wire.entry import ENTRY_HEADER_SIZE
from bkclient.wire.messages import AddRequest, WriteLacRequest
from bkclient.wire.server_connection import ServerConnection
from tests.bkclient.wire import test_digest, test_entry, test_v2, test_v3
from tests.bkclient.wire.golden_files import CLOSED, golden_files, without_chance

__all__ = ["BodyVector", "FrameVector", "bodies", "table", "vectors"]

_PREFIX_SIZE: Final = 4
#: Versions, in an order; a dictionary because that of a set is left to chance.
_Versions = dict[str, None]


@dataclass(frozen=True, slots=True)
class FrameVector:
    """One frame of ours, and the versions of BookKeeper it was heard from; ``answered_by`` is for requests of ours."""

    wire: int
    is_request: bool
    name: str
    heard_from: tuple[str, ...]
    answered_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BodyVector:
    """One body or key of ours, and the versions of BookKeeper whose client sent it."""

    name: str
    digest: str
    password: bytes
    heard_from: tuple[str, ...]


def table() -> str:
    """All of them as two tables in Markdown, one of frames, one of keys and bodies."""
    return f"{_table_of_frames()}\n{_table_of_bodies()}"


# Frames.


def vectors() -> list[FrameVector]:
    """Every frame of both versions of the protocol, in the order of the tests."""
    sent, answered, answers = _heard()
    found = []
    cases: list[tuple[int, bool, str, str]] = [
        *((2, True, name, frame) for name, _, frame in test_v2.REQUESTS),
        *((2, False, name, frame) for name, _, frame in test_v2.RESPONSES),
        *((3, True, name, frame) for name, _, _, frame in test_v3.REQUESTS),
        *((3, False, name, frame) for name, _, _, frame in test_v3.RESPONSES),
    ]
    for wire, is_request, name, frame in cases:
        content = without_chance(bytes.fromhex(frame)[_PREFIX_SIZE:], is_request=is_request)
        heard = (sent if is_request else answers).get(content, {})
        also = answered.get(content, {}) if is_request else {}
        found.append(FrameVector(wire, is_request, name, tuple(sorted(heard)), tuple(sorted(also))))
    return found


def _heard() -> tuple[dict[bytes, _Versions], dict[bytes, _Versions], dict[bytes, _Versions]]:
    """Requests of Java clients, requests of ours that were answered, and answers, each with the versions they belong to."""
    sent: dict[bytes, _Versions] = {}
    answered: dict[bytes, _Versions] = {}
    answers: dict[bytes, _Versions] = {}

    def note(frames: dict[bytes, _Versions], content: str, version: str, *, is_request: bool) -> None:
        frames.setdefault(without_chance(bytes.fromhex(content), is_request=is_request), {})[version] = None

    for golden in golden_files():
        for request in golden.requests:
            note(sent, request, golden.version, is_request=True)
        for exchange in golden.exchanges:
            if exchange.answer != CLOSED:
                note(answered, exchange.request, golden.version, is_request=True)
                note(answers, exchange.answer, golden.version, is_request=False)
    return sent, answered, answers


def _table_of_frames() -> str:
    lines = ["| wire | frame | heard from |", "|---|---|---|"]
    for vector in vectors():
        kind = "request" if vector.is_request else "answer"
        lines.append(f"| v{vector.wire} | {kind}: {vector.name} | {_said(vector)} |")
    return "\n".join(lines) + "\n"


def _said(vector: FrameVector) -> str:
    if vector.heard_from:
        return f"{'clients' if vector.is_request else 'bookies'} of {', '.join(vector.heard_from)}"
    if vector.answered_by:
        return f"us; answered by bookies of {', '.join(vector.answered_by)}"
    return "nobody"


# Bodies and keys.


def bodies() -> list[BodyVector]:
    """Every key and body, in the order of the tests."""
    sent: dict[tuple[bytes, bytes], _Versions] = {}
    for version, key, body in _bodies_sent():
        sent.setdefault((key, body), {})[version] = None
    return [*_keys(sent), *_bodies(sent)]


def _bodies_sent() -> Iterator[tuple[str, bytes, bytes]]:
    """Versions, master keys and bodies of what Java clients added or wrote as their explicit LAC."""
    for golden in golden_files():
        for content in map(bytes.fromhex, golden.requests):
            (received,) = ServerConnection().receive(len(content).to_bytes(_PREFIX_SIZE, "big") + content)
            if isinstance(received.request, AddRequest | WriteLacRequest):
                yield golden.version, received.request.master_key, received.request.body


def _keys(sent: dict[tuple[bytes, bytes], _Versions]) -> Iterator[BodyVector]:
    for password, master, mac in test_digest.KEYS:
        sent_along = [versions for (key, _), versions in sent.items() if key.hex() == master]
        used = [versions for (_, body), versions in sent.items() if _is_digested_with(bytes.fromhex(mac), body)]
        yield BodyVector("master key", "any", password, _united(sent_along))
        yield BodyVector("key of digests", "HMAC", password, _united(used))


def _united(heard: list[_Versions]) -> tuple[str, ...]:
    return tuple(sorted({version for versions in heard for version in versions}))


def _is_digested_with(mac: bytes, body: bytes) -> bool:
    digest = body[ENTRY_HEADER_SIZE : ENTRY_HEADER_SIZE + KEY_SIZE]
    covered = body[:ENTRY_HEADER_SIZE] + body[ENTRY_HEADER_SIZE + KEY_SIZE :]
    return hmac.digest(mac, covered, "sha1") == digest


def _bodies(sent: dict[tuple[bytes, bytes], _Versions]) -> Iterator[BodyVector]:
    cases: list[tuple[str, DigestType, bytes, str]] = [
        *((name, digest, password, body) for name, digest, password, _, body in test_entry.BODIES),
        *(("explicit LAC", digest, password, body) for digest, password, body in test_entry.LAC_PACKETS),
    ]
    for name, digest, password, body in cases:
        versions = sent.get((master_key(password), bytes.fromhex(body)), {})
        yield BodyVector(name, digest.name, password, tuple(sorted(versions)))


def _table_of_bodies() -> str:
    lines = ["| what | digest | password | heard from |", "|---|---|---|---|"]
    for each in bodies():
        heard = f"clients of {', '.join(each.heard_from)}" if each.heard_from else "nobody"
        lines.append(f"| {each.name} | {each.digest} | {each.password.decode() or 'empty'} | {heard} |")
    return "\n".join(lines) + "\n"
