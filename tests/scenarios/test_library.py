"""Every scenario holds, and every one really does what it is there for.

A scenario that silently stops testing anything passes for ever. So the second half counts, over a fixed set of seeds, the
situations each scenario was written for, and asks for about half of what there were when this was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

import scenarios.runner
from bkclient.errors import Code
from scenarios.checker import CLAUSES, OnlineChecker
from scenarios.conditions import draw_varied_conditions
from scenarios.history import KINDS, Kind
from scenarios.library import SCENARIOS
from scenarios.plan.library import library_names
from scenarios.runner import run_scenario
from scenarios.situations import SITUATIONS
from tests.scenarios.played import Played, play, seeds_with

SEEDS = range(30)
#: The family about faults during recovery, and about callers and copies that are not as they should be.
FAMILY = (
    "lost-reads",
    "lost-write-backs",
    "killed-at-decision",
    "rival-recoveries",
    "racing-change",
    "moving-reader",
    "altered-copies",
    "hasty-close",
    "cancelled-callers",
    "forgotten-fence",
)
FENCED = int(Code.LEDGER_FENCED)


def seeds_of(scenario: str) -> range:
    """Fewer of the family: it has many scenarios, each of which meets its fault in every run."""
    return range(12) if scenario in FAMILY else SEEDS


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_correct_client_and_correct_bookies_break_no_invariant(scenario: str) -> None:
    for seed in seeds_of(scenario):
        result = play(scenario, seed).result
        assert (result.verdict, result.violations, result.problem) == ("ok", (), ""), f"seed {seed}"


#: Runs that had no verdict: lost messages left a writer without a spare bookie, or a reader without an answer.
UNDECIDED_ONCE = (
    ("calm-writes", 20261126000109),
    ("calm-writes", 20261126000207),
    ("dead-writer", 20261127000014),
)


@pytest.mark.parametrize(("scenario", "seed"), UNDECIDED_ONCE)
def test_messages_that_the_network_loses_leave_no_run_without_a_verdict(scenario: str, seed: int) -> None:
    result = run_scenario(scenario, seed)

    assert (result.verdict, result.problem) == ("ok", "")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_run_is_a_whole_story(scenario: str) -> None:
    for seed in seeds_of(scenario):
        played = play(scenario, seed)
        result, events = played.result, played.events
        assert result.events == len(events) > 50
        assert [event.seq for event in events] == list(range(len(events)))
        times = [event.time_us for event in events]
        assert times == sorted(times)
        assert 0.01 < result.simulated_seconds < 600
        assert times[-1] <= result.simulated_seconds * 1e6 + 1
        assert all(tuple(event.fields) == KINDS[event.kind] for event in events)
        assert len(played.of(Kind.META_CAS, cause="create", outcome="ok")) == 1
        assert played.of(Kind.META_CAS, cause="close", outcome="ok")
        assert played.of(Kind.APP_ADD)
        assert [event.seq for event in played.of(Kind.RUN_END, completed=True)] == [len(events) - 1]
        for index in range(2):
            assert played.of(Kind.OPEN_RESULT, actor=f"final-{index}", code=0, state="CLOSED"), "all is read in the end"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_final_clients_read_every_entry_of_the_closed_ledger(scenario: str) -> None:
    for seed in seeds_of(scenario):
        played = play(scenario, seed)
        (closed,) = played.of(Kind.META_CAS, cause="close", outcome="ok")
        for index in range(2):
            read = [event.fields["entry"] for event in played.of(Kind.READ_RESULT, actor=f"final-{index}", code=0)]
            assert read == list(range(closed.fields["last_entry"] + 1)), f"seed {seed}"


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name not in FAMILY])
def test_seeds_vary_quorums_weather_and_stories(scenario: str) -> None:
    sizes = set()
    for seed in seeds_of(scenario):
        create = play(scenario, seed).of(Kind.META_CAS, cause="create")[0].fields
        sizes.add((create["ensemble_size"], create["write_quorum_size"], create["ack_quorum_size"]))
    assert len(sizes) >= 5
    assert any(ensemble > write for ensemble, write, _ in sizes), "striped"
    assert any(write > ack for _, write, ack in sizes)
    assert len({play(scenario, seed).result.digest for seed in seeds_of(scenario)}) == len(seeds_of(scenario))


def test_the_library_gives_nearly_every_clause_plenty_to_judge() -> None:
    """A clause that no run ever puts to the test proves nothing by holding."""
    judged = how_often_judged((scenario, seed) for scenario in SCENARIOS for seed in seeds_of(scenario))
    of_logs = {clause for clause in CLAUSES if clause.startswith("H")}  # see the next test
    something_wrong = {"A6", "A7", "C7", "D1", "E5"}  # judged only where something is wrong already
    in_plans_only = {"D11", "D12", "D15", "D17"}  # bookies in limbo, in doubt, with cookies; collections of garbage
    in_plans_only |= {"A13", "D16"}  # racks; forces
    rare = {"B2", "C11", "L10"}  # a write to a ledger that is closed, or deleted; a recovery that gives up
    seldom = {clause for clause in CLAUSES if judged[clause] < 20}
    assert seldom <= something_wrong | in_plans_only | rare | of_logs


@pytest.mark.deep
def test_the_plans_about_logs_give_their_clauses_plenty_to_judge() -> None:
    judged = how_often_judged((name, 0) for name in library_names() if name.startswith("log-"))
    rare = {"H11", "H18", "H19"}
    assert {clause for clause in CLAUSES if clause.startswith("H") and judged[clause] < 50} == rare
    plans = (
        *("log-cursor-taken-over", "log-trim-against-slow-cursor"),
        *("log-compaction-meets-trim", "log-group-takes-turns"),
    )
    judged = how_often_judged((name, seed) for name in plans for seed in range(4))
    assert all(judged[clause] >= 10 for clause in rare)


def how_often_judged(runs: Iterable[tuple[str, int]]) -> Counter[str]:
    """By clause, how often it was put to the test in these runs."""
    judged: Counter[str] = Counter()
    for scenario, seed in runs:
        checker = OnlineChecker()
        for event in play(scenario, seed).events:
            checker.feed(event)
        assert checker.skipped == 0
        judged.update(checker.judged)
    return judged


# What each scenario is for ----------------------------------------------------------------------------------------


def test_calm_writes_never_fails_an_append_and_has_a_reader_that_tails() -> None:
    for seed in SEEDS:
        played = play("calm-writes", seed)
        assert not played.of(Kind.APP_FAIL)
        assert not played.of(Kind.REC_START)
        assert len(played.of(Kind.APP_ACK)) == len(played.of(Kind.APP_ADD)) >= 10
        (close,) = played.of(Kind.CLOSE_RESULT)
        assert close.fields["code"] == 0
        assert close.fields["last_entry"] == len(played.of(Kind.APP_ACK)) - 1
    assert len(seeds_with("calm-writes", SEEDS, tails_an_open_ledger)) >= 15


def tails_an_open_ledger(played: Played) -> bool:
    closed = played.of(Kind.META_CAS, cause="close", outcome="ok")[0].seq
    return any(event.seq < closed for event in played.of(Kind.READ_RESULT, actor="tailer", code=0))


def test_bookie_crash_changes_ensembles_and_loses_writers_right_after_that() -> None:
    def changes(played: Played) -> bool:
        return bool(played.of(Kind.META_CAS, cause="ensemble", outcome="ok"))

    def adds_a_fragment(played: Played) -> bool:
        return any(len(e.fields["fragments"]) > 1 for e in played.of(Kind.META_CAS, cause="ensemble", outcome="ok"))

    def writer_dies_with_its_change(played: Played) -> bool:
        change = played.of(Kind.META_CAS, cause="ensemble", outcome="ok")
        crash = played.of(Kind.CLIENT_CRASH, actor="writer")
        return bool(change and crash) and 0 <= crash[0].time_us - change[0].time_us <= 10_000

    def last_fragment_stays_empty(played: Played) -> bool:
        """What a recovery that trusts the new fragment's bookies alone gets wrong."""
        close = played.of(Kind.META_CAS, cause="close", outcome="ok")[0].fields
        return len(close["fragments"]) > 1 and close["fragments"][-1][0] > close["last_entry"]

    def loses_what_was_not_synced(played: Played) -> bool:
        return bool(played.of(Kind.BK_LOSS))

    def comes_back_while_the_ledger_is_open(played: Played) -> bool:
        closed = played.of(Kind.META_CAS, cause="close", outcome="ok")[0].seq
        return any(event.seq < closed for event in played.of(Kind.BK_RESTART))

    assert len(seeds_with("bookie-crash", SEEDS, lambda played: played.of(Kind.BK_CRASH, clean=False))) == len(SEEDS)
    assert len(seeds_with("bookie-crash", SEEDS, changes)) >= 15
    assert len(seeds_with("bookie-crash", SEEDS, adds_a_fragment)) >= 12
    assert len(seeds_with("bookie-crash", SEEDS, writer_dies_with_its_change)) >= 8
    assert len(seeds_with("bookie-crash", SEEDS, last_fragment_stays_empty)) >= 5
    assert len(seeds_with("bookie-crash", SEEDS, loses_what_was_not_synced)) >= 2
    assert len(seeds_with("bookie-crash", SEEDS, comes_back_while_the_ledger_is_open)) >= 9


