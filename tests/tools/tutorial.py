"""Takes docs/using/tutorial.md as a list of steps, and follows them word by word.

A block of Python is a program, saved under the name that the text before it gives ("as `write.py`"). A block ``console`` is what
a shell shows: after ``$`` a command, then what it prints.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tools.newcomer import ROOT, NewcomerError, cluster, run

__all__ = ["PAGE", "Command", "Program", "follow", "steps_of"]

PAGE: Final = ROOT / "docs" / "using" / "tutorial.md"
_BLOCK: Final = re.compile(r"(?P<before>.*?)^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME: Final = re.compile(r"as `([\w.]+)`:\s*\Z")


@dataclass(frozen=True)
class Program:
    """A program to save under ``name``."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command to run, and what it prints."""

    line: str
    output: str


def steps_of(page: str) -> Iterator[Program | Command]:
    """The steps of a page, in order; :class:`NewcomerError` for a block that is neither a program nor a command."""
    for block in _BLOCK.finditer(page):
        if block["kind"] == "python":
            name = _FILE_NAME.search(block["before"])
            if name is None:
                raise NewcomerError(f"the text does not say under which name to save:\n{block['text']}")
            yield Program(name[1], block["text"])
        elif block["kind"] == "console" and block["text"].startswith("$ "):
            for shown in block["text"].removeprefix("$ ").split("\n$ "):
                line, _, output = shown.partition("\n")
                yield Command(line, output)
        else:
            raise NewcomerError(f"neither a program nor a command:\n{block[0]}")


def follow(page: str, environment: dict[str, str], folder: Path) -> Iterator[tuple[Command, str]]:
    """Save the programs and run the commands, but ``pip``; yields each command after the start with what it printed."""
    steps = [step for step in steps_of(page) if not (isinstance(step, Command) and step.line.startswith("pip "))]
    start = steps[0]
    if not isinstance(start, Command) or not start.line.startswith("bk-sim cluster"):
        raise NewcomerError(f"the first step does not start a cluster: {start}")
    with cluster(start.line, environment, folder) as export:
        (assignment,) = shlex.split(export.removeprefix("export "))
        name, _, value = assignment.partition("=")
        for step in steps[1:]:
            if isinstance(step, Program):
                (folder / step.name).write_text(step.text, encoding="utf-8")
            else:
                yield step, run(step.line, {**environment, name: value}, folder)
