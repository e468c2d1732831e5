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

from tests.bkclient.protocol.guarantees import Violation
from tests.bkclient.protocol.mutants import MUTANTS, Mutant
from tests.bkclient.protocol.world import TROUBLE, Configuration, World, wander

CONFIGURATIONS = (
    Configuration(1, 1, 1, bookies=2, entries=3, recoveries=2),
    Configuration(2, 2, 2, bookies=3, entries=2, recoveries=2),
    Configuration(2, 2, 1, bookies=3, entries=2, recoveries=2),
    Configuration(3, 3, 2, bookies=4, entries=3, recoveries=2),
    Configuration(3, 2, 2, bookies=4, entries=3, recoveries=2),
)

#: How often a walk makes which move. Progress is more likely than trouble, so that walks get somewhere.
WEIGHTS = {
    "request arrives": 6.0,
    "answer arrives": 6.0,
    "store acts": 4.0,
    "append": 2.0,
    "bookie returns": 1.0,
    "request times out": 0.5,
    "recovery starts": 0.3,
    "bookie crashes": 0.2,
    "close": 0.1,
    "writer crashes": 0.1,
    "recovery crashes": 0.1,
}


def walk(configuration: Configuration, seed: int, moves: int) -> World:
    """Make ``moves`` random moves in a new world."""
    return wander(World(configuration), WEIGHTS, seed, moves)


def find_violation(configuration: Configuration) -> None:
    """Walk until a guarantee breaks, for so long that only a sound client gets through."""
    for seed in range(5000):
        walk(configuration, seed, moves=80).settle()


@pytest.mark.rule("REC-1")
@pytest.mark.rule("REC-41")
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: "/".join(map(str, c.sizes)))
def test_the_guarantees_hold_on_random_walks_that_reach_every_kind_of_end(configuration: Configuration) -> None:
    ends: set[str] = set()

    for seed in range(150):
        world = walk(configuration, seed, moves=200)
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
        self.world = World(self.configurations[0])

    @initialize(data=st.data())
    def choose_a_world(self, data: st.DataObject) -> None:
        self.world = World(data.draw(st.sampled_from(self.configurations)))

    def teardown(self) -> None:
        self.world.settle()


def _add_rules() -> None:
    for name in World(CONFIGURATIONS[0]).moves:

        def act(self: Interleavings, choice: int, name: str = name) -> None:
            self.world.move(name, choice)

        def is_possible(self: Interleavings, name: str = name) -> bool:
            return self.world.choices(name) > 0

        # Hypothesis has no weights, but a rule that is there several times is chosen several times as often.
        for copy in range(math.ceil(WEIGHTS.get(name, TROUBLE))):
            act.__name__ = f"{name.replace(' ', '_')}_{copy}"
            setattr(Interleavings, act.__name__, rule(choice=st.integers(0, 7))(precondition(is_possible)(act)))


_add_rules()

TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=80, stateful_step_count=60)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}-{mutant.plant.__name__}")
def test_every_planted_defect_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)

    with pytest.raises(Violation) as caught:
        find_violation(mutant.configuration)

    assert caught.value.clause in mutant.breaks


@pytest.mark.parametrize("rule_id", ["M16", "M22"])
def test_hypothesis_finds_planted_defects_too(rule_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.rule == rule_id)
    mutant.plant(monkeypatch)
    planted = type("Planted", (Interleavings,), {"configurations": (mutant.configuration,)})

    with pytest.raises(Violation) as caught:
        run_state_machine_as_test(
            planted,
            settings=settings(max_examples=500, stateful_step_count=50, database=None, phases=[Phase.generate]),
        )

    assert caught.value.clause in mutant.breaks


@pytest.mark.parametrize("configuration", sorted({mutant.configuration for mutant in MUTANTS}))
def test_the_worlds_that_show_the_defects_are_sound_without_them(configuration: Configuration) -> None:
    for seed in range(60):
        walk(configuration, seed, moves=80).settle()
