"""Planted defects are found by the invariants they break, and leave nothing behind."""

from __future__ import annotations

import pytest

import bkclient.protocol.recovery
import scenarios.runner
from scenarios.clauses import INVARIANTS
from scenarios.history import Kind
from scenarios.library import SCENARIOS
from scenarios.model import Scenario
from scenarios.mutants import RUN_MUTANTS as MUTANTS
from scenarios.runner import run_scenario
from scenarios.stage import Stage
from tests.scenarios.played import play

#: In which scenario a mutant shows itself, and which clauses it breaks there, in how many of the first twelve seeds at least.
WHERE = {
    "recovery-reads-do-not-fence": ("lost-fence", {"A1": 4, "D3": 6, "E5": 2, "F5": 2}),
    "recovery-takes-silence-for-denial": ("lost-reads", {"A1": 1, "E3": 6}),
    "recovery-takes-silence-for-fenced": ("lost-reads", {"D4": 1}),
    "write-back-takes-silence-for-stored": ("lost-write-backs", {"E6": 8}),
    "writer-takes-silence-for-stored": ("bookie-crash", {"A2": 5, "A4": 1, "A5": 5, "A9": 1, "B4": 5, "D6": 5}),
    "cancelled-append-takes-its-entry-out": ("cancelled-callers", {"L2": 8}),
    "cancelled-append-counts-as-stored": ("cancelled-callers", {"A3": 2, "B4": 1}),
    "digests-are-not-verified": ("altered-copies", {"A8": 2, "B6": 1, "D9": 2, "D14": 1, "F4": 1}),
    "late-answers-are-taken-for-new-ones": ("late-answer-meets-next-read", {"M2": 12}),
    "bookie-forgets-fence-when-evicted": ("eviction-keeps-fence", {"D1": 12, "E5": 3}),
    "journal-acknowledges-before-sync": ("torn-group", {"A1": 12}),
    "bookie-believes-listings": (
        "listing-omits-ledger",
        {"A4": 12, "A5": 12, "A9": 12, "B4": 12, "D12": 12, "L1": 12},
    ),
    "bookie-drops-what-it-got-again": ("surplus-copy-is-needed-again", {"A5": 12, "B4": 12, "D12": 12}),
    "bookie-ignores-its-cookie": ("replaced-disk-refused", {"D15": 12}),
    "bookie-vouches-for-what-it-lost": ("replaced-disk-forced", {"D17": 12}),
    "bookie-in-doubt-leaves-closed-ledgers-unfenced": ("replaced-disks-checked-and-zombie", {"D17": 12}),
    "compaction-moves-before-it-flushes": ("compaction-crash-after-index", {"L1": 12}),
    "recovery-starts-below-last-fragment": ("bookie-crash", {"A1": 1, "B9": 1, "E1": 1, "F5": 1}),
    "one-denial-decides": ("lost-reads", {"E3": 5}),
    "recovery-closes-before-write-back": ("lost-write-backs", {"E6": 8}),
    "recovery-closes-at-found-lac": ("dead-writer", {"A1": 4, "B6": 8, "E7": 10, "F5": 1}),
    "recovery-reads-from-replacements": ("racing-change", {"E2": 1, "E3": 1}),
    "undecided-entry-ends-ledger": ("lost-reads", {"A1": 1, "E7": 6, "E11": 6}),
    "recovery-believes-the-last-answer": ("denial-comes-last", {"A1": 12, "E3": 12}),
    "recovery-waits-for-every-bookie": ("recovery-with-silent-bookie", {"L3": 12}),
    "timeouts-are-told-as-a-missing-ledger": ("read-answer-timeouts", {"L8": 12}),
    "writer-closes-at-the-lac-it-told": ("happy-path", {"A1": 12, "A11": 12, "B6": 12}),
    "writer-takes-fence-for-failure": ("zombie-returns", {"A12": 12}),
    "recovery-lac-advances": ("dead-writer", {"E9": 5}),
    "failed-bookie-counts-for-every-entry": ("write-backs-fail-crosswise", {"L10": 12}),
    "ack-quorum-one-short": ("hasty-close", {"A2": 4, "A5": 1}),
    "acks-after-close": ("hasty-close", {"A1": 1, "A7": 1, "L2": 6}),
    "writer-closes-at-last-pushed": ("hasty-close", {"A9": 1, "B4": 6, "B6": 8, "L1": 1}),
    "writer-trusts-new-connections": ("forgotten-fence", {"A1": 12, "F5": 6}),
    "acks-during-ensemble-change": ("moving-reader", {"C6": 3}),
    "recovery-does-not-mark": ("writer-dies-before-ack", {"E8": 12}),
    "recovery-closes-over-closed": ("two-recoverers", {"B1": 12, "B2": 4, "B3": 4, "F3": 4}),
    "close-takes-conflict-for-success": ("close-meets-recovery", {"A11": 12}),
    "writer-closes-over-closed": ("zombie-returns", {"B1": 12}),
    "change-sorts-its-ensemble": ("slow-change", {"C5": 12}),
    "writer-goes-on-with-an-open-ledger": (
        "program-started-again",
        {"A8": 12, "D9": 12, "D14": 12, "E8": 12, "G1": 12},
    ),
    "conflict-refreshes-the-version-only": ("repair-meets-writer", {"B1": 12, "B2": 12, "C3": 12}),
    "unknown-write-counts-as-made": ("change-lost", {"C8": 12}),
    "given-up-change-may-come-later": ("change-in-doubt", {"C6": 12}),
    "recovery-publishes-ensembles": ("recovery-replaces-bookie", {"C7": 12}),
    "bookie-fences-known-ledgers-only": ("fence-lost-late-add", {"A1": 12, "D3": 12, "E5": 12}),
    "bookie-refuses-recovery-adds": ("writer-dies-before-ack", {"D13": 12, "L1": 12}),
    "bookie-forgets-what-was-deleted": ("delete-meets-zombie", {"A1": 12, "D1": 12, "E5": 12}),
    "fence-is-answered-before-it-is-durable": ("crash-before-fence-is-durable", {"D2": 12}),
    "fenced-bookie-fills-gaps": ("fence-lost-late-add", {"A1": 12, "D1": 12, "E5": 12}),
    "recovery-flag-is-lost": ("writer-dies-before-ack", {"G1": 12, "L1": 12}),
    "adds-tell-the-lac-of-what-was-pushed": ("happy-path", {"D6": 12}),
    "entries-confirm-themselves": ("happy-path", {"D6": 12, "G2": 12}),
    "length-leaves-the-entry-out": ("happy-path", {"B6": 12}),
    "reader-follows-nothing": ("tail-reader", {"L1": 12}),
    "repair-copies-nothing": ("repair-of-striped-ledger", {"A5": 12, "B4": 12}),
    "repair-leaves-the-last-entry-out": ("repair-of-striped-ledger", {"A5": 12, "B4": 12}),
    "repair-replaces-the-wrong-bookie": ("repair-of-striped-ledger", {"A5": 12, "B4": 12}),
    "recovery-reads-without-coverage": ("asymmetric-recoverer", {"D4": 12}),
    "coverage-counts-bookies-in-total": ("split-minimal-fence", {"D4": 12}),
    "change-starts-above-next-entry": ("ack-loss", {"A2": 12, "C6": 12, "C8": 12}),
    "change-starts-at-confirmed-entry": ("ack-loss", {"A5": 12, "B4": 12, "C6": 12}),
    "ensemble-used-before-stored": ("slow-change", {"A2": 12, "A5": 12, "B4": 12, "C8": 12}),
    "change-ignores-takeover": ("change-meets-mark", {"C7": 12}),
    "nothing-resent-after-change": ("add-loss-below-quorum", {"L2": 12}),
    "close-counts-what-it-cuts-off": ("deferred-sync", {"B6": 12}),
    "acks-above-gaps": ("given-ids", {"A3": 12, "A9": 12, "B4": 12, "L1": 12}),
    "rot-counts-as-denial": ("corrupt-entry", {"A1": 12, "E3": 12}),
    "reads-go-beyond-the-lac": ("read-beyond-lac", {"F1": 12}),
    "replaced-bookie-keeps-acknowledgements": ("reset-storm", {"A2": 4}),
    "replaced-bookie-still-answers": ("reset-storm", {"A2": 11}),
    "acks-out-of-order": ("given-ids", {"A3": 12, "A9": 12, "B4": 12, "L1": 12}),
    "delayed-failures-not-counted": ("delayed-change", {"L2": 12}),
    "only-last-failed-bookie-replaced": ("delayed-change-of-two", {"L2": 12}),
    "irreplaceable-bookies-forgotten": ("delayed-change-without-spare", {"L2": 12}),
    "disabled-change-never-retried": ("changes-disabled", {"L2": 12}),
    "only-first-entry-retried": ("changes-disabled", {"L2": 12}),
    "lac-follows-acks-in-spite-of-deferred-sync": ("deferred-entries-cut-off", {"L1": 12}),
    "close-includes-what-was-not-forced": ("deferred-entries-cut-off", {"L1": 12}),
    "force-covers-what-came-meanwhile": ("force-and-late-append", {"L1": 12}),
    "fault-domains-ignored": ("acks-wait-for-second-rack", {"A13": 12}),
    "force-after-close-succeeds": ("force-meets-close", {"D16": 12}),
    "force-needs-ack-quorum-only": ("force-needs-every-bookie", {"L1": 12}),
    "deferred-sync-allows-ensemble-changes": ("deferred-sync-and-failed-bookie", {"C6": 12}),
    "duplicates-below-sequence-head-accepted": ("given-ids-again", {"A8": 12, "D9": 12, "D14": 12}),
    "answers-count-instead-of-bookies": ("reset-storm", {"A2": 8}),
    "log-writes-before-listing": ("log-tail-across-takeover", {"H5": 12, "H8": 12}),
    "log-takes-conflicts-for-success": ("log-cursor-comes-during-roll", {"H5": 12, "H8": 12, "H9": 12}),
    "log-does-not-fence-its-predecessor": ("log-partitioned-owner", {"H1": 9, "H7": 4, "H8": 9, "H10": 12}),
    "log-takes-its-predecessor-for-empty": ("log-partitioned-owner", {"H1": 9, "H7": 9, "H8": 9, "H10": 12}),
    "log-rolls-without-closing": ("log-tail-across-takeover", {"H9": 12, "H10": 12}),
    "log-sends-again-what-was-stored": ("log-stranger-recovers-end", {"H2": 12, "H3": 12}),
    "log-sends-again-backwards": ("log-bookies-too-few", {"H3": 12}),
    "log-owner-trusts-its-clock": ("log-clocks-drift", {"H21": 12}),
    "log-acknowledges-what-was-cut-off": ("log-bookies-too-few", {"H1": 12, "H8": 12}),
    "log-loses-its-queue-when-it-rolls": ("log-cursor-comes-during-trim", {"L2": 12}),
    "log-deletes-what-may-be-listed": ("log-list-answer-lost", {"H6": 12}),
    "log-ignores-who-owns-it": ("log-list-meets-claim", {"H8": 12}),
    "log-tells-ids-crosswise": ("log-two-owners-race", {"H1": 7, "H2": 7, "H3": 7}),
    "log-reader-skips-a-ledger": ("log-bookies-too-few", {"H1": 12}),
    "log-reader-passes-over-what-was-trimmed": ("log-reader-overtaken", {"H1": 12}),
    "log-reader-repeats-an-entry": ("log-bookies-too-few", {"H4": 12}),
    "log-trim-ignores-cursors": ("log-trim-against-slow-cursor", {"H11": 12}),
    "log-trim-ignores-new-cursors": ("log-cursor-comes-during-trim", {"H11": 12}),
    "log-trim-deletes-first": ("log-cursor-comes-during-trim", {"H6": 12}),
    "log-cursor-ignores-who-has-it": ("log-cursor-taken-over", {"H13": 12}),
    "log-group-acknowledges-what-it-reads": ("log-group-member-dies", {"H14": 12}),
    "log-cursor-forgets-its-position": ("log-group-fails-over", {"H12": 12}),
    "log-group-reads-from-the-beginning": ("log-group-member-dies", {"H12": 8}),
    "log-group-has-many-active": ("log-group-fails-over", {"H19": 12}),
    "log-group-goes-by-an-old-list": ("log-group-opens-late", {"H19": 12}),
    "log-group-reads-without-opening": ("log-group-fails-over", {"H20": 12}),
    "log-compaction-keeps-the-oldest": ("log-compaction-dies-before-pointing", {"H15": 12, "H16": 12}),
    "log-compaction-drops-a-key": ("log-compaction-dies-before-pointing", {"H15": 12}),
    "log-compaction-forgets-deletions": ("log-compaction-dies-before-pointing", {"H16": 12}),
    "log-compaction-points-to-an-open-ledger": ("log-compaction-dies-before-pointing", {"H15": 12, "H17": 12}),
    "log-compaction-deletes-first": ("log-compaction-dies-before-deleting", {"H17": 12}),
    "log-compaction-ignores-another": ("log-compaction-overtaken", {"H15": 12, "H16": 12, "H18": 12}),
    "log-trim-ignores-compaction": ("log-compaction-meets-trim", {"H15": 12, "H18": 12}),
}
SEEDS = range(12)
#: For a defect that shows itself in every run; ``bk-chaos mutants`` has more for all.
SEEDS_ENOUGH = range(4)
#: Defects that calm weather shows as well.
EVERYWHERE = {
    "acks-out-of-order",
    "acks-above-gaps",
    "ack-quorum-one-short",
    "adds-tell-the-lac-of-what-was-pushed",
    "entries-confirm-themselves",
    "length-leaves-the-entry-out",
    "reader-follows-nothing",
    "writer-closes-at-the-lac-it-told",
}


