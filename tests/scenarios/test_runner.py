"""What comes of one run, whatever happens in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

import scenarios.runner
from bkclient.errors import NotEnoughBookies
from bkclient.transport.link import BookieLink
from bkclient.wire.messages import ReadRequest
from scenarios import reading_back
from scenarios.conditions import Conditions, draw_conditions
from scenarios.ending import history_name
from scenarios.history import FIELDS, KINDS, HistoryError, Kind, read_history
from scenarios.library import SCENARIOS
from scenarios.liveness import EVENTUALLY_CLOSED
from scenarios.model import Scenario, TransportKind
from scenarios.recording.client import RecordedClient
from scenarios.runner import run_scenario
from scenarios.stage import Stage
from simbookie.world.loop import LoopLimits

Story = Callable[[Stage], Awaitable[None]]
Install = Callable[[Story], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a story the scenario ``told``."""

    def put(story: Story) -> None:
        monkeypatch.setattr(scenarios.runner, "SCENARIOS", {"told": Scenario("told", "", "", story)})

    return put


async def write_and_settle(stage: Stage) -> None:
    ledger = stage.ledger()

    async def write(client: RecordedClient) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, 5)
        await stage.finish(writer)

    await stage.client("writer", write).ended()
    await stage.settle(ledger)


def test_a_result_tells_what_was_run_and_what_came_of_it() -> None:
    result = run_scenario("calm-writes", 4)
    assert (result.scenario, result.seed, result.mutant, result.path) == ("calm-writes", 4, "", "")
    assert (result.verdict, result.violations, result.problem) == ("ok", (), "")
    assert result.wall_seconds > 0
    assert len(bytes.fromhex(result.digest)) == 32


def test_a_recorded_run_keeps_its_history_under_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "for it"
    result = run_scenario("dead-writer", 3, record=folder)
    assert result.path == str(folder / "dead-writer-3.bkh")
    header, events = read_history(result.path)
    assert len(events) == result.events
    conditions = draw_conditions(3)
    assert header["scenario"] == "dead-writer"
    assert header["seed"] == 3
    assert header["mutant"] == ""
    assert header["package_version"] == version("bkclient")
    assert header["cluster"]["bookies"] == conditions.bookies
    assert header["cluster"]["ensemble_size"] == conditions.ensemble_size
    assert header["cluster"]["digest_type"] == conditions.digest_type.name
    assert header["cluster"]["network"]["jitter_s"] == conditions.network.jitter_s
    assert header["client"]["timeouts"]["add_s"] == conditions.client.timeouts.add_s
    assert [kind for kind, _ in header["kinds"]] == list(KINDS)
    assert header["fields"] == {name: str(type_) for name, type_ in FIELDS.items()}


def test_recording_changes_nothing(tmp_path: Path) -> None:
    assert run_scenario("zombie-writer", 5, record=tmp_path).digest == run_scenario("zombie-writer", 5).digest


def test_a_run_of_a_mutant_is_named_after_both(tmp_path: Path) -> None:
    name = "recovery-reads-do-not-fence"
    result = run_scenario("lost-fence", 1, mutant=name, record=tmp_path)
    assert Path(result.path).name == history_name("lost-fence", 1, name) == f"lost-fence-{name}-1.bkh"
    assert read_history(result.path)[0]["mutant"] == name
    assert result.mutant == name


@pytest.mark.parametrize(("scenario", "mutant"), [("no-such-scenario", None), ("calm-writes", "no-such-mutant")])
def test_unknown_names_are_key_errors_and_leave_no_file(tmp_path: Path, scenario: str, mutant: str | None) -> None:
    with pytest.raises(KeyError, match="no-such"):
        run_scenario(scenario, 0, mutant=mutant, record=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("limits", "problem"),
    [(LoopLimits(steps=500), "StepLimitReached"), (LoopLimits(seconds=0.005), "TimeLimitReached")],
)
def test_a_run_that_reaches_a_limit_is_unknown_and_its_history_is_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limits: LoopLimits, problem: str
) -> None:
    def limited(seed: int) -> Conditions:
        return replace(draw_conditions(seed), limits=limits)

    monkeypatch.setattr(scenarios.runner, "draw_conditions", limited)
    result = run_scenario("dead-writer", 0, record=tmp_path)
    assert result.verdict == "unknown"
    assert result.violations == ()
    assert result.problem.startswith(f"{problem}: ")
    assert result.as_json()["problem"] == result.problem
    assert len(read_history(result.path)[1]) == result.events


