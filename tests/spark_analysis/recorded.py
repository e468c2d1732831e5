"""Histories written to files, for tests of what reads and judges them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgpack

from scenarios.history import Event, HistoryWriter
from scenarios.model import RunResult
from scenarios.runner import run_scenario
from tests.scenarios.stories import Story

__all__ = [
    "CAUGHT",
    "HARMED",
    "HARMLESS",
    "SHIPPED",
    "bystander",
    "record",
    "record_runs",
    "truncated",
    "truncating",
    "unfinished",
    "with_choices",
]

#: Scenario, seed and mutant of recorded runs. In these seeds the defects do harm, and not only break a rule of procedure that
#: the online checker alone knows.
HARMED: Final = (
    *(("lost-fence", seed, "recovery-reads-do-not-fence") for seed in (0, 2, 8)),
    *(("bookie-crash", seed, "recovery-starts-below-last-fragment") for seed in (0, 4, 8)),
)
SHIPPED: Final = (
    *((scenario, seed, None) for scenario, seed, _ in HARMED),
    ("calm-writes", 1, None),
    ("dead-writer", 1, None),
    ("zombie-writer", 1, None),
    *(
        (scenario, seed, None)
        for scenario in ("lost-reads", "lost-write-backs", "killed-at-decision", "rival-recoveries", "racing-change")
        for seed in (0, 1)
    ),
    *((scenario, 0, None) for scenario in ("moving-reader", "altered-copies", "hasty-close", "cancelled-callers")),
    ("repair-of-open-ledger", 0, None),
    *((plan, 0, None) for plan in ("log-two-owners-race", "log-trim-against-slow-cursor", "log-stranger-recovers-end")),
)
#: A defect that finds nothing to break.
HARMLESS: Final = (("calm-writes", 1, "recovery-reads-do-not-fence"),)


#: A run of every mutant in which its history gives it away; those left out only make a run never end.
CAUGHT: Final = (
    ("lost-fence", 13, "recovery-reads-do-not-fence"),
    ("lost-reads", 13, "recovery-takes-silence-for-denial"),
    ("lost-reads", 15, "recovery-takes-silence-for-fenced"),
    ("lost-write-backs", 13, "write-back-takes-silence-for-stored"),
    ("bookie-crash", 15, "writer-takes-silence-for-stored"),
    ("cancelled-callers", 15, "cancelled-append-counts-as-stored"),
    ("altered-copies", 13, "digests-are-not-verified"),
    ("bookie-crash", 15, "recovery-starts-below-last-fragment"),
    ("lost-reads", 13, "one-denial-decides"),
    ("lost-write-backs", 13, "recovery-closes-before-write-back"),
    ("dead-writer", 13, "recovery-closes-at-found-lac"),
    ("racing-change", 15, "recovery-reads-from-replacements"),
    ("lost-reads", 13, "undecided-entry-ends-ledger"),
    ("dead-writer", 21, "recovery-lac-advances"),
    ("write-backs-fail-crosswise", 0, "failed-bookie-counts-for-every-entry"),
    ("force-meets-close", 0, "force-after-close-succeeds"),
    ("acks-wait-for-second-rack", 0, "fault-domains-ignored"),
    ("late-answer-meets-next-read", 0, "late-answers-are-taken-for-new-ones"),
    ("hasty-close", 13, "ack-quorum-one-short"),
    ("hasty-close", 13, "acks-after-close"),
    ("hasty-close", 15, "writer-closes-at-last-pushed"),
    ("moving-reader", 13, "acks-during-ensemble-change"),
    ("forgotten-fence", 13, "writer-trusts-new-connections"),
    ("eviction-keeps-fence", 0, "bookie-forgets-fence-when-evicted"),
    ("torn-group", 0, "journal-acknowledges-before-sync"),
    ("listing-omits-ledger", 0, "bookie-believes-listings"),
    ("surplus-copy-is-needed-again", 0, "bookie-drops-what-it-got-again"),
    ("read-beyond-lac", 0, "reads-go-beyond-the-lac"),
    ("fence-lost-late-add", 0, "bookie-fences-known-ledgers-only"),
    ("writer-dies-before-ack", 0, "bookie-refuses-recovery-adds"),
    ("crash-before-fence-is-durable", 0, "fence-is-answered-before-it-is-durable"),
    ("fence-lost-late-add", 0, "fenced-bookie-fills-gaps"),
    ("delete-meets-zombie", 0, "bookie-forgets-what-was-deleted"),
    ("replaced-disk-refused", 0, "bookie-ignores-its-cookie"),
    ("replaced-disk-forced", 0, "bookie-vouches-for-what-it-lost"),
    ("replaced-disks-checked-and-zombie", 0, "bookie-in-doubt-leaves-closed-ledgers-unfenced"),
    ("corrupt-entry", 0, "rot-counts-as-denial"),
    ("denial-comes-last", 0, "recovery-believes-the-last-answer"),
    ("recovery-with-silent-bookie", 0, "recovery-waits-for-every-bookie"),
    ("read-answer-timeouts", 0, "timeouts-are-told-as-a-missing-ledger"),
    ("happy-path", 0, "writer-closes-at-the-lac-it-told"),
    ("zombie-returns", 0, "writer-takes-fence-for-failure"),
    ("asymmetric-recoverer", 0, "recovery-reads-without-coverage"),
    ("split-minimal-fence", 0, "coverage-counts-bookies-in-total"),
    ("ack-loss", 0, "change-starts-above-next-entry"),
    ("ack-loss", 0, "change-starts-at-confirmed-entry"),
    ("slow-change", 0, "ensemble-used-before-stored"),
    ("change-meets-mark", 0, "change-ignores-takeover"),
    ("writer-dies-before-ack", 0, "recovery-does-not-mark"),
    ("close-meets-recovery", 0, "close-takes-conflict-for-success"),
    ("zombie-returns", 0, "writer-closes-over-closed"),
    ("program-started-again", 0, "writer-goes-on-with-an-open-ledger"),
    ("two-recoverers", 0, "recovery-closes-over-closed"),
    ("slow-change", 0, "change-sorts-its-ensemble"),
    ("repair-meets-writer", 0, "conflict-refreshes-the-version-only"),
    ("change-lost", 0, "unknown-write-counts-as-made"),
    ("change-in-doubt", 0, "given-up-change-may-come-later"),
    ("recovery-replaces-bookie", 0, "recovery-publishes-ensembles"),
    ("writer-dies-before-ack", 0, "recovery-flag-is-lost"),
    ("happy-path", 0, "adds-tell-the-lac-of-what-was-pushed"),
    ("happy-path", 0, "entries-confirm-themselves"),
    ("happy-path", 0, "length-leaves-the-entry-out"),
    ("repair-of-striped-ledger", 0, "repair-copies-nothing"),
    ("repair-of-striped-ledger", 0, "repair-leaves-the-last-entry-out"),
    ("repair-of-striped-ledger", 0, "repair-replaces-the-wrong-bookie"),
    ("deferred-sync", 0, "close-counts-what-it-cuts-off"),
    ("given-ids", 0, "acks-above-gaps"),
    ("given-ids", 0, "acks-out-of-order"),
    ("reset-storm", 0, "replaced-bookie-keeps-acknowledgements"),
    ("reset-storm", 0, "replaced-bookie-still-answers"),
    ("reset-storm", 0, "answers-count-instead-of-bookies"),
    ("deferred-sync-and-failed-bookie", 0, "deferred-sync-allows-ensemble-changes"),
    ("given-ids-again", 0, "duplicates-below-sequence-head-accepted"),
    ("log-tail-across-takeover", 0, "log-writes-before-listing"),
    ("log-cursor-comes-during-roll", 0, "log-takes-conflicts-for-success"),
    ("log-partitioned-owner", 0, "log-does-not-fence-its-predecessor"),
    ("log-partitioned-owner", 0, "log-takes-its-predecessor-for-empty"),
    ("log-tail-across-takeover", 0, "log-rolls-without-closing"),
    ("log-stranger-recovers-end", 0, "log-sends-again-what-was-stored"),
    ("log-bookies-too-few", 0, "log-sends-again-backwards"),
    ("log-clocks-drift", 0, "log-owner-trusts-its-clock"),
    ("log-bookies-too-few", 0, "log-acknowledges-what-was-cut-off"),
    ("log-list-answer-lost", 0, "log-deletes-what-may-be-listed"),
    ("log-list-meets-claim", 0, "log-ignores-who-owns-it"),
    ("log-tail-across-takeover", 0, "log-tells-ids-crosswise"),
    ("log-bookies-too-few", 0, "log-reader-skips-a-ledger"),
    ("log-reader-overtaken", 0, "log-reader-passes-over-what-was-trimmed"),
    ("log-bookies-too-few", 0, "log-reader-repeats-an-entry"),
    ("log-trim-against-slow-cursor", 0, "log-trim-ignores-cursors"),
    ("log-cursor-comes-during-trim", 0, "log-trim-ignores-new-cursors"),
    ("log-cursor-comes-during-trim", 0, "log-trim-deletes-first"),
    ("log-cursor-taken-over", 0, "log-cursor-ignores-who-has-it"),
    ("log-group-member-dies", 0, "log-group-acknowledges-what-it-reads"),
    ("log-group-fails-over", 0, "log-cursor-forgets-its-position"),
    ("log-group-member-dies", 0, "log-group-reads-from-the-beginning"),
    ("log-group-fails-over", 0, "log-group-has-many-active"),
    ("log-group-opens-late", 0, "log-group-goes-by-an-old-list"),
    ("log-group-fails-over", 0, "log-group-reads-without-opening"),
    ("log-compaction-dies-before-pointing", 0, "log-compaction-keeps-the-oldest"),
    ("log-compaction-dies-before-pointing", 0, "log-compaction-drops-a-key"),
    ("log-compaction-dies-before-pointing", 0, "log-compaction-forgets-deletions"),
    ("log-compaction-dies-before-pointing", 0, "log-compaction-points-to-an-open-ledger"),
    ("log-compaction-dies-before-deleting", 0, "log-compaction-deletes-first"),
    ("log-compaction-overtaken", 0, "log-compaction-ignores-another"),
    ("log-compaction-meets-trim", 0, "log-trim-ignores-compaction"),
)


def record_runs(folder: Path) -> list[RunResult]:
    """Record all these runs in ``folder``."""
    return [
        run_scenario(name, seed, mutant=mutant, record=folder)
        for name, seed, mutant in (*HARMED, *SHIPPED, *HARMLESS, *CAUGHT)
    ]


def record(path: Path, *stories: Story, scenario: str = "story", seed: int = 0, events: Iterable[Event] = ()) -> Path:
    """Write the events of ``stories``, one after the other, and then ``events``, to one history file."""
    told = [*(event for story in stories for event in story.events), *events]
    times = iter(range(0, 1000 * len(told), 1000))
    writer = HistoryWriter({"scenario": scenario, "seed": seed}, lambda: next(times), path)
    for event in told:
        writer.record(event.kind, event.actor, event.ledger, **event.fields)
    writer.close()
    return path


def bystander(ledger: int = 8) -> Story:
    """A short, blameless ledger, to share a history with one that is not."""
    story = Story(ledger=ledger)
    story.create()
    story.write_all(0, 1)
    story.close(1)
    return story


def truncated(path: Path) -> Path:
    """A history of which the end is missing."""
    record(path, bystander())
    path.write_bytes(path.read_bytes()[:-50])
    return path


def unfinished(ledger: int) -> Story:
    """A ledger that nobody ever closed."""
    story = Story(ledger=ledger)
    story.create()
    story.write(0)
    return story


def truncating(ledger: int) -> Story:
    """A ledger closed below what was acknowledged."""
    story = Story(ledger=ledger)
    story.create()
    story.write_all(0, 1)
    story.close(0)
    return story


def with_choices(history: Path, path: Path) -> Path:
    """The same events in ``path``, with what a schedule chose in the footer."""
    data = history.read_bytes()
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(data)
    *_, footer = unpacker
    events = data[: len(data) - len(msgpack.packb(footer))]
    path.write_bytes(events + msgpack.packb({**footer, "choices": ["writer>bookie-0 3:12,9:1", "writer 4:1"]}))
    return path
