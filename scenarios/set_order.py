"""Sees where a program depends on the order of a set of plain objects, which is that of their addresses.

Nothing reports a loop over a set to anybody, so the modules of a program are changed while they are imported: what a loop, a
comprehension, a ``list(...)``, an unpacking and the like go over is looked at first. What does not depend on an order is left
alone: another set made of it, ``len``, ``any``, ``all``, ``min``, ``max``, ``sum`` and ``sorted`` of it.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, Final, cast
from weakref import WeakSet

__all__ = ["install", "is_plain", "with_looks"]

_LOOK: Final = "__look_at_order__"
#: Calls that take the order of their arguments over.
_IN_ORDER: Final = frozenset({"list", "tuple", "iter", "enumerate", "zip", "map", "filter", "deque"})
_IN_ORDER_METHODS: Final = frozenset({"extend", "fromkeys", "join", "writelines", "chain", "from_iterable"})
#: Calls whose result is the same in any order.
_IN_ANY_ORDER: Final = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})


def install(packages: Sequence[str], found: Callable[[str, int], None]) -> None:
    """Look at what the modules of ``packages`` go over, from now on and for good; ``found`` is told file and line.

    Modules that are imported already are not changed.
    """

    def look(value: Any) -> Any:
        if isinstance(value, set | frozenset | WeakSet) and len(value) > 1 and any(map(is_plain, value)):
            caller = sys._getframe(1)  # noqa: SLF001 - there is no public way, but for an exception
            found(caller.f_code.co_filename, caller.f_lineno)
        return value

    setattr(builtins, _LOOK, look)
    sys.meta_path.insert(0, _Finder(tuple(packages)))


def with_looks(source: str | bytes, path: str) -> CodeType:
    """The code of a module that looks at what it goes over."""
    tree = ast.fix_missing_locations(_Looking().visit(ast.parse(source, path)))
    return compile(tree, path, "exec", dont_inherit=True)


def is_plain(value: object) -> bool:
    """Whether the place of ``value`` in a set depends on its address."""
    return type(value).__hash__ is object.__hash__


class _Loader(SourceFileLoader):
    """Compiles a module anew, past what is cached of it."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return with_looks(self.get_data(path), path)


class _Finder(MetaPathFinder):
    """Finds modules of some packages as the other finders do, and loads their sources itself."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self._packages:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if isinstance(spec.loader, SourceFileLoader):
                    spec.loader = _Loader(fullname, spec.loader.path)
                return spec
        return None


class _Looking(ast.NodeTransformer):
    def visit_For(self, node: ast.For) -> ast.AST:
        node.iter = _looked_at(node.iter)
        return self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        node.value = _looked_at(node.value)
        return self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> ast.AST:
        if isinstance(node.ctx, ast.Load):
            node.value = _looked_at(node.value)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            node.value = _looked_at(node.value)
        return self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._comprehension(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in _IN_ORDER or method in _IN_ORDER_METHODS:
            node.args = [each if isinstance(each, ast.Starred) else _looked_at(each) for each in node.args]
        elif name in _IN_ANY_ORDER:
            node.args = [_without_looks(self, each) for each in node.args]
            node.keywords = [self.visit(each) for each in node.keywords]
            return node
        return self.generic_visit(node)

    def _comprehension(self, node: ast.ListComp | ast.DictComp | ast.GeneratorExp) -> ast.AST:
        for part in node.generators:
            part.iter = _looked_at(part.iter)
        return self.generic_visit(node)


def _without_looks(looking: _Looking, argument: ast.expr) -> ast.expr:
    """An argument whose own order does not matter; what is inside of it may."""
    if isinstance(argument, ast.GeneratorExp | ast.ListComp):
        return cast("ast.expr", looking.generic_visit(argument))
    return cast("ast.expr", looking.visit(argument))


def _looked_at(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.ListComp | ast.GeneratorExp):
        return node
    return ast.copy_location(ast.Call(ast.Name(_LOOK, ast.Load()), [node], []), node)
