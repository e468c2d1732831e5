"""Every command line on a page names a command that there is, with options that it has."""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import Any

import pytest
import typer.main

from bkclient.cli.late import LateCommand
from tests.test_links import PAGES
from tests.test_tidy import ROOT

APPLICATIONS = {
    "bk": "bkclient.cli.app",
    "bk-sim": "simbookie.cli.app",
    "bk-chaos": "scenarios.cli.app",
    "bk-verify": "spark_analysis.cli.app",
}
_LINE = re.compile(r"^(?:    |\$ )(?:.*\| )?((?:bk|bk-sim|bk-chaos|bk-verify) [^|#\n]*)", re.MULTILINE)
_INLINE = re.compile(r"`((?:bk|bk-sim|bk-chaos|bk-verify) [^`\n|]+)`")
_WORD = re.compile(r"[a-z][a-z-]*")


def shown(text: str) -> list[str]:
    """Command lines in blocks and in prose."""
    return [
        line for line in (*_LINE.findall(text), *_INLINE.findall(text)) if " = " not in line and "await" not in line
    ]


def command_of(program: str) -> Any:
    """The tree of commands of a program."""
    return typer.main.get_command(importlib.import_module(APPLICATIONS[program]).app)


@cache
def loaded(command: Any) -> Any:
    """The command itself, for one that is imported when it is run."""
    return command.loaded() if isinstance(command, LateCommand) else command


def mistakes(line: str, root: Any) -> list[str]:
    """Words of a command line that are no command or option of its program, whose tree is ``root``."""
    _, *words = line.replace('"', " ").replace("'", " ").split()
    command, found = root, []
    for word in words:
        if word.startswith("--"):
            names = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {
                "--help",
                "--version",
            }
            if re.match(r"--[a-z0-9-]+", word)[0] not in names:  # type: ignore[index]
                found.append(word)
        elif hasattr(command, "commands"):
            if word in command.commands:
                command = loaded(command.commands[word])
            elif _WORD.fullmatch(word):
                found.append(word)
    return found


def test_every_command_that_a_page_shows_is_there() -> None:
    pytest.importorskip("pyspark", reason="bk-verify needs it")
    trees = {program: command_of(program) for program in APPLICATIONS}
    wrong, count = [], 0
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # it tells of what was
            continue
        for line in shown(page.read_text(encoding="utf-8")):
            count += 1
            wrong += [
                f"{page.relative_to(ROOT)}: {line.strip()}: {word}" for word in mistakes(line, trees[line.split()[0]])
            ]
    assert wrong == []
    assert count > 150


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("bk-sim cluster --bookies 3 --ui", []),
        ("bk-sim clusters", ["clusters"]),
        ("bk-sim cluster --bookie 3", ["--bookie"]),
    ],
)
def test_a_command_that_is_not_there_is_noticed(line: str, wrong: list[str]) -> None:
    assert mistakes(line, command_of("bk-sim")) == wrong
