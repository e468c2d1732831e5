"""Curves over time, one panel below the other, as SVG: text that browsers, and pages of documentation, show.

Nothing in it depends on the machine: the same values give the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10
from typing import Final
from xml.sax.saxutils import escape

__all__ = ["Curve", "Panel", "chart"]

_WIDTH: Final = 860
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 34, 26
_PANEL_HEIGHT: Final = 96
_GAP: Final = 38
_COLOURS: Final = ("#1f6fb2", "#d1622b", "#4b9a4a", "#8a5fb0")
_INK: Final = "#444"
_GRID: Final = "#ddd"
_UNITS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Curve:
    """Values at the times of the chart. A *limit* is drawn dashed."""

    name: str
    values: Sequence[float]
    is_limit: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves that share an axis, from 0 up."""

    title: str
    curves: Sequence[Curve]


def chart(title: str, times: Sequence[float], panels: Sequence[Panel]) -> str:
    """The picture; ``times`` are seconds, ascending, two at least, and each curve has a value for each.

    :class:`ValueError` if not.
    """
    if len(times) < 2 or any(later <= earlier for earlier, later in pairwise(times)):
        raise ValueError("chart: at least two times are needed, in ascending order")
    for panel in panels:
        for curve in panel.curves:
            if len(curve.values) != len(times):
                raise ValueError(f"chart: {curve.name} has {len(curve.values)} values for {len(times)} times")
    height = _TOP + len(panels) * (_PANEL_HEIGHT + _GAP) + _BOTTOM
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for index, panel in enumerate(panels):
        parts += _panel(panel, times, _TOP + 16 + index * (_PANEL_HEIGHT + _GAP), is_last=index == len(panels) - 1)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, times: Sequence[float], top: float, *, is_last: bool) -> list[str]:
    bottom, right = top + _PANEL_HEIGHT, _WIDTH - _RIGHT
    highest = max((value for curve in panel.curves for value in curve.values), default=0.0)
    ceiling = _ceiling(highest)
    first, span = times[0], times[-1] - times[0]

    def x(at: float) -> float:
        return _LEFT + (at - first) / span * (right - _LEFT)

    def y(value: float) -> float:
        return bottom - max(0.0, value) / ceiling * _PANEL_HEIGHT

    parts = [f'<text x="{_LEFT}" y="{top - 6}">{escape(panel.title)}</text>', *_legend(panel.curves, top - 6)]
    for share in (0.0, 0.5, 1.0):
        value = ceiling * share
        line = f'<line x1="{_LEFT}" y1="{y(value):.1f}" x2="{right}" y2="{y(value):.1f}" stroke="{_GRID}"/>'
        label = f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{_number(value)}</text>'
        parts += [line, label]
    step = _ceiling(span / 8)
    ticks = [number * step for number in range(int(span / step) + 1)]
    for tick in ticks:
        at = x(first + tick)
        parts.append(f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{bottom}" stroke="{_GRID}"/>')
        if is_last:
            parts.append(f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g} s</text>')
    for number, curve in enumerate(panel.curves):
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in _corners(times, curve.values))
        dashes = ' stroke-dasharray="5 4"' if curve.is_limit else ""
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4"{dashes}/>')
    return parts


def _legend(curves: Sequence[Curve], y: float) -> list[str]:
    """Names of the curves, from the right."""
    parts, right = [], float(_WIDTH - _RIGHT)
    for number, curve in reversed(list(enumerate(curves))):
        colour = _COLOURS[number % len(_COLOURS)]
        name = escape(curve.name)
        parts.append(f'<text x="{right:.0f}" y="{y}" text-anchor="end" fill="{colour}">{name}</text>')
        right -= 7.0 * len(curve.name) + 14
    return parts


def _corners(times: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """The points of a curve without those in the middle of a level stretch."""
    points = list(zip(times, values, strict=True))
    return [
        point
        for index, point in enumerate(points)
        if index in (0, len(points) - 1) or not points[index - 1][1] == point[1] == points[index + 1][1]
    ]


def _ceiling(value: float) -> float:
    """The next round number, 1 for 0 and for numbers so small that there is no round one."""
    if value < sys.float_info.min:
        return 1.0
    unit = 10.0 ** floor(log10(value))
    return next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= value * (1 - 1e-12))


def _number(value: float) -> str:
    for unit, letter in _UNITS:
        if value >= unit:
            return f"{value / unit:g} {letter}"
    return f"{value:g}"
