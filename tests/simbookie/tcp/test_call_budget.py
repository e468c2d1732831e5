"""How many Python calls a served bookie makes for one add: exact, because time on a busy machine tells nothing.

The shipped client appends over the shipped wire protocol in virtual time, so every run makes the same calls.
``call_budget.toml`` says how many an add may make at each of its bookies; a change that needs more, or fewer, edits it.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tests.bkclient.test_call_budget import ENTRIES, SLACK, appends, calls_of

BUDGETS: dict[str, float] = tomllib.loads(Path(__file__).with_name("call_budget.toml").read_text())["calls"]
#: The write quorum of a new ledger.
REPLICAS = 2


@pytest.mark.parametrize("name", BUDGETS)
def test_an_add_makes_the_calls_it_may(name: str) -> None:
    version, size = name.removeprefix("add ").split(" ")
    calls = calls_of(appends, int(version[1:]), bytes(int(size))).of_bookies / ENTRIES / REPLICAS
    assert calls <= BUDGETS[name], "more calls than before; if they are worth it, raise the budget"
    if sys.version_info < (3, 12):
        assert calls > BUDGETS[name] - SLACK, "fewer calls than before; lower the budget, so that it stays so"


def test_calls_of_bookies_are_counted() -> None:
    """The witness counts: a bookie cannot take an add without any call."""
    assert calls_of(appends, 3, b"entry").of_bookies >= ENTRIES * REPLICAS
