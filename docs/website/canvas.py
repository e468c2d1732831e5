"""A small canvas for the pictures of the site: boxes, arrows and words as SVG, in colours that follow the reader's.

A picture is used twice: as a file on a repository page, where the reader's system says whether it is dark, and as a part of a
page of the site, where the page says so (``static/site.css``). Colours are therefore named by variables.
"""

from __future__ import annotations

from html import escape
from typing import Final

__all__ = ["Canvas"]

_LIGHT: Final = (
    "--ink:#1b1f24;--soft:#57606a;--line:#8c959f;--plain:#eef1f4;--blue:#dbeafe;--blue-line:#1d4ed8;"
    "--green:#d5f2dd;--green-line:#1a7f37;--red:#fde3e1;--red-line:#b3261e;--amber:#fdf0cf;--amber-line:#9a6700"
)
_DARK: Final = (
    "--ink:#e6e9ed;--soft:#a6b0ba;--line:#6b7682;--plain:#23292f;--blue:#1b2f55;--blue-line:#93b4ff;"
    "--green:#15371f;--green-line:#56d364;--red:#4a1f1c;--red-line:#ff8a80;--amber:#3f3211;--amber-line:#e3b341"
)
_STYLE: Final = (
    f".bkp{{{_LIGHT};max-width:100%;height:auto;font:17px system-ui,sans-serif}}"
    f"@media(prefers-color-scheme:dark){{.bkp{{{_DARK}}}}}"
    ".bkp text{fill:var(--ink)}.bkp .soft{fill:var(--soft);font-size:15px}.bkp .strong{font-weight:600}"
    ".bkp rect{fill:var(--plain);stroke:var(--line);stroke-width:1.2}"
    ".bkp .blue{fill:var(--blue);stroke:var(--blue-line)}.bkp .green{fill:var(--green);stroke:var(--green-line)}"
    ".bkp .red{fill:var(--red);stroke:var(--red-line)}.bkp .amber{fill:var(--amber);stroke:var(--amber-line)}"
    ".bkp .ghost{fill:none;stroke-dasharray:4 3}"
    ".bkp path{fill:none;stroke:var(--ink);stroke-width:1.5}.bkp .head{fill:var(--ink);stroke:none}"
    ".bkp .dashed{stroke-dasharray:5 4}.bkp .bad{stroke:var(--red-line)}.bkp .badhead{fill:var(--red-line);stroke:none}"
    ".bkp .faint{stroke:var(--line);stroke-width:1}"
)


class Canvas:
    """A picture ``width`` by ``height``, with a title that is read to those who do not see it."""

    def __init__(self, name: str, title: str, width: int, height: int) -> None:
        self._parts: list[str] = []
        self._name, self._title, self._size = name, title, (width, height)

    def text(self, x: float, y: float, words: str, *, kind: str = "", anchor: str = "middle") -> None:
        """Words at a point; ``kind`` is ``soft``, ``strong`` or nothing."""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, words: str = "", *, kind: str = "") -> None:
        """A box with words in it; ``kind`` is its colour, and ``ghost`` draws what is not there."""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{kind}"/>')
        if words:
            self.text(x + width / 2, y + height / 2 + 6, words)

    def line(self, x1: float, y1: float, x2: float, y2: float, *, kind: str = "faint") -> None:
        """A line without a head."""
        self._parts.append(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{kind}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, *, kind: str = "") -> None:
        """An arrow to the second point; ``kind`` is ``dashed``, ``bad`` or nothing."""
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - 9 * ux, y2 - 9 * uy
        self.line(x1, y1, bx, by, kind=kind)
        head = "badhead" if "bad" in kind else "head"
        self._parts.append(
            f'<path class="{head}" d="M{x2:.1f} {y2:.1f}L{bx - 4.5 * uy:.1f} {by + 4.5 * ux:.1f}'
            f'L{bx + 4.5 * uy:.1f} {by - 4.5 * ux:.1f}Z"/>'
        )

    def svg(self) -> str:
        """The picture, as one line."""
        width, height = self._size
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="bkp" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" aria-labelledby="{self._name}-title"><title id="{self._name}-title">'
            f"{escape(self._title)}</title><style>{_STYLE}</style>{''.join(self._parts)}</svg>"
        )
