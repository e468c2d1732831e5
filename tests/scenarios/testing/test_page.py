"""docs/using/testing.md: every program on the page is run, every printed line is what pytest prints, every table is complete."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from scenarios.testing import SimulatedWorld, WorldOptions
from scenarios.testing.plugin import pytest_addoption
from tests.scenarios.testing.plugin_runs import run_pytest

pytest_plugins = "pytester"

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "using" / "testing.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))
#: How many runs pass and fail, and what of the page pytest prints.
OUTCOMES = {
    "test_counter": (3, 0),
    "test_marked": (3, 0),
    "test_careless": (0, 3),
    "test_session": (3, 0),
    "test_real": (1, 0),
}


def test_every_block_is_run() -> None:
    assert PAGE.count("```python\n") == len(PROGRAMS)
    assert {name for name in PROGRAMS if name.startswith("test_")} == {*OUTCOMES}


@pytest.mark.deep
@pytest.mark.parametrize("name", OUTCOMES)
def test_program(pytester: pytest.Pytester, name: str) -> None:
    for other in ("counter", name):
        pytester.makepyfile(**{other: f"# {other}.py\n{PROGRAMS[other]}"})
    pytester.syspathinsert()
    result = run_pytest(pytester, None, f"{name}.py", "--bk-seeds=3")
    passed, failed = OUTCOMES[name]
    result.assert_outcomes(passed=passed, failed=failed)
    shown = re.search(rf"```python\n# {name}\.py\n.*?```\n(.*?)(?:```python|\n## |\Z)", PAGE, re.DOTALL)
    assert shown is not None
    for block in re.findall(r"```text\n(.*?)```", shown[1], re.DOTALL):
        wanted = [f"*{line.replace('[', '[[]').replace('...', '*')}*" for line in block.splitlines() if line != "..."]
        result.stdout.fnmatch_lines(wanted)


def test_options_and_methods_are_all_on_the_page(pytester: pytest.Pytester) -> None:
    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    options = {name for option in parser.getgroup("bkclient").options for name in option.names()}
    assert options == {*re.findall(r"`(--bk-[a-z]+)", PAGE)}
    section = PAGE.split("| option | means | default |")[1].split("\n\n")[0]
    assert {"seeds", *(field.name for field in fields(WorldOptions))} == {
        *re.findall(r"^\| `(\w+)` ", section, re.MULTILINE)
    }
    table = PAGE.split("| `bk_world.` | does |")[1].split("\n\n")[0]
    methods = {name for name in vars(SimulatedWorld) if not name.startswith("_")}
    for_everyone_else = {"close", "finish", "digest", "history", "process"}
    assert (methods | {"seed"}) - for_everyone_else == {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)", "|".join(row.split("|")[:2]))
    }
