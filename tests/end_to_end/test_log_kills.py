"""Owners of a log and bookies are killed, and messages are checked from outside; ``make log-kills`` does it at length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.log_kills import Publisher, judge, run
from bkclient.log import MessageId

FIRST = Publisher("one", 1, published=3, acknowledged={0: MessageId(0, 0), 1: MessageId(0, 1)})
SECOND = Publisher("two", 2, published=1, acknowledged={0: MessageId(1, 0)})
FOUND = [(MessageId(0, 0), "one:0"), (MessageId(0, 1), "one:1"), (MessageId(1, 0), "two:0")]


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_nothing_is_lost_doubled_or_out_of_order_when_owners_and_bookies_are_killed(tmp_path: Path) -> None:
    outcome = run(tmp_path, 5)
    assert outcome.broken == []
    assert sum(outcome.kills.values()) == 5
    assert min(outcome.kills.values()) > 0
    assert outcome.acknowledged > 100
    assert outcome.acknowledged <= outcome.found <= outcome.published
    assert outcome.ledgers > 3


def test_what_is_as_promised_is_not_accused() -> None:
    unacknowledged = (MessageId(0, 2), "one:2")
    assert judge([SECOND, FIRST], FOUND) == []
    assert judge([FIRST, SECOND], [*FOUND[:2], unacknowledged, *FOUND[2:]]) == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (FOUND[1:], "one:0 was acknowledged as 0:0:-1:-1 and is at None"),
        ([*FOUND, (MessageId(1, 1), "two:0")], "two:0 is at 1:0:-1:-1 and at 1:1:-1:-1"),
        (
            [(MessageId(0, 0), "one:1"), (MessageId(0, 1), "one:0"), FOUND[2]],
            "message 0 of epoch 1 comes after message 1",
        ),
        ([FOUND[2], *FOUND[:2]], "message ids do not ascend"),
        ([*FOUND, (MessageId(2, 0), "one:2")], "message 2 of epoch 1 comes after message 0 of epoch 2"),
        ([*FOUND, (MessageId(2, 0), "two:1")], "two:1 was never published"),
        ([FOUND[0], (MessageId(0, 7), "one:1"), FOUND[2]], "one:1 was acknowledged as 0:1:-1:-1 and is at 0:7"),
    ],
)
def test_the_judge_notices(found: list[tuple[MessageId, str]], says: str) -> None:
    assert any(says in broken for broken in judge([FIRST, SECOND], found))


def test_a_publisher_is_what_its_file_tells_up_to_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    assert Publisher.of("one", path) == Publisher("one")
    path.write_text("o 1\np 0\np 1\na 0 0:0:-1:-1\na 1 0:1:-1:-1\np 2\na 2 0:2")
    assert Publisher.of("one", path) == FIRST
    path.write_text(path.read_text() + ":-1:-1\nd\n")
    assert Publisher.of("one", path) == replace(FIRST, acknowledged=FIRST.acknowledged | {2: MessageId(0, 2)}, end="d")
