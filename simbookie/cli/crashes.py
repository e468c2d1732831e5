"""``bk-sim crashes``: kill a bookie again and again, and see whether it keeps what it promised."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from simbookie.cli.options import EXIT_FAILURE, Json
from simbookie.crashes.hunts import SWITCHES, Hunt, Switch, hunt_all, name_of
from simbookie.crashes.invariants import INVARIANTS
from simbookie.crashes.kinds import STORE_KINDS
from simbookie.crashes.sweep import CrashSweep, sweep
from simbookie.storage.quirks import FAITHFUL, REPAIRED, Quirk

__all__ = ["add_to"]

_RUNS: Final = 1_000
_HELP: Final = """Kill a bookie at random steps, start it again, and check what it promised.

Each run is a bookie on a simulated disk: clients write, fence, delete and read, garbage is collected, and the process is killed
or the power fails, up to five times, before steps that chance chooses. After each start everything that was acknowledged must be
there. Runs are made of their seed alone; the digest tells whether two sweeps were the same.

With --quirks faithful each of BookKeeper's defects is switched on by itself, over a store that it concerns, until runs show it,
within its budget of runs; where chance does not come to it, a fixed recipe shows it. What shows is an invariant that is violated,
or, of a defect that violates none, an answer that is another one without it. The same run without the defect has to violate
nothing. --runs is the budget of those that chance shows then, instead of their own, --only names one defect, and --storage has
no effect.

\b
Examples:
  bk-sim crashes
  bk-sim crashes --runs 20000 --storage interleaved
  bk-sim crashes --quirks faithful
  bk-sim crashes --quirks faithful --only replay-gives-up
  bk-sim crashes --runs 200 --quirks keyless-fences --json

\b
Exit codes: 0 nothing was violated, or with --quirks faithful each defect was seen, and only where it was switched on; 1
otherwise; 2 wrong usage.
With --json: {"storage", "quirks", "runs", "crashes", "steps", "violated", "violations", "digest", "wall_seconds"}, with
--quirks faithful {"hunts": [{"quirk", "storage", "way", "budget", "run", "violated", "answers": {"faithful", "repaired"} or null,
"absent_repaired"}]}.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("crashes", help=_HELP)(crashes)


def crashes(
    *,
    runs: Annotated[int | None, typer.Option(min=1, help="How many runs.  [default: 1000]", show_default=False)] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first run's; each has the next number.")] = 0,
    storage: Annotated[str, typer.Option(help=f"The ledger store: {', '.join(STORE_KINDS)}.")] = "sorted",
    quirks: Annotated[str, typer.Option(help="repaired, faithful, or the name of one quirk.")] = "repaired",
    only: Annotated[
        str | None, typer.Option(help="With --quirks faithful: this defect alone.", show_default=False)
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Workers.  [default: one for each processor]", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Make runs, and tell what came of them."""
    if storage not in STORE_KINDS:
        raise typer.BadParameter(f"must be {' or '.join(STORE_KINDS)}, got {storage!r}", param_hint="--storage")
    if only is not None and quirks != "faithful":
        raise typer.BadParameter("needs --quirks faithful", param_hint="--only")
    if quirks == "faithful":
        hunts = hunt_all(
            _switches(only), seed, budget=runs, processes=processes, progress=_progress("defects", "shown")
        )
        typer.echo(json.dumps(_quirks_json(hunts)) if as_json else _quirk_table(hunts))
        is_fine = all(each.is_shown for each in hunts)
    else:
        seeds = range(seed, seed + (runs or _RUNS))
        result = sweep(
            storage, seeds, _quirks(quirks), processes=processes, progress=_progress("runs", "with violations")
        )
        typer.echo(json.dumps(result.as_json()) if as_json else _report(result))
        is_fine = not result.violated
    if not is_fine:
        raise typer.Exit(EXIT_FAILURE)


def _switches(only: str | None) -> list[Switch]:
    chosen = [switch for switch in SWITCHES if only in (None, name_of(switch))]
    if not chosen:
        shown = ", ".join(sorted(map(name_of, SWITCHES)))
        raise typer.BadParameter(f"must be one of {shown}; got {only!r}", param_hint="--only")
    return chosen


def _quirks(name: str) -> frozenset[Quirk]:
    if name == "repaired":
        return REPAIRED
    known = {quirk.value: quirk for quirk in FAITHFUL}
    if name not in known:
        shown = ", ".join(sorted(known))
        raise typer.BadParameter(f"must be repaired, faithful or one of {shown}; got {name!r}", param_hint="--quirks")
    return frozenset({known[name]})


def _progress(what: str, found: str) -> Callable[[int, int], None] | None:
    if not sys.stderr.isatty():
        return None

    def show(done: int, count: int) -> None:
        typer.echo(f"\r{done} {what}, {count} {found}", err=True, nl=False)

    return show


def _report(result: CrashSweep) -> str:
    crashes = f"{sum(result.seen.values())} crashes in {result.wall_seconds:.1f} s"
    lines = [
        f"{result.runs} runs over the {result.kind} store, quirks: {result.quirks}; {crashes}",
        "",
        "killed before",
        *(f"  {step:24} {count:7}" for step, count in sorted(result.seen.items())),
        "",
    ]
    if result.violated:
        lines.append("violated")
        for name in sorted(result.violated):
            statement = INVARIANTS[name].statement if name in INVARIANTS else "A run ends without an unexpected error."
            lines.append(f"  {name:6} in {result.violated[name]} runs: {statement}")
            lines += [f"      seed {seed}: {text}" for each, seed, text in result.texts if each == name]
    else:
        lines.append("no invariant was violated")
    return "\n".join([*lines, f"digest {result.digest}"])


def _quirks_json(hunts: list[Hunt]) -> dict[str, Any]:
    return {"hunts": [each.as_json() for each in hunts]}


def _quirk_table(hunts: list[Hunt]) -> str:
    head = (
        f"{'defect':32} {'store':12} {'way':7} {'budget':>6} {'run':>5}  violated, or answered (and without the defect)"
    )
    lines = [head]
    for each in hunts:
        told = ", ".join(each.violated)
        if each.answers is not None:
            told = f"{each.answers[0]} ({each.answers[1]})"
        if not each.run:
            told = f"NOT SEEN {told}".rstrip()
        if not each.is_absent_repaired:
            told += ", and SOMETHING WITHOUT IT"
        name = name_of(each.switch)
        lines.append(f"{name:32} {each.kind:12} {each.way:7} {each.budget:6} {each.run or '-':>5}  {told}")
    return "\n".join(lines)