def test_a_run_that_can_never_end_is_unknown(install: Install) -> None:
    async def wait_for_nothing(stage: Stage) -> None:
        for bookie in stage.bookies.values():
            bookie.crash()
        await stage.ledger().id()

    install(wait_for_nothing)
    result = run_scenario("told", 0)
    assert result.verdict == "unknown"
    assert "Deadlock" in result.problem


def test_an_error_that_nobody_looked_at_makes_a_run_unknown(install: Install) -> None:
    async def leave_alone(stage: Stage) -> None:
        async def fail(client: RecordedClient) -> None:
            raise LookupError("nobody asks")

        stage.client("client", fail)
        await stage.sleep(1.0, 1.0)

    install(leave_alone)
    result = run_scenario("told", 0)
    assert result.verdict == "unknown"
    assert "UnhandledErrors" in result.problem
    assert "nobody asks" in result.problem


def test_what_a_client_program_raises_makes_a_run_unknown_and_says_where(install: Install, tmp_path: Path) -> None:
    async def ask_for_too_much(stage: Stage) -> None:
        async def create(client: RecordedClient) -> None:
            await client.create_ledger(ensemble_size=50, write_quorum_size=2, ack_quorum_size=2)

        await stage.client("client", create).ended()

    install(ask_for_too_much)
    result = run_scenario("told", 0, record=tmp_path)
    assert result.verdict == "unknown"
    assert result.problem.startswith(f"{NotEnoughBookies.__name__}: an ensemble of 50 is wanted")
    assert "raised by _choose_ensemble, line" in result.problem
    assert len(read_history(result.path)[1]) == result.events > 0


def test_a_ledger_that_can_never_be_recovered_breaks_liveness(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reading_back, "ATTEMPTS", 2)

    async def lose_all_reads(stage: Stage) -> None:
        ledger = stage.ledger()

        async def write(client: RecordedClient) -> None:
            await ledger.create(client)

        await stage.client("writer", write).ended()
        stage.heal()
        monkeypatch.setattr(stage, "heal", lambda: None)
        stage.drop("final-0", list(stage.bookies), lambda message: isinstance(message, ReadRequest))
        await stage.settle(ledger)

    install(lose_all_reads)
    result = run_scenario("told", 1, record=tmp_path)
    assert result.verdict == "violated"
    (violation,) = result.violations
    assert violation.clause == EVENTUALLY_CLOSED
    assert "[TIMEOUT -23]" in violation.witness
    _, events = read_history(result.path)
    attempts = [e for e in events if e.kind == Kind.OPEN_RESULT and e.actor == "final-0"]
    assert [event.fields["code"] for event in attempts] == [-23, -23]
    assert violation.ledger == attempts[0].ledger
    assert violation.seqs == (events[-1].seq,)


def test_an_interrupt_passes_and_leaves_a_history_that_is_seen_to_be_unfinished(
    install: Install, tmp_path: Path
) -> None:
    async def interrupt(stage: Stage) -> None:
        raise KeyboardInterrupt

    install(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_scenario("told", 0, record=tmp_path)
    with pytest.raises(HistoryError, match=r"truncated|readable"):
        read_history(tmp_path / "told-0.bkh")


def test_a_whole_run_uses_nothing_but_its_name_and_seed(install: Install) -> None:
    install(write_and_settle)
    digests = {run_scenario("told", seed).digest for seed in (1, 2, 1, 2)}
    assert len(digests) == 2


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_describe_themselves(scenario: str) -> None:
    described = SCENARIOS[scenario]
    assert described.name == scenario
    assert described.summary
    assert described.expected


@pytest.mark.parametrize("transport", TransportKind)
def test_a_transport_that_counts_wrongly_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, transport: TransportKind
) -> None:
    """What waited for a connection stays counted after it was sent: no answer is wrong, and the limits come too early."""
    assert run_scenario("calm-writes", 4, transport=transport).problem == ""
    monkeypatch.setattr(BookieLink, "release", lambda *_: None)
    result = run_scenario("calm-writes", 4, transport=transport)
    assert result.verdict == "unknown"
    assert "the load is what is outstanding" in result.problem
