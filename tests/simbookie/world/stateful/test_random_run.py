"""The shipped client in virtual time, under arbitrary sequences of deeds: a ledger stays an append-only list with a fence."""

from __future__ import annotations

from collections import Counter

import pytest

from scenarios.machines.broken import BrokenClause
from scenarios.mutants import MUTANTS
from simbookie.world.errors import UnhandledErrors
from tests.simbookie.world.stateful.random_run import RandomRun

#: How many steps the long run makes at least.
STEPS = 50_000


def runs_of(seeds: range, deeds: int) -> Counter[str]:
    """Everything that was done in the runs with these seeds."""
    done: Counter[str] = Counter()
    for seed in seeds:
        done.update(RandomRun(seed, deeds).deeds)
    return done


@pytest.mark.rule("REC-1")
@pytest.mark.rule("REC-41")
@pytest.mark.behaviour("T-111")
def test_no_promise_is_broken_and_every_deed_is_done() -> None:
    done = runs_of(range(25), 100)

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


def test_a_run_is_the_same_every_time() -> None:
    assert RandomRun(5, 60).deeds == RandomRun(5, 60).deeds
    assert RandomRun(5, 60).deeds != RandomRun(6, 60).deeds


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_fifty_thousand_steps_break_no_promise(capsys: pytest.CaptureFixture[str]) -> None:
    done: Counter[str] = Counter()
    seed = 0
    while done.total() < STEPS:
        done.update(RandomRun(1000 + seed, 150).deeds)
        seed += 1

    # Without the entry at the LAC the length is a guess; that has to be as rare as the weather that keeps it from being read.
    assert done["length guessed"] < done["ledger recovered"] / 50
    with capsys.disabled():
        print(f" {done.total()} steps in {seed} runs", end="")  # noqa: T201 - how much was searched is the result


#: What a lost entry shows as: an end below it, an acknowledgement above the end, a reader that misses it.
LOSS = "A1 A5 A9 B4"
#: Defects that runs of this length come upon, and the clauses that they break.
FOUND = {
    "recovery-takes-silence-for-denial": LOSS,
    "one-denial-decides": LOSS,
    "recovery-closes-at-found-lac": LOSS,
    "change-starts-above-next-entry": f"{LOSS} D6",  # it lies about the LAC while it changes
    "change-starts-at-confirmed-entry": f"{LOSS} D6",
    "ack-quorum-one-short": LOSS,
    "acks-out-of-order": "A3 A6",
    "acks-after-close": "A1 A3 A6 B6",
    "writer-closes-at-last-pushed": "A5 A9 B4 B6 D6",
}
#: The same, for runs that take longer than an ordinary run should.
FOUND_LATE = {
    "ensemble-used-before-stored": LOSS,
    "undecided-entry-ends-ledger": LOSS,
    "change-ignores-takeover": LOSS,
    "recovery-starts-below-last-fragment": LOSS,
    "acks-during-ensemble-change": LOSS,
    "recovery-lac-advances": "D6",
}


def planted() -> list[object]:
    early = [pytest.param(name, broken.split(), id=name) for name, broken in FOUND.items()]
    late = [pytest.param(name, broken.split(), id=name, marks=pytest.mark.sweep) for name, broken in FOUND_LATE.items()]
    return [*early, *late]


def run_defective(seeds: range, deeds: int) -> None:
    """Runs with these seeds. Where a machine notices a defect itself, no application can: another run has to show it."""
    for seed in seeds:
        try:
            RandomRun(seed, deeds)
        except UnhandledErrors as failed:
            if not all(isinstance(error, AssertionError) for error in failed.errors):
                raise


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("mutant", "breaks"), planted())
def test_a_planted_defect_breaks_a_promise_to_applications(mutant: str, breaks: list[str]) -> None:
    with MUTANTS[mutant].applied(), pytest.raises(BrokenClause) as caught:
        run_defective(range(2000), 80)

    assert caught.value.clause in breaks
