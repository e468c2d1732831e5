"""``bk-chaos shrink``: a failing plan made smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.clauses import CLAUSES
from scenarios.cli.completion import complete_clause, complete_plan
from scenarios.cli.options import Json, MutantName, Transport, known_in_runs
from scenarios.cli.output import EXIT_INTERRUPTED, EXIT_UNDECIDED, fail, known, print_json, print_lines, watched
from scenarios.cli.plan import HISTORY_SUFFIX, SUFFIX, find_plan
from scenarios.history import History, HistoryError
from scenarios.model import TransportKind
from scenarios.plan import print_plan
from scenarios.replaying import origin_of
from scenarios.shrinking import ShrinkBounds, ShrinkError, Shrunk, shrink

__all__ = ["add_to"]

_BOUNDS: Final = ShrinkBounds()


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("shrink", help=_SHRINK_HELP)(shrink_)


_SHRINK_HELP: Final = """Make a failing plan smaller while the same clause breaks.

NAME is a plan of bk-chaos list, a file with a plan (.scn), or a history (.bkh) that was recorded of one; a history brings its
seed, defect and transport along. Steps, clients and operations are left out, the cluster and numbers become smaller, unusual
settings usual, until nothing more can go. With a defect planted, the result has to be fine without it.

The result is a plan NAME-shrunk.scn beside the file, or in this folder. Ctrl-C keeps the best so far.

\b
Examples:
  bk-chaos shrink fence-lost-late-add --mutant recovery-reads-do-not-fence
  bk-chaos shrink swarm --seed 7 --mutant one-denial-decides --clause E3
  bk-chaos shrink late-add.scn --seed 3 --runs 200
  bk-chaos shrink histories/swarm-one-denial-decides-7.bkh --json

\b
Exit codes: 0 the result is minimal; 2 the input cannot be used, or breaks nothing; 3 a bound was met before; 130 interrupted.
With --json: {"file", "clause", "invariant", "witness", "seed", "mutant", "steps", "operations", "clients", "bookies",
"size_before", "size", "runs", "cpu_seconds", "stopped"}.
"""


def shrink_(
    name: Annotated[
        str,
        typer.Argument(
            help="The plan, a file with one, or a history of one.", metavar="NAME", autocompletion=complete_plan
        ),
    ],
    *,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The seed.  [default: 0, or that of the history]", show_default=False)
    ] = None,
    mutant: MutantName = None,
    transport: Transport = TransportKind.OBJECTS,
    clause: Annotated[
        str | None,
        typer.Option(
            help="The clause to keep broken.  [default: the first that breaks]",
            show_default=False,
            autocompletion=complete_clause,
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="How many runs at most.")] = _BOUNDS.runs,
    cpu_seconds: Annotated[float, typer.Option(min=0.1, help="CPU seconds at most.")] = _BOUNDS.cpu_seconds,
    as_json: Json = False,
) -> None:
    """Shrink a plan."""
    if clause is not None:
        known(clause, list(CLAUSES), "clause")
    folder = Path()
    if name.endswith((SUFFIX, HISTORY_SUFFIX)):
        folder = Path(name).parent
    if name.endswith(HISTORY_SUFFIX):
        seed, mutant, transport = _origin(Path(name), seed, mutant)
    if mutant:
        known_in_runs(mutant)
    seed = seed or 0
    with watched("shrinking", "smaller") as progress:
        try:
            result = shrink(
                find_plan(name, seed),
                seed,
                mutant=mutant or "",
                clause=clause or "",
                transport=transport,
                bounds=ShrinkBounds(runs, cpu_seconds),
                progress=progress,
            )
        except ShrinkError as error:
            fail(str(error))
    path = folder / f"{result.failure.plan.name}{SUFFIX}"
    try:
        path.write_text(print_plan(result.failure.plan), encoding="utf-8")
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}")
    if as_json:
        print_json(_as_json(result, path))
    else:
        _print(result, path)
    if result.stopped:
        raise typer.Exit(EXIT_INTERRUPTED if result.stopped == "interrupt" else EXIT_UNDECIDED)


def _origin(path: Path, seed: int | None, mutant: str | None) -> tuple[int, str, TransportKind]:
    """Seed, defect and transport of a recorded run; the first two may be others."""
    try:
        origin = origin_of(History(path))
    except HistoryError as error:
        fail(str(error))
    return origin.seed if seed is None else seed, origin.mutant if mutant is None else mutant, origin.transport


def _as_json(result: Shrunk, path: Path) -> dict[str, object]:
    failure, plan = result.failure, result.failure.plan
    return {
        "file": str(path),
        "clause": failure.clause,
        "invariant": CLAUSES[failure.clause].invariant,
        "witness": failure.witness,
        "seed": failure.seed,
        "mutant": failure.mutant or None,
        "steps": len(plan.steps),
        "operations": failure.size - len(plan.steps),
        "clients": len(plan.clients),
        "bookies": plan.cluster.bookies,
        "size_before": result.origin.size,
        "size": failure.size,
        "runs": result.runs,
        "cpu_seconds": round(result.cpu_seconds, 3),
        "stopped": result.stopped or None,
    }


_STOPPED: Final = {
    "runs": "  not minimal: --runs allows no more",
    "time": "  not minimal: --cpu-seconds allows no more",
    "interrupt": "  not minimal: interrupted",
    "": "  minimal: without any one step, client or operation it does not break",
}


def _print(result: Shrunk, path: Path) -> None:
    failure, plan, before = result.failure, result.failure.plan, result.origin.plan
    planted = f" --mutant {failure.mutant}" if failure.mutant else ""
    print_lines(
        f"{CLAUSES[failure.clause].invariant} ({failure.clause}): {failure.witness}",
        f"  {len(before.steps)} steps and {result.origin.size - len(before.steps)} operations of {len(before.clients)} clients"
        f" before, now {len(plan.steps)} and {failure.size - len(plan.steps)} of {len(plan.clients)}",
        f"  {before.cluster.bookies} bookies and {before.cluster.sizes} before, now {plan.cluster.bookies} and "
        f"{plan.cluster.sizes}",
        f"  {result.runs} runs in {result.cpu_seconds:.1f} CPU seconds",
        _STOPPED[result.stopped],
        f"  bk-chaos run {path} --seed {failure.seed}{planted} --timeline",
    )
