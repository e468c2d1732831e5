"""The named scenarios, one file each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from scenarios.library.altered_copies import ALTERED_COPIES
from scenarios.library.bookie_crash import BOOKIE_CRASH
from scenarios.library.calm_writes import CALM_WRITES
from scenarios.library.cancelled_callers import CANCELLED_CALLERS
from scenarios.library.dead_writer import DEAD_WRITER
from scenarios.library.forgotten_fence import FORGOTTEN_FENCE
from scenarios.library.hasty_close import HASTY_CLOSE
from scenarios.library.killed_at_decision import KILLED_AT_DECISION
from scenarios.library.lost_fence import LOST_FENCE
from scenarios.library.lost_reads import LOST_READS
from scenarios.library.lost_write_backs import LOST_WRITE_BACKS
from scenarios.library.moving_reader import MOVING_READER
from scenarios.library.racing_change import RACING_CHANGE
from scenarios.library.rival_recoveries import RIVAL_RECOVERIES
from scenarios.library.zombie_writer import ZOMBIE_WRITER
from scenarios.model import Scenario

__all__ = ["SCENARIOS"]

_ALL: Final = (
    CALM_WRITES,
    BOOKIE_CRASH,
    DEAD_WRITER,
    ZOMBIE_WRITER,
    LOST_FENCE,
    LOST_READS,
    LOST_WRITE_BACKS,
    KILLED_AT_DECISION,
    RIVAL_RECOVERIES,
    RACING_CHANGE,
    MOVING_READER,
    ALTERED_COPIES,
    HASTY_CLOSE,
    CANCELLED_CALLERS,
    FORGOTTEN_FENCE,
)

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType({scenario.name: scenario for scenario in _ALL})