def test_dead_writer_leaves_tails_that_are_decided_either_way_by_one_or_two_recoverers() -> None:
    def two_recoverers(played: Played) -> bool:
        return len({event.actor for event in played.of(Kind.OPEN_START, recovery=True)} - FINAL) == 2

    def at_the_same_time(played: Played) -> bool:
        starts = {event.actor: event.seq for event in played.of(Kind.OPEN_START, recovery=True)}
        ends = {event.actor: event.seq for event in played.of(Kind.OPEN_RESULT, recovery=True)}
        first, second = (f"recoverer-{i}" for i in range(2))
        never = len(played.events)
        return {first, second} <= starts.keys() and max(starts[first], starts[second]) < min(
            ends.get(first, never), ends.get(second, never)
        )

    def recovers_what_was_never_acknowledged(played: Played) -> bool:
        acknowledged = max((event.fields["entry"] for event in played.of(Kind.APP_ACK)), default=-1)
        return any(e.fields["entry"] > acknowledged for e in played.of(Kind.REC_DECIDE, verdict="positive"))

    def cuts_off_what_a_bookie_has(played: Played) -> bool:
        end = played.of(Kind.META_CAS, cause="close", outcome="ok")[0].fields["last_entry"]
        return any(event.fields["entry"] > end for event in played.of(Kind.BK_STORE))

    def a_recoverer_dies(played: Played) -> bool:
        return bool(played.of(Kind.CLIENT_CRASH, actor="recoverer-0"))

    assert len(seeds_with("dead-writer", SEEDS, lambda p: p.of(Kind.CLIENT_CRASH, actor="writer"))) == len(SEEDS)
    assert len(seeds_with("dead-writer", SEEDS, lambda p: p.of(Kind.REC_DECIDE, verdict="negative"))) >= 25
    assert len(seeds_with("dead-writer", SEEDS, recovers_what_was_never_acknowledged)) >= 12
    assert len(seeds_with("dead-writer", SEEDS, cuts_off_what_a_bookie_has)) >= 2
    assert len(seeds_with("dead-writer", SEEDS, two_recoverers)) >= 8
    assert len(seeds_with("dead-writer", SEEDS, at_the_same_time)) >= 6
    assert len(seeds_with("dead-writer", SEEDS, a_recoverer_dies)) >= 4


