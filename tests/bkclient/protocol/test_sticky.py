"""Keeping to one bookie as long as it serves."""

from __future__ import annotations

import pytest

from bkclient.protocol.sticky import StickyIndex


@pytest.mark.rule("R-23")
def test_reading_begins_at_the_position_and_goes_around() -> None:
    assert StickyIndex(3, 0).rotate("abc") == ("a", "b", "c")
    assert StickyIndex(3, 2).rotate("abc") == ("c", "a", "b")


@pytest.mark.rule("R-23")
def test_a_failure_of_the_bookie_read_from_moves_on_once_however_often_it_fails() -> None:
    sticky = StickyIndex(3, 2)
    sticky.on_failed("abc", "c")
    sticky.on_failed("abc", "c")

    assert sticky.position == 0


@pytest.mark.rule("R-23")
def test_failures_of_others_do_not_move_it() -> None:
    sticky = StickyIndex(3, 1)
    sticky.on_failed("abc", "a")
    sticky.on_failed("abc", "c")
    sticky.on_failed("abc", "gone long ago")

    assert sticky.position == 1
