"""Plans by name: those of the library, and those that are drawn, another one with every seed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from scenarios.plan.library import library_names, library_plan
from scenarios.plan.model import Plan
from scenarios.plan.swarm import CAMPAIGNS, LIVENESS, LOGS, SAFETY, TOGETHER, draw_swarm

__all__ = ["DRAWN", "plan_named", "plan_names"]

DRAWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        SAFETY: "a few kinds of faults against a cluster, all drawn; nothing has to end",
        LIVENESS: "a few kinds of faults that a ledger survives, all drawn; everything has to end",
        LOGS: "the same against a log and its owners, readers, cursors and groups; nothing has to end",
        TOGETHER: "as swarm, with writers that append many entries by one call each",
        **{
            name: f"as swarm, in clusters of {bookies} bookies and {' or '.join('/'.join(map(str, each)) for each in sizes)}"
            for name, (bookies, sizes) in CAMPAIGNS.items()
        },
    }
)
"""What names stand for that are drawn."""


def plan_names() -> tuple[str, ...]:
    """All names, those of the library first."""
    return (*library_names(), *DRAWN)


def plan_named(name: str, seed: int) -> Plan:
    """The plan of this name and seed; ``KeyError`` if there is none."""
    return draw_swarm(seed, name) if name in DRAWN else library_plan(name)
