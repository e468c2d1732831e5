"""The contract of the metadata seam, as every store holds it, held by the simulated one in virtual time."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from simbookie.world.errors import UnhandledErrors
from simbookie.world.hosts import World
from tests.bkclient.metadata import test_store as contract
from tests.simbookie.world.contract import tell

#: A listener that raises is a defect of the program, and in a simulated world every defect ends the run.
ENDS_THE_RUN = "test_a_listener_that_raises_harms_nobody_else"


def stories() -> Iterator[Any]:
    for class_name, group in inspect.getmembers(contract, inspect.isclass):
        for name, story in inspect.getmembers(group, inspect.isfunction):
            if name.startswith("test_"):
                for parameters in expanded(story):
                    shown = "-".join([class_name, name, *map(str, parameters.values())])
                    yield pytest.param(getattr(group(), name), parameters, id=shown)


def expanded(story: Any) -> Iterator[dict[str, Any]]:
    axes: list[list[dict[str, Any]]] = []
    for mark in getattr(story, "pytestmark", []):
        if mark.name == "parametrize":
            names = mark.args[0].split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
            rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
            axes.append([dict(zip(names, row, strict=True)) for row in rows])
    for combination in itertools.product(*axes):
        yield {name: value for part in combination for name, value in part.items()}


@pytest.mark.parametrize(("story", "parameters"), list(stories()))
def test_the_simulated_store_holds_the_contract(
    story: Callable[..., Coroutine[Any, Any, None]], parameters: dict[str, Any]
) -> None:
    with World(1) as world:
        if story.__name__ == ENDS_THE_RUN:
            with pytest.raises(UnhandledErrors):
                tell(world, story, **parameters)
        else:
            tell(world, story, **parameters)
