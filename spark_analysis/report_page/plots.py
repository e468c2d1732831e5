"""Plots as SVG in the page: how a ledger's last add confirmed became known, and how late.

A plot has a title and a description for those who do not see it, and shapes of lines besides colours for those who do not tell
these apart. The numbers of bars stand in the table beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from spark_analysis.report_page.elements import Element, element

__all__ = ["bars", "steps"]

_WIDTH: Final = 720
_LEFT: Final = 130
_RIGHT: Final = 44
_ROW: Final = 26
_HEIGHT: Final = 240
_BOTTOM: Final = 34
_TOP: Final = 12
_TICKS: Final = 5

#: Classes of lines in the style sheet: each has a colour and a pattern of dashes.
_LINES: Final = 6


def steps(
    name: str, title: str, description: str, lines: Mapping[str, Sequence[tuple[int, int]]], *, unit: str, levels: str
) -> Element:
    """Lines that keep a level until the next point; ``name`` makes ids unique. Points are of time, in ``unit``, and level."""
    points = [point for line in lines.values() for point in line]
    first, last = min((at for at, _ in points), default=0), max((at for at, _ in points), default=1)
    low, high = min((level for _, level in points), default=0), max((level for _, level in points), default=1)
    across, up = max(last - first, 1), max(high - low, 1)

    def x(at: int) -> float:
        return round(_LEFT + (at - first) / across * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(level: int) -> float:
        return round(_HEIGHT - _BOTTOM - (level - low) / up * (_HEIGHT - _BOTTOM - _TOP), 1)

    parts: list[Element] = []
    for level in _ticks(low, high):
        parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y(level), y2=y(level), class_="grid"))
        parts.append(element("text", f"{level:,}", x=_LEFT - 8, y=y(level) + 4, text_anchor="end"))
    parts += [
        element("text", f"{at:,}", x=x(at), y=_HEIGHT - _BOTTOM + 18, text_anchor="middle")
        for at in _ticks(first, last)
    ]
    parts.append(element("text", unit, x=_WIDTH - _RIGHT, y=_HEIGHT - 2, text_anchor="end"))
    parts.append(element("text", levels, x=4, y=_TOP + 8))
    for number, (label, line) in enumerate(lines.items()):
        if not line:
            continue
        path = f"M{x(line[0][0])} {y(line[0][1])}"
        for at, level in line[1:]:
            path += f"H{x(at)}V{y(level)}"
        parts.append(element("path", d=f"{path}H{x(last)}", class_=f"line line{number % _LINES}"))
        place = _TOP + 30 + 18 * number
        parts.append(element("line", x1=4, x2=26, y1=place - 4, y2=place - 4, class_=f"line line{number % _LINES}"))
        parts.append(element("text", label, x=32, y=place))
    return _figure(name, title, description, title, parts, _HEIGHT)


def bars(
    name: str,
    title: str,
    description: str,
    rows: Sequence[tuple[str, Sequence[int]]],
    *,
    unit: str,
    quantiles: Sequence[str],
) -> Element:
    """For each row bars of growing length behind each other, on a scale of powers of ten: ``quantiles``, the highest one last."""
    highest = max((value for _, values in rows for value in values), default=1)
    decades = max(1, math.ceil(math.log10(max(highest, 1) + 1)))
    height = _TOP + _ROW * len(rows) + _BOTTOM

    def x(value: int) -> float:
        share = math.log10(max(value, 0) + 1) / decades
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    parts: list[Element] = []
    for decade in range(decades + 1):
        at = x(10**decade - 1)
        parts.append(element("line", x1=at, x2=at, y1=_TOP, y2=height - _BOTTOM, class_="grid"))
        parts.append(
            element("text", f"{10**decade:,}" if decade else "0", x=at, y=height - _BOTTOM + 18, text_anchor="middle")
        )
    parts.append(element("text", unit, x=_WIDTH - _RIGHT, y=height - 2, text_anchor="end"))
    for number, (label, values) in enumerate(rows):
        top = _TOP + _ROW * number
        parts.append(element("text", label, x=_LEFT - 8, y=top + 16, text_anchor="end"))
        for place in reversed(range(len(values))):
            width = max(x(values[place]) - _LEFT, 1)
            inset = 2 * (len(values) - 1 - place)
            parts.append(
                element(
                    "rect",
                    x=_LEFT,
                    y=top + 4 + inset / 2,
                    width=width,
                    height=_ROW - 8 - inset,
                    class_=f"bar bar{place}",
                )
            )
    return _figure(name, title, description, f"{title}; from the left {', '.join(quantiles)}.", parts, height)


def _figure(name: str, title: str, description: str, caption: str, parts: Sequence[Element], height: int) -> Element:
    drawn = element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-desc"),
        *parts,
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )
    return element("figure", drawn, element("figcaption", caption))


def _ticks(low: int, high: int) -> list[int]:
    """Some round numbers from ``low`` to ``high``."""
    if high <= low:
        return [low]
    rough = (high - low) / _TICKS
    power = 10 ** math.floor(math.log10(rough)) if rough >= 1 else 1
    step = max(1, next(int(power * factor) for factor in (1, 2, 5, 10) if power * factor >= rough))
    return list(range(-(-low // step) * step, high + 1, step))
