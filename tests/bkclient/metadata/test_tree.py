"""The tree of nodes: one contract, held in memory and in ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.errors import ArgumentError, ClientClosed
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.tree import TreeNode, tree_of
from tests.bkclient.metadata.conftest import OpenSession


async def test_a_node_is_made_with_what_is_missing_above_it_once(store: MetadataStore) -> None:
    tree = tree_of(store)
    assert await tree.create("a/b/c", b"1") == "a/b/c"
    assert await tree.create("a/b/c", b"2") is None
    assert await tree.get("a/b/c") == TreeNode(b"1", 0)
    assert await tree.get("a/b") == TreeNode(b"", 0)
    assert await tree.children("a") == ["b"]
    assert await tree.get("a/x") is None
    assert await tree.children("a/x") == []


async def test_data_is_replaced_only_at_the_version_that_was_read(store: MetadataStore) -> None:
    tree = tree_of(store)
    assert not await tree.write("n", b"x", 0)
    await tree.create("n", b"1")
    assert await tree.write("n", b"2", 0)
    assert not await tree.write("n", b"3", 0)
    assert await tree.get("n") == TreeNode(b"2", 1)


async def test_a_node_is_removed_at_its_version_and_without_children(store: MetadataStore) -> None:
    tree = tree_of(store)
    await tree.create("a/b")
    assert not await tree.delete("a")
    await tree.write("a/b", b"1", 0)
    assert not await tree.delete("a/b", 0)
    assert await tree.delete("a/b", 1)
    assert await tree.delete("a")
    assert await tree.delete("a"), "what is not there is gone"
    assert await tree.get("a") is None


async def test_sequential_nodes_are_numbered_as_they_are_made(store: MetadataStore) -> None:
    tree = tree_of(store)
    first = await tree.create("votes/V_", is_sequential=True)
    await tree.delete(first or "")
    second = await tree.create("votes/V_", b"2", is_sequential=True)
    assert first == "votes/V_0000000000"
    assert second == "votes/V_0000000001", "numbers of removed nodes are not given again"
    assert await tree.children("votes") == ["V_0000000001"]


async def test_ephemeral_nodes_belong_to_their_session_and_end_with_it(open_session: OpenSession) -> None:
    one, two = await open_session(), await open_session()
    await tree_of(one).create("locks/x", b"1", is_ephemeral=True)
    await tree_of(two).create("locks/y", b"2", is_ephemeral=True)
    assert await tree_of(one).get("locks/x") == TreeNode(b"1", 0, is_own=True)
    assert await tree_of(two).get("locks/x") == TreeNode(b"1", 0, is_own=False)
    await one.aclose()
    assert await tree_of(two).children("locks") == ["y"]
    assert await tree_of(two).get("locks/y") == TreeNode(b"2", 0, is_own=True)


async def test_a_watch_tells_of_the_node_and_of_its_children(open_session: OpenSession) -> None:
    watching, changing = tree_of(await open_session()), tree_of(await open_session())
    told = asyncio.Event()
    cancel = watching.watch("w", told.set)

    async def is_told() -> None:
        async with asyncio.timeout(5.0):
            await told.wait()
        told.clear()

    await is_told()
    await changing.create("w", b"1")
    await is_told()
    await changing.write("w", b"2", 0)
    await is_told()
    await changing.create("w/child")
    await is_told()
    await changing.delete("w/child")
    await is_told()
    await changing.delete("w")
    await is_told()
    cancel()
    cancel()
    await changing.create("w")
    await changing.get("w")
    assert not told.is_set()


async def test_a_closed_session_has_no_tree(open_session: OpenSession) -> None:
    store = await open_session()
    tree = tree_of(store)
    await store.aclose()
    with pytest.raises(ClientClosed):
        await tree.get("x")
    with pytest.raises(ClientClosed):
        tree_of(store)


async def test_a_store_without_a_tree_is_told_by_name() -> None:
    class Wrapper:
        pass

    with pytest.raises(ArgumentError, match="Wrapper"):
        tree_of(Wrapper())  # type: ignore[arg-type]
