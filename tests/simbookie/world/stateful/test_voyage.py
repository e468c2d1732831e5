"""The shipped client in virtual time, under arbitrary sequences of deeds: a ledger stays an append-only list with a fence."""

from __future__ import annotations

from collections import Counter

import pytest

from simbookie.world.errors import UnhandledErrors
from tests.bkclient.protocol.mutants import MUTANTS, Mutant
from tests.bkclient.protocol.stateful.model import Broken
from tests.simbookie.world.stateful.voyage import Voyage

#: How many steps the long run makes at least.
STEPS = 50_000


def sail(seeds: range, deeds: int) -> Counter[str]:
    """Everything that was done in the runs with these seeds."""
    done: Counter[str] = Counter()
    for seed in seeds:
        done.update(Voyage(seed, deeds).deeds)
    return done


@pytest.mark.rule("REC-1")
@pytest.mark.rule("REC-41")
@pytest.mark.behaviour("T-111")
def test_no_promise_is_broken_and_every_deed_is_done() -> None:
    done = sail(range(25), 100)

    rare = {deed: count for deed, count in done.items() if count < 3}
    assert rare.keys() <= {"length guessed"}
    assert {
        "entry acknowledged",
        "entry failed",
        "entry read",
        "ledger closed",
        "ledger recovered",
        "recovery failed",
        "recoverer crashes",
        "bookie loses power",
        "bookie becomes read-only",
        "writer goes on",
        "LAC seen",
    } <= done.keys()


def test_a_voyage_is_the_same_every_time() -> None:
    assert Voyage(5, 60).deeds == Voyage(5, 60).deeds
    assert Voyage(5, 60).deeds != Voyage(6, 60).deeds


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_fifty_thousand_steps_break_no_promise(capsys: pytest.CaptureFixture[str]) -> None:
    done: Counter[str] = Counter()
    seed = 0
    while done.total() < STEPS:
        done.update(Voyage(1000 + seed, 150).deeds)
        seed += 1

    # Without the entry at the LAC the length is a guess; that has to be as rare as the weather that keeps it from being read.
    assert done["length guessed"] < done["ledger recovered"] / 50
    with capsys.disabled():
        print(f" {done.total()} steps in {seed} runs", end="")  # noqa: T201 - how much was searched is the result


#: What a lost entry shows as: an end below it, an acknowledgement above the end, a reader that misses it.
LOSS = "kept fence stable"
#: Defects that voyages of this length come upon, and the promises that they break.
FOUND = {
    "timeouts_count_as_negatives": LOSS,
    "one_negative_decides": LOSS,
    "recovery_closes_at_the_lac_it_found": LOSS,
    "recovery_starts_below_the_last_fragment": LOSS,
    "changes_start_above_the_next_entry": f"{LOSS} LAC",  # it lies about the LAC while it changes
    "changes_start_at_the_last_confirmed_entry": f"{LOSS} LAC",
    "entries_are_confirmed_during_a_change": LOSS,
    "one_acknowledgement_too_few_suffices": LOSS,
    "entries_are_confirmed_out_of_order": "order",
    "entries_in_flight_are_confirmed_after_the_close": "order fence length",
    "the_writer_closes_at_what_it_pushed": "length LAC stable",
}
#: The same, for voyages that take longer than an ordinary run should.
FOUND_LATE = {
    "a_new_ensemble_is_used_before_it_is_stored": LOSS,
    "what_is_undecided_ends_the_ledger": LOSS,
    "changes_ignore_that_the_ledger_was_taken_over": LOSS,
    "written_back_entries_carry_an_advancing_lac": "LAC",
}


def planted() -> list[object]:
    names = {mutant.plant.__name__: mutant for mutant in MUTANTS}
    early = [pytest.param(names[name], broken.split(), id=name) for name, broken in FOUND.items()]
    late = [
        pytest.param(names[name], broken.split(), id=name, marks=pytest.mark.sweep)
        for name, broken in FOUND_LATE.items()
    ]
    return [*early, *late]


def sail_defective(seeds: range, deeds: int) -> None:
    """Runs with these seeds. Where a machine notices a defect itself, no application can: another voyage has to show it."""
    for seed in seeds:
        try:
            Voyage(seed, deeds)
        except UnhandledErrors as failed:
            if not all(isinstance(error, AssertionError) for error in failed.errors):
                raise


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("mutant", "breaks"), planted())
def test_a_planted_defect_breaks_a_promise_to_applications(
    mutant: Mutant, breaks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant.plant(monkeypatch)

    with pytest.raises(Broken) as caught:
        sail_defective(range(2000), 80)

    assert caught.value.promise in breaks