FINAL = {"final-0", "final-1"}


def test_zombie_writer_has_writers_that_meet_a_fence_and_writers_that_find_the_ledger_closed() -> None:
    def told_by_a_bookie(played: Played) -> bool:
        return bool(played.of(Kind.ADD_RESP, actor="writer", code=FENCED))

    def closed_behind_its_back(played: Played) -> bool:
        return any(e.actor != "writer" for e in played.of(Kind.META_CAS, cause="close", outcome="ok"))

    def closed_while_asleep(played: Played) -> bool:
        closed = played.of(Kind.META_CAS, cause="close", outcome="ok")[0].seq
        return any(resume.seq > closed for resume in played.of(Kind.CLIENT_RESUME))

    def wakes_up_during_the_recovery(played: Played) -> bool:
        started, ended = played.of(Kind.OPEN_START, actor="recoverer"), played.of(Kind.OPEN_RESULT, actor="recoverer")
        return any(started[0].seq < resume.seq < ended[0].seq for resume in played.of(Kind.CLIENT_RESUME))

    def writes_on_afterwards(played: Played) -> bool:
        fenced = played.of(Kind.FENCE_SET)
        return bool(fenced) and any(e.seq > fenced[0].seq for e in played.of(Kind.ADD_SEND, recovery=False))

    def tries_to_close_what_others_closed(played: Played) -> bool:
        return bool(played.of(Kind.META_CAS, actor="writer", cause="close", outcome="conflict"))

    assert len(seeds_with("zombie-writer", SEEDS, lambda p: p.of(Kind.APP_FAIL, code=FENCED))) >= 10
    assert len(seeds_with("zombie-writer", SEEDS, told_by_a_bookie)) >= 10
    assert len(seeds_with("zombie-writer", SEEDS, closed_behind_its_back)) >= 10
    assert len(seeds_with("zombie-writer", SEEDS, closed_while_asleep)) >= 4
    assert len(seeds_with("zombie-writer", SEEDS, wakes_up_during_the_recovery)) >= 4
    assert len(seeds_with("zombie-writer", SEEDS, writes_on_afterwards)) >= 12
    assert len(seeds_with("zombie-writer", SEEDS, tries_to_close_what_others_closed)) >= 10


