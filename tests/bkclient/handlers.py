"""Finding every handler of the client's shells: what they have called by transports, timers, updates and watches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import bkclient

__all__ = ["handlers"]

_ROOT = Path(bkclient.__file__).parent
#: Where operations live that somebody waits for.
_SHELLS = (
    "_client/connection_wait.py",
    "_client/core.py",
    "_client/exchange.py",
    "_client/recover.py",
    "_client/writing/*.py",
    "_client/reading/*.py",
    "repair/*.py",
)
#: Who calls handlers: any function or method of these names.
_TAKERS = frozenset(
    {
        "submit",
        "_submit",
        "call_soon",
        "call_later",
        "call_at",
        "run_update",
        "at_close",
        "watch_ledger",
        "watch_bookies",
    }
)


#: Who calls both methods of who is given to them.
_ADD_TAKERS = frozenset({"adds_over"})
_ADD_REPLIES = ("on_adds_stored", "on_add_failed")
#: What sends many reads, by ``send``, and what it calls of who is given to it.
_READ_SENDER = "sender"
_READ_REPLIES = ("on_found", "__call__")


def handlers() -> set[str]:
    """Their names: the module within the package, or within its private part, and the name of the function."""
    found = set[str]()
    for pattern in _SHELLS:
        for path in sorted(_ROOT.glob(pattern)):
            tree = ast.parse(path.read_text())
            functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            module = path.relative_to(_ROOT).with_suffix("").as_posix().replace("/", ".").removeprefix("_client.")
            found |= {f"{module}.{name}" for name in _named(tree) if name in functions}
    return found


def _named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if called in _ADD_TAKERS:
            yield from _ADD_REPLIES
        if called == "send" and isinstance(function, ast.Attribute) and _name(function.value) == _READ_SENDER:
            yield from _READ_REPLIES
        if called in _TAKERS:
            for argument in node.args:
                if isinstance(argument, ast.Name):
                    yield argument.id
                elif isinstance(argument, ast.Attribute):
                    yield argument.attr


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""
