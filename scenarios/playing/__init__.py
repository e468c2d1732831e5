"""Playing plans: programs, faults and triggers on a stage."""

from scenarios.playing.interpreter import PlayedPlan, UnmetError, scenario_of

__all__ = ["PlayedPlan", "UnmetError", "scenario_of"]
