"""``bk-chaos exhaustive``: every order of everything that may happen to the machines in a small cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.clauses import CLAUSES
from scenarios.cli.completion import complete_clause, complete_mutant
from scenarios.cli.output import (
    EXIT_FOUND,
    EXIT_INTERRUPTED,
    EXIT_UNDECIDED,
    fail,
    known,
    print_json,
    print_lines,
    print_table,
    watched,
)
from scenarios.cli.plan import SUFFIX
from scenarios.exhausting import Exhausted, SearchLimits, Settings, exhaust
from scenarios.exhaustive.configuration import CONFIGURATIONS, Reductions, SmallCluster
from scenarios.mutants import MACHINE_MUTANTS, MUTANTS, Mutant
from scenarios.plan import print_plan
from scenarios.specification.conformance import ACTIONS
from scenarios.traced_plans import SEEDS_TRIED, Replayed, plan_of_trace, replayed

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("exhaustive", help=_EXHAUSTIVE_HELP)(exhaustive)


#: What is searched unless something else is asked for: a few seconds in all.
_DEFAULT: Final = ("one-copy", "one-copy-change", "both-copies", "both-copies-change", "either-copy", "striped")

_EXHAUSTIVE_HELP: Final = f"""Search small clusters exhaustively: every order of sends, arrivals, timeouts, crashes and writes.

The shipped machines of one writer and some recoveries run against model bookies and a model metadata store. A search that
completes proves that nothing breaks a clause in a cluster of that size; what its reductions left out is verified afterwards.
Every step that machines make is compared with the actions of the published TLA+ specification.
A violation is shown as the moves that lead to it, and with --plans written as a plan in which runs of the whole client take these
moves. Options for sizes search a configuration of your own.

\b
Configurations:
{chr(10).join(f"  {name:22} {cluster}" for name, cluster in CONFIGURATIONS.items())}

\b
Examples:
  bk-chaos exhaustive
  bk-chaos exhaustive two-of-three-crash both-copies-change-2 --max-memory 4000
  bk-chaos exhaustive --quorums 2/2/2 --bookies 3 --entries 1 --writer-timeouts 2 --max-seconds 60
  bk-chaos exhaustive both-copies --mutant recovery-reads-do-not-fence --clause A1 --plans .
  bk-chaos exhaustive both-copies-rivals-2 --mutant recovery-lac-advances --depth-first --json

