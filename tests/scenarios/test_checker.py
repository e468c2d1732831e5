"""The checker as a whole: independent of what it judges, silent about correct runs, deaf to nothing, impossible to upset."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import scenarios.checker
from scenarios.checker import CLAUSES, FAMILIES, INVARIANTS, LOG_FAMILIES, OnlineChecker
from scenarios.checker.base import Family
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.logs.base import LogFamily
from scenarios.history import FIELDS, KINDS, Event, FieldType, HistoryWriter, Kind
from tests.scenarios.stories import DENIED, Story, assert_broken

_CHECKER = Path(scenarios.checker.__file__).parent


def eventful() -> Story:
    """A correct run in which everything the checker looks for has its occasion."""
    story = Story("3/3/2")
    story.create()
    for bookie in ("b0", "b1", "b2"):
        story.event(Kind.BK_LAC, bookie, lac=-1)
    story.write_all(0, 1)
    story.event(Kind.BK_LAC, "b0", lac=0)
    story.event(Kind.LAC_ADV, "reader", lac=0, source="open", handle=1)
    story.read(0)
    story.event(Kind.BK_LAC, "b0", lac=1)
    story.change(2, "b0", "b1", "b3")
    story.send(2, "b0", "b1", "b3", lac=1)
    story.store(2, "b0")
    story.mark()
    story.fence("b0", "b1", lac=1)
    story.event(Kind.FENCE_RESP, "r0", bookie="b3", code=-23, lac=-1, entry=-1)
    story.event(Kind.BK_LIMBO, "b3", verdict="on")
    story.ask(2)
    story.told(2, "b0")
    story.decide(2, "positive", "b0")
    story.rewrite(2, "b0", "b1", lac=1)
    story.rule_out(3, "b0", "b1")
    story.event(Kind.BK_LIMBO, "b3", verdict="off")
    story.close(2, actor="r0")
    story.opened()
    story.fail(2)
    story.read(2, "b3", actor="r0", code=DENIED, version=0)
    story.read(2, actor="r0")
    return story


def test_it_imports_nothing_of_the_code_it_judges() -> None:
    """Seen from the text: no module of the checker, nor any module of ours that it imports, names client or bookies."""
    seen: dict[str, None] = {}
    waiting = [f"scenarios.checker.{path.stem}" for path in _CHECKER.glob("*.py") if path.stem != "__init__"]
    root = _CHECKER.parent.parent
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen[name] = None
        path = root.joinpath(*name.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in _runtime_imports(ast.parse(source.read_text())):
            assert node.split(".")[0] not in {"bkclient", "simbookie"}, f"{name} imports {node}"
            if node.startswith("scenarios"):
                waiting.append(node)
    assert len(seen) > 20


def _runtime_imports(tree: ast.Module) -> list[str]:
    found = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.append(node.module)
    return found


def test_it_loads_nothing_of_the_code_it_judges() -> None:
    """Seen from a fresh process."""
    code = (
        "import sys, scenarios.checker; "
        "print([name for name in sys.modules if name.split('.')[0] in ('bkclient', 'simbookie', 'asyncio')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_correct_run_is_not_accused() -> None:
    assert eventful().checked().finish() == ()


def test_a_correct_run_gives_nearly_every_clause_something_to_judge() -> None:
    """The exceptions need something rare, or something wrong, to be judged at all; their own tests provide it."""
    judged = eventful().checked().judged
    assert {clause for clause, count in judged.items() if count == 0} == {
        "A6",  # an acknowledgement after a failure
        "A11",  # a close that its writer is told of
        "A12",  # an add that is refused because of a fence
        "L2",  # the end of a run
        "A7",  # an acknowledgement after the writer's close
        "B2",  # a write to a closed ledger
        "C11",  # a write after a deletion
        "D1",  # an ordinary add to a fenced bookie
        "D11",  # a denial in limbo
        "D12",  # a collection
        "A13",  # a writer that demands several racks
        "D16",  # a force
        "L10",  # a recovery that gives up
        "D15",  # a bookie that checks its cookie
        "D17",  # a bookie that starts in doubt
        *("M1", "M2"),  # requests with numbers, as in test_checker_answers.py
        "E5",  # an ordinary add of an entry that was ruled out
        *(number for number in CLAUSES if number.startswith("H")),  # a log, as in test_recording_log.py
    }


def test_every_clause_has_one_family_and_every_family_its_clauses() -> None:
    of_ledgers = [number for family in FAMILIES for number in family.clauses]
    of_logs = [number for family in LOG_FAMILIES for number in family.clauses]
    assert sorted(of_ledgers + of_logs) == sorted(CLAUSES)
    assert {clause for clauses in INVARIANTS.values() for clause in clauses} == set(CLAUSES)
    assert all(clause.invariant in INVARIANTS for clause in CLAUSES.values())


def test_every_family_says_which_clauses_it_judges() -> None:
    families: list[type[Family | LogFamily]] = [*FAMILIES, *LOG_FAMILIES]
    for family in families:
        for number in family.clauses:
            assert number in (family.__doc__ or ""), f"{family.__name__} says nothing about {number}"


def test_the_first_violation_of_a_clause_in_a_ledger_is_kept() -> None:
    story = Story("1/1/1")
    story.create()
    first = story.ack(0)
    story.ack(1)
    violation = assert_broken(story, "A2", first)
    assert len([found for found in story.checked().finish() if found == violation]) == 1


def test_ledgers_are_judged_apart() -> None:
    one, other = Story("1/1/1", ledger=1), Story("1/1/1", ledger=2)
    one.create()
    one.write(0)
    one.close(-1)
    other.create()
    other.write(0)
    other.close(0)
    checker = OnlineChecker()
    for event in (*one.events, *other.events):
        checker.feed(event)
    assert {violation.ledger for violation in checker.finish()} == {1}


def test_it_reads_a_history_being_written() -> None:
    checker = OnlineChecker()
    writer = HistoryWriter({}, lambda: 0)
    writer.readers.append(checker.feed_all)
    story = Story("1/1/1")
    story.create()
    story.write(0)
    story.close(-1)
    for event in story.events:
        writer.record(event.kind, event.actor, event.ledger, **event.fields)
    writer.close()
    assert checker.events == len(story.events)
    assert "NoLacTruncation" in [violation.invariant for violation in checker.finish()]


def test_an_event_with_something_essential_unknown_is_passed_over_and_counted() -> None:
    checker = OnlineChecker()
    checker.feed(
        Event(0, 0, "writer", Kind.APP_ACK, 1, {"incarnation": 1, "entry": None, "content": 1, "durable": True})
    )
    checker.feed(Event(1, 0, "writer", Kind.APP_ACK, 1, {"incarnation": 1}))
    assert checker.skipped == 2
    assert sum(checker.checked.values()) == 0


def test_kinds_nobody_asks_for_are_no_trouble() -> None:
    checker = OnlineChecker()
    checker.feed(Event(0, 0, "nemesis", Kind.FAULT, -1, {"cause": "partition", "detail": "writer | b0"}))
    checker.feed(Event(1, 0, "nemesis", "A_KIND_OF_THE_FUTURE", 1, {}))
    assert checker.events == 2
    assert checker.skipped == 0


_ACTORS = ("writer", "r0", "b0", "b1", "b2", "")
_STRINGS: dict[str, tuple[str, ...]] = {
    "bookie": _ACTORS,
    "source": _ACTORS,
    "bookies": ("", "b0", "b0,b1", "b0,b1,b2", ",,,"),
    "outcome": ("ok", "conflict", "unknown", "error"),
    "cause": (
        *("create", "ensemble", "recover", "close", "rereplicate", "delete"),
        *("stored", "listed", "removed", "earliest", "other"),
    ),
    "state": ("OPEN", "IN_RECOVERY", "CLOSED", "elsewhere"),
    "verdict": ("positive", "negative", "unknown", "on", "off"),
    "detail": ("",),
    "fault": ("cut-1",),
    "phase": ("begin", "end", "once"),
    "target": ("b0",),
    "other": ("b1",),
    "parameters": ("",),
    "operation": ("add", "write-back", "fence", "recovery-read", "read", "other"),
    "log": ("l", "m"),
    "cursor": ("", "c"),
    "mode": ("exclusive", "failover", "shared", ""),
    "cookie": ("own", "foreign", ""),
    "racks": ("", "x", "x,x", "x,x,y"),
}
_longs = st.one_of(st.integers(-2, 5), st.sampled_from([-13, -7, -101, -23, 2**62, -(2**62)]))
_fragments = st.lists(
    st.tuples(st.integers(-1, 4), st.lists(st.sampled_from(["b0", "b1", "b2"]), max_size=3)).map(list), max_size=3
)


def _values(name: str) -> st.SearchStrategy[Any]:
    kind = FIELDS[name]
    if kind is FieldType.LONG:
        values: st.SearchStrategy[Any] = st.integers(-1, 3) if name.endswith("_size") else _longs
    elif kind is FieldType.BOOLEAN:
        values = st.booleans()
    elif kind is FieldType.STRING:
        values = st.sampled_from(_STRINGS[name])
    else:
        values = _fragments
    return st.one_of(values, values, values, st.none())


_some_fields = {kind: st.fixed_dictionaries({name: _values(name) for name in names}) for kind, names in KINDS.items()}


@st.composite
def _event(draw: st.DrawFn) -> tuple[str, str, int, dict[str, Any]]:
    kind = draw(st.sampled_from(sorted(KINDS)))
    return kind, draw(st.sampled_from(_ACTORS)), draw(st.integers(-1, 1)), draw(_some_fields[kind])


@settings(max_examples=150, deadline=None)
@given(st.lists(_event(), max_size=60))
def test_no_sequence_of_events_upsets_it(drawn: list[tuple[str, str, int, dict[str, Any]]]) -> None:
    checker = OnlineChecker()
    for seq, (kind, actor, ledger, fields) in enumerate(drawn):
        checker.feed(Event(seq, seq, actor, kind, ledger, fields))
    for violation in checker.finish():
        assert all(0 <= seq < len(drawn) for seq in violation.seqs), "a witness names events that were seen"
    assert checker.finish() == checker.finish()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_disturbance_of_a_correct_run_upsets_it(data: st.DataObject) -> None:
    """Events lost, doubled, swapped, and with unknown fields: nothing may be raised, whatever is found."""
    events = list(eventful().events)
    for _ in range(data.draw(st.integers(1, 6))):
        index = data.draw(st.integers(0, len(events) - 1))
        change = data.draw(st.sampled_from(["lose", "double", "swap", "blank"]))
        if change == "lose":
            del events[index]
        elif change == "double":
            events.insert(index, events[index])
        elif change == "swap":
            other = data.draw(st.integers(0, len(events) - 1))
            events[index], events[other] = events[other], events[index]
        elif events[index].fields:
            name = data.draw(st.sampled_from(sorted(events[index].fields)))
            old = events[index]
            events[index] = Event(old.seq, old.time_us, old.actor, old.kind, old.ledger, {**old.fields, name: None})
    checker = OnlineChecker()
    for event in events:
        checker.feed(event)
    checker.finish()


def test_what_it_kept_of_ledgers_is_gone_as_soon_as_it_lets_go() -> None:
    """Without the collector of garbage, which would look at all of it before."""

    def alive() -> int:
        return sum(isinstance(kept, LedgerFacts | Family) for kept in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = alive()
        checker = OnlineChecker()
        checker.feed_all(eventful().events)
        assert alive() > before
        checker.let_go()
        assert alive() == before
    finally:
        gc.enable()
