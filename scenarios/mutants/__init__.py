"""Mutants: known defects, switched on from outside the shipped code.

Mutants show that a checker can detect violations. Each is a defect that BookKeeper clients had, or nearly had, planted either by
temporarily replacing named functions, or by wrapping the transport, which then alters requests or answers. The shipped code has
no switch for any of them.

Defects of the machines can be planted into whole clients, where runs of scenarios show some of them (:data:`RUN_MUTANTS`), and
into worlds of machines (:data:`MACHINE_MUTANTS`), where a search is fast enough for rare ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from scenarios.mutants.base import Mutant, Replacement
from scenarios.mutants.bookies import BOOKIE_MUTANTS
from scenarios.mutants.connections import CONNECTION_MUTANTS
from scenarios.mutants.cookies import COOKIE_MUTANTS
from scenarios.mutants.creating import CREATING_MUTANTS
from scenarios.mutants.log_compaction import LOG_COMPACTION_MUTANTS
from scenarios.mutants.log_groups import LOG_GROUP_MUTANTS
from scenarios.mutants.logs import LOG_MUTANTS
from scenarios.mutants.metadata import METADATA_MUTANTS
from scenarios.mutants.options import OPTION_MUTANTS
from scenarios.mutants.reads import READ_MUTANTS
from scenarios.mutants.recovery import RECOVERY_MUTANTS
from scenarios.mutants.repairs import REPAIR_MUTANTS
from scenarios.mutants.shells import SHELL_MUTANTS
from scenarios.mutants.wire import WIRE_MUTANTS
from scenarios.mutants.writing import WRITING_MUTANTS

__all__ = ["MACHINE_MUTANTS", "MUTANTS", "RUN_MUTANTS", "Mutant", "Replacement"]

_ALL: Final = (
    *SHELL_MUTANTS,
    *CONNECTION_MUTANTS,
    *BOOKIE_MUTANTS,
    *COOKIE_MUTANTS,
    *RECOVERY_MUTANTS,
    *READ_MUTANTS,
    *WRITING_MUTANTS,
    *CREATING_MUTANTS,
    *METADATA_MUTANTS,
    *WIRE_MUTANTS,
    *REPAIR_MUTANTS,
    *OPTION_MUTANTS,
    *LOG_MUTANTS,
    *LOG_GROUP_MUTANTS,
    *LOG_COMPACTION_MUTANTS,
)

MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType({mutant.name: mutant for mutant in _ALL})
"""Every known defect by its name."""

RUN_MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType({m.name: m for m in _ALL if m.in_runs})
"""The defects that runs of scenarios show."""

MACHINE_MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType({m.name: m for m in _ALL if m.world})
"""The defects that worlds of machines show."""

assert len(MUTANTS) == len(_ALL), "names are unique"
