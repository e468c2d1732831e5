"""The page of a report: whole HTML that needs nothing else, for those without eyes or a mouse too; what it is told is escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from spark_analysis.cli import report as cli_report
from spark_analysis.dataset.layout import create_dataset
from spark_analysis.invariants import INVARIANTS
from spark_analysis.jobs.analyse import Analysis, FaultedAppends, FaultEffects
from spark_analysis.jobs.courses import PARTIES, LacCourse
from spark_analysis.jobs.files import Rejected
from spark_analysis.jobs.lac import LacVerdict, Lag, LedgerLac, ScenarioLacs
from spark_analysis.jobs.report import Reported, report
from spark_analysis.jobs.verify import InvariantVerdict, Verdict, WitnessedViolation, verify
from spark_analysis.report_page.page import report_html
from spark_analysis.report_page.plots import bars, steps
from spark_analysis.report_page.style import STYLE
from tests.spark_analysis.recorded import bystander, record, truncating
from tests.spark_analysis.test_cli import run

VOID = {"meta", "br", "hr", "img", "input", "link"}
EVIL = "<script>alert('a & b')</script>\x00"


FAULTS = Analysis(
    histories=1000,
    events=1_000_000,
    base={"ensemble change": 40, "long recovery": 5, "violation": 0},
    long_us=1500,
    effects=(
        FaultEffects(
            ("crash", EVIL),
            20,
            {"ensemble change": 10, "long recovery": 1, "violation": 0},
            {"ensemble change": 12.5, "long recovery": 1.0, "violation": None},
        ),
    ),
    appends=(FaultedAppends("crash", 1000, 990, 4, 0.99, 1200, None),),
    met={"a write-back": 3, "a fence": 0},
    rejected=(),
    rejected_files=0,
    seconds=0.5,
)


class Outline(HTMLParser):
    """Elements with their attributes and text, and whether every one is closed where it has to be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.problems: list[str] = []
        self._open: list[int] = []
        self.feed(page)
        self.close()
        self.problems += [f"{self.elements[at][0]} is not closed" for at in self._open]

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self.elements[self._open.pop()][0] != tag:
            self.problems.append(f"{tag} ends where it is not open")

    def handle_data(self, data: str) -> None:
        for at in self._open:
            self.elements[at][2].append(data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, "".join(text)) for name, attributes, text in self.elements if name == tag]


def reported(*, clean: bool = False) -> Reported:
    """A report that has everything that one can have."""
    violated = 0 if clean else 3
    invariants = (
        InvariantVerdict(
            "NoLacTruncation",
            "No ledger is closed below.",
            1234,
            1234 - violated,
            violated,
            5,
            {"no premise": 3, "lost write": 2},
            violated,
        ),
        InvariantVerdict("LacHonest", "A last add confirmed is claimed.", 7, 7, 0, 0, {}, 0),
        InvariantVerdict("LimboNeverDenies", "A bookie denies nothing.", 0, 0, 0, 7, {"no premise": 7}, 0),
    )
    violations = (
        WitnessedViolation(
            "NoLacTruncation",
            f"runs/{EVIL}.bkh",
            EVIL,
            7,
            3,
            "A1",
            f"entry 1 ({EVIL}) was acknowledged",
            9,
            ("5 APP_ACK", EVIL),
        ),
        WitnessedViolation("NoLacTruncation", "b.bkh", None, None, 4, "A1", "entry 2 was", 8, ()),
    )
    verdict = Verdict(
        histories=1000,
        ledgers=1239,
        events=1_000_000,
        rejected=() if clean else (Rejected("torn.bkh", f"is truncated {EVIL}"),),
        rejected_files=0 if clean else 2,
        invariants=invariants,
        violations=() if clean else violations,
        seconds=1.5,
    )
    lag, none = Lag(100, 3, 10, 20, 300, 4000), Lag(0, 0, -1, -1, -1, -1)
    scenarios = (
        ScenarioLacs("calm-writes", 10, 9, 1, 0, 2, lag, lag, none),
        ScenarioLacs(EVIL, 10, 0, 0, 0, None, none, none, none),
    )
    ledger = LedgerLac("a.bkh", "calm-writes", 7, 3, 5, 9, 5, 4, 4, 4, 6, 20, is_recovered=False, margin=1)
    lacs = LacVerdict(1000, scenarios, (ledger,), (), 0, 0.5)
    line = ((0, 0), (10, 1), (2_000_000, 5))
    courses = (
        LacCourse("a.bkh", 3, {party: line if party != "readers" else () for party in PARTIES}),
        LacCourse("empty.bkh", 4, dict.fromkeys(PARTIES, ())),
        LacCourse(EVIL, 5, {**dict.fromkeys(PARTIES, ()), "writer": ((5, -1),)}),
    )
    return Reported(f"histories {EVIL}", verdict, lacs, courses, FAULTS)


