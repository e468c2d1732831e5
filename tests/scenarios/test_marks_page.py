"""The page on marks of coverage lists every situation as the code has it."""

from __future__ import annotations

import re
from pathlib import Path

from scenarios.situations import SITUATIONS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "marks.md").read_text(encoding="utf-8")


def test_the_page_has_every_situation_with_its_meaning() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", PAGE, re.MULTILINE)
    wanted = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in SITUATIONS.items())
    assert dict(rows) == dict(SITUATIONS), f"the page should say:\n{wanted}"
    assert f"There are {len(SITUATIONS)}." in PAGE
