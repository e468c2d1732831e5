"""The tree of nodes by a simulated connection: the contract of every driver, and what faults do to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from bkclient.errors import ArgumentError, MetadataOutcomeUnknown, MetadataStoreError
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.tree import TreeNode, tree_of
from simbookie.world.hosts import Host, World
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.metadata_service import MetadataCall, MetadataFault
from tests.bkclient.metadata import test_tree as trees
from tests.bkclient.repair.underreplication import test_marks as marks
from tests.simbookie.world.contract import tell

#: Told in virtual time; what a story cannot have here, such as parameters, is left to the drivers' own tests.
STORIES = [
    story
    for module in (trees, marks)
    for name, story in inspect.getmembers(module, inspect.isfunction)
    if name.startswith("test_") and {"store", "open_session"}.issuperset(inspect.signature(story).parameters)
]


@pytest.mark.parametrize("story", [pytest.param(story, id=story.__name__) for story in STORIES])
def test_the_simulated_tree_holds_the_contract(story: Callable[..., Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:
        tell(world, story)


def test_every_story_of_the_contract_is_told() -> None:
    assert len(STORIES) > 20


def is_a(operation: str) -> Callable[[MetadataCall], bool]:
    return lambda call: call.operation == operation


def test_what_a_lost_answer_hides() -> None:
    with World(1) as world:

        async def main() -> None:
            tree = tree_of(SimulatedMetadataStore(world, Host(world, "client")))
            for operation in ("tree_create", "tree_delete", "tree_write"):
                world.metadata.intercept(is_a(operation), MetadataFault.ANSWER_LOST, limit=1)
            assert await tree.create("a", b"1", is_ephemeral=True) is None, "it was repeated, and is there already"
            assert await tree.get("a") == TreeNode(b"1", 0, is_own=True)
            with pytest.raises(MetadataOutcomeUnknown):
                await tree.write("a", b"2", 0)
            assert await tree.get("a") == TreeNode(b"2", 1, is_own=True), "it was written, and never repeated"
            assert await tree.delete("a", 1), "repeated, and gone already"
            world.metadata.intercept(is_a("tree_get"), MetadataFault.FAIL, limit=1)
            with pytest.raises(MetadataStoreError):
                await tree.get("a")

        world.run(main)


def test_ephemeral_nodes_end_with_a_lost_session_and_some_time_after_a_crash() -> None:
    with World(1) as world:

        async def main() -> None:
            hosts = [Host(world, name) for name in ("loses", "crashes", "looks")]
            stores = [SimulatedMetadataStore(world, host) for host in hosts]
            trees_of = [tree_of(store) for store in stores]
            for number in range(2):
                await trees_of[number].create(f"n/{number}", is_ephemeral=True)
            told: list[float] = []
            trees_of[2].watch("n", lambda: told.append(world.loop.time()))
            await anyio.sleep(0.1)
            world.metadata.lose_sessions("loses")
            await anyio.sleep(1)
            assert await trees_of[2].children("n") == ["1"]
            assert await trees_of[0].children("n") == ["1"], "the session that replaces it works"
            hosts[1].crash()
            await anyio.sleep(5)
            assert await trees_of[2].children("n") == ["1"]
            await anyio.sleep(6)
            assert await trees_of[2].children("n") == []
            assert len(told) == 3

        world.run(main)


def test_a_session_that_a_recorder_wraps_says_that_it_has_no_tree() -> None:
    with World(1) as world:

        async def main() -> None:
            host = Host(world, "recorded")

            class Wrapped:
                def __init__(self, inner: MetadataStore) -> None:
                    self._inner = inner

                async def aclose(self) -> None:
                    await self._inner.aclose()

            def open_session() -> Any:
                return Wrapped(world.metadata.open_session())

            tree = tree_of(SimulatedMetadataStore(world, host, open_session))
            with pytest.raises(ArgumentError, match="Wrapped"):
                await tree.get("a")

        world.run(main)
