"""Plans and their text: parsing and printing are inverse, and what is no plan is refused where it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from scenarios.plan import Plan, PlanError, PlanSyntaxError, parse_plan, print_plan
from scenarios.plan.faults import FAULTS, Cut, Hold, Traffic
from scenarios.plan.model import Step
from scenarios.plan.operations import OPERATIONS, Append, Call, Close
from scenarios.plan.triggers import At, Condition, When
from tests.scenarios.arbitrary_plans import PLANS

CANONICAL = """\
# The fence to one bookie is lost, and the writer's add to it comes late.
#
# The bookie must refuse it.
plan late-add
summary a fence is lost, and an add comes late
expect ambiguous
end a -1,0
meets recovery
patience 5s

cluster 2 2/2/2 digest=crc32
  network jitter=0.001s fifo=no
  journal sync-latency=0.002s
  run-limits steps=1000
  timeouts add=0.5s

# Its application is impatient.
client writer
  create a
  append a 4 window=4 nowait
  within 0.01s close a

client recoverer
  until when BK_STORE entry=0 recovery=no ledger=a
  open a recover

when CLIENT_START actor=writer as held: hold add writer bookie-0 entries=0,1
at 0.5s: pause writer

# From here on it is too late.
when REC_DECIDE after=0.1s verdict=negative: end held
"""


@given(PLANS)
@settings(deadline=None, max_examples=20)
def test_what_is_printed_is_parsed_to_the_same_plan(plan: Plan) -> None:
    text, full = print_plan(plan), print_plan(plan, full=True)
    assert parse_plan(text) == plan == parse_plan(full)
    assert print_plan(parse_plan(text)) == text
    assert print_plan(parse_plan(full), full=True) == full


def test_canonical_text_is_printed_as_it_is_and_means_what_it_says() -> None:
    plan = parse_plan(CANONICAL)
    assert print_plan(plan) == CANONICAL
    assert plan.clients[0].calls[1:] == (
        Call(Append("a", 4, window=4, nowait=True)),
        Call(Close("a"), limit_s=0.01),
    )
    assert plan.steps[0] == Step(
        When("CLIENT_START", "writer"), Hold(Traffic.ADD, "writer", ("bookie-0",), entries=(0, 1)), "held"
    )
    last = plan.steps[2]
    assert last.trigger == When("REC_DECIDE", after_s=0.1, where=(Condition("verdict", "negative"),))
    assert plan.cluster.client.timeouts.add_s == 0.5
    assert plan.cluster.storage.journal.sync_latency_s == 0.002
    assert plan.prose[1] == ""


def test_the_full_text_names_every_value() -> None:
    """So that a history can be replayed when what is usual has changed."""
    plan = parse_plan(CANONICAL)
    full = print_plan(plan, full=True)
    for words in ("latency=0.0003s", "read=1s", "advanced=no", "window=4 size=100 pause=0s", "times=1", "patience 5s"):
        assert words in full
    assert "capacity-bytes=1073741824" in full


def test_layout_that_is_not_canonical_is_understood() -> None:
    loose = CANONICAL.replace("  append a 4 window=4 nowait", "\n\tappend   a 4 nowait=yes   window=4  size=100")
    assert parse_plan(loose) == parse_plan(CANONICAL)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "plan late-add",
            "scheme late-add",
            r"x.scn:4: expected a plan, a client or a step after prose, found 'scheme late-add'",
        ),
        (
            "expect ambiguous",
            "expect unsafe",
            r"x.scn:6: expected safe or blocked or anything or ambiguous, found 'unsafe'",
        ),
        ("expect ambiguous", "expect blocked", r"x.scn:6: expected clients if blocked, and none otherwise"),
        ("expect ambiguous", "expect blocked by x", r"x.scn:6: expected a client of the plan, found 'x'"),
        ("end a -1,0", "end c -1,0", r"x.scn:7: expected a ledger that a client creates, found 'c'"),
        ("end a -1,0", "end a -2", r"x.scn:7: expected entries >= -1"),
        ("meets recovery", "meets happiness", r"x.scn:8: expected a situation, found 'happiness'"),
        ("patience 5s", "patience 5", r"x.scn:9: expected a duration such as 0.5s, found '5'"),
        ("patience 5s", "patience 5s\npatience 6s", r"x.scn:10: expected patience once, found it twice"),
        ("cluster 2 2/2/2", "cluster 2 2-2-2", r"x.scn:11: sizes: expected sizes E/Qw/Qa, found '2-2-2'"),
        ("cluster 2 2/2/2", "cluster 2", r"x.scn:11: expected sizes, found 'digest=crc32'"),
        ("cluster 2 2/2/2", "cluster 1 2/2/2", r"x.scn:11: expected 2 to 100 bookies, found 1"),
        ("cluster 2 2/2/2", "cluster 2 2/2/2 racks=a", r"x.scn:11: expected a rack for each of 2 bookies, found 1"),
        ("cluster 2 2/2/2", "cluster 2 2/2/2 racks=a,/b", r"x.scn:11: racks: expected a name, found '/b'"),
        ("cluster 2 2/2/2", "cluster 2 2/3/2", r"x.scn:11: sizes: expected sizes E/Qw/Qa with E >= Qw >= Qa >= 1"),
        ("  network", "  netwrok", r"x.scn:12: expected network, found 'netwrok'"),
        ("jitter=0.001s", "jitter=-1s", r"x.scn:12: jitter: expected a duration such as 0.5s, found '-1s'"),
        ("jitter=0.001s", "jitter=1e999s", r"x.scn:12: jitter: expected a duration"),
        ("add=0.5s", "add=0s", r"x.scn:15: expected values that fit, found: timeouts.add_s must be >= 0.001"),
        ("add=0.5s", "ad=0.5s", r"x.scn:15: expected add or read or .*, found 'ad=0.5s'"),
        ("  create a", "  crate a", r"x.scn:19: expected create or create-log, found 'crate'"),
        (
            "  create a",
            "  create a\n  create a",
            r"x.scn:20: expected a ledger or a log that is created once, found 'a'",
        ),
        ("append a 4", "append a", r"x.scn:20: expected count, found 'window=4'"),
        ("append a 4", "append b 4", r"x.scn:20: expected a ledger that a client creates, found 'b'"),
        ("append a 4", "append a 0", r"x.scn:20: expected count from 1 to 100000, found 0"),
        ("append a 4", "append a four", r"x.scn:20: count: expected a whole number, found 'four'"),
        ("nowait", "now", r"x.scn:20: expected size or pause or nowait, found 'now'"),
        ("nowait", "nowait nowait", r"x.scn:20: expected size or pause, found 'nowait'"),
        ("within 0.01s close a", "within 0.01s", r"x.scn:21: expected within DURATION OPERATION"),
        ("  open a recover", "  read a", r"x.scn:25: expected a handle that the client opens, found 'a'"),
        ("recovery=no ledger", "recovery=off ledger", r"x.scn:24: expected yes or no, found 'off'"),
        ("entry=0 rec", "entry=x rec", r"x.scn:24: expected a whole number, found 'x'"),
        ("BK_STORE", "BK_SHOP", r"x.scn:24: expected a kind of event, found 'BK_SHOP'"),
        ("until when BK_STORE entry=0", "until when BK_STORE code=0", r"x.scn:24: expected a field of BK_STORE"),
        ("client recoverer", "client writer", r"x.scn:23: expected a name for a client that nothing else has"),
        ("client recoverer", "client bookie-1", r"x.scn:23: expected a name for a client that nothing else has"),
        ("hold add", "hole add", r"x.scn:27: expected hold.*, found 'hole'"),
        (
            "writer bookie-0",
            "writer bookie-7",
            r"x.scn:27: expected a client or a bookie of the plan, found 'bookie-7'",
        ),
        ("actor=writer", "actor=wroter", r"x.scn:27: expected an actor of the plan, found 'wroter'"),
        ("end held", "end hold", r"x.scn:31: expected the name of a step, found 'hold'"),
        (": end held", "", r"x.scn:31: expected ':' and what to do"),
        ("end held", "", r"x.scn:31: expected what to do, found the end of the line"),
        ("writer bookie-0", "writer a@2", r"x.scn:27: expected a client or a bookie of the plan, found 'a@2'"),
        ("writer bookie-0", "writer b@0", r"x.scn:27: expected a client or a bookie of the plan, found 'b@0'"),
        ("plan late-add", "plan late@1", r"x.scn:\d+: expected a name for a plan, found 'late@1'"),
        ("  create a", "  must", r"x.scn:19: expected an operation, found the end of the line"),
        ("at 0.5s:", "at noon:", r"x.scn:28: time: expected a duration such as 0.5s, found 'noon'"),
        ("at 0.5s:", "  at 0.5s:", r"x.scn:28: expected a line that is not indented"),
        ("when REC", "client late\nwhen REC", r"x.scn:31: expected at ... or when ..., found 'client late'"),
        ("at 0.5s:", "after 0.5s:", r"x.scn:28: expected client, at or when, found 'after"),
        ("end held\n", "end held\n# the end\n", r"x.scn:\d+: expected a client or a step after prose"),
    ],
)
def test_what_is_no_plan_is_refused_where_it_stands(old: str, new: str, problem: str) -> None:
    assert old in CANONICAL
    with pytest.raises(PlanSyntaxError, match=problem) as raised:
        parse_plan(CANONICAL.replace(old, new, 1), "x.scn")
    assert str(raised.value) == f"{raised.value.file}:{raised.value.line}: {raised.value.problem}"


@pytest.mark.parametrize("text", ["", "# prose\n", "plan x\n", "plan x\n\ncluster 1 1/1/1\n", "\x00", "plan é\n"])
def test_what_ends_too_early_is_refused(text: str) -> None:
    with pytest.raises(PlanSyntaxError, match="expected"):
        parse_plan(text)


def test_a_plan_has_a_limited_number_of_steps() -> None:
    plan = parse_plan(CANONICAL)
    more = replace(plan, steps=1_000 * (Step(At(1.0), Cut("writer", "bookie-0")),))
    with pytest.raises(PlanError, match="at most 1000 steps"):
        replace(more, steps=(*more.steps, *more.steps[:1]))


def test_every_operation_and_every_fault_has_a_verb_of_its_own() -> None:
    assert len({*OPERATIONS, *FAULTS}) == len(OPERATIONS) + len(FAULTS)
