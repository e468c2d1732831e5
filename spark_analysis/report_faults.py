"""What an analysis of faults found, for people."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from spark_analysis.jobs.analyse import EFFECTS, Analysis, FaultEffects

__all__ = ["appends_table", "effects_table", "never_met_text"]


def effects_table(found: Analysis) -> Table:
    """What followed each kind of fault, and each two of them: in how many histories, and its lift."""
    base = ", ".join(f"{effect} in {found.base[effect]:,}" for effect in EFFECTS)
    long = "" if found.long_us is None else f"; a recovery is long from {found.long_us / 1000:,.1f} ms on"
    table = Table(title=f"{found.histories:,} histories, {found.events:,} events: {base}{long}", title_justify="left")
    table.add_column("faults")
    table.add_column("histories", justify="right", no_wrap=True)
    for effect in EFFECTS:
        table.add_column(f"{effect} (lift)", justify="right")
    for one in found.effects:
        table.add_row(" + ".join(one.faults), f"{one.histories:,}", *(_followed(one, effect) for effect in EFFECTS))
    return table


def _followed(one: FaultEffects, effect: str) -> str:
    lift = one.lift[effect]
    return f"{one.followed[effect]:,} ({'-' if lift is None else f'{lift:.1f}'})"


def appends_table(found: Analysis) -> Table:
    """How appends fared that were under way while a kind of fault was."""
    table = Table(title="appends under way during a fault", title_justify="left")
    table.add_column("fault")
    for name in ("appends", "acknowledged", "failed", "availability", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found.appends:
        times = ("-" if time_us is None else f"{time_us / 1000:,.1f}" for time_us in (one.p50_us, one.p99_us))
        counts = (f"{count:,}" for count in (one.appends, one.acknowledged, one.failed))
        table.add_row(one.fault, *counts, f"{one.availability:.2%}", *times)
    return table


def never_met_text(found: Analysis) -> Text:
    """The situations that no history came across."""
    if not found.never_met:
        return Text("every situation was met")
    return Text(f"{len(found.never_met)} of {len(found.met)} situations were never met: {', '.join(found.never_met)}")
