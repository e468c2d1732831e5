"""How long a run may go on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoopLimits"]


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """When a run is given up: callbacks executed, and seconds of virtual time."""

    steps: int = 50_000_000
    seconds: float = 30 * 86_400.0

    def __post_init__(self) -> None:
        if not (self.steps > 0 and self.seconds > 0):
            raise ValueError(f"limits must be > 0, got {self.steps} steps and {self.seconds} s")
