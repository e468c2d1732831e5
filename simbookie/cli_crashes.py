"""``bk-sim crashes``: kill a bookie again and again, and see whether it keeps what it promised."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated, Final

import typer

from simbookie.cli_options import EXIT_FAILURE, Json
from simbookie.crashes.invariants import INVARIANTS
from simbookie.crashes.kinds import STORE_KINDS
from simbookie.crashes.sweep import SHOWN_BY_CRASHES, CrashSweep, sweep, sweep_quirks
from simbookie.storage.quirks import FAITHFUL, REPAIRED, Quirk

__all__ = ["add_to"]

_HELP: Final = """Kill a bookie at random steps, start it again, and check what it promised.

Each run is a bookie on a simulated disk: clients write, fence, delete and read, garbage is collected, and the process is killed
or the power fails, up to five times, before steps that chance chooses. After each start everything that was acknowledged must be
there. Runs are made of their seed alone; the digest tells whether two sweeps were the same.

With --quirks faithful each of BookKeeper's defects that crashes can show is switched on by itself, for its share of the runs.

\b
Examples:
  bk-sim crashes
  bk-sim crashes --runs 20000 --storage interleaved
  bk-sim crashes --runs 3000 --quirks faithful
  bk-sim crashes --runs 200 --quirks keyless-fences --json

\b
Exit codes: 0 nothing was violated, or with --quirks faithful each quirk was seen to violate something; 1 otherwise; 2 wrong
usage.
With --json: {"storage", "quirks", "runs", "crashes", "steps", "violated", "violations", "digest", "wall_seconds"}, with
--quirks faithful a list of these as "sweeps".
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("crashes", help=_HELP)(crashes)


def crashes(
    *,
    runs: Annotated[int, typer.Option(min=1, help="How many runs.")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="The first run's; each has the next number.")] = 0,
    storage: Annotated[str, typer.Option(help=f"The ledger store: {', '.join(STORE_KINDS)}.")] = "sorted",
    quirks: Annotated[str, typer.Option(help="repaired, faithful, or the name of one quirk.")] = "repaired",
    processes: Annotated[
        int | None, typer.Option(min=1, help="Workers.  [default: one for each processor]", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Make runs, and tell what came of them."""
    if storage not in STORE_KINDS:
        raise typer.BadParameter(f"must be {' or '.join(STORE_KINDS)}, got {storage!r}", param_hint="--storage")
    seeds = range(seed, seed + runs)
    if quirks == "faithful":
        found = sweep_quirks(storage, seeds, processes=processes, progress=_progress(runs))
        if as_json:
            typer.echo(json.dumps({"sweeps": [each.as_json() for each in found.values()]}))
        else:
            typer.echo(_quirk_table(found))
        is_fine = all(each.violated for each in found.values())
    else:
        result = sweep(storage, seeds, _quirks(quirks), processes=processes, progress=_progress(runs))
        typer.echo(json.dumps(result.as_json()) if as_json else _report(result))
        is_fine = not result.violated
    if not is_fine:
        raise typer.Exit(EXIT_FAILURE)


def _quirks(name: str) -> frozenset[Quirk]:
    if name == "repaired":
        return REPAIRED
    known = {quirk.value: quirk for quirk in FAITHFUL}
    if name not in known:
        shown = ", ".join(sorted(known))
        raise typer.BadParameter(f"must be repaired, faithful or one of {shown}; got {name!r}", param_hint="--quirks")
    return frozenset({known[name]})


def _progress(runs: int) -> Callable[[int, int], None] | None:
    if not sys.stderr.isatty():
        return None

    def show(done: int, violated: int) -> None:
        typer.echo(f"\r{done} of {runs} runs, {violated} with violations", err=True, nl=done >= runs)

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


def _quirk_table(found: dict[Quirk, CrashSweep]) -> str:
    lines = [f"{'quirk':32} {'runs':>6}  violated, in so many runs"]
    for quirk, result in found.items():
        counts = ", ".join(f"{name} {count}" for name, count in result.violated.most_common()) or "nothing"
        lines.append(f"{quirk.value:32} {result.runs:6}  {counts}")
    others = sorted(quirk.value for quirk in FAITHFUL - SHOWN_BY_CRASHES.keys())
    return "\n".join([*lines, "", f"shown by tests of their own only: {', '.join(others)}"])
