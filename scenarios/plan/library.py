"""The plans that the package brings along: a file ``scenarios/plans/NAME.scn`` for each."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from scenarios.plan.errors import PlanError
from scenarios.plan.model import Plan
from scenarios.plan.text import parse_plan

__all__ = ["library_names", "library_plan", "library_text"]

_SUFFIX: Final = ".scn"
_FOLDER: Final = files("scenarios") / "plans"


@cache
def library_names() -> tuple[str, ...]:
    """The names of all plans, in order."""
    return tuple(sorted(path.name.removesuffix(_SUFFIX) for path in _FOLDER.iterdir() if path.name.endswith(_SUFFIX)))


def library_text(name: str) -> str:
    """The text of a plan; ``KeyError`` if there is none of this name."""
    if name not in library_names():
        raise KeyError(name)
    return (_FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


@cache
def library_plan(name: str) -> Plan:
    """A plan by its name; ``KeyError`` if there is none, :class:`~scenarios.plan.errors.PlanError` if the file holds another."""
    plan = parse_plan(library_text(name), f"{name}{_SUFFIX}")
    if plan.name != name:
        raise PlanError(f"{name}{_SUFFIX}: expected plan {name}, found plan {plan.name}")
    return plan