def test_lost_fence_loses_fences_and_lets_late_adds_meet_what_the_reads_have_fenced() -> None:
    def fence_lost_and_decided_all_the_same(played: Played) -> bool:
        lost = {e.fields["bookie"] for e in played.of(Kind.FENCE_SEND, actor="recoverer")} - {
            e.fields["bookie"] for e in played.of(Kind.FENCE_RESP, actor="recoverer", code=0)
        }
        return bool(lost and played.of(Kind.REC_DECIDE, actor="recoverer"))

    def late_add_refused(played: Played) -> bool:
        decided = played.of(Kind.REC_DECIDE, actor="recoverer", verdict="negative")
        return bool(decided) and any(
            e.seq > decided[0].seq and e.fields["entry"] >= decided[0].fields["entry"]
            for e in played.of(Kind.ADD_RESP, actor="writer", code=FENCED)
        )

    def fenced_by_a_read_first(played: Played) -> bool:
        """Where only the reads fence, forgetting that they do is fatal."""
        fenced = {e.actor: e.seq for e in played.of(Kind.FENCE_SET)}
        reads: dict[str, int] = {}
        for event in played.of(Kind.REC_READ_SEND, actor="recoverer", fence=True):
            reads.setdefault(event.fields["bookie"], event.seq)
        answered = {e.fields["bookie"] for e in played.of(Kind.FENCE_RESP, actor="recoverer", code=0)}
        return any(bookie not in answered and reads.get(bookie, seq) < seq for bookie, seq in fenced.items())

    assert len(seeds_with("lost-fence", SEEDS, fence_lost_and_decided_all_the_same)) >= 20
    assert len(seeds_with("lost-fence", SEEDS, late_add_refused)) >= 6
    assert len(seeds_with("lost-fence", SEEDS, fenced_by_a_read_first)) >= 20


