"""Warnings about clients are told, and are no flood."""

from __future__ import annotations

import logging

import pytest

from simbookie.tcp.notices import Notices


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


def test_the_same_is_said_once_per_source_in_ten_minutes(told: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    notices = Notices(logging.getLogger("test"), clock=clock)
    for source in ("a", "a", "b", "a"):
        notices.warn(source, "%s is late", source)
    notices.warn("a", "%s is early", "a")
    assert told.messages == ["a is late", "b is late", "a is early"]
    clock.now = 601
    notices.warn("a", "%s is late", "a")
    assert told.messages[3:] == ["a is late"]


def test_many_sources_are_no_flood_and_what_was_held_back_is_counted(told: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    notices = Notices(logging.getLogger("test"), clock=clock)
    for number in range(5000):
        notices.warn(str(number), "too much")
    assert len(told.messages) == 30
    clock.now = 61
    notices.warn("one more", "too much")
    assert told.messages[30:] == ["4970 warnings about clients were held back; DEBUG shows them", "too much"]


def test_what_is_held_back_can_be_seen_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    notices = Notices(logging.getLogger("test"), clock=Clock())
    for _ in range(3):
        notices.warn("a", "late")
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG"]


def test_sources_are_remembered_in_bounded_memory() -> None:
    clock = Clock()
    notices = Notices(logging.getLogger("test"), clock=clock)
    for number in range(3000):
        clock.now += 10
        notices.warn(str(number), "late")
    assert len(notices._told) == 1000
