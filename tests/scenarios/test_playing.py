"""Plans are played as they say: programs, triggers, faults and their events, and what is expected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

import scenarios.replaying
from bkclient.errors import Code
from scenarios.history import Event, HistoryError, HistoryWriter, Kind, read_history, schema, writer
from scenarios.model import RunResult, TransportKind
from scenarios.plan import Plan, parse_plan, print_plan
from scenarios.replaying import read_recorded, replay_history
from scenarios.runner import run_plan, run_scenario
from tests.scenarios.played import where

BOTH = tuple(TransportKind)


def plan(clients: str, steps: str = "", head: str = "", cluster: str = "cluster 3 3/3/2") -> Plan:
    """A plan of these lines; clients that name no operations create and append."""
    return parse_plan(f"plan told\n{head}\n{cluster}\n{clients}\n{steps}\n")


def played(
    folder: Path, told: Plan, seed: int = 0, transport: TransportKind = TransportKind.OBJECTS
) -> tuple[RunResult, list[Event]]:
    result = run_plan(told, seed, record=folder, transport=transport)
    return result, read_history(result.path)[1]


WRITER = """\
client writer
  create a
  append a 5
  close a
"""

# Programs ----------------------------------------------------------------------------------------------------------

EVERYTHING = """\
client writer
  create a
  create b sizes=2/2/1 digest=hmac
  create c advanced
  create d deferred
  append a 10 window=3 size=0
  append a 3 nowait
  cancel a 10,11,12
  append b 5 pause=0.001s
  append-at c 1,0,2
  append-at c 4,3 nowait
  append d 4
  force d
  tell-lac a
  flush a
  flush c
  sleep 0.3s
  close a
  within 5s close b
  close c
  close d

client reader
  open a
  read a
  until when BK_STORE ledger=a entry=5
  ask-lac a
  long-poll a 9 wait=1s
  read a first=2 last=4
  read a first=1 last=2 unconfirmed
  read-batch a count=3
  tail a
  open b handle=r2
  follow r2
  until when CLOSE_RESULT actor=writer ledger=d
  open d recover attempts=2 pause=0.1s
  read d
  delete d

client idler
  until at 0.1s
  stay
"""


@pytest.mark.parametrize("transport", BOTH)
def test_a_program_may_do_everything_a_client_does(tmp_path: Path, transport: TransportKind) -> None:
    head = "end a 12\nend b 4\nend c 4"
    result, events = played(tmp_path, plan(EVERYTHING, head=head), transport=transport)
    assert (result.verdict, result.problem) == ("ok", "")
    acks = list(where(events, Kind.APP_ACK))
    assert {event.ledger for event in acks if event.fields["durable"]} == {0, 1, 2}
    assert {event.ledger for event in acks if not event.fields["durable"]} == {3}
    read = {event.fields["entry"] for event in where(events, Kind.READ_RESULT, ledger=0, actor="reader", code=0)}
    assert read == set(range(13))
    assert {event.fields["source"] for event in where(events, Kind.LAC_ADV, actor="reader")} >= {
        "long-poll",
        "read-lac",
    }
    assert [event.fields["given"] for event in where(events, Kind.APP_ADD, ledger=2)] == 5 * [True]
    assert len(list(where(events, Kind.META_CAS, ledger=3, cause="delete"))) == 1
    assert [event.actor for event in where(events, Kind.CLIENT_CRASH)] == ["idler"]
    (end,) = where(events, Kind.RUN_END)
    assert end.fields["completed"] is True


def test_payloads_of_two_ledgers_of_one_client_differ(tmp_path: Path) -> None:
    """Otherwise entries of the wrong ledger would look right."""
    told = plan("client w\n  create a\n  create b\n  append a 3\n  append b 3")
    _, events = played(tmp_path, told)
    contents = [event.fields["content"] for event in where(events, Kind.APP_ADD)]
    assert len(set(contents)) == 6


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("must append a 1", "append of writer was refused: "),
        ("fails append a 1", ""),
        ("must read a", "read of writer was refused: "),
        ("within 0.1s must sleep 9s", ""),
        ("fails sleep 0.1s", "sleep of writer was not refused"),
    ],
)
def test_a_plan_may_say_what_becomes_of_an_operation(tmp_path: Path, call: str, problem: str) -> None:
    clients = f"{WRITER}  {call}\n  within 0.001s open a\n"
    result, _ = played(tmp_path, plan(clients.replace("client writer\n", "client writer\n  sleep 0s\n")))
    assert problem in result.problem
    assert result.verdict == ("unknown" if problem else "ok")


def test_a_refusal_ends_the_operation_and_not_the_program(tmp_path: Path) -> None:
    told = plan(f"{WRITER}  append a 2\n  close a\n\nclient other\n  open a recover\n  read a first=9 last=9\n  read a")
    result, events = played(tmp_path, told)
    assert result.verdict == "ok"
    codes = [event.fields["code"] for event in where(events, Kind.READ_RESULT, actor="other")]
    assert codes[0] != 0
    assert len(codes) == 1 + len(list(where(events, Kind.APP_ACK)))


# Triggers ----------------------------------------------------------------------------------------------------------


def test_steps_are_taken_when_their_triggers_come(tmp_path: Path) -> None:
    steps = """\
