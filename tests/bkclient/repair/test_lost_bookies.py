"""When the loss of bookies is audited."""

from __future__ import annotations

import pytest

from bkclient.repair.lost_bookies import LostBookies

ALL = ("a", "b", "c", "d")

pytestmark = [pytest.mark.rule("AR-16"), pytest.mark.behaviour("T-263")]


def due(lost: LostBookies) -> float | None:
    return lost.audit_at


def without(*lost: str) -> tuple[str, ...]:
    return tuple(bookie_id for bookie_id in ALL if bookie_id not in lost)


def test_without_a_delay_every_loss_is_audited_at_once() -> None:
    lost = LostBookies(ALL, 0)
    assert due(lost) is None
    lost.on_bookies(without("a"), 5.0)
    assert (due(lost), lost.lost) == (5.0, ("a",))
    lost.audited()
    assert (due(lost), lost.lost) == (None, ())
    lost.on_bookies(without("a"), 6.0)
    assert due(lost) is None, "it was audited"
    lost.on_bookies(without("a", "b"), 7.0)
    assert (due(lost), lost.lost) == (7.0, ("b",))


def test_a_single_lost_bookie_has_the_delay_to_come_back() -> None:
    lost = LostBookies(ALL, 10)
    lost.on_bookies(without("a"), 5.0)
    assert due(lost) == 15.0
    lost.on_bookies(without("a"), 8.0)
    assert due(lost) == 15.0, "news without news change nothing"
    lost.on_bookies(ALL, 14.0)
    assert (due(lost), lost.is_waiting) == (None, False)


def test_several_lost_bookies_are_audited_at_once() -> None:
    lost = LostBookies(ALL, 10)
    lost.on_bookies(without("a"), 5.0)
    lost.on_bookies(without("a", "b"), 8.0)
    assert due(lost) == 8.0
    lost = LostBookies(ALL, 10)
    lost.on_bookies(without("a", "b"), 5.0)
    assert due(lost) == 5.0


def test_a_rolling_restart_audits_nothing_while_each_bookie_returns_in_time() -> None:
    lost = LostBookies(ALL, 10)
    for number, bookie_id in enumerate(ALL):
        lost.on_bookies(without(bookie_id), 20.0 * number)
        assert due(lost) == 20.0 * number + 10
        lost.on_bookies(ALL, 20.0 * number + 9)
        assert due(lost) is None


def test_of_several_that_were_lost_one_that_returns_leaves_the_others_lost() -> None:
    lost = LostBookies(ALL, 10)
    lost.on_bookies(without("a", "b"), 5.0)
    lost.on_bookies(without("b"), 5.0)
    assert (lost.lost, due(lost)) == (("b",), 5.0)


def test_a_changed_delay_moves_the_audit_that_waits() -> None:
    lost = LostBookies(ALL, 10)
    lost.on_bookies(without("a"), 5.0)
    lost.on_delay(30, 6.0)
    assert due(lost) == 35.0
    lost.on_delay(2, 20.0)
    assert due(lost) == 20.0, "it is due already"


@pytest.mark.parametrize("delay_s", [0, 10])
def test_setting_the_delay_to_nothing_or_to_what_it_is_asks_for_an_audit(delay_s: int) -> None:
    lost = LostBookies(ALL, 10)
    lost.on_delay(delay_s, 3.0)
    assert due(lost) == 3.0, "also with no bookie lost"
    lost.on_bookies(ALL, 3.0)
    assert due(lost) == 3.0, "and whatever else is told meanwhile"


def test_another_delay_alone_asks_for_nothing() -> None:
    lost = LostBookies(ALL, 10)
    lost.on_delay(20, 3.0)
    assert due(lost) is None


def test_bookies_that_come_for_the_first_time_can_be_lost_later() -> None:
    lost = LostBookies(("a",), 0)
    lost.on_bookies(("a", "new"), 1.0)
    assert due(lost) is None
    lost.on_bookies(("a",), 2.0)
    assert lost.lost == ("new",)


def test_an_audit_that_failed_is_repeated() -> None:
    lost = LostBookies(ALL, 0)
    lost.on_bookies(without("a"), 1.0)
    lost.audited()
    lost.repeat(2.0)
    assert due(lost) == 2.0
