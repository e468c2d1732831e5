"""Bar charts as SVG, small enough to be committed and readable on any background."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["bars"]

_ROW, _GAP, _LEFT, _WIDTH, _RIGHT, _TOP = 15, 12, 230, 460, 90, 58
_COLOURS = ("#3572a5", "#8fb8de", "#c9752d", "#9a9a9a")


def bars(title: str, unit: str, rows: Sequence[tuple[str, dict[str, float]]]) -> str:
    """One group of horizontal bars for each of ``rows``, which are ``(label, {contender: value})``."""
    names = list(dict.fromkeys(name for _, values in rows for name in values))
    longest = max((value for _, values in rows for value in values.values()), default=1.0) or 1.0
    colour_of = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(names)}
    parts: list[str] = []
    x = _LEFT
    for name in names:
        parts.append(f'<rect x="{x}" y="34" width="10" height="10" fill="{colour_of[name]}"/>')
        parts.append(f'<text x="{x + 14}" y="43">{escape(name)}</text>')
        x += 30 + 7 * len(name)
    y = _TOP
    for label, values in rows:
        middle = y + _ROW * len(values) / 2 + 4
        parts.append(f'<text x="{_LEFT - 8}" y="{middle:.0f}" text-anchor="end">{escape(label)}</text>')
        for name, value in values.items():
            width = max(1.0, value / longest * _WIDTH)
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="{_ROW - 3}" fill="{colour_of[name]}"/>'
            )
            parts.append(f'<text x="{_LEFT + width + 5:.0f}" y="{y + 10}">{value:,.4g}</text>')
            y += _ROW
        y += _GAP
    width = _LEFT + _WIDTH + _RIGHT
    heading = f'<text x="8" y="20" font-weight="bold">{escape(title)} ({escape(unit)})</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join([heading, *parts])
        + "\n</svg>\n"
    )
