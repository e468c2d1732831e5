"""Each situation is told from a few events, and not from what only looks like it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scenarios.history import Kind
from scenarios.situations import SITUATIONS, Situations
from tests.scenarios.stories import DENIED, FENCED, TIMEOUT, Story

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
}


def test_every_situation_has_a_case() -> None:
    assert CASES.keys() == SITUATIONS.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_situation_is_told_from_its_events(name: str) -> None:
    assert met(CASES[name][0])[name] >= 1


@pytest.mark.parametrize("name", [name for name, (_, near) in CASES.items() if near is not None])
def test_what_only_looks_like_it_is_not_counted(name: str) -> None:
    near = CASES[name][1]
    assert near is not None
    assert name not in met(near)
