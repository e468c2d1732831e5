"""Follows docs/using/testing.md as an author of an application would: its programs, its commands, and the replay of a failure.

In the order of the page: a block of Python is saved under the name in its first line, an indented line is run, and the block of
text below it has to be among what it prints. Where pytest says ``again:`` that command is run, and has to show the same failure.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tools.following import ROOT, FollowingError, run

__all__ = ["PAGE", "Command", "Done", "Program", "Steps", "follow", "is_in", "steps_of"]

PAGE: Final = ROOT / "docs" / "using" / "testing.md"
_STEP: Final = re.compile(
    r"^```python\n# (?P<name>\w+\.py)\n(?P<program>.*?)^```$"
    r"|^ {4}(?P<line>(?:pip|pytest) [^\n]*)$"
    r"|^```text\n(?P<shown>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True)
class Program:
    """A program to save under ``name``."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command to run; ``shown`` are lines of what it prints."""

    line: str
    shown: str = ""

    @property
    def fails(self) -> bool:
        """Whether the page shows how to run it again because it fails."""
        return "again:" in self.shown


@dataclass(frozen=True)
class Steps:
    """The line that installs, and what follows it on the page, in order."""

    install: str
    others: tuple[Program | Command, ...]


@dataclass(frozen=True)
class Done:
    """A command that was run, and what it printed; of one that fails, the failure."""

    command: str
    printed: str
    is_replay: bool = False


def steps_of(page: str) -> Steps:
    """What the page says to do; :class:`FollowingError` if it does not install first, or shows no test that fails."""
    steps: list[Program | Command] = []
    for found in _STEP.finditer(page):
        if found["name"]:
            steps.append(Program(found["name"], f"# {found['name']}\n{found['program']}"))
        elif found["line"]:
            steps.append(Command(found["line"]))
        elif steps and isinstance(steps[-1], Command):
            steps[-1] = Command(steps[-1].line, found["shown"])
    install = steps[0] if steps else None
    if not isinstance(install, Command) or not install.line.startswith("pip install "):
        raise FollowingError("the page does not begin with a line that installs")
    if not any(isinstance(step, Command) and step.fails for step in steps):
        raise FollowingError("the page shows no test that fails and is run again")
    return Steps(install.line, tuple(steps[1:]))


def is_in(printed: str, shown: str) -> bool:
    """Whether the lines ``shown`` are parts of printed ones in their order; ``...`` stands for any text, or for other lines."""
    lines = iter(printed.splitlines())
    for wanted in shown.splitlines():
        pattern = ".*?".join(re.escape(part) for part in wanted.split("..."))
        if wanted != "..." and not any(re.search(pattern, line) for line in lines):
            return False
    return True


def follow(
    steps: Steps, environment: dict[str, str], folder: Path, shell: dict[str, str] | None = None
) -> Iterator[Done]:
    """Do everything after the installation; a test that fails is run again by the command that it names.

    ``shell`` is an environment with the command that shows histories, which ``bkclient[test]`` does not install.
    """
    for step in steps.others:
        if isinstance(step, Program):
            (folder / step.name).write_text(step.text, encoding="utf-8")
        elif step.fails:
            yield from _failure_and_replay(step, environment, folder, shell)
        else:
            printed = run(step.line, environment, folder)
            _check(step.line, printed, step.shown)
            yield Done(step.line, printed)


def _failure_and_replay(
    step: Command, environment: dict[str, str], folder: Path, shell: dict[str, str] | None
) -> Iterator[Done]:
    """The last failure counts, and has to come again."""
    printed = _failing(step.line, environment, folder)
    _check(step.line, printed, step.shown)
    failure = _failure_in(printed)
    yield Done(step.line, "\n".join(failure))
    again = _told(printed, "again")
    repeated = _failing(again, environment, folder)
    _check(again, repeated, "\n".join(failure))
    yield Done(again, "\n".join(_failure_in(repeated)), is_replay=True)
    if shell is not None:
        command = _told(repeated, "history")
        yield Done(command, run(command, shell, folder))


def _check(line: str, printed: str, shown: str) -> None:
    if not is_in(printed, shown):
        raise FollowingError(f"{line!r} does not print\n{shown}\nbut\n{printed}")
    _, _, warned = printed.partition("warnings summary")
    if "site-packages" in warned:
        raise FollowingError(f"{line!r} warns of what is no program of the page:\n{printed}")


def _failing(line: str, environment: dict[str, str], folder: Path) -> str:
    """What a command prints whose tests fail, as pytest says by status 1."""
    command = ["sh", "-c", line]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode != 1 or done.stderr:
        raise FollowingError(f"{line!r} ended with {done.returncode}, not 1:\n{done.stdout}{done.stderr}")
    return done.stdout


def _failure_in(printed: str) -> list[str]:
    """What tells a failure from others, of the last one: what was raised, and the digest of the run."""
    raised = re.findall(r"^E +[^+\s].*$", printed, re.MULTILINE)
    digests = re.findall(r"^seed \d+, .*$", printed, re.MULTILINE)
    if not raised or not digests:
        raise FollowingError(f"pytest shows no failure of a simulated run:\n{printed}")
    return [raised[-1], digests[-1]]


def _told(printed: str, what: str) -> str:
    """The command that pytest names last."""
    commands = re.findall(rf"^{what}: +(.*)$", printed, re.MULTILINE)
    if not commands:
        raise FollowingError(f"pytest names no command for {what!r}:\n{printed}")
    return str(commands[-1])
