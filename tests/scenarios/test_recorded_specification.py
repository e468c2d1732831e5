"""Recorded histories do what the published specification says; and what they do otherwise is noticed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scenarios.history import Event, HistoryWriter, Kind, read_history
from scenarios.library import SCENARIOS
from scenarios.model import TransportKind
from scenarios.mutants import RUN_MUTANTS
from scenarios.plan.library import library_names
from scenarios.plan.named import DRAWN
from scenarios.processes.merging import Part, merge
from scenarios.runner import run_scenario
from scenarios.specification.histories.conformance import ACTIONS, DIFFERENCES, ConformedHistory, conform_history
from tests.scenarios.played import play
from tests.scenarios.stories import Story
from tests.scenarios.test_cli import bk_chaos

PAGE = Path(__file__).parents[2] / "docs/inside/specification.md"

#: Plans with one ledger and several, of logs, over changes, recoveries, rivals, repairs, lost fences and given ids.
SOME = (
    *("happy-path", "two-recoverers", "recovery-replaces-bookie", "change-meets-mark", "slow-change", "given-ids"),
    *("close-during-recovery", "deferred-sync", "corrupt-entry", "repair-of-open-ledger", "limbo-then-delete"),
    *("recover-own-ledger", "log-two-owners-race", "forgotten-fence", "lost-reads", "racing-change"),
)


def checked(events: Iterable[Event], *, steps_min: int = 20) -> ConformedHistory:
    found = conform_history(events)
    assert [str(one) for one in found.wrong] == []
    assert found.actions.keys() <= {*ACTIONS, *DIFFERENCES}
    assert found.steps >= steps_min
    return found


@pytest.mark.parametrize("name", SOME)
def test_every_event_of_a_run_is_specified(name: str) -> None:
    checked(play(name, 0).events)


@pytest.mark.deep
def test_every_event_of_every_plan_is_specified_and_every_action_and_difference_met() -> None:
    met: Counter[str] = Counter()
    for name in (*library_names(), *SCENARIOS):
        met += checked(play(name, 0).events, steps_min=5).actions  # a few plans are short
    assert set(ACTIONS) <= met.keys()
    assert set(DIFFERENCES) - met.keys() <= {
        *("creates it again", "learns the length", "recovers twice at a time"),
        *("takes a late refusal for a failure", "collects the ledger"),
    }


@pytest.mark.deep
@pytest.mark.parametrize("transport", TransportKind)
@pytest.mark.parametrize("swarm", DRAWN)
def test_every_event_of_swarms_is_specified(swarm: str, transport: TransportKind, tmp_path: Path) -> None:
    steps = 0
    for seed in range(12):
        result = run_scenario(swarm, seed, record=tmp_path, transport=transport)
        steps += checked(read_history(result.path)[1], steps_min=0).steps  # some swarms do little
    assert steps > 12 * 20


@pytest.mark.deep
def test_a_last_entry_that_was_altered_when_a_bookie_told_its_lac_is_no_step_of_the_bookie(tmp_path: Path) -> None:
    """The copy was good again when the client heard of it; found by comparing transports."""
    checked(read_history(run_scenario("swarm-live", 755, record=tmp_path).path)[1])


# The page ----------------------------------------------------------------------------------------------------------


def _part(title: str) -> str:
    return PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_lists_the_differences_of_histories() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", _part("Recorded histories"), re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall("`([^`]+)`", row)) == sorted(DIFFERENCES)


def _mutants() -> list[tuple[str, str, int, str]]:
    """The table of planted defects on the page: defect, plan, seed, what is wrong."""
    rows = re.findall(r"^\| `(\S+)` \| `(\S+)` \| (\d+) \| (.+) \|$", _part("Planted defects in runs"), re.MULTILINE)
    return [(mutant, plan, int(seed), wrong) for mutant, plan, seed, wrong in rows]


@pytest.mark.deep
@pytest.mark.parametrize(("mutant", "plan", "seed", "wrong"), _mutants())
def test_events_of_planted_defects_are_not_specified(mutant: str, plan: str, seed: int, wrong: str) -> None:
    found = conform_history(play(plan, seed, mutant).events)
    assert found.wrong[0].what == wrong
    assert found.as_json()["wrong"]


def test_the_page_has_planted_defects() -> None:
    assert len(_mutants()) > 40
    assert {mutant for mutant, *_ in _mutants()} <= RUN_MUTANTS.keys()


# Histories that were tampered with ---------------------------------------------------------------------------------

Tamper = Callable[[Iterable[Event]], Iterator[Event]]


def changed(kind: Kind, number: int, holds: dict[str, Any], **fields: Any) -> Tamper:
    """The event number ``number`` of those of a kind that hold this gets other fields; without any it is left out."""

    def tamper(events: Iterable[Event]) -> Iterator[Event]:
        seen = 0
        for event in events:
            is_like = event.kind == kind and all(event.fields[name] == value for name, value in holds.items())
            seen += is_like
            if not is_like or seen != number + 1:
                yield event
            elif fields:
                yield replace(event, fields={**event.fields, **fields})

    return tamper


@pytest.mark.parametrize(
    ("plan", "tamper", "wrong"),
    [
        ("happy-path", changed(Kind.ADD_SEND, 7, {}), r"was never sent"),
        ("happy-path", changed(Kind.ADD_SEND, 7, {}, bookie="bookie-9"), r"not in its write set"),
        ("happy-path", changed(Kind.ADD_SEND, 40, {}, lac=99), r"tells the LAC 99, and may tell"),
        ("happy-path", changed(Kind.ADD_RESP, 0, {"entry": 3}, bookie="bookie-9"), r"add 3, and add 3 was sent"),
        ("happy-path", changed(Kind.ADD_RESP, 3, {}, code=-101), r"has not answered add \d+ so \(code -101\)"),
        ("happy-path", changed(Kind.APP_ADD, 3, {}), r"entry 4 is appended after 2"),
        ("happy-path", changed(Kind.APP_ACK, 3, {}, content=5), r"entry 3 is acknowledged with other bytes"),
        ("happy-path", changed(Kind.BK_RECV, 5, {"operation": "add"}), r"add \d+ of writer is answered, and has not arrived"),
        ("happy-path", changed(Kind.BK_STORE, 5, {}), r"entry \d+ is acknowledged, and is not there"),
        ("happy-path", changed(Kind.BK_STORE, 5, {}, content=5), r"entry \d+ is stored with other bytes than writer sent"),
        ("happy-path", changed(Kind.BK_STORE, 5, {}, source="nobody"), r"entry \d+ of nobody is stored, and was never sent"),
        ("happy-path", changed(Kind.META_CAS, 0, {"cause": "close"}, expected_version=7), r"does not follow the version"),
        ("happy-path", changed(Kind.META_CAS, 0, {"cause": "close"}, ack_quorum_size=1), r"the quorums change"),
        ("slow-change", changed(Kind.META_CAS, 0, {"cause": "ensemble"}), r"not in its write set"),
        ("two-recoverers", changed(Kind.META_CAS, 0, {"cause": "recover"}), r"which was never stored"),
        ("two-recoverers", changed(Kind.FENCE_SET, 0, {}), r"is answered without a fence|a fence comes from nowhere"),
        ("two-recoverers", changed(Kind.FENCE_SEND, 0, {}, bookie="bookie-9"), r"bookie-9 is fenced, and is not in the last"),
        ("two-recoverers", changed(Kind.FENCE_RESP, 1, {"code": 0}, lac=70), r"tells the LAC 70, and not that of its last entry"),
        ("two-recoverers", changed(Kind.REC_READ_SEND, 0, {}, fence=False), r"a recovery read does not fence"),
        ("two-recoverers", changed(Kind.REC_READ_SEND, 0, {}, bookie="bookie-9"), r"is sent to bookie-9, and not to"),
        ("two-recoverers", changed(Kind.REC_READ_RESP, 1, {"code": 0}, content=5), r"with other bytes than were"),
        ("two-recoverers", changed(Kind.REC_DECIDE, 0, {"verdict": "positive"}, bookies="bookie-9"), r"that nobody has sent"),
        ("two-recoverers", changed(Kind.REC_DECIDE, 0, {"verdict": "positive"}), r"is written back, and was not found"),
        ("two-recoverers", changed(Kind.REC_DECIDE, 0, {"verdict": "negative"}, bookies="bookie-9"), r"is ruled out by \[\]"),
        ("two-recoverers", changed(Kind.BK_ANSWER, 0, {"operation": "recovery-read", "code": -13}, code=0), r"and is not there"),
        ("two-recoverers", changed(Kind.BK_ANSWER, 0, {"operation": "recovery-read", "code": 0}, code=-13), r"and is there"),
        ("recovery-replaces-bookie", changed(Kind.ADD_RESP, 0, {"recovery": True, "code": -8}, code=-23), ""),
    ],
)  # fmt: skip
def test_a_history_that_was_tampered_with_is_not_specified(plan: str, tamper: Tamper, wrong: str) -> None:
    """The last row changes what makes no difference: an error is as good as another."""
    events = play(plan, 0).events
    found = conform_history(tamper(events))
    if wrong:
        assert any(re.search(wrong, one.what) for one in found.wrong), found.wrong
    else:
        assert found.holds


# Histories of processes --------------------------------------------------------------------------------------------

#: Kinds that the director of processes records, whatever they are of.
OF_DIRECTOR = frozenset(
    {
        *(Kind.META_CAS, Kind.META_READ, Kind.CLIENT_START, Kind.CLIENT_CRASH, Kind.CLIENT_PAUSE, Kind.CLIENT_RESUME),
        *(Kind.BK_CRASH, Kind.FAULT, Kind.RUN_END),
    }
)
#: Messages that come twice and late, bookies and clients that are killed, rivals, and several ledgers.
AS_PROCESSES = (
    *("two-recoverers", "recovery-replaces-bookie", "slow-change", "given-ids", "close-during-recovery"),
    *("duplicate-add", "duplicate-response", "reset-storm", "ack-loss", "restart-keeps-fence", "flapping-bookie"),
    *("zombie-returns", "recovery-chain", "log-two-owners-race", "bookie-crash", "lost-reads"),
)


def as_processes(events: Iterable[Event]) -> list[Event]:
    """The run as processes would have recorded it: each its own part, without numbers at bookies; and merged."""
    director: list[Event] = []
    parts: dict[tuple[str, int], list[Event]] = {}
    lives: Counter[str] = Counter()
    for event in events:
        if event.kind in OF_DIRECTOR:
            director.append(event)
            lives[event.actor] += event.kind == Kind.BK_CRASH
            continue
        is_at_bookie = event.kind in {Kind.BK_RECV, Kind.BK_ANSWER}
        recorded = replace(event, fields={**event.fields, "request": None}) if is_at_bookie else event
        parts.setdefault((event.actor, 1 + lives[event.actor]), []).append(recorded)
    lived = [Part(actor, part, life) for (actor, life), part in parts.items()]
    return merge([Part("director", director), *lived], {}).events


@pytest.mark.parametrize("name", AS_PROCESSES)
def test_what_processes_did_is_specified_in_the_order_in_which_it_is_merged(name: str) -> None:
    events = play(name, 0).events
    merged = as_processes(events)
    assert len(merged) == len(events)
    assert any(event.kind == Kind.BK_RECV and event.fields["request"] is not None for event in merged)
    checked(merged, steps_min=5)


def test_of_requests_that_are_alike_an_answer_is_to_any() -> None:
    """A request that came twice has a number at its first arrival only, and neither of the answers has one."""
    events = as_processes(play("duplicate-add", 0).events)
    numbers = {
        kind: {event.fields["request"] is None for event in events if event.kind == kind}
        for kind in (Kind.BK_RECV, Kind.BK_ANSWER)
    }
    assert numbers[Kind.BK_ANSWER] == {False, True}
    checked(events)


@pytest.mark.parametrize(
    ("plan", "tamper", "wrong"),
    [
        ("two-recoverers", changed(Kind.BK_STORE, 0, {}), r"entry \d+ is acknowledged, and is not there"),
        ("two-recoverers", changed(Kind.FENCE_SET, 0, {}), r"is answered without a fence|a fence comes from nowhere"),
        ("two-recoverers", changed(Kind.REC_DECIDE, 0, {"verdict": "negative"}, bookies="bookie-9"), r"is ruled out by \[\]"),
        ("two-recoverers", changed(Kind.ADD_RESP, 0, {"code": 0}, bookie="bookie-9"), r"an answer comes to"),
        ("duplicate-add", changed(Kind.BK_RECV, 0, {"operation": "add"}), r"is answered, and has not arrived"),
        ("reset-storm", changed(Kind.META_CAS, 0, {"cause": "ensemble"}), r"not in its write set|does not follow the version"),
        ("ack-loss", changed(Kind.APP_ACK, 3, {}, entry=9), r"entry 9 is acknowledged, and the LAC may be \d"),
    ],
)  # fmt: skip
def test_what_processes_did_not_do_is_not_specified(plan: str, tamper: Tamper, wrong: str) -> None:
    found = conform_history(tamper(as_processes(play(plan, 0).events)))
    assert any(re.search(wrong, one.what) for one in found.wrong), found.wrong


@pytest.mark.deep
@pytest.mark.parametrize(
    ("mutant", "plan", "wrong"),
    [
        ("recovery-closes-at-found-lac", "dead-writer", "has not found the end"),
        ("change-starts-at-confirmed-entry", "ack-loss", "a fragment begins at 4, and the LAC is at least 4"),
        ("replaced-bookie-still-answers", "reset-storm", "is acknowledged, and the LAC may be"),
    ],
)
def test_planted_defects_are_found_in_what_processes_did(mutant: str, plan: str, wrong: str) -> None:
    found = conform_history(as_processes(play(plan, 0, mutant).events))
    assert wrong in found.wrong[0].what


# What runs seldom do -----------------------------------------------------------------------------------------------


def test_an_entry_at_the_lac_may_be_read_for_the_length_of_the_ledger() -> None:
    """A fragment that begins behind the LAC, and in which nothing is found."""
    story = Story("1/1/1")
    story.cas("create", "w", fragments=[(0, ("b0",))])
    story.event(Kind.ADD_SEND, "w", incarnation=1, entry=0, bookie="b0", recovery=False, lac=-1, request=1)
    story.event(Kind.ADD_RESP, "w", incarnation=1, entry=0, bookie="b0", recovery=False, code=0, request=1)
    story.event(Kind.ADD_SEND, "w", incarnation=1, entry=1, bookie="b0", recovery=False, lac=0, request=2)
    story.event(Kind.ADD_RESP, "w", incarnation=1, entry=1, bookie="b0", recovery=False, code=-8, request=2)
    story.cas("ensemble", "w", fragments=[(0, ("b0",)), (1, ("b1",))])
    story.cas("recover", "r", state="IN_RECOVERY")
    story.event(Kind.REC_START, "r", version=story.version, first_entry=1, bookies="b1")
    story.event(Kind.FENCE_SEND, "r", bookie="b1", request=1)
    story.event(Kind.FENCE_RESP, "r", bookie="b1", code=-13, lac=-1, entry=-1, request=1)
    story.event(Kind.REC_READ_SEND, "r", entry=1, bookie="b1", fence=True, request=2)
    story.event(Kind.REC_READ_RESP, "r", entry=1, bookie="b1", fence=True, code=-13, request=2)
    story.event(Kind.REC_DECIDE, "r", entry=1, verdict="negative", bookies="b1")
    story.event(Kind.REC_READ_SEND, "r", entry=0, bookie="b0", fence=False, request=3)
    story.cas("close", "r", state="CLOSED", last_entry=0)
    found = conform_history(story.events)
    assert [str(one) for one in found.wrong] == []
    assert found.actions["learns the length"] == found.actions["RecoveryClientClosesLedger"] == 1


def test_a_history_without_creations_and_numbers_says_nothing_wrong() -> None:
    story = Story()
    story.event(Kind.ADD_SEND, "w", incarnation=1, entry=0, bookie="b0", recovery=False, lac=-1)
    story.cas("recover", "r", state="IN_RECOVERY")
    found = conform_history(story.events)
    assert (found.holds, found.steps, found.left) == (True, 0, {7: "its creation is not recorded"})
    story = Story()
    story.cas("create", "w")
    story.event(Kind.ADD_SEND, "w", incarnation=1, entry=0, bookie="b0", recovery=False, lac=-1)
    story.event(Kind.ADD_RESP, "w", incarnation=1, entry=0, bookie="b0", recovery=False, code=0)
    assert conform_history(story.events).holds


# The command -------------------------------------------------------------------------------------------------------


def test_the_command_tells_actions_and_what_is_wrong(tmp_path: Path) -> None:
    good = Path(run_scenario("dead-writer", 0, record=tmp_path).path)
    shown = bk_chaos("conform", good)
    assert shown.exit_code == 0
    assert re.search(r"1 histories, 1 ledgers, \d+ events; 0 with events that are not specified", shown.output)
    assert re.search(r"^ +\d+  ClientSendsAddEntryRequests$", shown.output, re.MULTILINE)
    bad = tmp_path / "bad.bkh"
    header, events = read_history(good)
    now = 0
    writer = HistoryWriter(dict(header), lambda: now, bad)
    tamper = changed(Kind.APP_ACK, 0, {}, entry=900)
    for event in tamper(events):
        now = event.time_us
        writer.record(event.kind, event.actor, event.ledger, **event.fields)
    writer.close()
    shown = bk_chaos("conform", tmp_path)
    assert shown.exit_code == 1
    assert re.search(
        r"bad.bkh: not specified\n +event \d+, APP_ACK of writer, ledger 0: entry 900 is acknowledged", shown.output
    )
    told = json.loads(bk_chaos("conform", tmp_path, "--json").output)["histories"]
    assert [bool(one["wrong"]) for one in told] == [True, False]


def test_the_command_refuses_what_is_no_history(tmp_path: Path) -> None:
    assert "has no history" in bk_chaos("conform", tmp_path).output
    (tmp_path / "x.bkh").write_bytes(b"nothing")
    refused = bk_chaos("conform", tmp_path)
    assert refused.exit_code == 2
    assert "is not a history" in refused.output
