"""Runs over bytes: every scenario with the shipped TCP transport and the shipped server, as reproducible as runs over objects."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from scenarios.conditions import Conditions, draw_conditions, draw_tcp
from scenarios.determinism import check_determinism
from scenarios.ending import history_name
from scenarios.history import History, HistoryWriter, Kind, read_history
from scenarios.hunting import hunt_mutants
from scenarios.library import SCENARIOS
from scenarios.model import RunResult, TransportKind
from scenarios.runner import run_scenario
from scenarios.sweep import sweep
from simbookie.world.links import Link, NetworkConfig, TcpConfig
from simbookie.world.metadata_service import MetadataConfig
from simbookie.world.network import Network
from tests.scenarios.test_cli import as_json, bk_chaos

pytestmark = pytest.mark.deep  # each run twice, once over bytes

BYTES = TransportKind.BYTES


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_hold_over_bytes(scenario: str) -> None:
    for seed in range(4):
        result = run_scenario(scenario, seed, transport=BYTES)
        assert (result.verdict, result.violations, result.problem) == ("ok", (), ""), f"seed {seed}"


@pytest.mark.sweep
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_hold_over_bytes_with_many_seeds(scenario: str) -> None:
    result = sweep(range(300), [scenario], transport=BYTES, processes=1)
    assert (result.failing, result.undecided) == ([], [])


def test_a_run_over_bytes_depends_on_its_seed_alone() -> None:
    """In this process and in one that hashes strings differently."""
    result = check_determinism(range(1), ["bookie-crash", "lost-fence", "rival-recoveries"], transport=BYTES)
    assert result.diverged == ()


@pytest.mark.sweep
@pytest.mark.timeout(3000)
def test_all_runs_over_bytes_depend_on_their_seeds_alone() -> None:
    assert check_determinism(range(20), list(SCENARIOS), transport=BYTES).diverged == ()


def test_streams_differ_from_seed_to_seed_and_the_other_conditions_stay() -> None:
    drawn = {draw_tcp(seed) for seed in range(100)}
    assert len(drawn) > 20
    assert {tcp.cut_probability > 0 for tcp in drawn} == {False, True}
    assert run_scenario("calm-writes", 3, transport=BYTES).digest != run_scenario("calm-writes", 3).digest


def test_an_add_that_is_held_back_arrives_late_and_others_overtake_it(tmp_path: Path) -> None:
    """Faults that pick requests pick frames: the scenario finds what it is about over bytes too."""
    for seed in range(6):
        result = run_scenario("lost-fence", seed, transport=BYTES, record=tmp_path)
        events = read_history(Path(result.path))[1]
        holds = [event for event in events if event.kind == Kind.FAULT and event.fields["cause"] == "hold"]
        assert holds
        deaf = holds[0].fields["detail"].partition("> ")[2].split(", ")
        fences = [
            e for e in events if e.kind == Kind.FENCE_SEND and e.fields["bookie"] in deaf and e.actor == "recoverer"
        ]
        answers = [
            e for e in events if e.kind == Kind.FENCE_RESP and e.fields["bookie"] in deaf and e.fields["code"] == 0
        ]
        lost = [
            e
            for e in fences
            if not any(a.actor == e.actor and a.fields["bookie"] == e.fields["bookie"] for a in answers)
        ]
        assert lost == fences, "fencing reads to them are dropped"


@pytest.mark.parametrize("mutant", ["recovery-reads-do-not-fence", "ack-quorum-one-short"])
def test_defects_are_caught_over_bytes(mutant: str) -> None:
    (hunt,) = hunt_mutants([mutant], range(40), ["lost-fence", "bookie-crash"], processes=1, transport=BYTES)
    assert hunt.caught


def test_the_header_says_over_what_and_a_replay_reproduces_it(tmp_path: Path) -> None:
    shown = as_json("run", "calm-writes", "--seed", 5, "--transport", "bytes", "--record", tmp_path, "--json")
    assert shown["transport"] == "bytes"
    path = Path(shown["path"])
    assert path.name == history_name("calm-writes", 5, tier=BYTES) == "calm-writes-bytes-5.bkh"
    header = History(path).header
    assert header["transport"] == "bytes"
    assert header["cluster"]["tcp"]["segment_bytes"] > 0
    replayed = as_json("replay", path, "--json")
    assert (replayed["transport"], replayed["same"]) == ("bytes", True)
    assert "over bytes: ok" in bk_chaos("replay", path).output


def test_a_run_over_objects_says_so(tmp_path: Path) -> None:
    result = run_scenario("calm-writes", 5, record=tmp_path)
    header = History(Path(result.path)).header
    assert (header["transport"], header["cluster"]["tcp"]) == ("objects", None)


def test_histories_from_before_there_was_a_choice_are_replayed_over_objects(tmp_path: Path) -> None:
    result = run_scenario("calm-writes", 5, record=tmp_path)
    header, events = read_history(Path(result.path))
    old = tmp_path / "old.bkh"
    now = 0
    writer = HistoryWriter({key: value for key, value in header.items() if key != "transport"}, lambda: now, old)
    for event in events:
        now = event.time_us
        writer.record(event.kind, event.actor, event.ledger, **event.fields)
    writer.close()
    assert as_json("replay", old, "--json")["same"]


def test_a_transport_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "strange.bkh"
    HistoryWriter({"scenario": "calm-writes", "seed": 1, "mutant": "", "transport": "pigeons"}, lambda: 0, path).close()
    refused = bk_chaos("replay", path)
    assert refused.exit_code == 2
    assert "no transport that this version knows" in refused.output
    assert bk_chaos("run", "calm-writes", "--transport", "pigeons").exit_code == 2


def test_a_sweep_over_bytes_names_the_command_that_shows_what_it_found() -> None:
    arguments: list[Any] = ["sweep", "--seeds", 3, "--scenario", "lost-fence", "--transport", "bytes", "--processes", 1]
    assert as_json(*arguments, "--json")["transport"] == "bytes"
    found = bk_chaos(*arguments, "--seeds", 30, "--stop-at-first", "--mutant", "recovery-reads-do-not-fence").output
    assert re.search(r"bk-chaos run lost-fence --seed \d+ --mutant \S+ --transport bytes --timeline", found)


@pytest.mark.parametrize("transport", TransportKind)
def test_version_2_tells_a_reader_no_lac_beside_an_entry(transport: TransportKind, tmp_path: Path) -> None:
    """Found by comparing both: answers that travelled as objects told more than the frames of version 2 have room for."""
    draw = SCENARIOS["moving-reader"].draw
    assert draw is not None
    seed = next(seed for seed in range(100) if draw(seed).transport.protocol_version == 2)
    result = run_scenario("moving-reader", seed, transport=transport, record=tmp_path)
    events = read_history(Path(result.path))[1]
    seen = [event for event in events if event.kind == Kind.READ_RESP and event.fields["code"] == 0]
    assert seen, "entries were read"
    assert {event.fields["lac"] for event in seen} == {None}


# The same run over objects and over bytes


def still(scenario: str, seed: int, tcp: TcpConfig | None) -> Conditions:
    """The conditions of a run with nothing random on its ways; what scenarios do of their own accord they do."""
    conditions = (SCENARIOS[scenario].draw or draw_conditions)(seed)
    network = NetworkConfig(latency_s=0.0005, jitter_s=0.0)
    return replace(conditions, network=network, metadata=MetadataConfig(latency_s=0.0, jitter_s=0.0), tcp=tcp)


@pytest.fixture
def distances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every link takes a time of its own, always the same, so that nothing arrives at once by accident."""
    link = Network.link

    def with_distance(self: Network, source: str, destination: str) -> Link:
        found = link(self, source, destination)
        if found.config is None:
            distance = crc32(f"{source}>{destination}".encode()) / 2**32
            found.config = NetworkConfig(latency_s=0.0003 + 0.0005 * distance, jitter_s=0.0)
        return found

    monkeypatch.setattr(Network, "link", with_distance)


