"""docs/using/sync.md: every program on the page is run, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bkclient.sync
from scenarios.testing import TcpCluster

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "using" / "sync.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_programs_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) == PAGE.count("```python")
    with TcpCluster(3) as cluster:
        names: dict[str, object] = {"uri": cluster.uri, "bkclient": bkclient}
        for program, printed in BLOCKS:
            exec(compile(program, "sync.md", "exec"), names)
            assert capsys.readouterr().out == printed
