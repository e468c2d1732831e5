"""A bookie process makes itself known for good, as BookKeeper's own programs expect it."""

from __future__ import annotations

from random import Random

from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.records import decode_cookie
from bkclient.metadata.tree import tree_of
from simbookie.cookies import leave_cookie


async def test_a_cookie_names_the_bookie_and_outlives_its_session() -> None:
    service = MemoryMetadataService()
    store, other = service.session(rng=Random(1)), service.session(rng=Random(2))
    try:
        await tree_of(store).create("INSTANCEID", b"0-1")
        await leave_cookie(store, "127.0.0.1:3181")
        await store.aclose()

        node = await tree_of(other).get("cookies/127.0.0.1:3181")

        assert node is not None
        cookie = decode_cookie("127.0.0.1:3181", node.data)
        assert (cookie.bookie_host, cookie.instance_id) == ("127.0.0.1:3181", "0-1")
    finally:
        await other.aclose()


async def test_a_bookie_that_returns_finds_its_cookie_and_leaves_it_alone() -> None:
    store = MemoryMetadataService().session(rng=Random(1))
    try:
        await leave_cookie(store, "b")
        first = await tree_of(store).get("cookies/b")
        await tree_of(store).create("INSTANCEID", b"another")

        await leave_cookie(store, "b")

        assert await tree_of(store).get("cookies/b") == first
        assert await tree_of(store).children("cookies") == ["b"]
    finally:
        await store.aclose()
