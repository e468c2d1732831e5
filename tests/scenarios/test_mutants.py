"""Planted defects are found by the invariants they break, and leave nothing behind."""

from __future__ import annotations

import pytest

import bkclient.protocol.recovery
import scenarios.runner
from scenarios.checker import INVARIANTS
from scenarios.history import Kind
from scenarios.library import SCENARIOS
from scenarios.model import Scenario
from scenarios.mutants import MUTANTS
from scenarios.runner import run_scenario
from scenarios.stage import ADD_RESOLVES, EVENTUALLY_CLOSED, Stage
from tests.scenarios.played import play

#: In which scenario a mutant shows itself, in how many of the first twelve seeds at least, and what it breaks there.
WHERE = {
    "recovery-reads-do-not-fence": ("lost-fence", 6, {"FencedStaysFenced": 6, "NegativeStays": 2}),
    "recovery-takes-silence-for-denial": ("lost-reads", 6, {"NegativeCoverage": 6}),
    "recovery-takes-silence-for-fenced": ("lost-reads", 1, {"CoverageBeforeReads": 1}),
    "write-back-takes-silence-for-stored": ("lost-write-backs", 8, {"RewriteBeforeClose": 8}),
    "writer-takes-silence-for-stored": ("bookie-crash", 5, {"AckHasQuorum": 5}),
    "cancelled-append-takes-its-entry-out": ("cancelled-callers", 8, {"AddResolves": 8}),
    "cancelled-append-counts-as-stored": ("cancelled-callers", 2, {"AcksInOrder": 2}),
    "digests-are-not-verified": ("altered-copies", 4, {}),
    "recovery-starts-below-last-fragment": ("bookie-crash", 1, {"RecoveryReads": 1}),
    "one-denial-decides": ("lost-reads", 5, {"NegativeCoverage": 5}),
    "recovery-closes-before-write-back": ("lost-write-backs", 8, {"RewriteBeforeClose": 8}),
    "recovery-closes-at-found-lac": ("dead-writer", 10, {"CloseAtDecision": 10, "NoLacTruncation": 4}),
    "recovery-reads-from-replacements": ("racing-change", 1, {"RecoveryReads": 1}),
    "undecided-entry-ends-ledger": ("lost-reads", 6, {"UnknownAborts": 6}),
    "recovery-lac-advances": ("dead-writer", 5, {"RecoveryLacFrozen": 5}),
    "ack-quorum-one-short": ("hasty-close", 4, {"AckHasQuorum": 4}),
    "acks-after-close": ("hasty-close", 1, {"NoAckAfterEnd": 1}),
    "writer-closes-at-last-pushed": ("hasty-close", 6, {"ClosedAtQuorum": 6}),
    "writer-trusts-new-connections": ("forgotten-fence", 12, {"NoLacTruncation": 12}),
    "acks-during-ensemble-change": ("moving-reader", 3, {"StartIsLacPlusOne": 3}),
}
SEEDS = range(12)
#: What runs are held to beside the invariants over histories.
LIVENESS = (ADD_RESOLVES, EVENTUALLY_CLOSED)
#: Defects that calm weather shows as well.
EVERYWHERE = {"ack-quorum-one-short"}


def test_every_mutant_is_hunted_here() -> None:
    assert MUTANTS.keys() == WHERE.keys()
    for name, mutant in MUTANTS.items():
        assert mutant.name == name
        assert mutant.summary
        known = {*INVARIANTS, *LIVENESS}
        assert set(mutant.invariants) <= known, "an invariant that nobody checks catches nothing"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_by_the_invariants_it_breaks_and_the_shipped_code_breaks_none(name: str) -> None:
    scenario, runs_min, invariants_min = WHERE[name]
    broken = {seed: {v.invariant for v in play(scenario, seed, name).result.violations} for seed in SEEDS}
    caught = [seed for seed in SEEDS if broken[seed] & set(MUTANTS[name].invariants)]
    assert len(caught) >= runs_min
    for invariant, least in invariants_min.items():
        assert invariant in MUTANTS[name].invariants
        assert sum(invariant in broken[seed] for seed in SEEDS) >= least, invariant
    for seed in caught:
        assert play(scenario, seed, name).result.verdict == "violated"
        assert play(scenario, seed).result.verdict == "ok"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_violation_points_to_the_events_that_show_it(name: str) -> None:
    scenario = WHERE[name][0]
    violations = [(seed, v) for seed in SEEDS for v in play(scenario, seed, name).result.violations]
    for seed, violation in violations:
        events = play(scenario, seed, name).events
        assert violation.seqs
        assert all(0 <= seq < len(events) for seq in violation.seqs)
        assert violation.witness
        assert violation.ledger in {event.ledger for event in events}


@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in EVERYWHERE])
def test_a_mutant_without_anything_to_break_is_not_accused(name: str) -> None:
    for seed in range(2):
        result = run_scenario("calm-writes", seed, mutant=name)
        assert (result.verdict, result.mutant) == ("ok", name)


def test_the_falsified_reads_arrive_without_their_fence_and_nothing_else_is_changed() -> None:
    """The recorder sits closer to the network than the mutant, so the history shows what really went out."""
    mutant = play("lost-fence", 0, "recovery-reads-do-not-fence")
    shipped = play("lost-fence", 0)
    assert {event.fields["fence"] for event in mutant.of(Kind.REC_READ_SEND)} <= {False}
    assert {event.fields["fence"] for event in shipped.of(Kind.REC_READ_SEND)} == {True}
    assert mutant.of(Kind.FENCE_SEND)


def test_a_patch_is_in_place_during_the_run_and_undone_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    original = bkclient.protocol.recovery.starting_lac
    seen: list[int] = []

    async def look(stage: Stage) -> None:
        seen.append(bkclient.protocol.recovery.starting_lac(3, 10))

    scenario = Scenario("looking", "", "", look)
    monkeypatch.setattr(scenarios.runner, "SCENARIOS", {**SCENARIOS, "looking": scenario})
    run_scenario("looking", 0, mutant="recovery-starts-below-last-fragment")
    run_scenario("looking", 0)
    assert seen == [3, 9]
    assert bkclient.protocol.recovery.starting_lac is original


@pytest.mark.parametrize("failure", [RuntimeError("injected"), KeyboardInterrupt()])
def test_a_patch_is_undone_when_the_run_fails(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    original = bkclient.protocol.recovery.starting_lac

    async def fail(stage: Stage) -> None:
        raise failure

    monkeypatch.setattr(scenarios.runner, "SCENARIOS", {"failing": Scenario("failing", "", "", fail)})
    try:
        run_scenario("failing", 0, mutant="recovery-starts-below-last-fragment")
    except KeyboardInterrupt:
        assert isinstance(failure, KeyboardInterrupt)
    assert bkclient.protocol.recovery.starting_lac is original


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_that_replaces_nothing_or_one_function_can_be_applied_again_and_again(name: str) -> None:
    original = bkclient.protocol.recovery.starting_lac
    for _ in range(3):
        with MUTANTS[name].applied():
            pass
        assert bkclient.protocol.recovery.starting_lac is original
