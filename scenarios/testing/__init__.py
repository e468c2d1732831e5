"""For tests of applications that use bkclient: what the fixtures of the pytest plugin hand out (docs/using/testing.md).

The names here are public. They are imported when they are first used, so that pytest starts as fast as without the plugin.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scenarios.model import Violation as Violation
    from scenarios.testing.cluster import TcpCluster as TcpCluster
    from scenarios.testing.entropy import RealWorldWarning as RealWorldWarning
    from scenarios.testing.process import SimulatedProcess as SimulatedProcess
    from scenarios.testing.world import SimulatedWorld as SimulatedWorld
    from scenarios.testing.world import WorldOptions as WorldOptions

__all__ = ["RealWorldWarning", "SimulatedProcess", "SimulatedWorld", "TcpCluster", "Violation", "WorldOptions"]

_MODULES = {
    "RealWorldWarning": "scenarios.testing.entropy",
    "SimulatedProcess": "scenarios.testing.process",
    "SimulatedWorld": "scenarios.testing.world",
    "TcpCluster": "scenarios.testing.cluster",
    "Violation": "scenarios.model",
    "WorldOptions": "scenarios.testing.world",
}


if not TYPE_CHECKING:  # type checkers take a module with this function to have every name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
