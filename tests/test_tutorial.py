"""The tutorial does what it says, word by word; so do the recipes."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import bkclient
from simbookie.cluster import memory_cluster
from tests.test_readme import ENVIRONMENT
from tests.tools.newcomer import NewcomerError
from tests.tools.tutorial import PAGE, Command, Program, follow, steps_of


@pytest.mark.deep
def test_the_tutorial_can_be_followed_word_by_word(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    followed = 0
    for command, printed in follow(page, ENVIRONMENT, tmp_path):
        assert printed == command.output, command.line
        followed += 1
    assert followed >= 6


def test_programs_have_the_names_that_commands_use() -> None:
    steps = list(steps_of(PAGE.read_text(encoding="utf-8")))
    saved = {step.name for step in steps if isinstance(step, Program)}
    used = {step.line.split()[1] for step in steps if isinstance(step, Command) and step.line.startswith("python ")}
    assert saved == used


@pytest.mark.parametrize(
    "page",
    [
        "```python\npass\n```\n",
        "Save it as `x.py`, please:\n\n```sh\nls\n```\n",
        "```console\nls\n```\n",
    ],
)
def test_a_block_that_is_no_step_is_noticed(page: str) -> None:
    with pytest.raises(NewcomerError):
        list(steps_of(page))


def test_a_page_that_starts_no_cluster_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(NewcomerError, match="does not start a cluster"):
        list(follow("```console\n$ echo 1\n1\n```\n", ENVIRONMENT, tmp_path))


RECIPES = PAGE.with_name("recipes.md").read_text(encoding="utf-8")
#: Pages whose blocks are run in order, in one scope, in which ``bk`` is a client.
PAGES_OF_BLOCKS = ("recipes.md", "log.md", "coordination.md")


def test_every_recipe_is_run() -> None:
    assert len(blocks_of(RECIPES)) == 1 + RECIPES.count("\n## ")


def blocks_of(page: str) -> list[tuple[str, str]]:
    """Programs, and what is printed below them."""
    return re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", PAGES_OF_BLOCKS)
async def test_every_block_prints_what_stands_below_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with memory_cluster() as uri, bkclient.connect(uri) as bk:
        scope: dict[str, Any] = {"uri": uri}
        for text, printed in blocks_of(PAGE.with_name(name).read_text(encoding="utf-8")):
            scope["bk"] = bk
            code = compile(text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, scope)
            if running is not None:
                await running
            assert capsys.readouterr().out == printed, text
