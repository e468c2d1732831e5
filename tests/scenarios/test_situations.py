"""Each situation is told from a few events, and not from what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scenarios.history import Kind
from scenarios.situations import SITUATIONS, Situations
from tests.scenarios.stories import DENIED, FENCED, NO_LEDGER, TIMEOUT, Story

NO_BOOKIES = -6
UNREACHABLE = -8
READ_ONLY = -104
UNKNOWN = -108

Telling = Callable[[Story], object]


def begun() -> Story:
    story = Story()
    story.create()
    story.write_all(0, 1)
    return story


def met(tell: Telling) -> dict[str, int]:
    story = begun()
    tell(story)
    situations = Situations()
    for event in story.events:
        situations.feed(event)
    return {name: count for name, count in situations.met.items() if count}


def got(story: Story, ledger: int, time: int, *, handle: int = 1) -> int:
    return story.event(Kind.LOG_READ, "reader", ledger=ledger, log="l", handle=handle, publish_ms=time)


def change_and_read(story: Story, *, opened_first: bool) -> None:
    if opened_first:
        story.opened("reader", recovery=False, handle=1)
    story.change(2, "b0", "b1", "b3")
    if not opened_first:
        story.opened("reader", recovery=False, handle=1)
    story.write(2)
    story.read(2)


def recover(story: Story, code: int) -> None:
    story.mark()
    story.ask(2)
    story.told(2, "b0", code=code)


def rivals(story: Story, *, at_once: bool) -> None:
    story.mark("r0")
    if not at_once:
        story.opened("r0", code=TIMEOUT)
    story.mark("r1")


def closed_elsewhere(story: Story, *, moved: bool) -> None:
    story.mark()
    story.close(1, "r0", fragments=[(0, ("b0", "b1", "b4" if moved else "b2"))])


def bookie_lost(story: Story, *, during: bool) -> None:
    story.mark()
    if not during:
        story.opened(code=TIMEOUT)
    story.crash("b0")


def late(story: Story, entry: int) -> None:
    story.close(1)
    story.store(entry, "b0")


def altered(story: Story, *, lost: bool) -> None:
    if lost:
        story.lose(0, "b0")
    story.read(0, "b0")


def race(story: Story, *, marked: bool) -> None:
    if marked:
        story.cas("recover", "r0", state="IN_RECOVERY")
    story.change(2, "b0", "b1", "b3", outcome="conflict", expected=0, version=-1)


def fault(story: Story, cause: str, *, target: str = "", phase: str = "begin") -> int:
    return story.event(Kind.FAULT, "nemesis", ledger=-1, cause=cause, fault="f", phase=phase, target=target)


def back(story: Story, bookie: str) -> int:
    return story.event(Kind.BK_RESTART, bookie, ledger=-1, incarnation=2)


def process(story: Story, kind: Kind, actor: str) -> int:
    return story.event(kind, actor, ledger=-1)


def half(story: Story, entry: int) -> int:
    """An entry that one bookie has, and that nobody acknowledged."""
    story.add(entry)
    story.send(entry, "b0")
    return story.store(entry, "b0")


def changed(story: Story, **options: Any) -> int:
    return story.change(2, "b0", "b1", "b3", **options)


def given_up(story: Story, *, killed: bool = True) -> int:
    """A recovery has begun, and its client was killed or goes on."""
    story.mark("r0")
    if killed:
        process(story, Kind.CLIENT_CRASH, "r0")
    return len(story.events)


def rewritten(story: Story, *actors: str) -> int:
    for actor in actors:
        story.mark(actor)
        story.rewrite(1, "b0", actor=actor)
    return len(story.events)


def polled(story: Story, *lacs: int, source: str = "read-lac") -> int:
    for lac in lacs:
        story.event(Kind.LAC_ADV, "reader", lac=lac, source=source, handle=1)
    return len(story.events)


def asked(story: Story, *bookies: str) -> int:
    for bookie in bookies:
        story.event(Kind.READ_SEND, "reader", entry=0, bookie=bookie)
    return len(story.events)


def replied(story: Story, code: int, bookie: str = "b0") -> int:
    return story.event(Kind.READ_RESP, "reader", entry=0, bookie=bookie, code=code, lac=-1)


def closed_by_rival(story: Story, *, begun_before: bool) -> None:
    if begun_before:
        story.mark("r0")
    story.close(1, "r1")
    story.opened("r0")


def in_limbo(story: Story, verdict: str) -> int:
    return story.event(Kind.BK_LIMBO, "b0", verdict=verdict)


def refused(story: Story) -> int:
    return story.answer(2, "b0", code=FENCED)


CASES: dict[str, tuple[Telling, Telling | None]] = {
    "recovery": (lambda s: s.mark(), lambda s: s.opened(recovery=False)),
    "unknown-answer": (lambda s: recover(s, TIMEOUT), lambda s: recover(s, DENIED)),
    "undecided-entry": (lambda s: s.decide(2, "unknown"), lambda s: s.decide(2, "negative")),
    "failed-recovery": (lambda s: s.opened(code=TIMEOUT), lambda s: s.opened()),
    "unanswered-write-back": (
        lambda s: (s.mark(), s.answer(1, "b0", actor="r0", recovery=True, code=TIMEOUT)),
        lambda s: (s.mark(), s.answer(1, "b0", actor="r0", recovery=True)),
    ),
    "recovery-replaces": (
        lambda s: closed_elsewhere(s, moved=True),
        lambda s: closed_elsewhere(s, moved=False),
    ),
    "bookie-lost-in-recovery": (lambda s: bookie_lost(s, during=True), lambda s: bookie_lost(s, during=False)),
    "rival-recoveries": (lambda s: rivals(s, at_once=True), lambda s: rivals(s, at_once=False)),
    "change-meets-recovery": (lambda s: race(s, marked=True), lambda s: race(s, marked=False)),
    "ensemble-change": (
        lambda s: s.change(2, "b0", "b1", "b3"),
        lambda s: s.change(2, "b0", "b1", "b3", outcome="error"),
    ),
    "reader-crosses-change": (
        lambda s: change_and_read(s, opened_first=True),
        lambda s: change_and_read(s, opened_first=False),
    ),
    "altered-copy": (lambda s: altered(s, lost=True), lambda s: altered(s, lost=False)),
    "close-cuts-off": (
        lambda s: (s.add(2), s.event(Kind.CLOSE_START, "writer")),
        lambda s: (s.add(2), s.fail(2), s.event(Kind.CLOSE_START, "writer")),
    ),
    "cancelled-append": (lambda s: s.cancel(1), None),
    "fenced-writer": (lambda s: s.answer(2, "b0", code=FENCED), lambda s: s.answer(2, "b0", code=TIMEOUT)),
    "forgotten-fence": (
        lambda s: (s.fence_set("b1"), s.forget_fence("b1")),
        lambda s: (s.fence_set("b1"), s.crash("b1")),
    ),
    "late-store": (lambda s: late(s, 2), lambda s: late(s, 1)),
    # Writers
    "refused-append": (lambda s: (s.add(2), s.fail(2)), lambda s: (s.add(2), s.cancel(2))),
    "append-without-bookies": (lambda s: s.fail(2, NO_BOOKIES), lambda s: s.fail(2, TIMEOUT)),
    "given-id": (lambda s: s.add(2, given=True), lambda s: s.add(2)),
    "deferred-ack": (lambda s: s.ack(2, durable=False), lambda s: s.ack(2)),
    "ack-despite-failure": (
        lambda s: (s.answer(2, "b0", code=TIMEOUT), s.ack(2)),
        lambda s: (s.answer(2, "b0", code=TIMEOUT), s.ack(3)),
    ),
    "ack-on-part": (
        lambda s: (s.store(2, "b0", "b1"), s.ack(2)),
        lambda s: (s.store(2, "b0", "b1", "b2"), s.ack(2)),
    ),
    "ack-after-recovery-began": (
        lambda s: (s.mark(), s.ack(2)),
        lambda s: (s.mark(), s.opened(), s.ack(2)),
    ),
    "fenced-zombie": (
        lambda s: (process(s, Kind.CLIENT_PAUSE, "writer"), process(s, Kind.CLIENT_RESUME, "writer"), refused(s)),
        lambda s: (process(s, Kind.CLIENT_PAUSE, "writer"), refused(s)),
    ),
    "fence-outlives-restart": (
        lambda s: (s.fence_set("b0"), s.crash("b0"), back(s, "b0"), refused(s)),
        lambda s: (s.crash("b0"), back(s, "b0"), s.fence_set("b0"), refused(s)),
    ),
    "add-timeout": (
        lambda s: s.answer(2, "b0", code=TIMEOUT),
        lambda s: s.answer(2, "b0", code=TIMEOUT, actor="r0", recovery=True),
    ),
    "unreachable-bookie": (lambda s: s.answer(2, "b0", code=UNREACHABLE), lambda s: s.answer(2, "b0", code=TIMEOUT)),
    "read-only-bookie": (lambda s: s.answer(2, "b0", code=READ_ONLY), lambda s: s.answer(2, "b0", code=FENCED)),
    "failure-after-ack": (lambda s: s.answer(1, "b0", code=TIMEOUT), lambda s: s.answer(2, "b0", code=TIMEOUT)),
    "answer-of-former-member": (
        lambda s: (changed(s), s.answer(1, "b2")),
        lambda s: (changed(s), s.answer(1, "b1")),
    ),
    "second-change": (
        lambda s: (changed(s), s.change(3, "b0", "b4", "b3")),
        lambda s: (changed(s), s.change(3, "b0", "b4", "b3", outcome="conflict")),
    ),
    "change-of-several": (lambda s: s.change(2, "b0", "b3", "b4"), lambda s: s.change(2, "b3", "b0", "b1")),
    "change-in-place": (
        lambda s: (changed(s), s.change(2, "b0", "b4", "b3")),
        lambda s: (changed(s), s.change(3, "b0", "b4", "b3")),
    ),
    "change-conflict": (
        lambda s: changed(s, outcome="conflict"),
        lambda s: s.cas("recover", "r0", state="IN_RECOVERY", outcome="conflict"),
    ),
    "change-unknown": (lambda s: changed(s, outcome="unknown"), lambda s: changed(s, outcome="error")),
    "change-meets-close": (
        lambda s: (s.event(Kind.CLOSE_START, "writer"), changed(s)),
        lambda s: (changed(s), s.event(Kind.CLOSE_START, "writer")),
    ),
    "resent-to-replacement": (lambda s: s.send(1, "b3"), lambda s: s.send(2, "b0", "b1", "b2")),
    "resent-to-same": (lambda s: s.send(1, "b2"), lambda s: s.send(1, "b2", actor="r0", recovery=True)),
    "close-meets-recovery": (
        lambda s: (s.mark(), s.event(Kind.CLOSE_START, "writer")),
        lambda s: (s.mark("writer"), s.event(Kind.CLOSE_START, "writer")),
    ),
    "refused-close": (
        lambda s: s.event(Kind.CLOSE_RESULT, "writer", code=FENCED, last_entry=1, length=20),
        lambda s: s.event(Kind.CLOSE_RESULT, "writer", code=0, last_entry=1, length=20),
    ),
    "close-finds-closed": (
        lambda s: (s.close(1, "r0"), s.event(Kind.CLOSE_RESULT, "writer", code=0)),
        lambda s: (s.close(1), s.event(Kind.CLOSE_RESULT, "writer", code=0)),
    ),
    "close-conflict": (lambda s: s.close(1, outcome="conflict"), lambda s: s.close(1, outcome="unknown")),
    "close-unknown": (lambda s: s.close(1, outcome="unknown"), lambda s: changed(s, outcome="unknown")),
    "writer-paused-in-flight": (
        lambda s: (s.add(2), process(s, Kind.CLIENT_PAUSE, "writer")),
        lambda s: (s.add(2), process(s, Kind.CLIENT_PAUSE, "reader")),
    ),
    "writer-killed-in-flight": (
        lambda s: (s.add(2), process(s, Kind.CLIENT_CRASH, "writer")),
        lambda s: (s.add(2), s.cancel(2), process(s, Kind.CLIENT_CRASH, "writer")),
    ),
    "writer-killed-in-close": (
        lambda s: (s.event(Kind.CLOSE_START, "writer"), process(s, Kind.CLIENT_CRASH, "writer")),
        lambda s: (
            s.event(Kind.CLOSE_START, "writer"),
            s.event(Kind.CLOSE_RESULT, "writer", code=0),
            process(s, Kind.CLIENT_CRASH, "writer"),
        ),
    ),
    # Recoveries
    "recovery-taken-over": (
        lambda s: (given_up(s), s.mark("r1")),
        lambda s: (given_up(s, killed=False), s.mark("r1")),
    ),
    "own-ledger-recovered": (lambda s: s.mark("writer"), lambda s: s.mark("r0")),
    "recovery-of-several-fragments": (
        lambda s: (changed(s), s.mark()),
        lambda s: (changed(s, outcome="error"), s.mark()),
    ),
    "recovery-meets-appends": (lambda s: (s.add(2), s.mark()), lambda s: (s.add(2), s.ack(2), s.mark())),
    "mark-conflict": (
        lambda s: s.cas("recover", "r0", state="IN_RECOVERY", outcome="conflict"),
        lambda s: changed(s, outcome="conflict"),
    ),
    "mark-unknown": (
        lambda s: s.cas("recover", "r0", state="IN_RECOVERY", outcome="unknown"),
        lambda s: s.cas("recover", "r0", state="IN_RECOVERY"),
    ),
    "unanswered-fence": (lambda s: s.fence("b0", code=TIMEOUT), lambda s: s.fence("b0", code=NO_LEDGER)),
    "limbo-answer": (
        lambda s: (in_limbo(s, "on"), s.told(2, "b0", code=UNKNOWN)),
        lambda s: (in_limbo(s, "on"), in_limbo(s, "off"), s.told(2, "b0", code=UNKNOWN)),
    ),
    "denied-after-loss": (
        lambda s: (s.lose(1, "b0"), s.told(1, "b0", code=DENIED)),
        lambda s: (s.lose(1, "b0"), s.told(1, "b1", code=DENIED)),
    ),
    "late-fence": (lambda s: (s.close(1), s.fence_set("b0")), lambda s: (s.fence_set("b0"), s.close(1))),
    "fence-on-read-only": (
        lambda s: (fault(s, "read-only", target="b0"), s.fence_set("b0")),
        lambda s: (fault(s, "read-only", target="b0"), fault(s, "read-only", phase="end"), s.fence_set("b0")),
    ),
    "found-half-written": (
        lambda s: (half(s, 2), s.decide(2, "positive", "b0")),
        lambda s: s.decide(1, "positive", "b0"),
    ),
    "found-unacknowledged": (lambda s: s.decide(2, "positive", "b0"), lambda s: s.decide(1, "positive", "b0")),
    "found-after-denial": (
        lambda s: (s.told(1, "b0", code=DENIED), s.decide(1, "positive", "b1")),
        lambda s: (s.told(1, "b0", code=TIMEOUT), s.decide(1, "positive", "b1")),
    ),
    "stored-and-ruled-out": (
        lambda s: (half(s, 2), s.decide(2, "negative", "b1", "b2")),
        lambda s: (half(s, 2), s.decide(3, "negative", "b1", "b2")),
    ),
    "rivals-disagree": (
        lambda s: (rewritten(s, "r0"), s.decide(1, "negative", "b1", actor="r1")),
        lambda s: (rewritten(s, "r0"), s.decide(1, "negative", "b1", actor="r0")),
    ),
    "rivals-write-back": (lambda s: rewritten(s, "r0", "r1"), lambda s: rewritten(s, "r0", "r0")),
    "write-back-where-it-was": (
        lambda s: s.store(1, "b0", recovery=True, source="r0"),
        lambda s: s.store(2, "b0", recovery=True, source="r0"),
    ),
    "write-back-to-read-only": (
        lambda s: (fault(s, "read-only", target="b0"), s.rewrite(1, "b0")),
        lambda s: (fault(s, "read-only", target="b1"), s.rewrite(1, "b0")),
    ),
    "late-write-back": (lambda s: (s.close(1), s.rewrite(1, "b0")), lambda s: (s.rewrite(1, "b0"), s.close(1))),
    "recovered-empty": (lambda s: (s.mark(), s.close(-1, "r0")), lambda s: s.close(-1, "writer")),
    "recovery-keeps-unacknowledged": (
        lambda s: (s.mark(), s.close(2, "r0")),
        lambda s: (s.mark(), s.close(1, "r0")),
    ),
    "nothing-to-recover": (
        lambda s: closed_by_rival(s, begun_before=False),
        lambda s: closed_by_rival(s, begun_before=True),
    ),
    "rivals-both-recover": (
        lambda s: closed_by_rival(s, begun_before=True),
        lambda s: closed_by_rival(s, begun_before=False),
    ),
    "recovery-killed": (
        given_up,
        lambda s: (s.mark(), s.opened(), process(s, Kind.CLIENT_CRASH, "r0")),
    ),
    "recovery-paused": (
        lambda s: (s.mark(), process(s, Kind.CLIENT_PAUSE, "r0")),
        lambda s: (s.mark(), process(s, Kind.CLIENT_PAUSE, "writer")),
    ),
    # Readers
    "failed-read": (lambda s: s.read(0, code=TIMEOUT), lambda s: s.read(0)),
    "read-from-another-replica": (
        lambda s: (asked(s, "b0"), replied(s, TIMEOUT), s.read(0, "b1")),
        lambda s: (asked(s, "b0"), replied(s, 0), s.read(0, "b1")),
    ),
    "read-asks-several": (
        lambda s: asked(s, "b0", "b1"),
        lambda s: (asked(s, "b0"), replied(s, TIMEOUT), asked(s, "b1")),
    ),
    "acknowledged-entry-denied": (lambda s: replied(s, DENIED), lambda s: replied(s, TIMEOUT)),
    "read-before-close": (lambda s: s.read(0), lambda s: (s.close(1), s.read(0))),
    "read-during-recovery": (lambda s: (s.mark(), s.read(0)), lambda s: (s.mark(), s.close(1, "r0"), s.read(0))),
    "lac-behind": (lambda s: polled(s, 0), lambda s: polled(s, 1)),
    "lac-rises": (lambda s: polled(s, 0, 1), lambda s: polled(s, 1, 0)),
    "entry-awaited": (lambda s: polled(s, 1, source="long-poll"), lambda s: polled(s, 1)),
    "opened-closed": (
        lambda s: (s.close(1), s.opened("reader", recovery=False)),
        lambda s: (s.close(1), s.opened("reader")),
    ),
    "failed-open": (
        lambda s: s.opened("reader", recovery=False, code=TIMEOUT),
        lambda s: s.opened("reader", code=TIMEOUT),
    ),
    # Bookies
    "overtaken-add": (
        lambda s: (s.store(3, "b0"), s.store(2, "b0")),
        lambda s: (s.store(3, "b0"), s.store(2, "b1")),
    ),
    "stored-twice": (lambda s: s.store(1, "b0"), lambda s: s.store(1, "b0", recovery=True)),
    "stored-by-former-member": (
        lambda s: (changed(s), s.store(2, "b2")),
        lambda s: (changed(s), s.store(2, "b3")),
    ),
    "stored-for-dead-writer": (lambda s: (s.mark(), s.store(2, "b0")), lambda s: (s.mark(), s.rewrite(2, "b0"))),
    "bookie-lost-in-append": (lambda s: (s.add(2), s.crash("b0")), lambda s: (s.add(2), s.ack(2), s.crash("b0"))),
    "another-bookie-lost": (
        lambda s: (s.crash("b0"), s.crash("b1")),
        lambda s: (s.crash("b0"), back(s, "b0"), s.crash("b1")),
    ),
    "bookie-lost-again": (
        lambda s: (s.crash("b0"), back(s, "b0"), s.crash("b0")),
        lambda s: (s.crash("b0"), back(s, "b0"), s.crash("b1")),
    ),
    "crash-before-sync": (
        lambda s: (s.store(2, "b0", sync=False), s.crash("b0")),
        lambda s: (s.store(2, "b0", sync=False), s.crash("b1")),
    ),
    "crash-before-fence-is-durable": (
        lambda s: (s.fence_set("b0", durable=False), s.crash("b0")),
        lambda s: (s.fence_set("b0", durable=False), s.fence_set("b0"), s.crash("b0")),
    ),
    "bookie-back-before-close": (
        lambda s: (s.crash("b0"), back(s, "b0")),
        lambda s: (s.crash("b0"), s.close(1), back(s, "b0")),
    ),
    "unsynced-copy-lost": (
        lambda s: (s.store(2, "b0", sync=False), s.lose(2, "b0")),
        lambda s: (s.store(2, "b0"), s.lose(2, "b0")),
    ),
    "synced-copy-lost": (
        lambda s: (s.store(2, "b0"), s.lose(2, "b0")),
        lambda s: (s.store(2, "b0", sync=False), s.lose(2, "b0")),
    ),
    "acknowledged-copy-lost": (lambda s: s.lose(1, "b0"), lambda s: (s.store(2, "b0"), s.lose(2, "b0"))),
    "limbo": (lambda s: in_limbo(s, "on"), lambda s: (s.close(1), in_limbo(s, "on"))),
    "garbage-collected": (lambda s: s.event(Kind.BK_GC, "b0"), None),
    "collected-in-recovery": (
        lambda s: (s.mark(), s.event(Kind.BK_GC, "b0")),
        lambda s: (s.mark(), s.opened(code=TIMEOUT), s.event(Kind.BK_GC, "b0")),
    ),
    # Metadata and the run
    "something-wrong": (lambda s: fault(s, "cut"), lambda s: (fault(s, "cut", phase="end"), s.answer(2, "b0"))),
    "recovery-of-stale-metadata": (
        lambda s: (changed(s), s.event(Kind.REC_START, "r0", version=0, first_entry=0, bookies="b0,b1,b2")),
        lambda s: (changed(s), s.event(Kind.REC_START, "r0", version=1, first_entry=2, bookies="b0,b1,b3")),
    ),
    "read-of-marked": (lambda s: (s.mark(), s.look("r1")), lambda s: s.look("r1")),
    "write-refused": (lambda s: changed(s, outcome="error"), lambda s: changed(s, outcome="unknown")),
    "deleted": (lambda s: s.cas("delete", "writer"), lambda s: s.cas("delete", "writer", outcome="error")),
    "append-to-deleted": (lambda s: (s.cas("delete", "r0"), s.add(2)), lambda s: (s.add(2), s.cas("delete", "r0"))),
    "copies-restored": (
        lambda s: s.cas("rereplicate", "r0", fragments=[(0, ("b0", "b1", "b3"))]),
        lambda s: s.cas("rereplicate", "r0", outcome="conflict"),
    ),
    "store-down-in-recovery": (lambda s: (s.mark(), fault(s, "store-down")), lambda s: fault(s, "store-down")),
    "session-lost-in-append": (
        lambda s: (s.add(2), fault(s, "lose-session", target="writer")),
        lambda s: (s.add(2), fault(s, "lose-session", target="b0")),
    ),
    "partition-in-recovery": (
        lambda s: (s.mark(), fault(s, "partition")),
        lambda s: (fault(s, "partition"), s.mark(), fault(s, "partition", phase="end")),
    ),
    # Clocks
    "clock-jumped-in-add": (
        lambda s: (s.add(2), fault(s, "clock-jump", target="writer")),
        lambda s: (s.add(2), fault(s, "clock-jump", target="b0")),
    ),
    "log-clock-fell-behind": (
        lambda s: (got(s, 7, 5000), got(s, 8, 5000)),
        lambda s: (got(s, 7, 5000), got(s, 7, 5000), got(s, 8, 5001), got(s, 9, 5001, handle=2)),
    ),
}


def test_every_situation_has_a_case() -> None:
    assert CASES.keys() == SITUATIONS.keys()
    assert [name for name, (_, near) in CASES.items() if near is None] == [
        *("cancelled-append", "garbage-collected"),  # one event and nothing else: there is nothing near
    ]


@pytest.mark.parametrize("name", CASES)
def test_a_situation_is_told_from_its_events(name: str) -> None:
    assert met(CASES[name][0])[name] >= 1


@pytest.mark.parametrize("name", [name for name, (_, near) in CASES.items() if near is not None])
def test_what_only_looks_like_it_is_not_counted(name: str) -> None:
    near = CASES[name][1]
    assert near is not None
    assert name not in met(near)
