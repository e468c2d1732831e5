"""Mutants: known defects, switched on from outside the shipped code.

A checker that never complains may be right or blind; mutants tell which. Each is a defect that BookKeeper clients
really had, or nearly had, put in either by wrapping the transport (what the client sends or is told is falsified on
its way) or by replacing named functions for the duration of a run. The shipped code has no switch for any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from scenarios.mutants.base import Mutant, Replacement
from scenarios.mutants.machines import MACHINE_MUTANTS
from scenarios.mutants.shells import SHELL_MUTANTS

__all__ = ["MUTANTS", "Mutant", "Replacement"]

MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType(
    {mutant.name: mutant for mutant in (*SHELL_MUTANTS, *MACHINE_MUTANTS)}
)