def told(result: RunResult) -> list[tuple[Any, ...]]:
    """What happened and when, without the order of what happened at the same time."""
    return sorted(
        (event.time_us, event.actor, event.kind, event.ledger, repr(sorted(event.fields.items())))
        for event in read_history(Path(result.path))[1]
    )


def parted(events: list[tuple[Any, ...]]) -> tuple[dict[tuple[Any, ...], int], list[tuple[Any, ...]]]:
    """When writers heard that a bookie stored an entry, and everything else.

    Over bytes answers are counted where they arrive, so a writer hears of those that make an ack quorum, together, and of others
    only if it asks.
    """
    heard = {event[1:]: event[0] for event in events if event[2] == Kind.ADD_RESP and "('code', 0)" in event[4]}
    return heard, [event for event in events if event[1:] not in heard]


def differs_by_nature(events: list[tuple[Any, ...]]) -> bool:
    """Whether something happened that TCP makes something else of.

    A process that was paused finds the answers of each connection together; what a link that is cut or a machine without power
    was sent comes again when it is back; what is held back on a connection that is reset meanwhile never arrives.
    """
    kinds = {kind for _, _, kind, _, _ in events}
    faults = "".join(fields for _, _, kind, _, fields in events if kind == Kind.FAULT)
    return Kind.CLIENT_PAUSE in kinds or "POWER_LOSS" in faults or "'cut'" in faults


@pytest.mark.usefixtures("distances")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_runs_over_objects_and_over_bytes_are_the_same_to_the_event_and_microsecond(
    scenario: str, tmp_path: Path
) -> None:
    for seed in range(3):
        runs = {
            kind: run_scenario(scenario, seed, transport=kind, conditions=still(scenario, seed, tcp), record=tmp_path)
            for kind, tcp in ((TransportKind.OBJECTS, None), (BYTES, TcpConfig()))
        }
        objects, over_bytes = runs.values()
        assert objects.verdict == over_bytes.verdict == "ok"
        events = told(objects)
        if not differs_by_nature(events) and scenario != "hasty-close":
            (all_heard, others), (heard, others_over_bytes) = parted(events), parted(told(over_bytes))
            assert others_over_bytes == others, f"seed {seed}"
            assert all(all_heard[answer] <= time for answer, time in heard.items()), f"seed {seed}"


@pytest.mark.usefixtures("distances")
def test_most_runs_can_be_compared(tmp_path: Path) -> None:
    comparable = [
        scenario
        for scenario in SCENARIOS
        if not differs_by_nature(told(run_scenario(scenario, 1, conditions=still(scenario, 1, None), record=tmp_path)))
    ]
    assert len(comparable) >= len(SCENARIOS) // 2
