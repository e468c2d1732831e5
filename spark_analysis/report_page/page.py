"""The report as a page: headings, tables, plots, and the events that show each violation; no script, nothing from a network."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from scenarios.clauses import CLAUSES, INVARIANTS
from spark_analysis.commands import replay_command
from spark_analysis.jobs.courses import PARTIES, LacCourse
from spark_analysis.jobs.files import Rejected
from spark_analysis.jobs.lac import LacVerdict, Lag
from spark_analysis.jobs.report import Reported
from spark_analysis.jobs.verify import InvariantVerdict, Verdict, WitnessedViolation
from spark_analysis.report import why_text
from spark_analysis.report_page.elements import Element, element, page_text, table
from spark_analysis.report_page.faults import faults_section
from spark_analysis.report_page.plots import bars, steps
from spark_analysis.report_page.style import STYLE

__all__ = ["report_html"]

_LAGS: Final[Mapping[str, tuple[str, str]]] = {
    "unconfirmed": ("Entries sent beyond the LAC", "entries"),
    "to_bookies_us": ("From an acknowledgement until the first bookie knew", "microseconds"),
    "to_readers_us": ("From an acknowledgement until the first reader knew", "microseconds"),
}
_QUANTILES: Final = ("p50", "p90", "p99", "max")


def report_html(found: Reported) -> str:
    """The page."""
    verdict = found.verdict
    title = f"Verdict on {found.folder}"
    policy = element(
        "meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        policy,
        element("title", title),
        element("style", STYLE),
    )
    main = element(
        "main",
        element("h1", title),
        element("p", _sentence(found), class_="holds" if found.is_clean else "violated", role="status"),
        *_counts(verdict),
        *_rejected(verdict.rejected, verdict.rejected_files),
        *_invariants(verdict),
        *_violations(verdict, found.folder),
        *_lacs(found.lacs),
        *_courses(found.courses),
        *faults_section(found.faults),
        id="main",
        tabindex=-1,
    )
    sections = list(main.iter("h2"))
    links = [element("li", element("a", section.text, href=f"#{section.get('id')}")) for section in sections]
    body = element(
        "body",
        element("a", "Skip to the verdict", href="#main", class_="skip"),
        element("nav", element("ul", *links), aria_label="Sections"),
        main,
    )
    return page_text(element("html", head, body, lang="en"))


def _heading(name: str, text: str) -> Element:
    return element("h2", text, id=name)


def _sentence(found: Reported) -> str:
    broken = [invariant for invariant in found.verdict.invariants if invariant.violated]
    if not broken:
        return f"All {len(found.verdict.invariants)} invariants hold."
    names = ", ".join(invariant.name for invariant in broken)
    return f"{len(broken)} of {len(found.verdict.invariants)} invariants are violated: {names}."


def _counts(verdict: Verdict) -> list[Element]:
    told = (
        ("histories", verdict.histories),
        ("ledgers", verdict.ledgers),
        ("events", verdict.events),
        ("files that cannot be used", verdict.rejected_files),
    )
    return [element("dl", *(element("div", element("dt", name), element("dd", f"{count:,}")) for name, count in told))]


def _rejected(rejected: Sequence[Rejected], count: int) -> list[Element]:
    if not count:
        return []
    rows = [(file.file, file.problem) for file in rejected]
    left = count - len(rejected)
    more = [element("p", f"and {left:,} more")] if left else []
    return [
        _heading("files", "Files that cannot be used"),
        table("Files", ("file", "problem"), rows, numbers_from=9),
        *more,
    ]


def _invariants(verdict: Verdict) -> list[Element]:
    def row(invariant: InvariantVerdict) -> tuple[Element | str, ...]:
        told = "violated" if invariant.violated else "holds" if invariant.holds else "not judged"
        clauses = "; ".join(
            f"{number}: {CLAUSES[number].statement}" for number in INVARIANTS[invariant.name] if number in CLAUSES
        )
        return (
            element("span", invariant.name, title=clauses),
            element("span", told, class_=told.replace(" ", "-")),
            invariant.statement,
            f"{invariant.checked:,}",
            f"{invariant.holds:,}",
            f"{invariant.violated:,}",
            f"{invariant.unknown:,}",
            why_text(invariant),
        )

    heads = ("invariant", "verdict", "says", "checked", "holds", "violated", "unknown", "why")
    rows = [row(invariant) for invariant in verdict.invariants]
    note = (
        "Counted in ledgers. A ledger is unknown to an invariant if what that is about, such as a recovery, does not occur "
        "(no premise); if an append has no outcome (no outcome), or a write of metadata on which all depends (lost write); or if "
        "the run was cut off before the ledger was closed (cut off)."
    )
    return [
        _heading("invariants", "Invariants"),
        element("p", note),
        table("Invariants", heads, rows, numbers_from=3),
    ]


# Violations ---------------------------------------------------------------------------------------------------------


def _violations(verdict: Verdict, folder: str) -> list[Element]:
    if not verdict.violations:
        return []
    parts = [_heading("violations", "Violations")]
    for name, found in groupby(verdict.violations, key=lambda violation: violation.invariant):
        shown = list(found)
        (counted,) = [invariant for invariant in verdict.invariants if invariant.name == name]
        parts.append(element("h3", name))
        parts.append(
            element("p", f"Broken ledgers: {counted.violated:,}. Their histories: {counted.violated_histories:,}.")
        )
        parts += [_violation(violation, folder, is_open=len(shown) == 1) for violation in shown]
        not_shown = counted.violated - len({(violation.history, violation.ledger) for violation in shown})
        if not_shown:
            parts.append(element("p", f"{not_shown:,} more are not shown."))
    return parts


def _violation(found: WitnessedViolation, folder: str, *, is_open: bool) -> Element:
    summary = element(
        "summary", element("b", found.clause), f" {found.history}, ledger {found.ledger}: ", found.witness
    )
    events = [element("li", element("code", event)) for event in found.evidence]
    commands = [
        replay_command(folder, found.history),
        f"bk-verify verify {shlex.quote(folder)} --invariant {found.invariant}",
    ]
    statement = CLAUSES[found.clause].statement if found.clause in CLAUSES else ""
    opened = {"open": "open"} if is_open else {}
    return element(
        "details",
        summary,
        element("p", f"Clause {found.clause}: {statement}."),
        element("ol", *events, class_="timeline") if events else None,
        element("p", "Again: ", *_joined([element("code", command) for command in commands])),
        **opened,
    )


def _joined(parts: Sequence[Element]) -> list[Element | str]:
    found: list[Element | str] = []
    for number, part in enumerate(parts):
        found += [" or ", part] if number else [part]
    return found


# LACs ---------------------------------------------------------------------------------------------------------------


def _lacs(lacs: LacVerdict) -> list[Element]:
    heads = ("scenario", "ledgers", "closed", "recovered", "truncated", "least margin")
    rows = [
        (
            one.scenario,
            f"{one.ledgers:,}",
            f"{one.closed:,}",
            f"{one.recovered:,}",
            f"{one.truncated:,}",
            "-" if one.least_margin is None else f"{one.least_margin:,}",
        )
        for one in lacs.scenarios
    ]
    said = (
        "The margin is how many entries the end of a closed ledger is above the highest entry that was acknowledged as durable. "
        "Below 0, the ledger was truncated."
    )
    parts = [
        _heading("lac", "Last add confirmed"),
        element("p", said),
        table("Ledgers by scenario", heads, rows, numbers_from=1),
    ]
    for number, (name, (told, unit)) in enumerate(_LAGS.items()):
        lags: list[tuple[str, Lag]] = [(one.scenario, getattr(one, name)) for one in lacs.scenarios]
        seen = [(scenario, lag) for scenario, lag in lags if lag.count > lag.never]
        if not seen:
            continue
        drawn = [(scenario, [getattr(lag, at) for at in _QUANTILES]) for scenario, lag in seen]
        described = (
            f"Bars for each scenario, on a scale of powers of ten: {', '.join(_QUANTILES)}; numbers are in the table."
        )
        parts.append(element("h3", told))
        parts.append(bars(f"lag{number}", told, described, drawn, unit=unit, quantiles=_QUANTILES))
        numbers = [
            (scenario, f"{lag.count:,}", f"{lag.never:,}", *(f"{getattr(lag, at):,}" for at in _QUANTILES))
            for scenario, lag in seen
        ]
        columns = ("scenario", "observed", "never", *_QUANTILES)
        parts.append(table(f"{told}, in {unit}", columns, numbers, numbers_from=1))
    return parts


def _courses(courses: Sequence[LacCourse]) -> list[Element]:
    drawn = []
    for number, course in enumerate(courses):
        lines = {party: course.lines[party] for party in PARTIES if course.lines.get(party)}
        if not lines:
            continue
        told = ", ".join(f"{party} up to {line[-1][1]}" for party, line in lines.items())
        title = f"{course.history}, ledger {course.ledger}"
        drawn.append(element("h3", title))
        drawn.append(
            steps(f"course{number}", title, f"At the end: {told}.", lines, unit="microseconds", levels="entry")
        )
        drawn.append(element("p", f"At the end: {told}."))
    if not drawn:
        return []
    said = "How the last add confirmed became known: ledgers that break an invariant first, then those with the least margin."
    return [_heading("courses", "Courses of ledgers"), element("p", said), *drawn]
