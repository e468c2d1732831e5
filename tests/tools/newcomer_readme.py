"""README as a list of steps: install, a program, a cluster, a second program, commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tools.following import ROOT, FollowingError, cluster, run

__all__ = ["README", "Steps", "follow", "steps_of"]

README: Final = ROOT / "README.md"


@dataclass(frozen=True)
class Steps:
    """What README tells a newcomer to do, in order; comments of its lines are left out."""

    install: str
    first_program: str
    run_first: str
    start_cluster: str
    second_program: str
    run_second: str
    commands: tuple[str, ...]


def _section(page: str, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise FollowingError(f"README has no section {title!r}")
    return found[1]


def _shell_lines(text: str) -> list[str]:
    lines = re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return [re.sub(r"\s{2,}#.*", "", line) for line in lines]


def _program(text: str) -> str:
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    if found is None:
        raise FollowingError("README shows no program")
    return found[1]


def steps_of(page: str) -> Steps:
    """The steps in README's text; :class:`FollowingError` if it is not built as expected."""
    first, with_cluster = _section(page, "A first program"), _section(page, "With a cluster")
    (install,) = _shell_lines(_section(page, "Install"))
    (run_first,) = _shell_lines(first)
    start, run_second, *commands = _shell_lines(with_cluster)
    if not commands:
        raise FollowingError("README shows no command after the programs")
    return Steps(install, _program(first), run_first, start, _program(with_cluster), run_second, tuple(commands))


def follow(steps: Steps, environment: dict[str, str], folder: Path) -> Iterator[tuple[str, str]]:
    """Do everything after the installation; yields each command with what it printed."""
    (folder / "first.py").write_text(steps.first_program)
    (folder / "second.py").write_text(steps.second_program)
    yield steps.run_first, run(steps.run_first, environment, folder)
    with cluster(steps.start_cluster, environment, folder) as export:
        yield steps.start_cluster, export
        name, _, value = export.removeprefix("export ").partition("=")
        environment = {**environment, name: value}
        for command in (steps.run_second, *steps.commands):
            yield command, run(command, environment, folder)
