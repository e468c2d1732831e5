"""The parts of ``make mutation`` name modules and tests that are there, and no machine, shell or transport is in none."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tools.mutation import ALSO_COPIED, PARTS, ROOT

#: What the parts are to cover between them.
COVERED = ("bkclient/protocol", "bkclient/_client/reading", "bkclient/_client/writing", "bkclient/transport")


@pytest.mark.parametrize("name", PARTS)
def test_every_pattern_of_a_part_is_of_something(name: str) -> None:
    part = PARTS[name]
    for pattern in part.modules:
        assert list(ROOT.glob(pattern)), f"{pattern} matches no module"
    for test in part.tests:
        assert (ROOT / test.removeprefix("--ignore=")).exists(), f"{test} is not there"


@pytest.mark.parametrize("package", COVERED)
def test_every_module_that_was_promised_is_in_a_part(package: str) -> None:
    held = {path for part in PARTS.values() for pattern in part.modules for path in ROOT.glob(pattern)}
    assert set((ROOT / package).glob("*.py")) <= held


def imported_packages(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("name", PARTS)
def test_what_the_tests_of_a_part_import_is_in_the_copy(name: str) -> None:
    """Or they cannot be collected there, and no mutant has a test."""
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {"bkclient", "simbookie", "scenarios", "spark_analysis"} <= ours
    copied = {"bkclient", "tests", *ALSO_COPIED}
    for test in PARTS[name].tests:
        where = ROOT / test
        for path in [] if test.startswith("--") else [where] if where.is_file() else where.rglob("*.py"):
            assert imported_packages(path) & ours <= copied, path
