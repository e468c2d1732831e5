"""Takes a page of docs as a list of steps, and follows them word by word.

A block of Python or text is a file, saved under the name that the text before it gives ("as `write.py`"). A block ``console``
is what a shell shows: after ``$`` a command, then what it prints; a line that has only ``...`` stands for any lines, and ``...``
in a line for any text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tools.following import ROOT, FollowingError, cluster, run

__all__ = ["PAGE", "Command", "Program", "follow", "is_as_shown", "steps_of"]

PAGE: Final = ROOT / "docs" / "using" / "tutorial.md"
_BLOCK: Final = re.compile(r"(?P<before>.*?)^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME: Final = re.compile(r"as `([\w.]+)`:\s*\Z")


@dataclass(frozen=True)
class Program:
    """A program, or another text, to save under ``name``."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command to run, and what it prints."""

    line: str
    output: str


def steps_of(page: str) -> Iterator[Program | Command]:
    """The steps of a page, in order; :class:`FollowingError` for a block that is neither a program nor a command."""
    for block in _BLOCK.finditer(page):
        if block["kind"] in {"python", "text"}:
            name = _FILE_NAME.search(block["before"])
            if name is None:
                raise FollowingError(f"the text does not say under which name to save:\n{block['text']}")
            yield Program(name[1], block["text"])
        elif block["kind"] == "console" and block["text"].startswith("$ "):
            for shown in block["text"].removeprefix("$ ").split("\n$ "):
                line, _, output = shown.partition("\n")
                yield Command(line, output if output.endswith("\n") or not output else f"{output}\n")
        else:
            raise FollowingError(f"neither a program nor a command:\n{block[0]}")


def is_as_shown(printed: str, shown: str) -> bool:
    """Whether something printed is what a page shows, where ``...`` stands for anything."""
    pattern = ""
    for line in shown.splitlines(keepends=True):
        pattern += r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line).replace(re.escape("..."), ".*?")
    return re.fullmatch(pattern, printed) is not None


def follow(page: str, environment: dict[str, str], folder: Path) -> Iterator[tuple[Command, str]]:
    """Save the files and run the commands, but ``pip``; yields each command with what it printed.

    ``bk-sim cluster`` goes on to the end of the page; commands after it have its cluster in their environment.
    """
    with ExitStack() as running:
        for step in steps_of(page):
            if isinstance(step, Program):
                (folder / step.name).write_text(step.text, encoding="utf-8")
            elif step.line.startswith("bk-sim cluster"):
                export = running.enter_context(cluster(step.line, environment, folder))
                (assignment,) = shlex.split(export.removeprefix("export "))
                name, _, value = assignment.partition("=")
                environment = {**environment, name: value}
            elif not step.line.startswith("pip "):
                yield step, run(step.line, environment, folder)