# The family of faults during recovery -------------------------------------------------------------------------------


def test_the_family_is_the_rest_of_the_library_and_each_says_what_it_is_about() -> None:
    about = {name: scenario.meets for name, scenario in SCENARIOS.items() if scenario.meets}
    assert sorted(about) == sorted(FAMILY)
    assert {name for meets in about.values() for name in meets} <= SITUATIONS.keys()


@pytest.mark.parametrize("scenario", FAMILY)
def test_every_run_of_the_family_meets_what_it_is_about(scenario: str) -> None:
    for seed in seeds_of(scenario):
        met = play(scenario, seed).result.met
        assert all(met[name] > 0 for name in SCENARIOS[scenario].meets), f"seed {seed}"


def test_the_family_meets_what_scenarios_ask_for_in_several_runs() -> None:
    """A situation that hardly anything leads to would be asked for in vain."""
    met = Counter(
        name for scenario in FAMILY for seed in seeds_of(scenario) for name in play(scenario, seed).result.met
    )
    asked_for = {name for scenario in SCENARIOS.values() for name in scenario.meets}
    assert min(met[name] for name in asked_for) >= 2, met


def test_the_family_draws_shapes_protocols_and_clusters_without_a_spare() -> None:
    drawn = [draw_varied_conditions(seed) for seed in range(100)]
    assert {conditions.transport.protocol_version for conditions in drawn} == {2, 3}
    assert {conditions.bookies - conditions.ensemble_size for conditions in drawn} == {0, 1, 2}
    assert len({(c.ensemble_size, c.write_quorum_size, c.ack_quorum_size) for c in drawn}) >= 12
    assert (
        len({c.client.reading.recovery_read_ahead_entries for c in drawn})
        == len({c.client.reading.read_ahead_entries for c in drawn})
        == 4
    )
    for conditions in drawn:
        assert conditions.client.connections.protocol_version == conditions.transport.protocol_version
        assert conditions.client.timeouts.read_s == conditions.transport.read_timeout_s


def test_a_run_that_never_meets_what_it_is_about_comes_to_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = replace(SCENARIOS["calm-writes"], name="vacuous", meets=("recovery", "unknown-answer"))
    monkeypatch.setattr(scenarios.runner, "SCENARIOS", {**SCENARIOS, "vacuous": calm})
    result = run_scenario("vacuous", 0)
    assert result.verdict == "unknown"
    assert result.problem == "the run never met what it is about: recovery, unknown-answer"


def test_forgotten_fence_has_writers_that_learn_of_the_takeover_from_the_metadata_alone() -> None:
    """Not from a fenced bookie, nor by an ensemble change: all that they have is the read after the reconnection."""

    def is_told_by_no_bookie(played: Played) -> bool:
        first_failure = played.of(Kind.APP_FAIL, actor="writer", code=FENCED)[0].seq
        return not any(e.seq < first_failure for e in played.of(Kind.ADD_RESP, actor="writer", code=FENCED))

    def is_stored_beyond_the_end(played: Played) -> bool:
        end = played.of(Kind.META_CAS, cause="close", outcome="ok")[0]
        return any(e.seq > end.seq and not e.fields["recovery"] for e in played.of(Kind.BK_STORE))

    seeds = seeds_of("forgotten-fence")
    forgotten = [len(play("forgotten-fence", seed).of(Kind.FENCE_LOST)) for seed in seeds]
    assert min(forgotten) >= 1
    assert max(forgotten) >= 3
    assert len(seeds_with("forgotten-fence", seeds, is_told_by_no_bookie)) == len(seeds)
    assert len(seeds_with("forgotten-fence", seeds, is_stored_beyond_the_end)) == len(seeds)
    assert len(seeds_with("forgotten-fence", seeds, lambda p: not p.of(Kind.META_CAS, cause="ensemble"))) == len(seeds)
