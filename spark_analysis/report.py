"""A verdict for people."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from spark_analysis.jobs.verify import Verdict

__all__ = ["rejected_table", "verdict_table", "witness_list"]


def verdict_table(verdict: Verdict) -> Table:
    """How each invariant fared, in ledgers."""
    table = Table(title=f"{verdict.histories:,} histories, {verdict.ledgers:,} ledgers, {verdict.events:,} events")
    table.title_justify = "left"
    table.add_column("invariant", no_wrap=True)
    for name in ("checked", "holds", "violated", "unknown"):
        table.add_column(name, justify="right", no_wrap=True)
    for invariant in verdict.invariants:
        violated = f"[red]{invariant.violated:,}[/red]" if invariant.violated else "0"
        table.add_row(
            invariant.name, f"{invariant.checked:,}", f"{invariant.holds:,}", violated, f"{invariant.unknown:,}"
        )
    return table


def witness_list(verdict: Verdict) -> Group:
    """The broken ledgers, each with what is wrong and the events that show it."""
    blocks: list[Text] = []
    for violation in verdict.violations:
        where = f"{violation.history}, ledger {violation.ledger}"
        told = Text.assemble(
            (f"{violation.invariant} ({violation.clause})", "bold red"), f"  {where}\n  {violation.witness}"
        )
        for event in violation.evidence:
            told.append(f"\n    {event}", style="dim")
        blocks.append(told)
    return Group(*blocks)


def rejected_table(verdict: Verdict) -> Table:
    """The files that could not be used, each with what is wrong."""
    table = Table(
        "file", "problem", title=f"{verdict.rejected_files:,} files not usable as histories", title_justify="left"
    )
    for rejected in verdict.rejected:
        table.add_row(Text(rejected.file), Text(rejected.problem))
    return table
