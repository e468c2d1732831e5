"""Charts are well-formed, stay inside their frame, and depend on nothing but their values."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simbookie.pictures.chart import Curve, Panel, chart

SVG = "{http://www.w3.org/2000/svg}"


def points(text: str) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in line.attrib["points"].split())]
        for line in ET.fromstring(text).iter(f"{SVG}polyline")
    ]


def test_every_curve_is_a_line_and_every_name_a_text() -> None:
    panels = [
        Panel("rates <&>", [Curve("offered", [0, 5, 10]), Curve("limit", [8, 8, 8], is_limit=True)]),
        Panel("none", []),
    ]
    text = chart("a & b", [0, 1, 2], panels)
    root = ET.fromstring(text)
    words = [element.text for element in root.iter(f"{SVG}text")]
    assert {"a & b", "rates <&>", "offered", "limit", "none", "0 s", "2 s"} <= set(words)
    assert [len(line) for line in points(text)] == [3, 2], "a level stretch needs its ends only"
    lines = list(root.iter(f"{SVG}polyline"))
    assert ["stroke-dasharray" in line.attrib for line in lines] == [False, True]
    (first, middle, last), (left, right) = points(text)
    assert first[0] < middle[0] < last[0]
    assert first[1] > middle[1] > last[1], "more is higher up"
    assert left[1] == right[1]
    assert chart("a & b", [0, 1, 2], panels) == text


def test_values_for_which_there_is_no_round_number() -> None:
    assert "<svg" in chart("tiny", [0.0, 1.0], [Panel("one", [Curve("c", [0.0, 5e-324])])])


@given(
    st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20),
    st.data(),
)
def test_whatever_the_values_are_nothing_leaves_the_frame(steps: list[float], data: Any) -> None:
    times = [0.0]
    for step in steps:
        times.append(times[-1] + step)
    value = st.floats(-1e3, 1e15)
    values = data.draw(st.lists(value, min_size=len(times), max_size=len(times)))
    text = chart("any", times, [Panel("one", [Curve("c", values)])])
    root = ET.fromstring(text)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for x, y in points(text)[0]:
        assert 0 <= x <= width
        assert 0 <= y <= height


@pytest.mark.parametrize(
    ("times", "values"), [([], []), ([1], [1]), ([1, 1], [1, 1]), ([2, 1], [1, 1]), ([1, 2], [1]), ([1, 2], [1, 2, 3])]
)
def test_what_is_no_course_of_time_is_refused(times: list[float], values: list[float]) -> None:
    with pytest.raises(ValueError, match="chart: "):
        chart("", times, [Panel("", [Curve("c", values)])])
