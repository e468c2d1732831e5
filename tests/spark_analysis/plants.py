"""All plants and near misses, and a story that is long and honest."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from tests.scenarios.stories import FENCED, Story
from tests.spark_analysis import (  # noqa: F401  they plant when imported
    plants_in_other_ways,
    plants_of_applications,
    plants_of_bookies,
    plants_of_compactions,
    plants_of_consumers,
    plants_of_contents,
    plants_of_cookies,
    plants_of_cursors,
    plants_of_ends,
    plants_of_entries,
    plants_of_ledgers,
    plants_of_logs,
    plants_of_messages,
    plants_of_recoveries,
)
from tests.spark_analysis.planting import Plant, missed, open_ledger, planted

__all__ = ["HONEST", "NEAR_MISSES", "PLANTS", "Plant", "honest_life"]


PLANTS: Final = tuple(planted)
NEAR_MISSES: Final = tuple(missed)

#: The history of :func:`honest_life`.
HONEST: Final = "plants/honest.bkh"


def honest_life() -> Story:
    """A ledger with everything in its life that any invariant looks at: replaced bookie, takeover, rewrite, readers."""
    story = open_ledger()
    story.change(2, "b0", "b1", "b3")
    story.write(2)
    story.event(Kind.LAC_ADV, "reader", lac=1)
    story.send(3, *story.write_set(3), lac=2)
    story.store(3, "b1")
    story.event(Kind.BK_LAC, "b1", lac=2)
    story.mark()
    story.fence("b0", "b1", lac=2)
    story.answer(3, "b0", code=FENCED)
    story.find(3, "b1")
    story.rewrite(3, "b0", "b3", lac=2)
    story.rule_out(4, "b0", "b1")
    story.close(3, "r0")
    story.opened()
    story.fail(3, code=FENCED)
    story.event(Kind.BK_GC, "b9")
    story.look("reader")
    story.read(3)
    return story