at 0.5s every=0.25s times=3: reset writer bookie-0
when APP_ACK nth=2 times=2: reset writer bookie-1
when BK_STORE actor=bookie-2 entry=3 ledger=a after=1s: reset writer bookie-2
"""
    _, events = played(tmp_path, plan(WRITER, steps))
    at: dict[str, list[Event]] = {target: [] for target in ("bookie-0", "bookie-1", "bookie-2")}
    for event in where(events, Kind.FAULT, cause="reset"):
        at[event.fields["other"]].append(event)
    start = next(event.time_us for event in events if event.kind == Kind.CLIENT_START)
    assert [round((event.time_us - start) / 1e6, 6) for event in at["bookie-0"]] == [0.5, 0.75, 1.0]
    acks = [event for event in events if event.kind == Kind.APP_ACK]
    assert [event.time_us for event in at["bookie-1"]] == [acks[1].time_us, acks[3].time_us]
    (store,) = where(events, Kind.BK_STORE, actor="bookie-2", entry=3)
    assert [event.time_us - store.time_us for event in at["bookie-2"]] == [1_000_000]


def test_a_fault_of_messages_meets_the_message_that_its_event_announces(tmp_path: Path) -> None:
    steps = "when ADD_SEND bookie=bookie-0 entry=2 as lost: drop add writer bookie-0 entries=2 limit=1"
    result, events = played(tmp_path, plan(WRITER, steps, "end a 4"))
    assert result.verdict == "ok"
    assert not list(where(events, Kind.BK_STORE, actor="bookie-0", entry=2, recovery=False))
    (fault,) = where(events, Kind.FAULT, cause="drop", phase="begin")
    assert events[fault.seq - 1].kind == Kind.ADD_SEND


def test_a_bookie_may_be_named_by_its_position_in_the_ensemble(tmp_path: Path) -> None:
    """Looked up when the step is taken: after the change it is another one."""
    steps = """\