@pytest.fixture(scope="module")
def page() -> Outline:
    return Outline(report_html(reported()))


def test_every_element_ends_where_it_has_to(page: Outline) -> None:
    assert page.problems == []
    assert len(page.all("html")) == len(page.all("main")) == len(page.all("h1")) == 1


def test_nothing_is_executed_or_loaded(page: Outline) -> None:
    text = report_html(reported())
    assert not page.all("script")
    assert "\x00" not in text
    assert "<script" not in text
    assert [
        attributes for tag, attributes, _ in page.elements if attributes.keys() & {"src", "onclick", "srcset"}
    ] == []
    assert all(str(attributes["href"]).startswith("#") for attributes, _ in page.all("a"))
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    (policy,) = [attributes["content"] for attributes, _ in page.all("meta") if "http-equiv" in attributes]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_it_can_be_read_without_eyes(page: Outline) -> None:
    assert page.all("html")[0][0]["lang"] == "en"
    ids = [str(attributes["id"]) for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes, _ in page.all("svg"):
        assert attributes["role"] == "img"
        assert set(str(attributes["aria-labelledby"]).split()) <= set(ids)
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels)), "no level is passed over"
    tables = page.all("table")
    assert len(tables) == len(page.all("caption"))
    assert all(attributes["scope"] in {"col", "row"} for attributes, _ in page.all("th"))
    told = [
        text for attributes, text in page.all("span") if attributes.get("class") in {"violated", "holds", "not-judged"}
    ]
    assert told == ["violated", "holds", "not judged"], "in words, not by colours alone"
    assert "no premise 3, lost write 2" in report_html(reported())


def test_it_can_be_used_by_keys(page: Outline) -> None:
    targets = {str(attributes["id"]) for _, attributes, _ in page.elements if "id" in attributes}
    assert page.all("a")[0][0]["href"] == "#main", "the first key leads past the list of sections"
    assert {str(attributes["href"])[1:] for attributes, _ in page.all("a")} <= targets
    assert all(
        attributes["tabindex"] == "0" for attributes, _ in page.all("div") if attributes.get("class") == "scroll"
    )
    assert len(page.all("details")) == len(page.all("summary"))
    assert ":focus-visible" in STYLE


def test_every_violation_has_its_events_and_a_command(page: Outline) -> None:
    (first, opened), (second, _) = ((text, attributes) for attributes, text in page.all("details"))
    assert "open" not in opened, "two of them are a list to choose from"
    assert "Clause A1: no acknowledged durable entry is above the last entry of the closed ledger." in first
    assert "5 APP_ACK" in first
    assert "bk-chaos replay 'histories " in first, "whatever was planted, and however it was played"
    assert "b.bkh' or bk-verify verify" in second
    text = "".join(page.elements[0][2])
    assert "1 more are not shown." in text
    assert "and 1 more" in text
    assert "1 of 3 invariants are violated: NoLacTruncation." in text


def test_what_followed_faults_is_told(page: Outline) -> None:
    text = "".join(page.elements[0][2])
    assert (
        "ensemble change in 40; long recovery in 5; violation in 0. A recovery is long from 1,500 microseconds on."
        in text
    )
    (followed,) = [text for _, text in page.all("table") if text.startswith("What followed faults")]
    assert followed.endswith("201012.511.00-"), "in 20 histories: 10 and lift 12.5, 1 and 1.0, none"
    (appends,) = [text for _, text in page.all("table") if text.startswith("Appends under way")]
    assert appends.endswith("crash1,000990499.00%1,200-")
    assert "1 of 2 situations were never met: a fence." in text
    assert "#faults" in [attributes["href"] for attributes, _ in page.all("a")]


def test_without_faults_and_with_all_situations_the_report_says_so() -> None:
    calm = replace(FAULTS, effects=(), appends=(), met={"a fence": 2}, long_us=None)
    text = report_html(replace(reported(), faults=calm))
    assert "No history has a fault." in text
    assert "All 1 situations were met." in text
    assert "What followed faults" not in text
    assert "is long from" not in text


