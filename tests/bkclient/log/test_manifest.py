"""The manifest of a log: its bytes, its shape, its changes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import MetadataSerializationError, MetadataVersionConflict, UnexpectedCondition
from bkclient.log.errors import LogDeposed, LogExists, LogTooLong, NoSuchLog
from bkclient.log.machine.changes import (
    AddCursor,
    AppendLedger,
    ClaimLog,
    CreateLog,
    DeleteLog,
    EndLedgers,
    ForgetTrimmed,
    ManifestChange,
    MoveCursorBack,
    ReleaseLog,
    RemoveCursor,
    TrimLedgers,
)
from bkclient.log.machine.codec import decode_manifest, encode_manifest
from bkclient.log.machine.manifest import MAX_CURSORS, MAX_LEDGERS, LedgerEnd, LogLedger, LogManifest, LogState
from bkclient.log.settings import LogSettings

ENDED = tuple(LogLedger(number, 1, 0, LedgerEnd(number, 9, 100, 50)) for number in (3, 5, 8))
MANIFEST = LogManifest("id", epoch=2, owner="a", claim_id="t", ledgers=(*ENDED, LogLedger(9, 2)), cursors=("x",))

numbers = st.integers(0, 2**40)


@st.composite
def manifests(draw: st.DrawFn) -> LogManifest:
    ids = sorted(draw(st.sets(st.integers(10, 1000), max_size=6)))
    ledgers: list[LogLedger] = [
        LogLedger(number, draw(st.integers(1, 5)), draw(numbers), LedgerEnd(number, draw(numbers), draw(numbers), 1))
        for number in ids
    ]
    is_open: bool = draw(st.booleans())
    if ledgers and is_open:
        ledgers[-1] = replace(ledgers[-1], end=None)
    has_owner: bool = draw(st.booleans())
    return LogManifest(
        draw(st.text(max_size=9)),
        LogSettings(retention_s=draw(st.none() | st.floats(0, 1e6))),
        epoch=5,
        owner="me" if has_owner else "",
        claim_id="t" if has_owner else "",
        ledgers=tuple(ledgers),
        trimmed=tuple(draw(st.sets(st.integers(0, 9)))),
        trimmed_through=draw(st.integers(-1, 9)),
        cursors=tuple(sorted(draw(st.sets(st.text(min_size=1, max_size=5))))),
    )


@settings(max_examples=25)
@given(manifests())
def test_a_manifest_is_read_as_it_was_written(manifest: LogManifest) -> None:
    assert decode_manifest(encode_manifest(manifest)) == manifest


@settings(max_examples=60)
@given(st.binary(max_size=60) | manifests().map(encode_manifest), st.integers(0, 400), st.integers(0, 255))
def test_damaged_bytes_are_refused_or_are_another_manifest(data: bytes, position: int, value: int) -> None:
    damaged = bytearray(data)
    if damaged:
        damaged[position % len(damaged)] = value
    with suppress(MetadataSerializationError):
        assert isinstance(decode_manifest(bytes(damaged)), LogManifest)


def test_a_manifest_of_a_later_version_or_with_other_fields_is_refused() -> None:
    _, table = msgpack.unpackb(encode_manifest(MANIFEST))
    with pytest.raises(MetadataSerializationError, match="version 3"):
        decode_manifest(msgpack.packb([3, table]))
    with pytest.raises(MetadataSerializationError, match="its fields"):
        decode_manifest(msgpack.packb([1, {**table, "new": 1}]))
    with pytest.raises(MetadataSerializationError, match="at most"):
        decode_manifest(bytes(1_000_001))


def test_a_manifest_of_the_most_ledgers_fits_a_metadata_store_and_one_more_is_refused() -> None:
    big = 2**40
    full = tuple(LogLedger(big + n, 1, big, LedgerEnd(big + n, big, big, big)) for n in range(MAX_LEDGERS))
    assert len(encode_manifest(replace(MANIFEST, ledgers=full))) < 1_000_000
    with pytest.raises(LogTooLong, match="10000 ledgers"):
        encode_manifest(replace(MANIFEST, ledgers=full, trimmed=(1,)))
    names = tuple(f"{number:05d}" for number in range(MAX_CURSORS + 1))
    with pytest.raises(LogTooLong, match="1000 cursors"):
        encode_manifest(replace(MANIFEST, cursors=names))


@pytest.mark.parametrize(
    "wrong",
    [
        {"ledgers": (LogLedger(5, 1), LogLedger(6, 1))},
        {"ledgers": tuple(reversed(ENDED))},
        {"ledgers": (LogLedger(5, 3, 0),)},
        {"ledgers": (LogLedger(-5, 1),)},
        {"ledgers": (LogLedger(5, 0),)},
        {"trimmed": (9,)},
        {"trimmed": (1, 1)},
        {"trimmed_through": 3},
        {"owner": ""},
        {"cursors": ("b", "a")},
        {"state": LogState.DELETED},
    ],
)
def test_a_manifest_of_a_wrong_shape_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        replace(MANIFEST, **wrong)


@pytest.mark.parametrize("end", [LedgerEnd(5, -1), LedgerEnd(6, 1), LedgerEnd(5, 1, -1)])
def test_a_ledger_of_a_manifest_ends_by_its_own_end_and_not_empty(end: LedgerEnd) -> None:
    with pytest.raises(ValueError, match="ledger 5 cannot end by"):
        LogLedger(5, 1, 0, end)


# Changes -------------------------------------------------------------------------------------------------------------

END = (LedgerEnd(9, 4, 40, 60),)
CHANGES: list[ManifestChange] = [
    ClaimLog("b", "u"),
    EndLedgers("t", END),
    AppendLedger("t", END, 12, 7),
    ReleaseLog("t", END),
    TrimLedgers(5, 0),
    AddCursor("y"),
    MoveCursorBack("x", 0),
    RemoveCursor("x"),
    DeleteLog("id"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_a_change_is_made_once(change: ManifestChange) -> None:
    assert not change.is_made(MANIFEST)
    changed = change.applied(MANIFEST)
    assert changed != MANIFEST
    if isinstance(change, ReleaseLog):
        assert (changed.owner, changed.epoch) == ("", 2)
    assert change.is_made(changed)
    assert decode_manifest(encode_manifest(changed)) == changed


def test_an_empty_ledger_leaves_the_log_when_it_ends() -> None:
    changed = EndLedgers("t", (LedgerEnd(9, -1),)).applied(MANIFEST)
    assert [ledger.ledger_id for ledger in changed.ledgers] == [3, 5, 8]
    assert changed.trimmed == (9,)
    assert ForgetTrimmed((9,)).applied(changed).trimmed == ()
    assert ForgetTrimmed((9,)).is_made(MANIFEST)


def test_a_ledger_cannot_follow_one_that_has_not_ended_or_has_a_higher_id() -> None:
    with pytest.raises(ValueError, match="without an end"):
        AppendLedger("t", (), 12, 0).applied(MANIFEST)
    with pytest.raises(UnexpectedCondition, match="higher id"):
        AppendLedger("t", END, 4, 0).applied(MANIFEST)


@pytest.mark.parametrize("change", [EndLedgers("old", END), AppendLedger("old", END, 12, 0)])
def test_only_the_owner_changes_the_list(change: ManifestChange) -> None:
    with pytest.raises(LogDeposed, match="'a', in epoch 2"):
        change.is_made(MANIFEST)


def test_a_trim_takes_ended_ledgers_from_the_beginning_and_leaves_the_open_one() -> None:
    changed = TrimLedgers(100, 0).applied(MANIFEST)
    assert [ledger.ledger_id for ledger in changed.ledgers] == [9]
    assert (changed.trimmed, changed.trimmed_through) == ((3, 5, 8), 8)


@pytest.mark.parametrize("change", [AddCursor("y"), MoveCursorBack("x", 0)])
def test_a_trim_that_was_decided_before_a_cursor_needed_more_is_refused(change: ManifestChange) -> None:
    with pytest.raises(MetadataVersionConflict, match="moved back"):
        TrimLedgers(5, 0).applied(change.applied(MANIFEST))
    TrimLedgers(5, 0).applied(RemoveCursor("x").applied(MANIFEST))


def test_a_deleted_log_keeps_what_is_to_be_deleted_and_may_be_created_again() -> None:
    deleted = DeleteLog("id").applied(MANIFEST)
    assert deleted.trimmed == (3, 5, 8, 9)
    for change in (ClaimLog("b", "u"), AddCursor("y")):
        with pytest.raises(NoSuchLog):
            change.applied(deleted) if isinstance(change, ClaimLog) else change.is_made(deleted)
    create = CreateLog("new", LogSettings(), 5)
    again = create.applied(deleted)
    assert create.is_made(again)
    assert (again.epoch, again.trimmed_through, again.trimmed) == (2, 9, (3, 5, 8, 9))
    assert DeleteLog("id").is_made(again), "another log has the name"
    with pytest.raises(LogExists):
        create.applied(MANIFEST)
