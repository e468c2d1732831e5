"""docs/using/served-bookie.md lists every setting of a served bookie, with its default."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from simbookie.cli.app import app
from simbookie.config import BookieConfig
from simbookie.server import ServerConfig

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "using" / "served-bookie.md").read_text(encoding="utf-8")
CELLS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| `")]
#: Default and option by setting.
ROWS = {cells[0].strip("`"): (cells[1], cells[3]) for cells in CELLS}
#: What stands for a default that is no number.
WORDS = {None: {"half of all", "none"}, True: {"true"}, False: {"false"}}
FIELDS = [*dataclasses.fields(ServerConfig), *dataclasses.fields(BookieConfig)]


def options(command: str) -> set[str]:
    group: Any = typer.main.get_command(app)
    return {flag for option in group.commands[command].loaded().params for flag in option.opts}


def test_the_page_lists_every_setting_and_no_other() -> None:
    assert list(ROWS) == [field.name for field in FIELDS]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_the_page_tells_the_default(field: dataclasses.Field[Any]) -> None:
    told, default = ROWS[field.name][0], field.default
    if isinstance(default, bool) or default is None:
        assert told in WORDS[default]
    else:
        assert float(told.replace(" ", "")) == default


@pytest.mark.parametrize("name", list(ROWS))
def test_the_options_it_names_exist(name: str) -> None:
    for flag in re.findall(r"--[a-z-]+", ROWS[name][1]):
        assert flag in options("bookie")
        assert flag in options("cluster") or flag == "--data"  # one bookie's folder
