"""What breaks, or nearly breaks, the invariant about bookies that are started with other disks than theirs."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, Story
from tests.spark_analysis.planting import near_miss, plant

#: Not one of the bookies of the ledger that stands beside each of these.
B: Final = "b3"


def restarted(story: Story, cookie: str | None, bookie: str = B) -> None:
    story.crash(bookie)
    story.event(Kind.BK_RESTART, bookie, ledger=-1, incarnation=2, detail="", cookie=cookie)


def says(story: Story, code: int) -> None:
    story.event(Kind.BK_ANSWER, B, source="reader", request=None, operation="read", entry=5, code=code)


def joins(story: Story) -> None:
    """The bookie becomes a member of the ledger's last ensemble."""
    story.change(2, B, "b1", "b2")


def written(story: Story) -> None:
    """Entry 2 is stored everywhere, and acknowledged."""
    story.send(2, B, "b1", "b2", lac=1)
    story.store(2, B, "b1", "b2")
    story.answer(2, B, "b1", "b2")
    story.ack(2)


@plant("CookieGate", "where its cookie is missing")
def a_bookie_with_an_empty_disk_answers(story: Story) -> None:
    restarted(story, "missing")
    says(story, 0)


@plant("CookieGate", "where its cookie is foreign")
def a_bookie_with_the_disk_of_another_one_stores(story: Story) -> None:
    joins(story)
    restarted(story, "foreign")
    written(story)


@plant("CookieGate", "where its cookie is missing")
def a_bookie_with_an_empty_disk_fences(story: Story) -> None:
    restarted(story, "missing")
    story.fence_set(B)


@near_miss("CookieGate")
def a_bookie_got_its_disk_back(story: Story) -> None:
    joins(story)
    restarted(story, "missing")
    restarted(story, "matched")
    says(story, DENIED)
    written(story)


@near_miss("CookieGate")
def nothing_is_told_of_cookies(story: Story) -> None:
    joins(story)
    restarted(story, None)
    says(story, DENIED)
    written(story)


@plant("CookieGate", "may have lost")
def a_bookie_in_doubt_stores_for_a_writer(story: Story) -> None:
    joins(story)
    restarted(story, "doubted")
    written(story)


@plant("CookieGate", "may have lost")
def a_bookie_in_doubt_stores_for_the_writer_of_a_closed_ledger(story: Story) -> None:
    joins(story)
    story.send(2, B, "b1", "b2", lac=1)
    story.close(1)
    restarted(story, "doubted")
    story.store(2, B)


@plant("CookieGate", "may have lost")
def a_bookie_in_doubt_denies_an_entry(story: Story) -> None:
    joins(story)
    restarted(story, "doubted")
    says(story, DENIED)


@near_miss("CookieGate")
def a_bookie_in_doubt_answers_and_denies_when_it_is_out_of_limbo(story: Story) -> None:
    joins(story)
    restarted(story, "doubted")
    says(story, 0)
    for verdict in ("on", "off"):
        story.event(Kind.BK_LIMBO, B, verdict=verdict)
    says(story, DENIED)


@near_miss("CookieGate")
def a_bookie_in_doubt_becomes_a_member_later(story: Story) -> None:
    restarted(story, "doubted")
    joins(story)
    written(story)
    says(story, DENIED)


@near_miss("CookieGate")
def a_bookie_in_doubt_denies_an_entry_of_a_closed_ledger(story: Story) -> None:
    joins(story)
    written(story)
    story.close(2)
    restarted(story, "doubted")
    says(story, DENIED)
