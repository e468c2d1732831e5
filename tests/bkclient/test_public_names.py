"""Public names: docs/reference/api.md lists what may be imported, it shows under that name, and no name means two things."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import typing
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.tools.syntax import parsed

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
PACKAGES = ("bkclient", "simbookie", "scenarios", "spark_analysis")
#: A rule of docs/reference/conformance.md; they belong to machines and tests.
RULE = re.compile(r"\b(?:API|DEL|DS|ERR|H|LAC|MD|NR|PL|R|REC|RO|T|W)-\d+\b")
#: Mutants replace private code on purpose: a planted defect is one in the code that is shipped. Measurements
#: have both cores take turns in one process, which nobody else has a use for.
MAY_REACH_INSIDE = ("scenarios/mutants/", "benchmarks/measuring.py")


def listed() -> dict[str, dict[str, str]]:
    """Names and meanings by module, as the page lists them."""
    found: dict[str, dict[str, str]] = {}
    for section in PAGE.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if title.startswith("`"):
            found[title.strip("`")] = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE))
    return found


LISTED = listed()
NAMES = [(module, name) for module, names in LISTED.items() for name in names]
#: Single names of modules whose other names are private: development clusters, and what notebooks begin with.
SINGLE = dict(re.findall(r"^\| `([\w.]+\.\w+)` \| (.+) \|$", PAGE.split("\n## ")[0], re.MULTILINE))
#: Shows the parts of this project at work, not how an application uses them.
SHOWS_THE_PROJECT = ("examples/demo.py",)


@pytest.fixture(scope="module", autouse=True)
def syntax_is_read_once() -> Iterator[None]:
    yield
    syntax.cache_clear()  # it is large


@functools.cache
def syntax(path: Path) -> ast.Module:
    return parsed(path.read_text(encoding="utf-8"))


def sources(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.name.endswith("_pb2.py"):
                yield path.relative_to(ROOT).as_posix(), syntax(path)


def first_sentence(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


@pytest.mark.parametrize("module", LISTED)
def test_the_page_lists_what_a_public_module_exports(module: str) -> None:
    assert sorted(LISTED[module]) == sorted(import_module(module).__all__)


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[f"{module}.{name}" for module, name in NAMES])
def test_a_public_name_is_explained_and_shows_under_a_public_module(module: str, name: str) -> None:
    value = getattr(import_module(module), name)
    if getattr(value, "__name__", None) != name or isinstance(value, ModuleType):
        assert LISTED[module][name]  # values and aliases are explained on the page only
        return
    assert not any(part.startswith("_") for part in value.__module__.split(".")), value.__module__
    assert LISTED[module][name] == first_sentence(value).replace("|", "\\|")
    if not inspect.isclass(value):
        return
    for member, inside in vars(value).items():
        if not member.startswith("_") and (inspect.isfunction(inside) or isinstance(inside, property | classmethod)):
            assert inspect.getdoc(getattr(value, member) if not isinstance(inside, property) else inside), member


@pytest.mark.parametrize("path", SINGLE)
def test_a_single_public_name_is_explained(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert name in import_module(module).__all__
    assert SINGLE[path] == first_sentence(getattr(import_module(module), name))


def shown_to_users() -> Iterator[tuple[str, str]]:
    """Every example, and every block of Python on a page."""
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            yield path.relative_to(ROOT).as_posix(), block


def names_that_are_private(source: str) -> list[str]:
    """What a program imports of this project that the page does not list."""
    public = {*LISTED, *SINGLE, *(f"{module}.{name}" for module, name in NAMES)}
    return [name for name in imported(parsed(source)) if name.split(".")[0] in PACKAGES and name not in public]


def test_examples_and_pages_import_public_names_only() -> None:
    shown = [each for each in shown_to_users() if each[0] not in SHOWS_THE_PROJECT]
    assert {path for path, _ in shown} >= {"README.md", "docs/using/tutorial.md", "examples/kv_store.py"}
    assert {path: found for path, source in shown if (found := names_that_are_private(source))} == {}


def test_an_import_of_a_private_name_is_seen() -> None:
    source = "import bkclient.program\nfrom bkclient import connect\nfrom bkclient.log.driver import Driver"
    assert names_that_are_private(source) == ["bkclient.program", "bkclient.log.driver.Driver"]


def test_public_docstrings_name_no_rules() -> None:
    found = []
    for module, name in NAMES:
        value = getattr(import_module(module), name)
        members = [value, *(vars(value).values() if inspect.isclass(value) else ())]
        found += [f"{module}.{name}: {match}" for each in members for match in RULE.findall(_doc(each))]
    assert found == []


def _doc(value: Any) -> str:
    is_ours = inspect.isfunction(value) or inspect.isclass(value) or isinstance(value, property | classmethod)
    return (inspect.getdoc(value) or "") if is_ours else ""


def returned(module: str, name: str) -> Iterator[tuple[str, type]]:
    """Classes of ours that public calls of a class or function return."""
    value = getattr(import_module(module), name)
    functions = [value] if inspect.isfunction(value) else []
    if inspect.isclass(value):
        for member in dir(value):
            inside = inspect.getattr_static(value, member)
            inside = inside.fget if isinstance(inside, property) else getattr(inside, "__func__", inside)
            if inspect.isfunction(inside) and (
                not member.startswith("_") or member in {"__aiter__", "__anext__", "__aenter__"}
            ):
                functions.append(inside)
    for function in functions:
        if "return" in function.__annotations__:
            hint = typing.get_type_hints(function)["return"]
            for found in _classes(hint):
                yield f"{module}.{name}.{function.__name__}", found


def _classes(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint) and hint.__module__.split(".")[0] in PACKAGES:
        yield hint
    for argument in typing.get_args(hint):
        yield from _classes(argument) if not isinstance(argument, list) else ()


@pytest.mark.parametrize("module", LISTED)
def test_what_a_public_call_returns_is_public(module: str) -> None:
    public = {id(getattr(import_module(each), name)) for each, name in NAMES}
    hidden = {
        f"{where} returns {found.__module__}.{found.__name__}"
        for name in LISTED[module]
        for where, found in returned(module, name)
        if id(found) not in public
    }
    assert hidden == set()


def test_no_class_name_is_defined_twice() -> None:
    homes = defaultdict(list)
    for path, tree in sources(*PACKAGES):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_no_package_imports_a_private_name_of_another_one() -> None:
    offenders = []
    for path, tree in sources(*PACKAGES, "examples", "benchmarks"):
        package = path.split("/")[0]
        for name in imported(tree):
            root, *parts = name.split(".")
            is_private = any(part.startswith("_") and not part.startswith("__") for part in parts)
            if is_private and root in PACKAGES and root != package and not path.startswith(MAY_REACH_INSIDE):
                offenders.append(f"{path}: {name}")
    assert offenders == []


def test_no_module_imports_a_private_name_out_of_another_one() -> None:
    offenders = [
        f"{path}: {name}"
        for path, tree in sources(*PACKAGES)
        for name in imported(tree)
        if name.split(".")[0] in PACKAGES
        and re.match(r"_[^_]", name.split(".")[-1])
        and not name.endswith(("_codes", "_refusal"))
    ]
    assert offenders == []
