"""HTML and SVG as trees, which are escaped when they are written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias
from xml.etree import ElementTree as ET

__all__ = ["Child", "Element", "element", "page_text", "table"]

Element: TypeAlias = ET.Element
Child: TypeAlias = "Element | str | int | None"

#: What XML, and so HTML that is read as XML, cannot hold; a name of a scenario or a file might.
_UNPRINTABLE: Final = {code: "\N{REPLACEMENT CHARACTER}" for code in range(32) if code not in (9, 10, 13)}


def element(tag: str, *children: Child, **attributes: str | float) -> Element:
    """An element, without those of the children that are None.

    In names of attributes ``_`` stands for ``-``, and one at the end for nothing.
    """
    made = ET.Element(tag, {_name(name): _clean(str(value)) for name, value in attributes.items()})
    last: Element | None = None
    for child in children:
        if child is None:
            continue
        if isinstance(child, ET.Element):
            made.append(child)
            last = child
        elif last is None:
            made.text = (made.text or "") + _clean(str(child))
        else:
            last.tail = (last.tail or "") + _clean(str(child))
    return made


def table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[Child]], *, numbers_from: int) -> Element:
    """A table whose first cells name the rows; from column ``numbers_from`` on there are numbers."""
    names = list(heads)

    def classed(column: int) -> dict[str, str]:
        return {"class_": "number"} if column >= numbers_from else {}

    head = element("tr", *(element("th", name, scope="col", **classed(at)) for at, name in enumerate(names)))
    body = []
    for row in rows:
        first, *others = row
        cells = [element("td", cell, **classed(at)) for at, cell in enumerate(others, 1)]
        body.append(element("tr", element("th", first, scope="row"), *cells))
    made = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    # A table wider than the window is moved by keys once it has the focus.
    return element("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def page_text(root: Element) -> str:
    """The document as text."""
    return "<!DOCTYPE html>\n" + ET.tostring(root, encoding="unicode", method="html") + "\n"


def _name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _clean(text: str) -> str:
    return text.translate(_UNPRINTABLE)
