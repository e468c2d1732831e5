"""Situations: conditions that a run met, counted while its history is recorded. They are the marks of coverage.

A run that never meets the fault its scenario is named after has no violation and proves nothing. Therefore a scenario names its
situations (:attr:`~scenarios.model.Scenario.meets`), a run that misses one of them has no verdict, and sweeps report how many
runs met each, and fail if they are asked to meet all and one is never seen. Situations are derived from the events of the history
alone, as invariants are; a situation is no violation.

Each is a pure function of one event and of the facts before it (:mod:`~scenarios.situations.facts`). Its name is that of the
function, and its meaning the function's docstring.
"""

from scenarios.situations.at_metadata import FAULT_MET
from scenarios.situations.counting import SITUATIONS, Situations

__all__ = ["FAULT_MET", "SITUATIONS", "Situations"]