@pytest.mark.parametrize("name", ["folder", "dataset", "one.bkh"])
def test_the_command_names_the_file_that_is_known(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    if name == "dataset":
        create_dataset(folder, 1)
    text = report_html(replace(reported(), folder=str(folder)))
    path = {"folder": f"{folder}/b.bkh", "dataset": "b.bkh", "one.bkh": str(folder)}[name]
    assert f"<code>bk-chaos replay {path}</code>" in text


def test_a_clean_report_says_so() -> None:
    found = Outline(report_html(reported(clean=True)))
    assert found.problems == []
    assert "All 3 invariants hold." in "".join(found.elements[0][2])
    assert not found.all("details")


def test_contrasts_are_enough() -> None:
    """4.5 to 1 for text and 3 to 1 for lines, in light and dark (WCAG 2.2)."""
    themes = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    assert len(themes) == 2
    for theme in themes:
        colours = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        for name, colour in colours.items():
            if name in {"paper", "soft"}:
                continue
            wanted = 3.0 if name == "rule" else 4.5
            assert contrast(colour, colours["paper"]) >= wanted, (name, colour)
        assert contrast(colours["ink"], colours["soft"]) >= 4.5


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def numbers_in(drawn: str) -> list[float]:
    return [float(found) for found in re.findall(r"[MHV ](-?\d+\.?\d*)", drawn)]


def test_lines_keep_their_level_until_the_next_point() -> None:
    drawn = steps("n", "t", "d", {"a": [(0, 0), (50, 1), (100, 2)], "none": []}, unit="us", levels="entry")
    (path,) = drawn.iter("path")
    left, bottom, x1, y1, x2, y2, end = numbers_in(str(path.get("d")))
    assert left < x1 < x2
    assert x2 == end
    assert bottom > y1 > y2, "up is less"
    assert x1 - left == pytest.approx(x2 - x1)


@pytest.mark.parametrize("points", [[(5, 5)], [(0, -1), (0, 0)], [(0, 0), (1, 10**12)]])
def test_plots_of_little_or_much_stay_within_their_frame(points: list[tuple[int, int]]) -> None:
    drawn = steps("n", "t", "d", {"a": points}, unit="us", levels="entry")
    (path,) = drawn.iter("path")
    assert all(0 <= number <= 720 for number in numbers_in(str(path.get("d"))))
    assert 1 <= len(list(drawn.iter("text"))) < 30


def test_bars_grow_with_what_they_show_and_the_longest_is_behind() -> None:
    drawn = bars("n", "t", "d", [("a", [0, 9, 99, 9999]), ("b", [0, 0, 0, 0])], unit="us", quantiles="abcd")
    widths = [float(str(bar.get("width"))) for bar in drawn.iter("rect")]
    assert widths[:4] == sorted(widths[:4], reverse=True)
    assert widths[0] == pytest.approx(546)
    assert widths[1] == pytest.approx(546 / 2, abs=1)
    assert set(widths[4:]) == {1}


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        sparkContext = SimpleNamespace(master="local[2]")  # noqa: N815  it is Spark's name

    monkeypatch.setattr("spark_analysis.cli.running.open_session", lambda *_arguments, **_options: Session())
    target = tmp_path / "report.html"
    folder = record(tmp_path / "good.bkh", bystander())
    for found, code in (
        (reported(), 1),
        (reported(clean=True), 0),
        (replace(reported(clean=True), verdict=replace(reported(clean=True).verdict, rejected_files=1)), 2),
    ):
        monkeypatch.setattr(cli_report, "report", lambda *_arguments, found=found, **_options: found)
        assert run("report", folder, "--to", target)[0] == code
        assert target.read_text(encoding="utf-8") == report_html(found)
        status, out, _ = run("report", folder, "--to", target, "--json")
        assert (status, json.loads(out)) == (code, json.loads(json.dumps(found.as_json())))

    code, _, err = run("report", folder, "--to", tmp_path / "nowhere" / "report.html")
    assert (code, err) == (
        2,
        f"bk-verify: {tmp_path / 'nowhere' / 'report.html'}: there is no folder {tmp_path / 'nowhere'}\n",
    )
    code, _, err = run("report", folder, "--to", tmp_path)
    assert code == 2
    assert "cannot be written (Is a directory)" in err


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_report_draws_the_ledgers_that_matter(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that break an invariant before the others; a ledger beside them in the same history is another one."""
    record(tmp_path / "a.bkh", bystander(), bystander(9))
    record(tmp_path / "b.bkh", truncating(3), bystander())
    truncation = [invariant for invariant in INVARIANTS if invariant.name == "NoLacTruncation"]
    monkeypatch.setattr("spark_analysis.jobs.report.verify", partial(verify, invariants=truncation))
    found = report(spark, tmp_path)
    drawn = [(course.history, course.ledger) for course in found.courses]
    assert drawn == [("b.bkh", 3), ("a.bkh", 8), ("a.bkh", 9), ("b.bkh", 8)]
    lines = found.courses[0].lines
    assert [level for _, level in lines["acknowledged"]] == [0, 1]
    assert [level for _, level in lines["metadata"]] == [0], "below what was acknowledged"
    highest = {party: line[-1][1] for party, line in lines.items() if line}
    assert highest == {"acknowledged": 1, "metadata": 0, "writer": 0, "bookies": -1}
    for course in found.courses:
        for line in course.lines.values():
            assert list(line) == sorted(set(line))
    page = Outline(report_html(found))
    assert page.problems == []
    assert len(page.all("details")) == 1
    assert not found.is_clean
