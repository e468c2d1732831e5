"""Every public operation of the client meets real peers: what no test of ``tests/interop`` calls is found here, without Java.

Calls are found by reading those tests, not by running them. What a name stands for is inferred from annotations, from
constructors and from what our own methods say they return; so an operation of a reader is not taken for one of a writer that has
the same name. What cannot be inferred counts as not called: annotate it. Names, not values: that an operation is called *well* is
for the tests that call it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import pytest

from bkclient import AdvancedLedgerWriter, BookKeeper, LedgerReader, LedgerTail, LedgerWriter
from bkclient.repair import RepairAdmin
from tests.tools.syntax import parsed

CLASSES: Final[dict[str, type]] = {
    each.__name__: each
    for each in (BookKeeper, LedgerWriter, AdvancedLedgerWriter, LedgerReader, LedgerTail, RepairAdmin)
}
FOLDER: Final = Path(__file__).resolve().parent / "interop"

#: Operations that no real peer can be met with, and why.
EXCUSES: Final[Mapping[str, str]] = {
    "BookKeeper.node_tree": "nodes for applications; tests/bkclient/coordination uses them on ZooKeeper itself",
    "BookKeeper.parent_tree": "nodes of Pulsar; test_pulsar_topics meets them through PulsarReader",
    "BookKeeper.max_entry_bytes": "asks nobody",
    "BookKeeper.rng": "asks nobody",
    "BookKeeper.stats": "asks nobody",
    "BookKeeper.wall_clock": "asks nobody",
}

Kinds = frozenset[str]
NONE: Final[Kinds] = frozenset()


def public_names(cls: type) -> list[str]:
    """The public methods and properties of a class, inherited ones included, as ``Class.name``."""
    names = (name for name, member in inspect.getmembers(cls) if callable(member) or isinstance(member, property))
    return [f"{cls.__name__}.{name}" for name in names if not name.startswith("_")]


def _kinds_in(hint: Any) -> Kinds:
    if get_origin(hint) in (Union, UnionType):
        return frozenset().union(*map(_kinds_in, get_args(hint)))
    return frozenset({hint.__name__}) if hint in CLASSES.values() else NONE


def _returned() -> dict[str, Kinds]:
    """What methods return, where that is one of the classes."""
    methods = (name for cls in CLASSES.values() for name in public_names(cls))
    hints = {}
    for name in methods:
        method = getattr(CLASSES[name.split(".")[0]], name.split(".")[1])
        # Types imported for checkers only are unknown when the tests run, and none of ours.
        hints[name] = NONE if isinstance(method, property) else _kinds_in(get_type_hints(method).get("return"))
    return hints


RETURNED: Final = _returned()


class _Reader:
    """Finds the calls in one module. ``made_by`` tells what functions of test modules return."""

    def __init__(self, made_by: Mapping[str, Kinds], aliases: Mapping[str, Kinds]) -> None:
        self._made_by = made_by
        self._aliases = aliases

    def calls_in(self, function: ast.AST, known: Mapping[str, Kinds]) -> Iterator[str]:
        """``Class.name`` of every method called and every property looked at in ``function`` and the functions in it."""
        names = dict(known)
        nodes = list(_own_nodes(function))
        for _ in range(2):  # what is assigned from what is assigned further down is rare, and not worth more rounds
            for node in nodes:
                self._note(node, names)
        called = {node.func for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                for kind in self._kinds_of(node.value, names):
                    member = getattr(CLASSES[kind], node.attr, None)
                    if isinstance(member, property) or node in called:
                        yield f"{kind}.{node.attr}"
            elif isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef | ast.Lambda) and node is not function:
                yield from self.calls_in(node, names)

    def _note(self, node: ast.AST, names: dict[str, Kinds]) -> None:
        if isinstance(node, ast.arg):
            names[node.arg] = annotated(node.annotation, self._aliases)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = annotated(node.annotation, self._aliases)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, self._kinds_of(node.value, names), names)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind(node.optional_vars, self._kinds_of(node.context_expr, names), names)

    @staticmethod
    def _bind(target: ast.AST, kinds: Kinds, names: dict[str, Kinds]) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = names.get(target.id, NONE) | kinds

    def _kinds_of(self, value: ast.AST, names: Mapping[str, Kinds]) -> Kinds:
        if isinstance(value, ast.Await):
            return self._kinds_of(value.value, names)
        if isinstance(value, ast.Name):
            return names.get(value.id, NONE)
        if not isinstance(value, ast.Call):
            return NONE
        if isinstance(value.func, ast.Name):
            name = value.func.id
            return frozenset({name}) if name in CLASSES else self._made_by.get(name, NONE)
        if isinstance(value.func, ast.Attribute):
            owners = self._kinds_of(value.func.value, names)
            return frozenset().union(*(RETURNED.get(f"{owner}.{value.func.attr}", NONE) for owner in owners))
        return NONE


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, with those functions that it contains but not with what these contain."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def annotated(annotation: ast.AST | None, aliases: Mapping[str, Kinds]) -> Kinds:
    """The classes that an annotation names: one of them, a union, an alias, or what a context manager is for."""
    if isinstance(annotation, ast.Name):
        return frozenset({annotation.id}) if annotation.id in CLASSES else aliases.get(annotation.id, NONE)
    if isinstance(annotation, ast.BinOp):
        return annotated(annotation.left, aliases) | annotated(annotation.right, aliases)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "AsyncIterator":
        return annotated(annotation.slice, aliases)
    return NONE


def calls_in(sources: Iterable[str]) -> set[str]:
    """``Class.name`` of everything that the modules, which may import from one another, call and look at."""
    trees = [parsed(source) for source in sources]
    aliases: dict[str, Kinds] = {}
    made_by: dict[str, Kinds] = {}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                aliases[node.targets[0].id] = annotated(node.value, aliases)
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                made_by[node.name] = annotated(node.returns, aliases)
    return {call for tree in trees for call in _Reader(made_by, aliases).calls_in(tree, {})}


def missing(names: Iterable[str], calls: set[str], excuses: Mapping[str, str] = EXCUSES) -> list[str]:
    """What is neither called nor excused."""
    return sorted(name for name in names if name not in calls and name not in excuses)


def wrong_excuses(calls: set[str], excuses: Mapping[str, str] = EXCUSES) -> list[str]:
    """Excuses for what does not exist or is called all the same."""
    everything = {name for cls in CLASSES.values() for name in public_names(cls)}
    return sorted(name for name in excuses if name not in everything or name in calls)


SOURCES = [path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))]
CALLS = calls_in(SOURCES)


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_every_public_operation_meets_a_real_peer(cls: type) -> None:
    assert missing(public_names(cls), CALLS) == []


def test_every_excuse_is_needed() -> None:
    assert wrong_excuses(CALLS) == []


def test_an_operation_that_nobody_calls_is_reported() -> None:
    assert missing(["BookKeeper.create_ledger", "BookKeeper.invented"], CALLS) == ["BookKeeper.invented"]
    assert missing(["LedgerReader.read", "LedgerWriter.read"], {"LedgerReader.read"}) == ["LedgerWriter.read"]
    assert missing(["BookKeeper.invented"], CALLS, {"BookKeeper.invented": "why not"}) == []


def test_an_excuse_that_nobody_needs_is_reported() -> None:
    excuses = {"BookKeeper.bookies": "", "BookKeeper.invented": "", "BookKeeper.list_ledgers": ""}

    assert wrong_excuses({"BookKeeper.bookies"}, excuses) == ["BookKeeper.bookies", "BookKeeper.invented"]


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("async def f(bk: BookKeeper): await bk.bookies()", {"BookKeeper.bookies"}),
        ("async def f(bk): await bk.bookies()", set()),
        ("async def f(bk: BookKeeper): bk.bookies", set()),
        (
            "async def f(bk: BookKeeper):\n w = await bk.create_ledger()\n w.length",
            {"BookKeeper.create_ledger", "LedgerWriter.length"},
        ),
        (
            "async def f(bk: BookKeeper):\n async with await bk.create_advanced_ledger() as w:\n  w.flush()",
            {"BookKeeper.create_advanced_ledger", "AdvancedLedgerWriter.flush"},
        ),
        ("Any_ = LedgerReader | LedgerWriter\ndef f(h: Any_): h.read(1)", {"LedgerReader.read", "LedgerWriter.read"}),
        ("def g() -> LedgerReader: ...\ndef f(): g().tail().aclose()", {"LedgerReader.tail", "LedgerTail.aclose"}),
        (
            "def f(bk: BookKeeper):\n async def g(): RepairAdmin(bk).auditor(); bk.bookies()",
            {"RepairAdmin.auditor", "BookKeeper.bookies"},
        ),
        (
            "def g() -> AsyncIterator[BookKeeper]: ...\nasync def f():\n async with g() as bk: bk.bookies()",
            {"BookKeeper.bookies"},
        ),
        ("def f(r: LedgerReader): r.length = 1", set()),
    ],
)
def test_calls_are_found_by_what_is_called_on_what(source: str, calls: set[str]) -> None:
    assert calls_in([source]) == calls