\b
Exit codes: 0 all is well; 1 a clause was broken; 2 the input cannot be used; 3 a search met its limits, a reduction was not
justified, or a step is not specified; 130 Ctrl-C, after what was found so far.
With --json: {{"mutant", "states", "seconds", "broken", "configurations": [{{"configuration", "cluster", "states", "edges",
"seconds", "states_per_second", "memory_mb", "complete", "stopped", "ends", "numbers", "reductions",
"verified": {{"checks", "wrong"}}, "specification": {{"steps", "actions", "wrong"}},
"broken": {{"invariant", "clause", "witness", "trace", "at_the_end"}}}}],
"plans": [{{"configuration", "path", "seed", "clause"}}]}}.
Seconds are of CPU time.
"""


def exhaustive(
    configurations: Annotated[
        list[str] | None,
        typer.Argument(help="Configurations.  [default: small ones]", metavar="[CONFIGURATION]...", show_default=False),
    ] = None,
    *,
    quorums: Annotated[
        str | None, typer.Option(help="Ensemble size, write quorum and ack quorum, as 3/3/2.", show_default=False)
    ] = None,
    bookies: Annotated[int | None, typer.Option(help="Bookies in the cluster.", show_default=False)] = None,
    entries: Annotated[int | None, typer.Option(help="Entries that the writer appends.", show_default=False)] = None,
    recoveries: Annotated[int | None, typer.Option(help="Recoveries of the ledger.", show_default=False)] = None,
    writer_timeouts: Annotated[
        int | None, typer.Option(help="Requests that the writer gives up on.", show_default=False)
    ] = None,
    recovery_timeouts: Annotated[
        int | None, typer.Option(help="Requests that each recovery gives up on.", show_default=False)
    ] = None,
    crashes: Annotated[int | None, typer.Option(help="Bookies that crash.", show_default=False)] = None,
    lost_answers: Annotated[
        int | None, typer.Option(help="Answers to metadata writes that each client misses.", show_default=False)
    ] = None,
    close: Annotated[bool, typer.Option("--close", help="The writer closes the ledger.")] = False,
    clause: Annotated[
        list[str] | None,
        typer.Option(
            help="Look for this clause alone; may be repeated.", show_default=False, autocompletion=complete_clause
        ),
    ] = None,
    mutant: Annotated[
        str | None,
        typer.Option(
            "--mutant",
            help="Plant this known defect.",
            show_default=False,
            autocompletion=complete_mutant,
        ),
    ] = None,
    depth_first: Annotated[
        bool, typer.Option("--depth-first", help="Find some way to a violation instead of a shortest one.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(help="Leave out a reduction: ended, dead, alone, rivals; may be repeated.", show_default=False),
    ] = None,
    max_states: Annotated[int | None, typer.Option(min=1, help="Stop at so many states.", show_default=False)] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0.001, help="Stop after so many seconds of CPU time.", show_default=False)
    ] = None,
    max_memory: Annotated[int | None, typer.Option(min=1, help="Stop at so many MiB.", show_default=False)] = None,
    plans: Annotated[
        Path | None,
        typer.Option(help="Write each violation as a plan into this folder.", show_default=False, metavar="DIR"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")
    ] = False,
) -> None:
    """Search configurations."""
    sizes = {
        "bookies": bookies,
        "entries": entries,
        "recoveries": recoveries,
        "writer_timeouts": writer_timeouts,
        "recovery_timeouts": recovery_timeouts,
        "crashes": crashes,
        "lost_answers": lost_answers,
        "closes": close or None,
    }
    chosen = _chosen(configurations, quorums, {name: size for name, size in sizes.items() if size is not None})
    planted = None if mutant is None else _planted(mutant)
    for number in clause or ():
        known(number, list(CLAUSES), "clause")
    settings = Settings(
        _reductions(without or []),
        SearchLimits(max_states, max_seconds, max_memory),
        frozenset(clause) if clause else None,
        depth_first,
    )
    found = _searched(chosen, settings, planted)
    written = {} if plans is None else _written(found, plans, planted)
    if as_json:
        print_json(_as_json(found, planted, written))
    else:
        _print(found)
        _print_written(written, planted)
    _exit(found)


def _searched(chosen: dict[str, SmallCluster], settings: Settings, planted: Mutant | None) -> list[Exhausted]:
    found: list[Exhausted] = []
    with watched("searching", "broken") as progress:

        def show(states: int) -> None:
            if progress is not None:
                broken = sum(one.searched.found is not None for one in found)
                progress(states, settings.limits.states or states, broken)

        for name, cluster in chosen.items():
            found.append(exhaust(name, cluster, settings, planted, show))
            if found[-1].searched.stopped == "interrupted":
                break
    return found


def _exit(found: list[Exhausted]) -> None:
    if found[-1].searched.stopped == "interrupted":
        raise typer.Exit(EXIT_INTERRUPTED)
    if any(one.searched.found is not None for one in found):
        raise typer.Exit(EXIT_FOUND)
    if not all(one.is_proof for one in found):
        raise typer.Exit(EXIT_UNDECIDED)


def _chosen(names: list[str] | None, quorums: str | None, sizes: dict[str, int]) -> dict[str, SmallCluster]:
    if quorums is None and not sizes:
        names = list(dict.fromkeys(names or _DEFAULT))
        for name in names:
            known(name, list(CONFIGURATIONS), "configuration")
        return {name: CONFIGURATIONS[name] for name in names}
    if names:
        fail("a configuration has its own sizes; leave out its name, or the options for sizes")
    try:
        e, qw, qa = map(int, (quorums or "2/2/2").split("/"))
    except ValueError:
        fail(f"--quorums {quorums} is not of the form 3/3/2")
    try:
        cluster = SmallCluster(e, qw, qa, bookies=e)
        return {"of your own": replace(cluster, **sizes)}  # type: ignore[arg-type]  # by name
    except ValueError as error:
        fail(str(error))


def _reductions(without: list[str]) -> Reductions:
    for name in without:
        known(name, list(Reductions().used), "reduction")
    return Reductions(**{name: name not in without for name in Reductions().used})


def _planted(name: str) -> Mutant:
    known(name, list(MUTANTS), "mutant")
    if name not in MACHINE_MUTANTS:
        fail(f"{name} is no defect of the machines; bk-chaos mutants --mutant {name} hunts it")
    return MACHINE_MUTANTS[name]


def _written(found: list[Exhausted], folder: Path, mutant: Mutant | None) -> dict[str, tuple[Path, Replayed | None]]:
    """Write the ways to violations as plans, each with a run that is violated if there is one."""
    written: dict[str, tuple[Path, Replayed | None]] = {}
    planted = None if mutant is None else mutant.name
    for one in found:
        if one.searched.found is None or one.trace is None:
            continue
        clause, name = one.searched.found.broken.clause, one.name.replace(" ", "-")
        called = "-".join(part for part in (name, planted, clause.lower()) if part)
        plan = plan_of_trace(called, one.searched.found.broken.witness, one.cluster, one.trace, clause)
        path = folder / f"{called}{SUFFIX}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(print_plan(plan))
        except OSError as error:
            fail(f"{path}: cannot be written ({error.strerror})")
        written[one.name] = path, replayed(plan, clause, planted)
    return written


def _print_written(written: dict[str, tuple[Path, Replayed | None]], mutant: Mutant | None) -> None:
    for path, run in written.values():
        print_lines("", f"{path}: the same moves as a plan")
        if run is None:
            print_lines(f"  no run of {SEEDS_TRIED} seeds breaks a clause")
        else:
            planted = "" if mutant is None else f" --mutant {mutant.name}"
            print_lines(f"  bk-chaos run {path} --seed {run.seed}{planted}    breaks {run.clause}")


def _as_json(
    found: list[Exhausted], mutant: Mutant | None, written: dict[str, tuple[Path, Replayed | None]]
) -> dict[str, object]:
    return {
        "mutant": None if mutant is None else mutant.name,
        "states": sum(one.searched.states for one in found),
        "seconds": round(sum(one.seconds for one in found), 6),
        "broken": sum(one.searched.found is not None for one in found),
        "configurations": [one.as_json() for one in found],
        "plans": [
            {
                "configuration": name,
                "path": str(path),
                "seed": None if run is None else run.seed,
                "clause": None if run is None else run.clause,
            }
            for name, (path, run) in written.items()
        ],
    }


def _print(found: list[Exhausted]) -> None:
    print_table(
        ("configuration", "states", "states/s", "CPU s", "MiB", "states of machines", "steps of machines", ""),
        [
            (
                one.name,
                f"{one.searched.states:,}",
                f"{one.states_per_second:,.0f}",
                f"{one.seconds:.1f}",
                f"{one.memory_mb:.0f}",
                one.numbers["writer_states"] + one.numbers["recovery_states"],
                one.numbers["machine_steps"],
                one.verdict,
            )
            for one in found
        ],
    )
    for one in found:
        print_lines("", f"{one.name}: {one.cluster}")
        print_lines(*(f"  {times:6} x {kind}" for kind, times in sorted(one.searched.ends.items())))
        if one.verified is not None:
            checks = ", ".join(f"{name} {times:,}" for name, times in one.verified.checks.items()) or "nothing to check"
            print_lines(
                f"  reductions verified: {checks}", *(f"  NOT JUSTIFIED: {wrong}" for wrong in one.verified.wrong)
            )
        if one.conformed is not None:
            actions = [name for name in ACTIONS if one.conformed.actions[name]]
            taken = f"{one.conformed.steps:,} steps, {len(actions)} of {len(ACTIONS)} actions"
            print_lines(f"  specification: {taken}", *(f"  NOT SPECIFIED: {wrong}" for wrong in one.conformed.wrong))
        if one.searched.found is not None and one.trace is not None:
            broken = one.searched.found.broken
            print_lines(f"  {broken.name}: {broken.witness}")
            print_lines(*(f"{number:6} {line}" for number, line in enumerate(one.trace.moves, 1)))
            print_lines("  at the end:", *(f"    {line}" for line in one.trace.at_the_end))
