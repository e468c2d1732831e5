"""The machines of a writer and its recoveries under arbitrary schedules, and proof that this finds defects.

One kind of world, two drivers: hypothesis, which looks for small counterexamples, and random walks, which get further in
the same time. Both only choose moves; the world checks its guarantees after every one of them.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from scenarios.machines.broken import BrokenClause
from scenarios.machines.walks import TROUBLE, walk
from scenarios.machines.world import Configuration, MachineWorld
from scenarios.machines.worlds import WORLDS, NamedWorld
from scenarios.mutants import MUTANTS, Mutant

CONFIGURATIONS = tuple(named.configuration for name, named in WORLDS.items() if name.startswith("rivals"))


def find_violation(named: NamedWorld) -> None:
    """Walk until a guarantee breaks, for so long that only a sound client gets through."""
    for seed in range(5000):
        walk(named.make(), seed, moves=80).settle()


@pytest.mark.rule("REC-1")
@pytest.mark.rule("REC-41")
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: "/".join(map(str, c.sizes)))
def test_the_guarantees_hold_on_random_walks_that_reach_every_kind_of_end(configuration: Configuration) -> None:
    ends: set[str] = set()

    for seed in range(150):
        world = walk(MachineWorld(configuration), seed, moves=200)
        metadata, acknowledged = world.store.metadata, world.guarantees.acknowledged
        if not metadata.is_closed:
            ends.add(metadata.state.name)
        else:
            ends.add("closed with more than was acknowledged" if metadata.last_entry_id > acknowledged else "closed")
            ends.add(f"closed after {len(metadata.fragments)} fragments")
        ends.update(f"recovery {recovery.machine.phase.value}" for recovery in world.recoveries)
        world.settle()

    assert {
        "IN_RECOVERY",
        "closed",
        "closed with more than was acknowledged",
        "closed after 1 fragments",
        "closed after 2 fragments",
        "recovery done",
        "recovery failed",
    } <= ends


class Interleavings(RuleBasedStateMachine):
    """Every move is a rule; hypothesis chooses among those that are possible, and shrinks what fails."""

    configurations = CONFIGURATIONS

    def __init__(self) -> None:
        super().__init__()
        self.world = MachineWorld(self.configurations[0])

    @initialize(data=st.data())
    def choose_a_world(self, data: st.DataObject) -> None:
        self.world = MachineWorld(data.draw(st.sampled_from(self.configurations)))

    def teardown(self) -> None:
        self.world.settle()


def _add_rules() -> None:
    for name in MachineWorld(CONFIGURATIONS[0]).moves:

        def act(self: Interleavings, choice: int, name: str = name) -> None:
            self.world.move(name, choice)

        def is_possible(self: Interleavings, name: str = name) -> bool:
            return self.world.choices(name) > 0

        # Hypothesis has no weights, but a rule that is there several times is chosen several times as often.
        for copy in range(math.ceil(MachineWorld.weights.get(name, TROUBLE))):
            act.__name__ = f"{name.replace(' ', '_')}_{copy}"
            setattr(Interleavings, act.__name__, rule(choice=st.integers(0, 7))(precondition(is_possible)(act)))


_add_rules()

TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=80, stateful_step_count=60)


#: Defects of the machines that a world without options shows.
PLANTED = [mutant for mutant in MUTANTS.values() if mutant.world and WORLDS[mutant.world].kind is MachineWorld]


@pytest.mark.deep
@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_every_planted_defect_is_found(mutant: Mutant) -> None:
    with mutant.applied(), pytest.raises(BrokenClause) as caught:
        find_violation(WORLDS[mutant.world])

    assert caught.value.clause in mutant.clauses


@pytest.mark.parametrize("name", ["change-starts-above-next-entry", "ack-quorum-one-short"])
def test_hypothesis_finds_planted_defects_too(name: str) -> None:
    mutant = MUTANTS[name]
    configuration = WORLDS[mutant.world].configuration
    planted = type("Planted", (Interleavings,), {"configurations": (configuration,)})

    with mutant.applied(), pytest.raises(BrokenClause) as caught:
        run_state_machine_as_test(
            planted,
            settings=settings(max_examples=500, stateful_step_count=50, database=None, phases=[Phase.generate]),
        )

    assert caught.value.clause in mutant.clauses


@pytest.mark.parametrize("name", sorted({mutant.world for mutant in PLANTED}))
def test_the_worlds_that_show_the_defects_are_sound_without_them(name: str) -> None:
    for seed in range(60):
        walk(WORLDS[name].make(), seed, moves=80).settle()
