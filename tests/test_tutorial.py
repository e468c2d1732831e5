"""The tutorial does what it says, word by word; so do other pages that are followed, and the recipes."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import bkclient
from bkclient import ClientConfig
from simbookie.cluster import memory_cluster
from tests.test_readme import ENVIRONMENT
from tests.tools.following import FollowingError
from tests.tools.tutorial import PAGE, Command, Program, follow, is_as_shown, steps_of

#: Pages that are followed word by word, and how many commands each has at least.
FOLLOWED = {
    "start/five-minutes.md": 4,
    "guides/chaos.md": 2,
    "guides/operator.md": 9,
    "using/tutorial.md": 6,
    "using/chaos.md": 9,
    "guides/data.md": 4,
}
DOCS = PAGE.parent.parent

#: The bookies are in this process, which may get little of a busy machine.
PATIENT = ClientConfig().with_changes(timeouts={"add_s": 60.0, "read_s": 60.0, "metadata_session_s": 60.0})


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.spark, pytest.mark.sweep] if name == "guides/data.md" else [])
        for name in FOLLOWED
    ],
)
def test_the_page_can_be_followed_word_by_word(name: str, tmp_path: Path) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    followed = 0
    for command, printed in follow(page, ENVIRONMENT, tmp_path):
        assert is_as_shown(printed, command.output), f"{command.line} printed\n{printed}"
        followed += 1
    assert followed >= FOLLOWED[name]


@pytest.mark.parametrize(
    ("printed", "shown", "is_same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\n", False),
        ("a\nb\nc\n", "a\n...\n", True),
        ("a\n", "a\n...\n", True),
        ("a\nb\nc\n", "...\nb\n", False),
        ("in 0.3 s (so)\n", "in ... s (so)\n", True),
        ("in 0.3\n4 s\n", "in ... s\n", False),
    ],
)
def test_what_is_printed_is_compared_with_what_is_shown(printed: str, shown: str, *, is_same: bool) -> None:
    assert is_as_shown(printed, shown) == is_same


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
    with pytest.raises(FollowingError):
        list(steps_of(page))


RECIPES = PAGE.with_name("recipes.md").read_text(encoding="utf-8")
#: Pages whose blocks are run in order, in one scope, in which ``uri`` is that of a cluster, and ``bk`` a client
#: where the first block makes none.
PAGES_OF_BLOCKS = ("using/recipes.md", "using/log.md", "using/coordination.md", "guides/application.md")


def test_every_recipe_is_run() -> None:
    assert len(blocks_of(RECIPES)) == 1 + RECIPES.count("\n## ")


def blocks_of(page: str) -> list[tuple[str, str]]:
    """Programs, and what is printed below them."""
    return re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", PAGES_OF_BLOCKS)
async def test_every_block_prints_what_stands_below_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with memory_cluster() as uri, bkclient.connect(uri, config=PATIENT) as bk:
        scope: dict[str, Any] = {"uri": uri}
        blocks = blocks_of((DOCS / name).read_text(encoding="utf-8"))
        makes_one = "\nbk = " in blocks[0][0]
        for text, printed in blocks:
            if not makes_one:
                scope["bk"] = bk
            code = compile(text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, scope)
            if running is not None:
                await running
            assert capsys.readouterr().out == printed, text
        if makes_one:
            await scope["bk"].aclose()
