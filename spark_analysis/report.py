"""Verdicts for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from scenarios.determinism import HAS_ENDED
from scenarios.model import TransportKind
from spark_analysis.jobs.check import Broken, Checked
from spark_analysis.jobs.compare import Comparison
from spark_analysis.jobs.files import Copy, Rejected
from spark_analysis.jobs.ingest import Ingested
from spark_analysis.jobs.lac import LacVerdict, Lag
from spark_analysis.jobs.replay import ReplayVerdict
from spark_analysis.jobs.stream import StreamVerdict
from spark_analysis.jobs.sweep import SweepVerdict
from spark_analysis.jobs.verify import InvariantVerdict, Verdict

__all__ = [
    "broken_list",
    "broken_text",
    "check_table",
    "copies_shown",
    "differing_list",
    "disagreement_list",
    "failing_list",
    "ingested_table",
    "lac_table",
    "lag_table",
    "met_table",
    "rejected_table",
    "replay_table",
    "stream_table",
    "sweep_table",
    "truncated_list",
    "verdict_table",
    "why_text",
    "witness_list",
]


def ingested_table(found: Ingested) -> Table:
    """What became of the files, and what the data set holds."""
    table = Table(
        title=f"{found.histories:,} histories, {found.all_events:,} events in {found.buckets:,} buckets",
        title_justify="left",
    )
    table.add_column("files")
    table.add_column("count", justify="right")
    table.add_row("taken", f"{found.taken:,} ({found.events:,} events)")
    table.add_row("taken before", f"{found.unchanged:,}")
    for reason, count in found.set_aside.items():
        table.add_row(f"set aside: {reason}", f"{count:,}")
    return table


def verdict_table(verdict: Verdict) -> Table:
    """How each invariant fared, in ledgers."""
    table = Table(title=f"{verdict.histories:,} histories, {verdict.ledgers:,} ledgers, {verdict.events:,} events")
    table.title_justify = "left"
    table.add_column("invariant", no_wrap=True)
    for name in ("checked", "holds", "violated", "unknown"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why")
    for invariant in verdict.invariants:
        violated = _red(invariant.violated)
        table.add_row(
            invariant.name,
            f"{invariant.checked:,}",
            f"{invariant.holds:,}",
            violated,
            f"{invariant.unknown:,}",
            why_text(invariant),
        )
    return table


def why_text(invariant: InvariantVerdict) -> str:
    """Why ledgers are unknown, and how many for each reason."""
    return ", ".join(f"{reason} {count:,}" for reason, count in invariant.why.items())


def witness_list(verdict: Verdict) -> Group:
    """The broken clauses, each with its ledger, what is wrong and the events that show it."""
    blocks: list[Text] = []
    for violation in verdict.violations:
        where = f"{violation.history}, ledger {violation.ledger}"
        told = Text.assemble(
            (f"{violation.invariant} ({violation.clause})", "bold red"), f"  {where}\n  {violation.witness}"
        )
        for event in violation.evidence:
            told.append(f"\n    {event}", style="dim")
        blocks.append(_with_replay(told, violation.replay))
    return Group(*blocks)


def _with_replay(told: Text, command: str) -> Text:
    """``told`` with the command that makes the run again, if there is one."""
    return told.append(f"\n  again: {command}") if command else told


def replay_table(verdict: ReplayVerdict) -> Table:
    """How the runs of each scenario came out when they were made again."""
    table = Table(title=f"{verdict.histories:,} runs made again, {verdict.events:,} events", title_justify="left")
    table.add_column("scenario", no_wrap=True)
    for name in ("runs", "same", "differ", "end otherwise", "violated", "unknown"):
        table.add_column(name, justify="right", min_width=min(len(name), 9))
    for found in verdict.scenarios:
        bad = [f"[red]{count:,}[/red]" if count else "0" for count in (found.differ, found.end_otherwise)]
        table.add_row(
            found.scenario,
            f"{found.histories:,}",
            f"{found.same:,}",
            *bad,
            f"{found.violated:,}",
            f"{found.undecided:,}",
        )
    return table


def lac_table(verdict: LacVerdict) -> Table:
    """Where the ledgers of each scenario ended."""
    ledgers = sum(scenario.ledgers for scenario in verdict.scenarios)
    table = Table(title=f"{verdict.histories:,} histories, {ledgers:,} ledgers")
    table.title_justify = "left"
    table.add_column("scenario", no_wrap=True)
    for name in ("ledgers", "closed", "recovered", "truncated", "margin"):
        table.add_column(name, justify="right", no_wrap=True)
    for scenario in verdict.scenarios:
        table.add_row(
            scenario.scenario,
            f"{scenario.ledgers:,}",
            f"{scenario.closed:,}",
            f"{scenario.recovered:,}",
            _red(scenario.truncated),
            "-" if scenario.least_margin is None else f"{scenario.least_margin:,}",
        )
    return table


def lag_table(verdict: LacVerdict) -> Table:
    """How far bookies and readers are behind writers: median and 99th percentile, of how many; and how many never heard."""
    table = Table(title="lags: median and 99th percentile; never")
    table.title_justify = "left"
    table.add_column("scenario", no_wrap=True)
    for name in ("entries beyond LAC", "ms to a bookie", "ms to a reader"):
        table.add_column(name, justify="right", no_wrap=True)
    for scenario in verdict.scenarios:
        table.add_row(
            scenario.scenario,
            _lag(scenario.unconfirmed, 1, 0),
            _lag(scenario.to_bookies_us, 1000, 1),
            _lag(scenario.to_readers_us, 1000, 1),
        )
    return table


def _lag(lag: Lag, unit: int, digits: int) -> str:
    if lag.count == lag.never:
        return "-" if not lag.count else f"- ; {lag.never:,}"
    return f"{lag.p50 / unit:,.{digits}f}  {lag.p99 / unit:,.{digits}f} ; {lag.never:,}"


def truncated_list(verdict: LacVerdict) -> Group:
    """The truncated ledgers, with the two events that prove it, and what each party knew."""
    blocks: list[Text] = []
    for one in verdict.ledgers:
        if one.margin is None or one.margin >= 0:
            continue
        told = Text.assemble(("truncated", "bold red"), f"  {one.history}, ledger {one.ledger}")
        told.append(
            f"\n  entry {one.acknowledged} was acknowledged (event {one.ack_seq}), but the ledger is closed after entry "
            f"{one.last_entry} (event {one.close_seq})"
        )
        told.append(
            f"\n  LAC of the writer {one.writer_lac}, of bookies {one.bookie_lac}, of readers {one.reader_lac}",
            style="dim",
        )
        blocks.append(told)
    return Group(*blocks)


def differing_list(verdict: ReplayVerdict) -> Group:
    """The runs that came out otherwise, each with the first event that differs and the clauses broken then and now."""
    blocks: list[Text] = []
    for run in verdict.differing:
        planted = f" with the defect {run.mutant}" if run.mutant else ""
        told = Text.assemble(
            (run.history, "bold red"), f"  {run.scenario}, seed {run.seed}{planted}, by version {run.version or '?'}"
        )
        if run.first_seq is None:
            told.append("\n  made once more, it was the same: it does not depend on its seed alone")
        else:
            told.append(f"\n  first difference at event {run.first_seq}:")
            told.append(
                f"\n    recorded: {run.recorded_event or HAS_ENDED}\n    now: {run.event or HAS_ENDED}", style="dim"
            )
        if run.ends_otherwise:
            then, now = ("; ".join(broken) or "nothing" for broken in (run.recorded_violations, run.violations))
            told.append(f"\n  broken then: {then}\n  broken now: {now}")
        blocks.append(told)
    return Group(*blocks)


def check_table(verdict: Checked) -> Table:
    """How each invariant fared, in histories."""
    table = Table(title=f"{verdict.histories:,} histories, {verdict.events:,} events", title_justify="left")
    table.add_column("invariant", no_wrap=True)
    for name in ("judged", "holds", "violated"):
        table.add_column(name, justify="right", no_wrap=True)
    for found in verdict.invariants:
        violated = _red(found.violated_histories)
        table.add_row(found.name, f"{found.histories:,}", f"{found.histories - found.violated_histories:,}", violated)
    return table


def broken_list(verdict: Checked) -> Group:
    """The broken clauses, each with its ledger and what is wrong."""
    return Group(*(broken_text(broken) for broken in verdict.violations))


def broken_text(broken: Broken) -> Text:
    """A broken clause, with its ledger and what is wrong."""
    told = Text.assemble(
        (f"{broken.invariant} ({broken.clause})", "bold red"),
        f"  {broken.history}, ledger {broken.ledger}\n  {broken.witness}",
    )
    return _with_replay(told, broken.replay)


def stream_table(verdict: StreamVerdict) -> Table:
    """How each invariant fared in the histories that a stream judged."""
    table = check_table(verdict)
    table.title = (
        f"{verdict.histories:,} histories, {verdict.open:,} without an end yet, {verdict.duplicates:,} duplicates, "
        f"{verdict.events:,} events"
    )
    return table


def disagreement_list(found: Comparison) -> Group:
    """Where the witnesses disagree, each with what they say."""
    blocks: list[Text] = []
    for one in found.disagreements:
        where = f"{one.history}, ledger {one.ledger}" if one.invariant else one.history
        says = ", ".join(one.checker) or "nothing wrong"
        formulas_say = ", ".join(one.formulas) or "nothing wrong"
        blocks.append(
            Text.assemble(
                (one.invariant or "file", "bold red"), f"  {where}\n  checker: {says}\n  formulas: {formulas_say}"
            )
        )
    return Group(*blocks)


def sweep_table(verdict: SweepVerdict) -> Table:
    """How the runs of each scenario ended."""
    table = Table(
        title=f"{verdict.runs:,} runs, {verdict.events:,} events, {verdict.simulated_seconds:,.0f} simulated seconds",
        title_justify="left",
    )
    table.add_column("scenario", no_wrap=True)
    for name in ("runs", "violated", "no verdict", "beside the point"):
        table.add_column(name, justify="right", no_wrap=True)
    for found in verdict.scenarios:
        violated = _red(found.violated)
        table.add_row(found.scenario, f"{found.runs:,}", violated, f"{found.undecided:,}", f"{found.missed:,}")
    return table


def _red(count: int) -> str:
    """A count that should be 0."""
    return f"[red]{count:,}[/red]" if count else "0"


def met_table(verdict: SweepVerdict) -> Table:
    """How many runs came across each situation."""
    table = Table("situation", "runs", title="what runs came across", title_justify="left")
    for name, runs in verdict.met.items():
        table.add_row(name, f"{runs:,}" if runs else "[red]never[/red]")
    return table


def failing_list(verdict: SweepVerdict) -> Group:
    """The runs that broke something, and those without a verdict, each with the command that makes it again."""
    options = f" --mutant {verdict.plan.mutant}" if verdict.plan.mutant else ""
    options += " --transport bytes" if verdict.plan.transport is TransportKind.BYTES else ""
    return Group(
        *(
            Text.assemble((told, "bold red"), f"  bk-chaos run {scenario} --seed {seed}{options}")
            for scenario, seed, told in (*verdict.failing, *verdict.problems)
        )
    )


def copies_shown(copies: Sequence[Copy], in_all: int) -> list[Table]:
    """The files that were not judged because another has the same bytes, in a table; none if there are none."""
    if not in_all:
        return []
    table = Table("file", "is a copy of", title=f"{in_all:,} files are copies, and not counted", title_justify="left")
    for copy in copies:
        table.add_row(Text(copy.file), Text(copy.original))
    return [table]


def rejected_table(files: Sequence[Rejected], in_all: int) -> Table:
    """The files that could not be used, each with what is wrong."""
    table = Table("file", "problem", title=f"{in_all:,} files not usable as histories", title_justify="left")
    for file in files:
        table.add_row(Text(file.file), Text(file.problem))
    return table
