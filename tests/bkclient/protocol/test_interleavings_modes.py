"""Writers with options, and their recoveries, under arbitrary schedules; and proof that this finds defects."""

from __future__ import annotations

import pytest

from scenarios.machines.broken import BrokenClause
from scenarios.machines.options_world import OptionsWorld
from scenarios.machines.walks import walk
from scenarios.machines.worlds import WORLDS, NamedWorld
from scenarios.mutants import MUTANTS, Mutant

NAMED = {name: named for name, named in WORLDS.items() if issubclass(named.kind, OptionsWorld)}
#: Defects of the machines that a world with options shows.
PLANTED = [mutant for mutant in MUTANTS.values() if mutant.world in NAMED]


def find_violation(named: NamedWorld) -> None:
    """Walk until a guarantee breaks, for so long that only a sound writer gets through."""
    for seed in range(3000):
        walk(named.make(), seed, moves=100).settle()


@pytest.mark.rule("W-25")
@pytest.mark.rule("W-26")
@pytest.mark.rule("W-27")
@pytest.mark.rule("LAC-12")
@pytest.mark.rule("W-5")
@pytest.mark.rule("W-48")
@pytest.mark.parametrize("name", NAMED)
def test_the_guarantees_hold_with_every_option_on_random_walks(name: str) -> None:
    for seed in range(150):
        walk(NAMED[name].make(), seed, moves=150).settle()


@pytest.mark.rule("LAC-15")
@pytest.mark.behaviour("T-175")
def test_walks_with_deferred_sync_reach_every_kind_of_end() -> None:
    ends: set[str] = set()
    for seed in range(300):
        world = walk(OptionsWorld(NAMED["deferred-3-3-2"].configuration), seed, moves=150)
        world.settle()
        metadata, guarantees = world.store.metadata, world.options_guarantees
        if metadata.is_closed:
            end = metadata.last_entry_id
            ends.add("cut off" if end < guarantees.acknowledged else "all acknowledged")
            ends.add("more than was forced" if end > guarantees.forced else "as forced")
        ends.add("some were forced" if guarantees.forced >= 0 else "none was forced")

    assert ends == {
        "cut off",
        "all acknowledged",
        "more than was forced",
        "as forced",
        "some were forced",
        "none was forced",
    }


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_every_planted_defect_of_an_option_is_found(mutant: Mutant) -> None:
    with mutant.applied(), pytest.raises(BrokenClause) as caught:
        find_violation(NAMED[mutant.world])

    assert caught.value.clause in mutant.clauses
