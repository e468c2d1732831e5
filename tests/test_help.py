"""One style of help: every command of every program shows examples, tells its exit codes, and what it prints as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest
from typer.main import get_command

from bkclient.cli.late import LateCommand

PROGRAMS = {
    "bk": "bkclient.cli.app",
    "bk-sim": "simbookie.cli.app",
    "bk-chaos": "scenarios.cli.app",
    "bk-verify": "spark_analysis.cli.app",
}
#: What ``bk-verify`` prints is a record of its job.
RECORDS = {
    "ingest": "Ingested",
    "verify": "Verdict",
    "check": "CheckVerdict",
    "compare": "Comparison",
    "replay": "ReplayVerdict",
    "sweep": "SweepVerdict",
    "stream": "StreamVerdict",
    "lac": "LacVerdict",
    "analyse": "Analysis",
}


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    for name, inside in getattr(command, "commands", {}).items():
        yield from commands(f"{path} {name}", inside)
    if not getattr(command, "commands", None):
        yield path, command.loaded() if isinstance(command, LateCommand) else command


COMMANDS = [
    each for program, module in PROGRAMS.items() for each in commands(program, get_command(import_module(module).app))
]


def json_fields(text: str) -> set[str]:
    """The names at the top of the object that a help text describes."""
    found = re.search(r"With --json: (\{.*)", text, re.DOTALL)
    assert found is not None
    inside, depth, names = "", 0, set()
    for character in found[1]:
        depth += (character in "{[") - (character in "}]")
        if depth == 0:
            break
        if depth == 1:
            inside += character
    names |= set(re.findall(r'"(\w+)"', inside))
    return names


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])
def test_every_command_tells_what_it_needs_to(path: str, command: Any) -> None:
    text = command.help or ""
    assert re.match(r"[A-Z][^\n]*\.$", text.split("\n\n")[0].replace("\n", " ")), (
        "the first paragraph says what it does"
    )
    examples = re.search(r"Examples?:\n((?:  .*\n?)+)", text)
    assert examples is not None
    program = path.split(maxsplit=1)[0]
    assert all(program in line or line.strip().startswith(("#", "export")) for line in examples[1].splitlines())
    assert re.search(r"Exit codes: 0 ", text)
    has_json = any("--json" in parameter.opts for parameter in command.params)
    assert has_json == ("With --json" in text)


@pytest.mark.parametrize("job", RECORDS)
def test_what_verify_says_of_its_json_is_what_it_prints(job: str) -> None:
    record = getattr(import_module(f"spark_analysis.jobs.{job}"), RECORDS[job])
    text = dict(COMMANDS)[f"bk-verify {job}"].help
    assert json_fields(text) == {field.name for field in fields(record)} | {
        "replay": {"same"},
        "analyse": {"never_met"},
    }.get(job, set())
