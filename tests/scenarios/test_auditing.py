"""What client and bookies take from the real world is named, by file and line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

import scenarios.set_order
from scenarios.auditing import audit_runs
from scenarios.model import TransportKind
from scenarios.set_order import with_looks
from scenarios.testing.entropy import Audit
from tests.scenarios.test_cli import as_json, bk_chaos
from tests.test_tidy import ROOT

PLANTED = """\
        import random, threading, time, uuid
        things = {object(), object()}
        for thing in things:
            assert thing
        time.monotonic()
        random.random()
        uuid.uuid4()
        threading.Thread(target=int).start()
        id(things)
        assert len(list(things)) == 2 and sorted(map(str, {"a", "b"}))
        {object(), object()}.pop()
"""


@pytest.mark.deep
def test_nothing_that_is_shipped_uses_the_real_world() -> None:
    for transport in TransportKind:
        result = audit_runs(range(2), ["calm-writes", "swarm"], transport=transport, in_turn=True, processes=2)
        assert (result.runs, result.uses) == (2, ())


@pytest.mark.deep
def test_what_a_bookie_takes_from_the_real_world_is_named_by_file_and_line(tmp_path: Path) -> None:
    """In a copy of the packages; each use has a line of its own."""
    for package in ("bkclient", "simbookie", "scenarios"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "simbookie" / "bookie.py"
    lines = source.read_text().splitlines(keepends=True)
    (start,) = [number for number, line in enumerate(lines) if line.startswith("    def submit(")]
    body = next(number for number in range(start, len(lines)) if lines[number].rstrip().endswith('"""')) + 1
    source.write_text("".join([*lines[:body], PLANTED, *lines[body:]]))
    task = {"runs": [["calm-writes", 0]], "transport": "objects", "plans": {}}
    child = subprocess.run(
        [sys.executable, "-m", "scenarios.auditing"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    )
    told = {line - body: sentence for file, line, sentence in json.loads(child.stdout) if file == "simbookie/bookie.py"}
    assert {line: sentence.partition(" is ")[0] for line, sentence in told.items()} == {
        3: "iteration over a set of plain objects",
        5: "time.monotonic",
        6: "random.random",
        7: "uuid.uuid4",
        8: "threading.Thread.start",
        9: "id",
        10: "iteration over a set of plain objects",
        11: "set.pop of plain objects",
    }


def test_the_command_tells_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [("bkclient/entry.py", 7, "time.time is a real clock")]
    monkeypatch.setattr("scenarios.auditing.audited", lambda _unit: found)
    options = ("calm-writes", "--seeds", 3, "--first-seed", 0, "--processes", 1, "--audit")
    result = bk_chaos("determinism", *options)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "3 runs of 3 seeds from 0 on, 1 places that use the real world",
        "bkclient/entry.py:7: time.time is a real clock",
    ]
    shown = as_json("determinism", *options, code=1)
    assert shown == {
        "runs": 3,
        "real_uses": [{"file": "bkclient/entry.py", "line": 7, "sentence": "time.time is a real clock"}],
    }
    refused = bk_chaos("determinism", *options, "--hash-seeds", 2)
    assert (refused.exit_code, "leave --mutant, --python and --hash-seeds out" in refused.stderr) == (2, True)


class Plain:
    """Hashed by its address."""


def looks(program: str, monkeypatch: pytest.MonkeyPatch, **names: Any) -> list[int]:
    """The lines of a program at which the order of a set is looked at and matters."""
    found: list[int] = []
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    scenarios.set_order.install((), lambda file, line: found.append(line) if file == "program" else None)
    exec(with_looks(program, "program"), {"things": {Plain(), Plain()}, "names": {"a", "b"}, **names})
    return found


@pytest.mark.parametrize(
    "line",
    [
        "for thing in things: pass",
        "[thing for thing in things]",
        "{thing: 1 for thing in things}",
        "next(thing for thing in things)",
        "next(iter(things))",
        "list(things)",
        "tuple(things)",
        "dict.fromkeys(things)",
        "[*things]",
        "print(*things, end='')",
        "one, other = things",
        "[].extend(things)",
        "list(zip(things, [1, 2]))",
        "[index for index, _ in enumerate(frozenset(things))]",
        "{1: [thing for thing in things]}",
        "len([list(thing) for thing in [things]])",
    ],
)
def test_a_line_that_depends_on_the_order_of_plain_objects_is_seen(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(f"\n{line}", monkeypatch) == [2]


@pytest.mark.parametrize(
    "line",
    [
        "for name in names: pass",
        "for thing in {Plain()}: pass",
        "{thing for thing in things}",
        "any(thing for thing in things)",
        "sum(1 for thing in things)",
        "len(things), set(things), frozenset(things)",
        "sorted([1 for thing in things])",
        "for thing in list(names): pass",
        "for thing in (1, 2): pass",
        "assert things & things == things",
    ],
)
def test_a_line_that_comes_to_the_same_in_any_order_is_not(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(line, monkeypatch, Plain=Plain) == []


def test_weak_sets_are_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    things = [Plain(), Plain()]
    assert looks("for thing in weak: pass", monkeypatch, weak=WeakSet(things)) == [1]


def test_what_is_audited_is_what_was_named(tmp_path: Path) -> None:
    """A call from elsewhere does not count, nor one of the standard library's for the place that called this place."""
    program = (
        "import copy, random\n\ndef use(also):\n    random.random()\n    copy.deepcopy([1])\n    id(also)\n    also()\n"
    )
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    modules = []
    for folder in (inside, outside):
        folder.mkdir()
        names: dict[str, Any] = {}
        exec(compile(program, str(folder / "program.py"), "exec"), names)
        modules.append(names["use"])
    audit = Audit([str(inside)])
    with audit.listening():
        modules[1](int)
        modules[0](int)
    assert [(use.file, use.line) for use in audit.uses] == [(str(inside / "program.py"), line) for line in (4, 6)]
