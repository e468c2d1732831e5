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

from tests.bkclient.protocol.guarantees import Violation
from tests.bkclient.protocol.mutants import MUTANTS, Mutant
from tests.bkclient.protocol.stateful.model import Broken
from tests.bkclient.protocol.stateful.play import CONFIGURATIONS, TROUBLE, WEIGHTS, Play, walk
from tests.bkclient.protocol.world import Configuration

#: How many steps the long runs make at least.
STEPS = 50_000


class Anything(RuleBasedStateMachine):
    """Every move of the play is a rule. After each the promises of the model are checked, and in the end everything settles."""

    configurations = CONFIGURATIONS
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.play = Play(self.configurations[0])

    @initialize(data=st.data())
    def choose_a_world(self, data: st.DataObject) -> None:
        self.play = Play(data.draw(st.sampled_from(self.configurations)))

    @invariant()
    def promises_hold(self) -> None:
        self.play.guarantees.check()

    def teardown(self) -> None:
        type(self).steps += self.play.steps
        self.play.settle()


def _add_rules() -> None:
    for name in Play(CONFIGURATIONS[0]).moves:

        def act(self: Anything, choice: int, name: str = name) -> None:
            self.play.move(name, choice)

        def is_possible(self: Anything, name: str = name) -> bool:
            return self.play.choices(name) > 0

        # Hypothesis has no weights, but a rule that is there several times is chosen several times as often.
        for copy in range(math.ceil(WEIGHTS.get(name, TROUBLE))):
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
            play = walk(configuration, number, moves=150)
            made.update(play.made)
            metadata, model = play.store.metadata, play.model
            ends[f"{metadata.state.name} after {min(len(metadata.fragments), 2)} fragments"] += 1
            ends["with more than was acknowledged"] += model.end is not None and model.end[0] > model.acknowledged
            ends["with a lost disk"] += metadata.is_closed and any(disk.was_lost for disk in play.disks.values())
            ends["with acknowledged entries"] += metadata.is_closed and model.acknowledged >= 0
            ends.update(f"recovery {recovery.machine.phase.value}" for recovery in play.recoveries)
            play.settle()

    rare = {name: made[name] for name in Play(CONFIGURATIONS[0]).moves if made[name] < 10}
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
        play = walk(configuration._replace(read_ahead=read_ahead), walks, moves=100 + 50 * (walks % 5))
        play.settle()
        steps += play.steps
        walks += 1


# Planted defects ----------------------------------------------------------------------------------------------------

#: What a lost entry shows as: an end below it, an acknowledgement above the end, a reader or a check of disks that misses it.
LOSS = "kept fence stable"
#: The promises that each defect breaks in the eyes of applications (L2: somebody waits for ever).
BREAKS = {
    "recovery_reads_do_not_fence": LOSS,
    "timeouts_count_as_negatives": LOSS,
    "one_negative_decides": LOSS,
    "recovery_closes_before_the_write_back": LOSS,
    "recovery_closes_at_the_lac_it_found": LOSS,
    "recovery_starts_below_the_last_fragment": LOSS,
    "recovery_reads_follow_its_own_replacements": LOSS,
    "what_is_undecided_ends_the_ledger": LOSS,
    "changes_start_above_the_next_entry": LOSS,
    "changes_start_at_the_last_confirmed_entry": LOSS,
    "replaced_bookies_keep_their_acknowledgements": LOSS,
    "answers_of_replaced_bookies_count": LOSS,
    "entries_are_confirmed_during_a_change": LOSS,
    "a_new_ensemble_is_used_before_it_is_stored": LOSS,
    "one_acknowledgement_too_few_suffices": LOSS,
    "answers_are_counted_instead_of_bookies": LOSS,
    "entries_are_confirmed_out_of_order": "order L2",
    "entries_in_flight_are_confirmed_after_the_close": "order fence L2 L12",
    "the_writer_closes_at_what_it_pushed": "length stable A1",
    "changes_ignore_that_the_ledger_was_taken_over": LOSS,
    "entries_are_not_sent_again_after_a_change": "L2",
    "written_back_entries_carry_an_advancing_lac": "LAC",
    "recovery_counts_a_failed_bookie_for_every_entry": "L10",
}
#: Recovery's reads fence by themselves, so reading too early loses nothing; :mod:`~tests.bkclient.protocol.guarantees` sees it.
MASKED = ("reading_starts_without_coverage", "coverage_counts_bookies_in_total")
#: These need schedules that are too rare for a short run.
RARE = (
    "recovery_reads_do_not_fence",
    "recovery_reads_follow_its_own_replacements",
    "written_back_entries_carry_an_advancing_lac",
)


def world_of(mutant: Mutant) -> Configuration:
    """The world that shows the defect; entries read ahead are asked of the right bookies before a defect can misdirect them."""
    return mutant.configuration._replace(recoveries=2, read_ahead=1)


def promise_broken(search: Callable[[], object]) -> str:
    with pytest.raises((Broken, Violation)) as caught:
        search()
    broken = caught.value
    if isinstance(broken, Broken):
        return broken.promise
    assert isinstance(broken, Violation)
    return broken.clause


def planted() -> list[object]:
    return [
        pytest.param(mutant, id=name, marks=[pytest.mark.sweep] * (name in RARE))
        for mutant in MUTANTS
        if (name := mutant.plant.__name__) not in MASKED
    ]


def test_every_planted_defect_is_expected_to_break_a_promise_or_known_to_be_masked() -> None:
    assert {mutant.plant.__name__ for mutant in MUTANTS} == {*BREAKS, *MASKED}


@pytest.mark.parametrize("mutant", planted())
def test_a_planted_defect_breaks_a_promise_to_applications(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    configuration = world_of(mutant)

    def search() -> None:
        for number in range(60_000):
            walk(configuration, number, moves=100).settle()

    assert promise_broken(search) in BREAKS[mutant.plant.__name__].split()


#: What hypothesis comes upon in a few hundred examples, although it has no weights; walks find the others.
FOUND_BY_HYPOTHESIS = (
    "timeouts_count_as_negatives",
    "one_negative_decides",
    "recovery_closes_at_the_lac_it_found",
    "recovery_starts_below_the_last_fragment",
    "changes_start_above_the_next_entry",
    "changes_start_at_the_last_confirmed_entry",
    "replaced_bookies_keep_their_acknowledgements",
    "a_new_ensemble_is_used_before_it_is_stored",
    "one_acknowledgement_too_few_suffices",
    "answers_are_counted_instead_of_bookies",
    "entries_are_confirmed_out_of_order",
    "entries_in_flight_are_confirmed_after_the_close",
    "the_writer_closes_at_what_it_pushed",
)


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FOUND_BY_HYPOTHESIS)
def test_hypothesis_finds_a_planted_defect_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.plant.__name__ == name)
    mutant.plant(monkeypatch)
    machine = type("Planted", (Anything,), {"configurations": (world_of(mutant),)})

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

    assert promise_broken(search) in BREAKS[name].split()


@pytest.mark.rule("REC-17")
@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.plant.__name__ in MASKED], ids=lambda m: m.plant.__name__)
def test_reading_too_early_loses_nothing_because_reads_fence(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)

    for number in range(500):
        walk(world_of(mutant), number, moves=100).settle()
