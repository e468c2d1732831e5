"""Values of a plan made simpler: those that have a usual value become it, numbers become small and round, lists short.

Every value is found by its path, so that a search can change any of them without knowing what it means. The usual cluster is one
whose network leaves nothing to chance: messages take the same time each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from typing import Any, Final

from scenarios.plan import Plan
from scenarios.plan.cluster import CLIENT_GROUPS, Cluster
from scenarios.plan.model import PATIENCE_S
from scenarios.plan.operations import Until
from scenarios.plan.words import Sizes
from scenarios.shrinking.parts import sizes_below

__all__ = ["Leaf", "leaves", "simpler_values", "with_usual", "with_value"]

Path = tuple[str | int, ...]

#: Parts of a plan that are made smaller in other ways, or are no values.
_LEFT_OUT: Final = frozenset({"kind", "name", "field", "value"})
#: Numbers that are tried in the place of larger ones.
_ROUND: Final = (0, 1, 2, 3, 4)
_ROUND_DURATIONS: Final = (0.0, 0.001, 0.01, 0.1, 1.0, 10.0)
_DIGITS: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in a plan. ``usual`` is what it is if nothing is said; ``MISSING`` where it has to be said."""

    path: Path
    value: Any
    usual: Any

    @property
    def is_unusual(self) -> bool:
        """Whether it could be left unsaid."""
        return self.usual is not MISSING and bool(self.value != self.usual)


def leaves(plan: Plan) -> Iterator[Leaf]:
    """The values of the cluster, the calls and the steps, in order."""
    yield from _leaves_of_cluster(plan.cluster)
    for index, client in enumerate(plan.clients):
        for number, call in enumerate(client.calls):
            path: Path = ("clients", index, "calls", number)
            yield Leaf((*path, "limit_s"), call.limit_s, None)
            operation = call.operation
            if isinstance(operation, Until):
                yield from _leaves(operation.trigger, (*path, "operation", "trigger"))
            else:
                yield from _leaves(operation, (*path, "operation"))
    for index, step in enumerate(plan.steps):
        yield from _leaves(step.trigger, ("steps", index, "trigger"))
        yield from _leaves(step.fault, ("steps", index, "fault"))
    yield Leaf(("patience_s",), plan.patience_s, PATIENCE_S)


def _leaves_of_cluster(cluster: Cluster) -> Iterator[Leaf]:
    usual = Cluster(cluster.bookies, cluster.sizes)
    usual = replace(usual, network=replace(usual.network, jitter_s=0.0))
    for name in ("digest", "transport", "forgets", "checkpoint_s"):
        yield Leaf(("cluster", name), getattr(cluster, name), getattr(usual, name))
    for name in ("network", "metadata", "tcp"):
        yield from _leaves(getattr(cluster, name), ("cluster", name), getattr(usual, name))
    yield from _leaves(cluster.storage.journal, ("cluster", "storage", "journal"), usual.storage.journal)
    for name in CLIENT_GROUPS:
        yield from _leaves(getattr(cluster.client, name), ("cluster", "client", name), getattr(usual.client, name))


def _leaves(value: Any, path: Path, base: Any = None) -> Iterator[Leaf]:
    """The values of a dataclass's fields; ``base`` has the usual ones, by default those are the fields' own defaults."""
    assert is_dataclass(value), "plans consist of them"
    for field in fields(value):
        if field.name not in _LEFT_OUT:
            usual = _default(field) if base is None else getattr(base, field.name)
            yield Leaf((*path, field.name), getattr(value, field.name), usual)


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


# Changing ----------------------------------------------------------------------------------------------------------


def with_value(plan: Plan, path: Path, value: Any) -> Plan:
    """The plan with another value at ``path``; what cannot be played raises what its parts raise."""
    changed: Plan = _changed(plan, path, value)
    return changed


def with_usual(plan: Plan, unusual: Collection[Leaf], kept: Collection[Leaf]) -> Plan:
    """The plan with the usual values in place of ``unusual`` but those in ``kept``."""
    for leaf in unusual:
        if leaf not in kept:
            plan = with_value(plan, leaf.path, leaf.usual)
    return plan


def _changed(part: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    head, *rest = path
    if isinstance(head, int):
        return (*part[:head], _changed(part[head], tuple(rest), value), *part[head + 1 :])
    return replace(part, **{head: _changed(getattr(part, head), tuple(rest), value)})


def simpler_values(value: Any) -> Iterator[Any]:
    """What may stand in the place of a number or of sizes, the simplest first; each is smaller, or has fewer digits."""
    if isinstance(value, Sizes):
        yield from sizes_below(value)
    elif isinstance(value, bool):
        return
    elif isinstance(value, int):
        yield from (small for small in dict.fromkeys((*_ROUND, value // 2, value - 1)) if 0 <= small < value)
    elif isinstance(value, float):
        yield from (small for small in _ROUND_DURATIONS if small < value)
        for digits in _DIGITS:
            rounded = _rounded(value, digits)
            if rounded == value:
                return
            yield rounded


def _rounded(value: float, digits: int) -> float:
    return round(value, digits - 1 - math.floor(math.log10(value))) if value > 0 else value
