"""Playing plans: programs, faults and triggers on a stage."""

from scenarios.playing.interpreter import UnmetError, scenario_of

__all__ = ["UnmetError", "scenario_of"]