when APP_ACK entry=1: crash a@1
when META_CAS cause=ensemble outcome=ok: pause a@1
when BK_STORE actor=a@0 entry=0: weather writer a@0 latency=0.001s
"""
    slow = WRITER.replace("append a 5", "append a 5 pause=0.05s")
    _, events = played(tmp_path, plan(slow, steps, cluster="cluster 4 3/3/3"), seed=2)
    stored = [event.fields["fragments"][-1][1] for event in where(events, Kind.META_CAS, outcome="ok")]
    hit = {event.fields["cause"]: event.fields for event in where(events, Kind.FAULT) if event.fields["phase"] != "end"}
    assert stored[0][1] != stored[1][1]
    assert (hit["crash"]["target"], hit["pause"]["target"]) == (stored[0][1], stored[1][1])
    assert hit["weather"]["other"] == stored[0][0]


def test_a_bookie_that_no_ensemble_has_is_a_problem_of_the_plan(tmp_path: Path) -> None:
    result, _ = played(tmp_path, plan(WRITER, "at 1s: crash a@3", cluster="cluster 4 3/3/3"))
    assert "no ledger had the bookie of crash a@3" in result.problem


def test_a_step_that_never_comes_leaves_the_run_without_a_verdict(tmp_path: Path) -> None:
    step = "when REC_DECIDE verdict=unknown: heal"
    result, _ = played(tmp_path, plan(WRITER, step))
    assert result.verdict == "unknown"
    assert "no event came for the step when REC_DECIDE verdict=unknown" in result.problem
    assert played(tmp_path, plan(WRITER, step.replace("verdict", "maybe verdict")))[0].verdict == "ok"


# Faults and their events -------------------------------------------------------------------------------------------

LASTING = {
    "cut writer bookie-0 way=to": ("writer", "bookie-0", "way=to"),
    "clog bookie-1 writer way=from": ("bookie-1", "writer", "way=from"),
    "partition writer bookie-0,bookie-1 keep": ("writer", "bookie-0,bookie-1", "writer bookie-0,bookie-1 keep"),
    "weather writer bookie-0 latency=0.05s": ("writer", "bookie-0", "latency=0.05s"),
    "drop add writer bookie-2 limit=1": ("writer", "bookie-2", "add writer bookie-2 limit=1"),
    "hold any any any answers": ("", "", "any any any answers"),
    "delay read writer any by=0.1s": ("writer", "", "read writer any by=0.1s"),
    "duplicate add writer bookie-0 copies=3": ("writer", "bookie-0", "add writer bookie-0 copies=3"),
    "crash bookie-0 mode=power-loss": ("bookie-0", "", "mode=power-loss"),
    "pause writer": ("writer", "", ""),
    "pause bookie-0": ("bookie-0", "", ""),
    "read-only bookie-0": ("bookie-0", "", ""),
    "limbo bookie-0 a": ("bookie-0", "", "a"),
    "metadata hold close writer": ("writer", "", "hold close writer"),
    "store-down": ("", "", ""),
}
ONCE = {
    "reset writer bookie-0": ("writer", "bookie-0", ""),
    "kill writer": ("writer", "", ""),
    "alter bookie-0 a byte=3": ("bookie-0", "", "a byte=3"),
    "lose bookie-0 a entries=1": ("bookie-0", "", "a entries=1"),
    "collect-garbage bookie-0": ("bookie-0", "", ""),
    "lose-session writer outage=0.5s": ("writer", "", "outage=0.5s"),
}


def faults(events: list[Event]) -> list[tuple[str, ...]]:
    names = ("cause", "fault", "phase", "target", "other", "parameters")
    return [tuple(event.fields[name] for name in names) for event in where(events, Kind.FAULT)]


@pytest.mark.parametrize("transport", BOTH)
@pytest.mark.parametrize("fault", LASTING)
def test_a_lasting_fault_has_a_begin_and_an_end_in_the_history(
    tmp_path: Path, fault: str, transport: TransportKind
) -> None:
    """Ended by its name, or at the latest when the run settles."""
    verb = fault.split(maxsplit=1)[0]
    for step, name in (("as it: ", "it"), (": ", f"{verb}-1")):
        steps = f"when APP_ACK entry=1 {step.strip()} {fault}\n" + ("at 1s: end it" if name == "it" else "")
        result, events = played(tmp_path, plan(WRITER, steps, cluster="cluster 5 3/3/2"), transport=transport)
        assert (result.verdict, result.problem) == ("ok", "")
        assert faults(events) == [(verb, name, phase, *LASTING[fault]) for phase in ("begin", "end")]


@pytest.mark.parametrize("fault", ONCE)
def test_any_other_fault_has_one_event(tmp_path: Path, fault: str) -> None:
    result, events = played(tmp_path, plan(WRITER, f"when APP_ACK entry=1: {fault}", cluster="cluster 4 3/3/2"))
    assert (result.verdict, result.problem) == ("ok", "")
    verb = fault.split(maxsplit=1)[0]
    assert faults(events) == [(verb, f"{verb}-1", "once", *ONCE[fault])]


def test_a_bookie_without_metadata_service_collects_nothing(tmp_path: Path) -> None:
    """What its collector is told is no error of the run."""
    steps = "when APP_ACK entry=4: store-down\nwhen APP_ACK entry=4 after=0.1s: collect-garbage bookie-0\nat 15s: heal"
    result, events = played(tmp_path, plan(WRITER, steps))
    assert (result.verdict, result.problem) == ("ok", "")
    assert not list(where(events, Kind.BK_GC))


def test_a_fault_that_has_nothing_to_break_leaves_no_event(tmp_path: Path) -> None:
    steps = "at 0.1s: crash bookie-0\nat 0.2s: crash bookie-0\nat 0.3s: restart bookie-0\nat 0.4s: restart bookie-0"
    _, events = played(tmp_path, plan(WRITER, steps))
    assert [found[1:3] for found in faults(events)] == [("crash-1", "begin"), ("crash-1", "end")]


def test_a_way_stays_blocked_until_the_last_fault_that_blocks_it_has_ended(tmp_path: Path) -> None:
    steps = """\
