"""A verdict for people."""

from __future__ import annotations

from rich.table import Table

from spark_analysis.jobs.verify import Verdict

__all__ = ["rejected_table", "verdict_table", "witness_table"]


def verdict_table(verdict: Verdict) -> Table:
    """Invariant x histories x violations."""
    table = Table(title=f"{verdict.histories:,} histories, {verdict.ledgers:,} ledgers, {verdict.events:,} events")
    table.title_justify = "left"
    table.add_column("invariant")
    for name in ("histories", "ledgers checked", "hold", "violated", "unknown"):
        table.add_column(name, justify="right")
    for invariant in verdict.invariants:
        violated = f"[red]{invariant.violated:,}[/red]" if invariant.violated else "0"
        table.add_row(
            invariant.name,
            f"{verdict.histories:,}",
            f"{invariant.checked:,}",
            f"{invariant.holds:,}",
            violated,
            f"{invariant.unknown:,}",
        )
    return table


def witness_table(verdict: Verdict) -> Table:
    """The broken ledgers, each with what shows it."""
    table = Table("invariant", "history", "ledger", "witness", title="Violations", title_justify="left")
    for violation in verdict.violations:
        table.add_row(violation.invariant, violation.history, str(violation.ledger), violation.witness)
    return table


def rejected_table(verdict: Verdict) -> Table:
    """The files that could not be used, each with what is wrong."""
    table = Table("file", "problem", title="Not usable as histories", title_justify="left")
    for rejected in verdict.rejected:
        table.add_row(rejected.file, rejected.problem)
    return table
