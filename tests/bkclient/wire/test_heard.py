"""Every vector of the codecs' tests comes from Apache BookKeeper, and the table that says so would tell if one did not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bkclient.wire import heard
from tests.bkclient.wire.golden_files import Exchange, Golden, golden_files

VERSIONS = tuple(sorted({golden.version for golden in golden_files()}))
#: What no client sends, because one without a plug-in says nothing; bookies answer it all the same.
ONLY_ANSWERED = {"auth in the name of no plug-in"}


def test_every_frame_was_heard_from_every_version() -> None:
    frames = heard.vectors()

    assert {each.name for each in frames if not each.heard_from} == ONLY_ANSWERED
    for each in frames:
        assert (each.answered_by if each.name in ONLY_ANSWERED else each.heard_from) == VERSIONS, each


def test_every_key_and_body_was_heard_from_every_version() -> None:
    assert [each for each in heard.bodies() if each.heard_from != VERSIONS] == []


def test_nobody_is_heard_where_nothing_was_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard, "golden_files", list)

    assert {(each.heard_from, each.answered_by) for each in heard.vectors()} == {((), ())}
    assert {each.heard_from for each in heard.bodies()} == {()}
    assert heard.table().count("| nobody |") == len(heard.vectors()) + len(heard.bodies())


def damaged(golden: Golden) -> Golden:
    """With another last letter in every ``hello``."""

    def other(content: str) -> str:
        return content.replace(b"hello".hex(), b"helln".hex())

    exchanges = (Exchange(each.name, other(each.request), other(each.answer)) for each in golden.exchanges)
    return replace(golden, requests=tuple(map(other, golden.requests)), exchanges=tuple(exchanges))


def test_one_other_byte_is_not_the_same_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard, "golden_files", lambda: [damaged(golden) for golden in golden_files()])

    said = {(each.wire, each.is_request, each.name): each.heard_from for each in heard.vectors()}
    for wire in (2, 3):
        assert said[wire, True, "add"] == said[wire, True, "recovery add"] == said[wire, False, "read"] == ()
        assert said[wire, True, "read"] == said[wire, False, "add"] == VERSIONS
    bodies = {(each.name, each.heard_from) for each in heard.bodies()}
    assert {versions for name, versions in bodies if name == "first entry"} == {()}
    assert {versions for name, versions in bodies if name in ("second entry", "no payload")} == {VERSIONS}


def test_a_body_counts_only_along_with_the_key_of_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "e793cbc379107648537183605cd361d3bb789a39"
    files = [
        replace(golden, requests=tuple(each for each in golden.requests if secret not in each))
        for golden in golden_files()
    ]
    monkeypatch.setattr(heard, "golden_files", lambda: files)

    said = {(each.name, each.digest, each.password): each.heard_from for each in heard.bodies()}
    assert said["first entry", "CRC32C", b""] == VERSIONS
    assert said["first entry", "CRC32C", b"secret"] == ()
    assert said["master key", "any", b"secret"] == said["key of digests", "HMAC", b"secret"] == ()
