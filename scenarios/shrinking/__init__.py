"""Shrinking: a plan that breaks a clause is made smaller for as long as the same clause breaks.

:mod:`~scenarios.shrinking.minimal` has the search, which knows no plans; :mod:`~scenarios.shrinking.parts` takes parts out of
plans, :mod:`~scenarios.shrinking.values` makes values simpler, and :mod:`~scenarios.shrinking.shrinker` plays what comes of it.
"""

from scenarios.shrinking.shrinker import Failure, ShrinkBounds, ShrinkError, Shrunk, shrink

__all__ = ["Failure", "ShrinkBounds", "ShrinkError", "Shrunk", "shrink"]
