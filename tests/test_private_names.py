"""Tests ask what everybody can ask: answers, errors, numbers, snapshots. How often they look inside is counted, and only shrinks.

A test that reaches for an underscored name of another object fails with every change of the inside, and passes where the outside
is wrong. Before a new one is written: is there an answer, an event, a counter or a snapshot that shows the same? Would an
application want to know it, so that it should be public? If neither, the reach belongs into ``tests/bkclient/inside.py``, where
the next change of the inside finds it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.syntax import parsed

ROOT = Path(__file__).resolve().parents[1]
#: What is underscored and public all the same.
PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace"}
#: Where nothing is tested: these look inside, so that nobody else has to, or change programs on purpose.
APART = ("tests/bkclient/inside.py", "tests/bkclient/metadata/zookeeper_inside.py", "tests/tools")

#: By folder, how often tests look inside another object. Lower a number with every reach that goes; never raise one.
ALLOWED: dict[str, int] = {
    "tests": 2,
    "tests/bkclient": 1,
    "tests/bkclient/_client": 11,
    "tests/bkclient/_client/reading": 4,
    "tests/bkclient/_client/writing": 9,
    "tests/bkclient/cli": 3,
    "tests/bkclient/metadata": 7,
    "tests/bkclient/observability": 7,
    "tests/bkclient/placement": 7,
    "tests/bkclient/protocol": 5,
    "tests/bkclient/repair": 17,
    "tests/bkclient/transport": 7,
    "tests/end_to_end": 3,
    "tests/scenarios": 1,
    "tests/simbookie": 4,
    "tests/simbookie/tcp": 13,
    "tests/simbookie/world": 4,
    "tests/simbookie/zookeeper": 4,
    "tests/spark_analysis": 7,
}


def reaches(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each look at an underscored name of another object, or import of one."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"import {alias.name}") for alias in node.names if _is_private(alias.name))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def _is_own(owner: ast.expr) -> bool:
    """Whether an object looks at itself, or at what it inherits."""
    if isinstance(owner, ast.Call):
        return isinstance(owner.func, ast.Name) and owner.func.id == "super"
    return isinstance(owner, ast.Name) and owner.id in {"self", "cls"}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """By folder, every look inside."""
    inside: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(APART):
            folder = inside.setdefault(path.parent.relative_to(ROOT).as_posix(), [])
            folder += [f"{name}:{line}: {what}" for line, what in reaches(path.read_text(encoding="utf-8"))]
    return {folder: lines for folder, lines in inside.items() if lines}


def test_no_test_comes_to_look_inside(found: dict[str, list[str]]) -> None:
    more = {folder: lines for folder, lines in found.items() if len(lines) > ALLOWED.get(folder, 0)}
    assert more == {}, "ask what everybody can ask, or make it public; see the text of this file"


def test_the_list_shrinks_with_what_is_listed(found: dict[str, list[str]]) -> None:
    counts = Counter({folder: len(lines) for folder, lines in found.items()})
    assert {folder: counts[folder] for folder, allowed in ALLOWED.items() if counts[folder] < allowed} == {}, (
        "tests look inside less often than the list allows: lower its numbers to these"
    )


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("writer._shell.window", ["writer._shell"]),
        ("a._b._c", ["a._b._c", "a._b"]),
        ("f(x)[0]._timer", ["f(x)[0]._timer"]),
        ("from bkclient.transport.link import BookieLink, _Lane", ["import _Lane"]),
        ("self._mine; cls._ours; super()._theirs()", []),
        ("point._replace(x=1); os._exit(1); a.__dict__; _helper()", []),
        ("self._client._core", ["self._client._core"]),
    ],
)
def test_a_look_inside_is_seen_and_nothing_else(source: str, seen: list[str]) -> None:
    assert [what for _, what in reaches(source)] == seen
