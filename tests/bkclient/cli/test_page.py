"""The page on commands and the commands say the same: commands, options, fields of JSON, exit codes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from bkclient.cli import running
from bkclient.cli.app import app
from tests.bkclient.cli.invoking import invoke

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "using" / "commands.md").read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """The parts of the page that are about one command each."""
    parts = re.split(r"^## (bk .*)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@cache
def commands() -> dict[str, Any]:
    """The commands by name, with all that they import: not before a test asks, for every process collects this module."""

    def walk(command: Any, path: str) -> dict[str, Any]:
        children: dict[str, Any] = getattr(command, "commands", {})
        if not children:
            return {path: command.loaded()}
        found: dict[str, Any] = {}
        for name, child in children.items():
            found |= walk(child, f"{path} {name}")
        return found

    return walk(typer.main.get_command(app), "bk")


SECTIONS = sections(PAGE)


def options_of(command: Any) -> set[str]:
    return {
        option
        for parameter in command.params
        if parameter.param_type_name == "option" and parameter.name != "help"
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


def options_named(section: str) -> set[str]:
    """Options where a section lists them: in the first column of its table, and in the sentence below it."""
    cells = re.findall(r"^\| (`-.*?) \|", section, flags=re.MULTILINE)
    sentence = re.search(r"^(?:Also|Options:)(.*?)\.$", section, flags=re.MULTILINE | re.DOTALL)
    return {*re.findall(r"`(-[-\w]+)`", " ".join([*cells, sentence[1] if sentence else ""]))}


def fields_named(text: str) -> set[str]:
    return {*re.findall(r'["`]([a-zA-Z]+)["`]', text)}


def test_the_page_is_about_the_commands_there_are() -> None:
    assert sorted(SECTIONS) == sorted(commands())


@pytest.mark.parametrize("name", SECTIONS)
def test_the_page_lists_the_options_of_each_command(name: str) -> None:
    assert options_named(SECTIONS[name]) == options_of(commands()[name])


@pytest.mark.parametrize("name", SECTIONS)
def test_the_help_of_each_command_mentions_the_options_on_the_page(name: str) -> None:
    shown = invoke(*name.split()[1:], "--help").text

    assert [option for option in options_named(SECTIONS[name]) if option not in shown] == []


@pytest.mark.parametrize("name", SECTIONS)
def test_page_and_help_list_the_same_fields_of_json(name: str) -> None:
    page = re.split(r"\.\s|; needs", SECTIONS[name].partition("\nJSON: ")[2])[0]
    shown = invoke(*name.split()[1:], "--help").text.partition("With --json")[2].partition("Arguments:")[0]

    assert page
    if "as `bk" not in page:
        assert fields_named(page) - {"state", "long"} == fields_named(shown) - {"state", "long"}


def test_every_command_is_told_where_the_cluster_is_in_the_same_way() -> None:
    assert [
        name
        for name, command in commands().items()
        if not {"--metadata", "-m", "--config", "-c"} <= options_of(command)
    ] == []


def test_the_exit_codes_of_the_page_are_those_of_the_program() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)}

    assert documented == {0, *(value for name, value in vars(running).items() if name.startswith("EXIT_"))}


def test_an_option_that_is_missing_on_the_page_would_be_noticed() -> None:
    section = SECTIONS["bk ledger read"]

    assert options_named(section.replace("`--first`", "first")) == options_of(commands()["bk ledger read"]) - {
        "--first"
    }
    assert options_named(section.replace("`--json`", "")) == options_of(commands()["bk ledger read"]) - {"--json"}
