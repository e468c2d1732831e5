"""The named scenarios, one file each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from scenarios.library.bookie_crash import BOOKIE_CRASH
from scenarios.library.calm_writes import CALM_WRITES
from scenarios.library.dead_writer import DEAD_WRITER
from scenarios.library.lost_fence import LOST_FENCE
from scenarios.library.zombie_writer import ZOMBIE_WRITER
from scenarios.model import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {scenario.name: scenario for scenario in (CALM_WRITES, BOOKIE_CRASH, DEAD_WRITER, ZOMBIE_WRITER, LOST_FENCE)}
)
