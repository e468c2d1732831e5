"""The page on verification and ``bk-verify`` say the same: commands, options, exit codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from spark_analysis import defaults
from spark_analysis.cli.app import app
from spark_analysis.jobs.files import REJECTED_MAX

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "using" / "verification.md").read_text(encoding="utf-8")
PARTS = re.split(r"^## bk-verify (\w+)$", PAGE, flags=re.MULTILINE)
SECTIONS = dict(zip(PARTS[1::2], PARTS[2::2], strict=True))
GROUP: Any = typer.main.get_command(app)
COMMANDS = {name: command.loaded() for name, command in GROUP.commands.items()}


def options_of(command: Any) -> dict[str, Any]:
    return {
        parameter.opts[0]: parameter.default
        for parameter in command.params
        if parameter.param_type_name == "option" and parameter.name != "help"
    }


def test_the_page_is_about_the_commands_there_are() -> None:
    assert list(SECTIONS) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_lists_the_options_of_each_command_with_their_defaults(name: str) -> None:
    rows = dict(re.findall(r"^\| `(--[-\w]+)` \| (.*) \|$", SECTIONS[name].partition("\n## ")[0], re.MULTILINE))
    options = options_of(COMMANDS[name])
    assert rows.keys() == options.keys()
    for option, default in options.items():
        if isinstance(default, int) and not isinstance(default, bool):
            assert rows[option].endswith(f"({default})")


def test_the_page_lists_the_exit_codes() -> None:
    codes = {value for name, value in vars(defaults).items() if name.startswith("EXIT_")}
    assert {int(code) for code in re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)} == codes | {0}


def test_the_page_tells_the_limits() -> None:
    assert f"at most {REJECTED_MAX:,} files" in PAGE