when CLIENT_START actor=writer as one: cut writer bookie-0
when CLIENT_START actor=writer as other: partition writer bookie-0,bookie-1
when CLIENT_START actor=writer after=0.1s: end other
"""
    _, events = played(tmp_path, plan(WRITER, steps))
    ends = [event.seq for event in where(events, Kind.FAULT, fault="one", phase="end")]
    stores = list(where(events, Kind.BK_STORE, source="writer"))
    assert {event.actor for event in stores if event.seq < ends[0]} == {"bookie-1", "bookie-2"}


@pytest.mark.parametrize(("ended", "is_cut"), [("first", True), ("second", False)])
def test_of_two_faults_that_cut_after_some_bytes_the_later_one_counts(tmp_path: Path, ended: str, is_cut: bool) -> None:
    steps = f"""\
when APP_ACK entry=0 as first: cut-after writer bookie-0 100000
when APP_ACK entry=0 as second: cut-after writer bookie-0 200
when APP_ACK entry=0: end {ended}
"""
    writer = "client writer\n  create a\n  append a 20\n  close a\n"
    _, events = played(tmp_path, plan(writer, steps, cluster="cluster 4 3/3/2"))
    failed = list(where(events, Kind.ADD_RESP, bookie="bookie-0", code=int(Code.BOOKIE_NOT_AVAILABLE)))
    assert bool(failed) == is_cut


def test_a_bookie_with_a_replaced_disk_stays_down_unless_a_step_starts_it(tmp_path: Path) -> None:
    steps = "when APP_ACK entry=4: wipe bookie-0"
    result, events = played(tmp_path, plan(WRITER, steps, cluster="cluster 4 3/3/2"))
    assert result.verdict == "ok"
    lost = {event.fields["entry"] for event in where(events, Kind.BK_LOSS, actor="bookie-0")}
    stored = {event.fields["entry"] for event in where(events, Kind.BK_STORE, actor="bookie-0")}
    assert lost == stored
    assert not list(where(events, Kind.BK_RESTART))
    _, events = played(tmp_path, plan(WRITER, f"{steps}\nat 2s: restart bookie-0", cluster="cluster 4 3/3/2"))
    assert len(list(where(events, Kind.BK_RESTART, actor="bookie-0"))) == 1


# What is expected --------------------------------------------------------------------------------------------------

LOST = "when APP_ACK entry=4: wipe bookie-0\nwhen APP_ACK entry=4: wipe bookie-1"
RECOVERER = "\nclient recoverer\n  until when FAULT cause=wipe nth=2\n  open a recover"
STAYING = WRITER.replace("close a", "stay")


def test_what_is_safe_and_does_not_complete_breaks_liveness(tmp_path: Path) -> None:
    result, events = played(tmp_path, plan(STAYING + RECOVERER, LOST))
    assert {violation.invariant for violation in result.violations} == {"EventuallyClosed"}
    assert events[-1].fields["completed"] is False


def test_an_append_that_does_not_end_in_time_breaks_liveness(tmp_path: Path) -> None:
    steps = "when APP_ACK entry=0: wipe bookie-0\nwhen APP_ACK entry=0: wipe bookie-1"
    clients = WRITER.replace("append a 5", "append a 1\n  sleep 0.1s\n  append a 5")
    told = plan(clients, steps, "patience 1s", "cluster 3 3/3/2\n  timeouts add=9s")
    result, _ = played(tmp_path, told)
    assert {violation.name for violation in result.violations} == {"AddResolves (L2)"}
    assert "append of writer did not end 1 seconds after all faults" in result.violations[0].witness


def test_what_is_blocked_is_not_judged_to_be_stuck(tmp_path: Path) -> None:
    result, events = played(tmp_path, plan(STAYING + RECOVERER, LOST, "expect blocked by recoverer"))
    assert (result.verdict, result.problem, result.violations) == ("ok", "", ())
    assert not [event for event in where(events, Kind.META_CAS, outcome="ok") if event.fields["state"] == "CLOSED"]


def test_what_is_blocked_until_faults_end_has_to_end_then(tmp_path: Path) -> None:
    head = "expect blocked by recoverer until-healed"
    crashes = LOST.replace("wipe", "crash")
    result, _ = played(tmp_path, plan(STAYING + RECOVERER.replace("wipe", "crash"), crashes, f"{head}\nend a 4"))
    assert (result.verdict, result.problem) == ("ok", "")
    result, _ = played(tmp_path, plan(STAYING + RECOVERER, LOST, head))
    assert {violation.invariant for violation in result.violations} == {"EventuallyClosed"}


def test_a_plan_that_expects_to_be_blocked_and_is_not_has_no_verdict(tmp_path: Path) -> None:
    result, _ = played(tmp_path, plan(WRITER, head="expect blocked by writer"))
    assert result.verdict == "unknown"
    assert "nothing blocked writer" in result.problem


@pytest.mark.parametrize(("end", "problem"), [("4", ""), ("3,4", ""), ("5", "a should end at 5, and it ends at 4")])
def test_ledgers_end_where_the_plan_says(tmp_path: Path, end: str, problem: str) -> None:
    result, events = played(tmp_path, plan(WRITER, head=f"expect ambiguous\nend a {end}"))
    assert problem in result.problem
    assert result.verdict == ("unknown" if problem else "ok")
    assert events[-1].fields["completed"] is True


def test_a_situation_that_the_plan_names_has_to_be_met(tmp_path: Path) -> None:
    result, _ = played(tmp_path, plan(WRITER, head="meets fenced-writer"))
    assert "fenced-writer" in result.problem


def test_programs_that_wait_for_what_does_not_come_are_the_plans_fault(tmp_path: Path) -> None:
    told = plan(WRITER + "  until when REC_START\n", head="patience 1s")
    result, _ = played(tmp_path, told)
    assert result.verdict == "unknown"
    assert result.violations == ()


# Determinism and replay --------------------------------------------------------------------------------------------

MANY = """\
at 0.01s: crash bookie-1 mode=power-loss
at 0.5s: restart bookie-1
when BK_STORE actor=bookie-0 nth=3 as held: hold add writer bookie-0
when APP_ACK nth=3 maybe: lose-session writer
at 1s: end held
"""
WEATHER = """\
cluster 5 3/3/2
  network slow-probability=0.05 loss-probability=0.01 duplicate-probability=0.05 fifo=no
  metadata conflict-probability=0.1 unknown-probability=0.1
