"""Following a ledger: what comes next, and how long failures are borne."""

from __future__ import annotations

import pytest

from bkclient.protocol.tail import TailRead, TailStep


@pytest.mark.parametrize(
    ("next_entry_id", "lac", "is_closed", "step"),
    [
        (0, -1, False, TailStep.WAIT),
        (0, -1, True, TailStep.END),
        (5, 5, False, TailStep.READ),
        (5, 9, True, TailStep.READ),
        (6, 5, False, TailStep.WAIT),
        (6, 5, True, TailStep.END),
    ],
)
def test_what_is_confirmed_is_read_and_beyond_it_waited_for_until_the_ledger_is_closed(
    next_entry_id: int, lac: int, is_closed: bool, step: TailStep
) -> None:
    assert TailRead(next_entry_id, 60).step(lac, is_closed=is_closed) is step


def test_each_entry_is_delivered_once() -> None:
    plan = TailRead(3, 60)
    plan.on_entry()

    assert plan.next_entry_id == 4


def test_a_ledger_that_ends_below_what_was_delivered_has_lost_entries() -> None:
    plan = TailRead(3, 60)
    plan.on_entry()

    assert plan.step(2, is_closed=False) is TailStep.WAIT
    assert plan.step(3, is_closed=True) is TailStep.END
    assert plan.step(2, is_closed=True) is TailStep.LOST
    assert TailRead(4, 60).step(2, is_closed=True) is TailStep.END


def test_failures_are_met_with_pauses_that_grow_up_to_a_limit_and_given_up_when_patience_ends() -> None:
    plan, now, pauses = TailRead(0, 60), 1000.0, []
    while (pause_s := plan.on_failed(now)) is not None:
        pauses.append(pause_s)
        now += pause_s

    assert pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    assert max(pauses) == 5.0
    assert 60 <= now - 1000.0 < 65


@pytest.mark.parametrize("event", ["entry", "answer"])
def test_whoever_answers_ends_the_failures(event: str) -> None:
    plan = TailRead(0, 1)
    plan.on_failed(0.0)
    plan.on_failed(0.5)
    plan.on_entry() if event == "entry" else plan.on_answer()

    assert plan.on_failed(100.0) == 0.05
    assert plan.on_failed(100.9) == 0.1
    assert plan.on_failed(101.0) is None


def test_patience_may_be_none_at_all() -> None:
    plan = TailRead(0, 0)

    assert plan.on_failed(7.0) == 0.05
    assert plan.on_failed(7.0) is None


def test_that_nothing_is_written_is_borne_for_ever_with_pauses_that_grow_up_to_a_second() -> None:
    plan = TailRead(0, 1)
    pauses = [plan.on_nothing() for _ in range(100)]

    assert pauses[:3] == [0.02, 0.04, 0.08]
    assert pauses[-1] == 1.0
    plan.on_entry()
    assert plan.on_nothing() == 0.02


def test_polls_for_the_same_entry_grow_while_no_bookie_told_the_lac() -> None:
    plan, waits_s = TailRead(0, 1), []
    for _ in range(9):
        waits_s.append(plan.poll_s(-1, is_told=False))
        plan.on_no_news()

    assert waits_s == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert plan.poll_s(3, is_told=False) == 0.1
    assert plan.poll_s(3, is_told=True) == 10.0
    plan.on_no_news()
    assert plan.poll_s(3, is_told=False) == 0.2
