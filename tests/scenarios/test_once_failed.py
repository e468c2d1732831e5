"""Plans that failed once, each for a reason that its comment tells: they hold now, here and over bytes, and are specified."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.history import read_history
from scenarios.model import TransportKind
from scenarios.plan import parse_plan
from scenarios.runner import run_plan
from scenarios.specification.histories.conformance import conform_history

PLANS = sorted(Path(__file__).with_name("once_failed").glob("*.scn"))


@pytest.mark.parametrize("transport", TransportKind)
@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_that_failed_holds(path: Path, transport: TransportKind, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    plan = parse_plan(text, path.name)
    assert plan.name == path.stem
    assert "\n# " in text, "a comment says what failed"
    for seed in range(3):
        result = run_plan(plan, seed, transport=transport, record=tmp_path)
        assert (result.verdict, result.problem, result.violations) == ("ok", "", ()), f"seed {seed}"
        _, events = read_history(result.path)
        assert [str(one) for one in conform_history(events).wrong] == [], f"seed {seed}"


def test_there_are_some() -> None:
    assert PLANS
