"""A writer, up to three recoveries, readers and bookies, acting in any order: a ledger stays an append-only list with a fence.

Hypothesis chooses the order, and shrinks what fails; random walks get further in the same time. ``make stateful`` runs both
at length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scenarios.machines.broken import BrokenClause
from scenarios.machines.storage_world import StorageWorld
from scenarios.machines.walks import TROUBLE, walk
from scenarios.machines.world import Configuration, MachineWorld
from scenarios.machines.worlds import WORLDS
from scenarios.mutants import MUTANTS, Mutant

CONFIGURATIONS = tuple(named.configuration for named in WORLDS.values() if named.kind is StorageWorld)

#: How many steps the long runs make at least.
STEPS = 50_000


class Anything(RuleBasedStateMachine):
    """Every move of the world is a rule. After each the promises of the model are checked, and in the end everything settles."""

    configurations = CONFIGURATIONS
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.world = StorageWorld(self.configurations[0])

    @initialize(data=st.data())
    def choose_a_world(self, data: st.DataObject) -> None:
        self.world = StorageWorld(data.draw(st.sampled_from(self.configurations)))

    @invariant()
    def promises_hold(self) -> None:
        self.world.guarantees.check()

    def teardown(self) -> None:
        type(self).steps += self.world.steps
        self.world.settle()


def _add_rules() -> None:
    for name in StorageWorld(CONFIGURATIONS[0]).moves:

        def act(self: Anything, choice: int, name: str = name) -> None:
            self.world.move(name, choice)

        def is_possible(self: Anything, name: str = name) -> bool:
            return self.world.choices(name) > 0

        # Hypothesis has no weights, but a rule that is there several times is chosen several times as often.
        for copy in range(math.ceil(StorageWorld.weights.get(name, TROUBLE))):
            act.__name__ = f"{name.replace(' ', '_').replace('-', '_')}_{copy}"
            setattr(Anything, act.__name__, rule(choice=st.integers(0, 11))(precondition(is_possible)(act)))


_add_rules()

TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=60, stateful_step_count=50)


@pytest.mark.rule("REC-1")
@pytest.mark.rule("REC-41")
def test_random_walks_make_every_move_and_reach_every_kind_of_end() -> None:
    made: Counter[str] = Counter()
    ends: Counter[str] = Counter()

    for number in range(60):
        for configuration in CONFIGURATIONS:
            world = walk(StorageWorld(configuration), number, moves=150)
            made.update(world.made)
            metadata, model = world.store.metadata, world.model
            ends[f"{metadata.state.name} after {min(len(metadata.fragments), 2)} fragments"] += 1
            ends["with more than was acknowledged"] += model.end is not None and model.end[0] > model.acknowledged
            ends["with a lost disk"] += metadata.is_closed and any(disk.was_lost for disk in world.disks.values())
            ends["with acknowledged entries"] += metadata.is_closed and model.acknowledged >= 0
            ends.update(f"recovery {recovery.machine.phase.value}" for recovery in world.recoveries)
            world.settle()

    rare = {name: made[name] for name in StorageWorld(CONFIGURATIONS[0]).moves if made[name] < 10}
    assert rare == {}
    assert {
        "OPEN after 1 fragments",
        "OPEN after 2 fragments",
        "IN_RECOVERY after 1 fragments",
        "IN_RECOVERY after 2 fragments",
        "CLOSED after 1 fragments",
        "CLOSED after 2 fragments",
        "with more than was acknowledged",
        "with a lost disk",
        "with acknowledged entries",
        "recovery done",
        "recovery failed",
    } <= {end for end, count in ends.items() if count >= 3}


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_hypothesis_finds_nothing_in_fifty_thousand_steps(capsys: pytest.CaptureFixture[str]) -> None:
    Anything.steps = 0
    rounds = 0
    while Anything.steps < STEPS:
        rounds += 1
        run_state_machine_as_test(
            seed(rounds)(Anything),
            settings=settings(
                max_examples=500, stateful_step_count=60, deadline=None, database=None, derandomize=False
            ),
        )
    with capsys.disabled():
        print(f" {Anything.steps} steps in {rounds} rounds", end="")  # noqa: T201 - how much was searched is the result


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: "/".join(map(str, c.sizes)))
@pytest.mark.parametrize("read_ahead", [1, 4])
def test_long_random_walks_find_nothing(configuration: Configuration, read_ahead: int) -> None:
    steps = walks = 0
    while steps < 4 * STEPS:
        world = walk(StorageWorld(configuration._replace(read_ahead=read_ahead)), walks, moves=100 + 50 * (walks % 5))
        world.settle()
        steps += world.steps
        walks += 1


# Planted defects ----------------------------------------------------------------------------------------------------

#: What a lost entry shows as: an end below it, an acknowledgement above the end, a reader or a check of disks that misses it.
LOSS = "A1 A5 A9 B4"
#: The clauses that each defect breaks in the eyes of applications.
BREAKS = {
    "recovery-reads-do-not-fence": LOSS,
    "recovery-takes-silence-for-denial": LOSS,
    "one-denial-decides": LOSS,
    "recovery-believes-the-last-answer": LOSS,
    "recovery-closes-before-write-back": LOSS,
    "recovery-closes-at-found-lac": LOSS,
    "recovery-starts-below-last-fragment": LOSS,
    "recovery-reads-from-replacements": LOSS,
    "undecided-entry-ends-ledger": LOSS,
    "change-starts-above-next-entry": LOSS,
    "change-starts-at-confirmed-entry": LOSS,
    "replaced-bookie-keeps-acknowledgements": LOSS,
    "replaced-bookie-still-answers": LOSS,
    "acks-during-ensemble-change": LOSS,
    "ensemble-used-before-stored": LOSS,
    "ack-quorum-one-short": LOSS,
    "answers-count-instead-of-bookies": LOSS,
    "acks-out-of-order": "A3 A6 L2",
    "acks-after-close": "A1 A3 A6 L2",
    "writer-closes-at-last-pushed": "A1 A5 A9 B4 B6",
    "writer-closes-at-the-lac-it-told": "A1 A11 B6 G2",
    "change-ignores-takeover": LOSS,
    "nothing-resent-after-change": "L2",
    "recovery-lac-advances": "D6",
    "failed-bookie-counts-for-every-entry": "L10",
}
#: Recovery's reads fence by themselves, so reading too early loses nothing; :mod:`~scenarios.machines.guarantees` sees it.
MASKED = ("recovery-reads-without-coverage", "coverage-counts-bookies-in-total")
#: These need schedules that are too rare for a short run.
RARE = ("recovery-reads-do-not-fence", "recovery-reads-from-replacements", "recovery-lac-advances")


def world_of(name: str) -> Configuration:
    """The world that shows the defect; entries read ahead are asked of the right bookies before a defect can misdirect them."""
    return WORLDS[MUTANTS[name].world].configuration._replace(recoveries=2, read_ahead=1)


def clause_broken(mutant: Mutant, search: Callable[[], object]) -> str:
    with mutant.applied(), pytest.raises(BrokenClause) as caught:
        search()
    return caught.value.clause


def planted() -> list[object]:
    return [pytest.param(name, id=name, marks=[pytest.mark.sweep] * (name in RARE)) for name in BREAKS]


def test_every_planted_defect_is_expected_to_break_a_promise_or_known_to_be_masked() -> None:
    plain = {mutant.name for mutant in MUTANTS.values() if mutant.world and WORLDS[mutant.world].kind is MachineWorld}
    assert plain == {*BREAKS, *MASKED}


@pytest.mark.parametrize("name", planted())
def test_a_planted_defect_breaks_a_promise_to_applications(name: str) -> None:
    configuration = world_of(name)

    def search() -> None:
        for number in range(60_000):
            walk(StorageWorld(configuration), number, moves=100).settle()

    assert clause_broken(MUTANTS[name], search) in BREAKS[name].split()


#: What hypothesis comes upon in a few hundred examples, although it has no weights; walks find the others.
FOUND_BY_HYPOTHESIS = (
    "recovery-takes-silence-for-denial",
    "one-denial-decides",
    "recovery-closes-at-found-lac",
    "recovery-starts-below-last-fragment",
    "change-starts-above-next-entry",
    "change-starts-at-confirmed-entry",
    "replaced-bookie-keeps-acknowledgements",
    "ensemble-used-before-stored",
    "ack-quorum-one-short",
    "answers-count-instead-of-bookies",
    "acks-out-of-order",
    "acks-after-close",
    "writer-closes-at-last-pushed",
)


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FOUND_BY_HYPOTHESIS)
def test_hypothesis_finds_a_planted_defect_too(name: str) -> None:
    machine = type("Planted", (Anything,), {"configurations": (world_of(name),)})

    def search() -> None:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=5000,
                stateful_step_count=60,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )

    assert clause_broken(MUTANTS[name], search) in BREAKS[name].split()


@pytest.mark.rule("REC-17")
@pytest.mark.parametrize("name", MASKED)
def test_reading_too_early_loses_nothing_because_reads_fence(name: str) -> None:
    with MUTANTS[name].applied():
        for number in range(500):
            walk(StorageWorld(world_of(name)), number, moves=100).settle()