"""


def test_a_client_that_cannot_come_up_is_refused_and_the_run_goes_on() -> None:
    text = """
    plan cut-off
    expect blocked by writer
    cluster 1 1/1/1
    client writer
      create a
    at 0s: cut writer metadata
    """
    result = run_plan(parse_plan(textwrap.dedent(text).strip()), 0)
    assert (result.verdict, result.problem) == ("ok", "")


def test_the_same_plan_and_seed_make_the_same_run_here_and_elsewhere(tmp_path: Path) -> None:
    told = plan(EVERYTHING, MANY, cluster=WEATHER)
    (tmp_path / "told.scn").write_text(print_plan(told))
    program = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from scenarios.model import TransportKind\n"
        "from scenarios.plan import parse_plan\n"
        "from scenarios.runner import run_plan\n"
        "plan = parse_plan(Path(sys.argv[1]).read_text())\n"
        "runs = [run_plan(plan, seed, transport=kind).digest for kind in TransportKind for seed in range(2)]\n"
        "print(json.dumps(runs))\n"
    )

    def digests(**environment: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, tmp_path / "told.scn"],
            env={**os.environ, **environment},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        )
        found: list[str] = json.loads(done.stdout)
        return found

    here = [run_plan(told, seed, transport=kind).digest for kind in BOTH for seed in range(2)]
    assert len(set(here)) == 4
    assert digests(PYTHONHASHSEED="1") == here == digests(PYTHONHASHSEED="4000000000")


@pytest.mark.parametrize("transport", BOTH)
def test_a_history_of_a_plan_is_replayed_without_the_library(
    tmp_path: Path, transport: TransportKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = plan(WRITER, "when APP_ACK entry=1: crash bookie-0", cluster="cluster 4 3/3/2")
    result, _ = played(tmp_path, told, seed=3, transport=transport)
    monkeypatch.setattr(scenarios.replaying, "SCENARIOS", {})
    monkeypatch.setattr(scenarios.replaying, "run_scenario", None)
    made = replay_history(Path(result.path))
    assert made.is_same
    assert made.result.transport is transport


def test_the_header_holds_the_plan_with_every_value(tmp_path: Path) -> None:
    told = plan(WRITER)
    header = read_history(played(tmp_path, told)[0].path)[0]
    assert header["plan"] == print_plan(told, full=True)
    assert parse_plan(header["plan"]) == told


def rewritten(source: Path, target: Path, **header: object) -> Path:
    known, events = read_history(source)
    now = 0
    writer = HistoryWriter({**known, **header}, lambda: now, target)
    for event in events:
        now = event.time_us
        writer.record(event.kind, event.actor, event.ledger, **event.fields)
    writer.close()
    return target


def test_a_plan_that_this_version_cannot_play_is_refused(tmp_path: Path) -> None:
    result, _ = played(tmp_path, plan(WRITER))
    later = rewritten(Path(result.path), tmp_path / "later.bkh", plan="plan x\nweather fine\n")
    with pytest.raises(HistoryError, match=r"holds a plan that this version cannot play \(plan:2: expected"):
        replay_history(later)


def of_earlier_version(source: Path, target: Path, cause: str = "") -> Path:
    """The same history, recorded when faults had two fields; faults are called ``cause``, if that is given."""
    header, events = read_history(source)
    kinds = {**schema.KINDS, Kind.FAULT: ("cause", "detail")}
    now = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "KINDS", kinds)
        patch.setattr(writer, "_LAYOUTS", writer.layouts_of(kinds))
        known = {"kinds": [[str(kind), list(names)] for kind, names in kinds.items()]}
        history = HistoryWriter({**header, **known}, lambda: now, target)
        for event in events:
            now = event.time_us
            fields = {name: event.fields[name] for name in kinds[Kind(event.kind)]}
            changed = {"cause": cause} if cause and event.kind == Kind.FAULT else {}
            history.record(event.kind, event.actor, event.ledger, **fields | changed)
        history.close()
    return target


def test_a_history_of_an_earlier_version_is_replayed_as_far_as_it_tells(tmp_path: Path) -> None:
    result = run_scenario("lost-fence", 1, record=tmp_path)
    older = of_earlier_version(Path(result.path), tmp_path / "older.bkh")
    recorded = read_recorded(older)
    assert recorded.is_older
    assert recorded.digest != result.digest
    made = replay_history(older)
    assert made.is_same
    assert made.difference is None
    altered = replay_history(of_earlier_version(Path(result.path), tmp_path / "altered.bkh", cause="rain"))
    assert not altered.is_same
    assert altered.difference is not None
    assert altered.difference.one is not None
    assert altered.difference.one.fields["cause"] == "rain"


def test_plans_that_differ_in_the_plan_alone_differ_in_the_run(tmp_path: Path) -> None:
    one = plan(WRITER)
    other = replace(one, cluster=replace(one.cluster, bookies=4))
    assert run_plan(one, 0).digest != run_plan(other, 0).digest
