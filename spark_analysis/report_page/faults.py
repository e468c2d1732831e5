"""What follows faults, as sections of the page: tables of effects and of appends, and the situations that were never met."""

from __future__ import annotations

from spark_analysis.jobs.analyse import EFFECTS, Analysis, FaultEffects
from spark_analysis.report_page.elements import Element, element, table

__all__ = ["faults_section"]


def faults_section(found: Analysis) -> list[Element]:
    """The section under the heading ``faults``."""
    return [
        element("h2", "Faults", id="faults"),
        *_effects(found),
        *_appends(found),
        element("h3", "Situations"),
        element("p", _situations(found)),
    ]


def _effects(found: Analysis) -> list[Element]:
    base = "; ".join(f"{effect} in {found.base[effect]:,}" for effect in EFFECTS)
    long = "" if found.long_us is None else f" A recovery is long from {found.long_us:,} microseconds on."
    said = (
        f"Of {found.histories:,} histories: {base}.{long} An effect followed a fault if it came later in the same history; "
        "the lift is how much more frequent it is there than in all histories. What follows need not be caused."
    )
    if not found.effects:
        return [element("p", said), element("p", "No history has a fault.")]
    heads = ("faults", "histories", *(head for effect in EFFECTS for head in (effect, "lift")))
    rows = [
        (
            " and ".join(one.faults),
            f"{one.histories:,}",
            *(told for effect in EFFECTS for told in _followed(one, effect)),
        )
        for one in found.effects
    ]
    return [element("p", said), table("What followed faults", heads, rows, numbers_from=1)]


def _followed(one: FaultEffects, effect: str) -> tuple[str, str]:
    lift = one.lift[effect]
    return f"{one.followed[effect]:,}", "-" if lift is None else f"{lift:.1f}"


def _appends(found: Analysis) -> list[Element]:
    if not found.appends:
        return []
    heads = ("fault", "appends", "acknowledged", "failed", "availability", "p50", "p99")
    rows = [
        (
            one.fault,
            *(f"{count:,}" for count in (one.appends, one.acknowledged, one.failed)),
            f"{one.availability:.2%}",
            *("-" if time_us is None else f"{time_us:,}" for time_us in (one.p50_us, one.p99_us)),
        )
        for one in found.appends
    ]
    return [table("Appends under way during a fault, times in microseconds", heads, rows, numbers_from=1)]


def _situations(found: Analysis) -> str:
    if not found.never_met:
        return f"All {len(found.met)} situations were met."
    return f"{len(found.never_met)} of {len(found.met)} situations were never met: {', '.join(found.never_met)}."
