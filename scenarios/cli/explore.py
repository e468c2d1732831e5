"""``bk-chaos explore``: searches and random walks in worlds of protocol machines."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from scenarios.cli.completion import complete_mutant
from scenarios.cli.output import EXIT_FOUND, EXIT_UNDECIDED, fail, known, print_json, print_lines, print_table, watched
from scenarios.exploration import Bounds, Exploration, explore_world
from scenarios.machines.worlds import PREPARED, WORLDS, NamedWorld
from scenarios.mutants import MACHINE_MUTANTS, MUTANTS, Mutant

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("explore", help=_EXPLORE_HELP)(explore)


_ALL = {**PREPARED, **WORLDS}
_BOUNDS = Bounds()


_EXPLORE_HELP: Final = """Search worlds of protocol machines for a schedule that breaks a clause.

A world has the machines of one writer and some recoveries, bookies, and a network that may do anything; no shell, wire, loop or
clock. One that is prepared is searched through every order in which requests arrive and the store acts; any other is walked at
random, with crashes, losses and repetitions. What breaks a clause is shown as a schedule of which no move can be left out.

\b
Examples:
  bk-chaos explore
  bk-chaos explore closing-writer changing-writer --answers-wait
  bk-chaos explore rivals-3-3-2 storage-3-3-2 --walks 5000 --seed 1000
  bk-chaos explore --mutant acks-during-ensemble-change --walks 5000
  bk-chaos explore add-under-way --mutant recovery-reads-do-not-fence --json

\b
Exit codes: 0 all is well; 1 a clause was broken; 2 the input cannot be used; 3 a search met its bounds and found nothing.
With --json: {"seed", "mutant", "states", "seconds", "states_per_second", "depth", "broken", "worlds": [{"world", "how", "states",
"depth", "states_per_second", "whole", "ends", "broken": {"invariant", "clause", "witness", "seed", "schedule", "story"}}]}.
"""


def explore(
    worlds: Annotated[
        list[str] | None, typer.Argument(help="Worlds.  [default: all]", metavar="[WORLD]...", show_default=False)
    ] = None,
    *,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first walk.")] = _BOUNDS.seed,
    walks: Annotated[int, typer.Option(min=1, help="How many walks in each world that is walked.")] = _BOUNDS.walks,
    moves: Annotated[int, typer.Option(min=1, help="How many moves a walk draws.")] = _BOUNDS.moves,
    states: Annotated[int, typer.Option(min=1, help="How many states a search visits at most.")] = _BOUNDS.states,
    depth: Annotated[
        int | None, typer.Option(min=1, help="How many moves to make one after the other.", show_default=False)
    ] = None,
    answers_wait: Annotated[
        bool, typer.Option("--answers-wait", help="Search every order in which answers arrive, too.")
    ] = _BOUNDS.answers_wait,
    mutant: Annotated[
        str | None,
        typer.Option(
            "--mutant",
            help="Plant this known defect; the default is then its world.",
            show_default=False,
            autocompletion=complete_mutant,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")
    ] = False,
) -> None:
    """Explore worlds."""
    planted = None if mutant is None else _machine_mutant(mutant)
    chosen = _chosen(worlds, planted)
    bounds = Bounds(seed, walks, moves, states, depth, answers_wait)
    found: list[Exploration] = []
    with watched("exploring", "broken") as progress:
        for named in chosen:
            found.append(explore_world(named, bounds, planted))
            if progress is not None:
                progress(len(found), len(chosen), sum(one.broken is not None for one in found))
    if as_json:
        print_json(_as_json(found, seed, planted))
    else:
        _print(found)
    if any(one.broken is not None for one in found):
        raise typer.Exit(EXIT_FOUND)
    if any(one.is_search and not one.is_whole for one in found):
        raise typer.Exit(EXIT_UNDECIDED)


def _machine_mutant(name: str) -> Mutant:
    known(name, list(MUTANTS), "mutant")
    if name not in MACHINE_MUTANTS:
        fail(f"no world of machines shows {name}; bk-chaos mutants --mutant {name} hunts it")
    return MACHINE_MUTANTS[name]


def _chosen(names: list[str] | None, mutant: Mutant | None) -> list[NamedWorld]:
    names = list(dict.fromkeys(names or ([mutant.world] if mutant is not None else _ALL)))
    for name in names:
        known(name, list(_ALL), "world")
    return [_ALL[name] for name in names]


def _as_json(found: list[Exploration], seed: int, mutant: Mutant | None) -> dict[str, object]:
    states, seconds = sum(one.states for one in found), sum(one.seconds for one in found)
    return {
        "seed": seed,
        "mutant": None if mutant is None else mutant.name,
        "states": states,
        "seconds": round(seconds, 6),
        "states_per_second": round(states / seconds, 3) if seconds else 0.0,
        "depth": max(one.depth for one in found),
        "broken": sum(one.broken is not None for one in found),
        "worlds": [one.as_json() for one in found],
    }


def _print(found: list[Exploration]) -> None:
    print_table(
        ("world", "how", "states", "depth", "states/s", "the ledger ended at", ""),
        [
            (
                one.world,
                "search" if one.is_search else "walks",
                one.states,
                one.depth,
                f"{one.states_per_second:.0f}",
                _ends(one),
                _outcome(one),
            )
            for one in found
        ],
    )
    for one in found:
        if one.broken is not None:
            where = one.world if one.seed is None else f"{one.world}, seed {one.seed}"
            print_lines("", f"{one.broken.name} in {where}: {one.broken.witness}")
            print_lines(*(f"{number:4} {line}" for number, line in enumerate(one.story, 1)))


def _ends(one: Exploration) -> str:
    ends = sorted(end for end in one.ends if end is not None)
    return ", ".join([*map(str, ends), *(["open"] if None in one.ends else [])])


def _outcome(one: Exploration) -> str:
    if one.broken is not None:
        return one.broken.name
    return "not whole" if one.is_search and not one.is_whole else "holds"
