"""Reports for BookKeeper have all their parts, and name tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "reference" / "upstream-reports.md").read_text(encoding="utf-8")
REPORTS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
PARTS = ("Versions", "Recipe", "Expected", "Seen", "Evidence", "Cause", "Suggestion")


def test_there_are_some() -> None:
    assert len(REPORTS) >= 5


@pytest.mark.parametrize("title", REPORTS)
def test_a_report_can_be_pasted_as_it_is(title: str) -> None:
    assert re.findall(r"^\*\*(\w+)\.\*\* \S", REPORTS[title], re.MULTILINE) == list(PARTS)


@pytest.mark.parametrize("title", REPORTS)
def test_its_evidence_is_a_test(title: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py): (test_\w+)`", REPORTS[title])
    assert named
    for path, test in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"def {test}\(", text), f"{path} has no {test}"
