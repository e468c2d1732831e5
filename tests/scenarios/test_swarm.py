"""Swarms: plans that are drawn are plans like others, and no run of one accuses the shipped client."""

from __future__ import annotations

from pathlib import Path

import pytest

import scenarios.runner
from scenarios.history import Kind
from scenarios.model import TransportKind
from scenarios.plan import parse_plan, print_plan
from scenarios.plan.faults import FAULTS, Budget, Wipe
from scenarios.plan.log_operations import LOG_OPERATIONS, DropCursor, FlushLog, RecoverLogEnd
from scenarios.plan.model import Expected
from scenarios.plan.named import DRAWN, plan_named
from scenarios.plan.operations import OPERATIONS, Append, AppendAll, AppendAt, Decommission, RunAutoRecovery
from scenarios.plan.swarm import CAMPAIGNS, LIVENESS, LOGS, SAFETY, TOGETHER, draw_swarm
from scenarios.replaying import replay_history
from scenarios.runner import run_scenario
from simbookie.storage.kinds import StoreKind
from tests.scenarios.played import play

#: What swarms do not draw, because a plan has to be written for it.
UNDRAWN_FAULTS = {"disable-changes", "lose", "start", "restart", "resume", "heal"}
UNDRAWN_OPERATIONS = {AppendAll, Decommission, RunAutoRecovery}
UNDRAWN_LOG_OPERATIONS = {FlushLog, DropCursor, RecoverLogEnd}


@pytest.mark.parametrize("mode", DRAWN)
def test_a_drawn_plan_is_a_value_that_depends_on_its_seed(mode: str) -> None:
    plans = [draw_swarm(seed, mode) for seed in range(40)]
    assert plans == [draw_swarm(seed, mode) for seed in range(40)]
    assert len({print_plan(plan) for plan in plans}) == len(plans)
    assert all(parse_plan(print_plan(plan)) == plan for plan in plans)
    assert all(parse_plan(print_plan(plan, full=True)) == plan for plan in plans[:5])


def test_swarms_draw_every_fault_and_operation_but_a_few() -> None:
    plans = [draw_swarm(seed) for seed in range(400)]
    assert {step.fault.verb for plan in plans for step in plan.steps} == set(FAULTS) - UNDRAWN_FAULTS
    assert {type(operation) for plan in plans for operation in plan.operations} == (
        set(OPERATIONS.values()) - set(LOG_OPERATIONS) - UNDRAWN_OPERATIONS
    )
    together = {type(operation) for seed in range(20) for operation in draw_swarm(seed, TOGETHER).operations}
    assert together >= {AppendAll, AppendAt}
    assert Append not in together
    of_logs = {type(operation) for seed in range(60) for operation in draw_swarm(seed, LOGS).operations}
    assert of_logs >= set(LOG_OPERATIONS) - UNDRAWN_LOG_OPERATIONS
    assert {plan.cluster.store for plan in plans} == {None, *StoreKind}
    kinds = [{step.fault.verb for step in plan.steps} - {"end"} for plan in plans]
    assert max(map(len, kinds)) <= 12  # messages alone are four, and connections three
    assert min(map(len, kinds)) <= 1


def test_a_campaign_has_clusters_of_its_shape() -> None:
    for name, (bookies, sizes) in CAMPAIGNS.items():
        clusters = [draw_swarm(seed, name).cluster for seed in range(30)]
        assert {cluster.bookies for cluster in clusters} == {bookies}
        assert {str(cluster.sizes) for cluster in clusters} == {"/".join(map(str, each)) for each in sizes}


def test_what_takes_copies_or_bookies_says_so() -> None:
    assert {verb: fault.budget for verb, fault in FAULTS.items() if fault.budget is not Budget.NOTHING} == {
        "alter": Budget.COPIES,
        "lose": Budget.COPIES,
        "wipe": Budget.BOOKIE,
        "foreign-cookie": Budget.BOOKIE,
    }
    assert any(isinstance(step.fault, Wipe) for seed in range(200) for step in draw_swarm(seed, LIVENESS).steps)


def test_what_has_to_end_is_within_what_a_ledger_survives() -> None:
    for seed in range(200):
        live, anything = draw_swarm(seed, LIVENESS), draw_swarm(seed, SAFETY)
        assert live.expect.verdict is Expected.SAFE
        taken = {
            budget: {step.fault.hosts[0] for step in live.steps if step.fault.budget is budget}
            for budget in (Budget.COPIES, Budget.BOOKIE)
        }
        assert len(taken[Budget.COPIES] | taken[Budget.BOOKIE]) < live.cluster.sizes.ack_quorum
        assert len(taken[Budget.BOOKIE]) <= live.cluster.bookies - live.cluster.sizes.ensemble
        assert anything.expect.verdict is Expected.ANYTHING
        timeouts = live.cluster.client.timeouts
        assert live.patience_s > 10 * max(timeouts.add_s, timeouts.read_s)


@pytest.mark.parametrize("mode", DRAWN)
@pytest.mark.parametrize(
    "transport", [TransportKind.OBJECTS, pytest.param(TransportKind.BYTES, marks=pytest.mark.deep)]
)
def test_swarms_accuse_nobody(mode: str, transport: TransportKind) -> None:
    for seed in range(6):
        result = run_scenario(mode, seed, transport=transport)
        assert (result.verdict, result.problem, result.violations) == ("ok", "", ()), f"seed {seed}"


@pytest.mark.parametrize("seed", [229, 1299])
def test_a_repair_of_a_ledger_with_deferred_sync_is_accused_of_nothing(seed: int) -> None:
    """These are seeds in which it gives other bookies to entries that were acknowledged, not durable, and then cut off."""
    run = play(SAFETY, seed)
    ends = {close.ledger: close.fields["last_entry"] for close in run.of(Kind.META_CAS, cause="close", outcome="ok")}
    repaired = {change.ledger for change in run.of(Kind.META_CAS, cause="rereplicate", outcome="ok")}
    assert any(
        not ack.fields["durable"] and ack.ledger in repaired and ack.fields["entry"] > ends[ack.ledger]
        for ack in run.of(Kind.APP_ACK)
    )
    assert (run.result.verdict, run.result.violations) == ("ok", ())


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", DRAWN)
@pytest.mark.parametrize("transport", TransportKind)
def test_swarms_accuse_nobody_with_many_seeds(mode: str, transport: TransportKind) -> None:
    found: dict[int, object] = {}
    for seed in range(500):
        result = run_scenario(mode, seed, transport=transport)
        if result.verdict != "ok":
            found[seed] = (result.problem, result.violations)
    assert found == {}


def test_a_history_of_a_swarm_is_replayed_without_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_scenario(SAFETY, 3, record=tmp_path)
    monkeypatch.setattr(scenarios.runner, "plan_named", None)
    made = replay_history(Path(result.path))
    assert made.is_same
    assert made.result.scenario == SAFETY


def test_names_stand_for_plans() -> None:
    assert plan_named(SAFETY, 7) == draw_swarm(7)
    with pytest.raises(KeyError):
        plan_named("tea-party", 0)
