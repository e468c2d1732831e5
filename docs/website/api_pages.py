"""The reference of the public names, a page for each public module, from docstrings.

Which modules and names are public is what ``docs/reference/api.md`` lists, and tests hold that page to the code. A name that a
module before it has shown already is a link to it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["api_pages", "public_modules"]

_PAGE: Final = Path(__file__).resolve().parent.parent / "reference" / "api.md"


def public_modules() -> Iterator[tuple[str, dict[str, str]]]:
    """Each public module with its public names and their meanings, in the order of the page."""
    page = _PAGE.read_text(encoding="utf-8")
    for module, text in re.findall(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL):
        yield module, dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))


def api_pages() -> dict[str, str]:
    """The pages by their paths in the site, with one that lists them."""
    shown: dict[int, str] = {}
    pages, listed = {}, []
    for module, names in public_modules():
        imported = importlib.import_module(module)
        entries = [
            _entry(module, name, said, getattr(imported, name), shown) for name, said in _by_use(imported, names)
        ]
        title = f"{module}\n{'=' * len(module)}\n"
        first = inspect.cleandoc(imported.__doc__ or "").partition("\n\n")[0]
        pages[f"api/{module}.rst"] = "\n".join([title, first, "", f".. module:: {module}", "", *entries])
        listed.append(f"   {module}")
    index = (
        "API reference\n=============\n\nEvery public name, from its docstring.\n\n.. toctree::\n   :maxdepth: 1\n\n"
    )
    pages["api/index.rst"] = index + "\n".join(listed) + "\n"
    return pages


def _by_use(module: Any, names: dict[str, str]) -> list[tuple[str, str]]:
    """Functions first, then classes, then settings and errors: what a reader looks for is above what it is made of."""

    def place(item: tuple[str, str]) -> int:
        value = getattr(module, item[0])
        if inspect.isclass(value):
            return 3 if issubclass(value, BaseException) else 2 if item[0].endswith("Settings") else 1
        return 0 if inspect.isfunction(value) else 4

    return sorted(names.items(), key=place)


def _entry(module: str, name: str, said: str, value: Any, shown: dict[int, str]) -> str:
    is_documented = inspect.isclass(value) or inspect.isfunction(value)
    if inspect.ismodule(value):
        return f"``{name}``\n   :doc:`{value.__name__}`\n"
    if is_documented and id(value) in shown:
        role = "class" if inspect.isclass(value) else "func"
        return f"``{name}``\n   :py:{role}:`{shown[id(value)]}`\n"
    if is_documented:
        shown[id(value)] = f"{module}.{name}"
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        return f".. {kind}:: {module}.{name}\n   :members:\n   :show-inheritance:\n"
    if inspect.isfunction(value):
        return f".. autofunction:: {module}.{name}\n"
    return f".. py:data:: {module}.{name}\n\n   {said}\n"