def seeds_of(name: str) -> range:
    """The first twelve, but for a mutant that breaks each of its clauses in all of these."""
    return SEEDS_ENOUGH if set(WHERE[name][1].values()) == {len(SEEDS)} else SEEDS


def test_every_mutant_is_hunted_here_and_names_the_clauses_it_breaks() -> None:
    assert MUTANTS.keys() == WHERE.keys()
    for name, mutant in MUTANTS.items():
        assert mutant.name == name
        assert mutant.summary
        assert set(WHERE[name][1]) <= set(mutant.clauses)
        assert mutant.invariants == tuple(name for name in INVARIANTS if set(INVARIANTS[name]) & set(mutant.clauses))


@pytest.mark.deep
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_breaks_its_clauses_and_the_shipped_code_breaks_none(name: str) -> None:
    (scenario, least), seeds = WHERE[name], seeds_of(name)
    broken = {seed: {v.clause for v in play(scenario, seed, name).result.violations} for seed in seeds}
    for clause, runs in least.items():
        assert sum(clause in broken[seed] for seed in seeds) >= min(runs, len(seeds)), clause
    for seed in seeds:
        assert play(scenario, seed).result.verdict == "ok"
        if broken[seed]:
            assert play(scenario, seed, name).result.verdict == "violated"


@pytest.mark.deep
@pytest.mark.parametrize("name", MUTANTS)
def test_a_violation_points_to_the_events_that_show_it(name: str) -> None:
    scenario = WHERE[name][0]
    violations = [(seed, v) for seed in seeds_of(name) for v in play(scenario, seed, name).result.violations]
    for seed, violation in violations:
        events = play(scenario, seed, name).events
        assert violation.seqs
        assert all(0 <= seq < len(events) for seq in violation.seqs)
        assert violation.witness
        assert violation.ledger in {event.ledger for event in events}


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in EVERYWHERE])
def test_a_mutant_without_anything_to_break_is_not_accused(name: str) -> None:
    for seed in range(2):
        result = run_scenario("calm-writes", seed, mutant=name)
        assert (result.verdict, result.mutant) == ("ok", name)


def test_the_falsified_reads_arrive_without_their_fence_and_nothing_else_is_changed() -> None:
    """The recorder sits closer to the network than the mutant, so the history shows what really went out."""
    mutant = play("lost-fence", 0, "recovery-reads-do-not-fence")
    shipped = play("lost-fence", 0)
    assert {event.fields["fence"] for event in mutant.of(Kind.REC_READ_SEND)} == {False}
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
