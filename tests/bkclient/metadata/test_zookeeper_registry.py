"""Registrations that somebody else made and that are none."""

from __future__ import annotations

from random import Random

import pytest
from kazoo.client import KazooClient

from bkclient.errors import MetadataSerializationError
from bkclient.metadata.base import BookieAddress, BookieSets
from bkclient.metadata.opening import open_store
from bkclient.metadata.records import BookieServiceInfo, Endpoint, decode_service_info, encode_service_info
from tests.zookeepers import AnyZooKeeper

INVALID = ["evil;touch pwned", "x" * 600, "READONLY", "\u202egnp.exe", "two words"]


async def test_only_what_may_name_a_bookie_is_offered_and_the_rest_is_logged_once(
    zookeeper_server: AnyZooKeeper, zookeeper_root: str, zk: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(
        zookeeper_server.metadata_uri(zookeeper_root), rng=Random(7), connect_timeout_s=20.0, initialise=True
    )
    await store.register_bookie("a:1", BookieAddress("127.0.0.1", 1))
    await store.register_bookie("b:1", BookieAddress("127.0.0.1", 1), read_only=True)
    for name in INVALID:
        zk.create(f"{zookeeper_root}/available/{name}", b"", ephemeral=True)
        zk.create(f"{zookeeper_root}/available/readonly/{name}", b"", ephemeral=True)
    for _ in range(3):
        assert await store.bookies() == BookieSets(("a:1",), ("b:1",))
    ignored = [record for record in caplog.records if getattr(record, "event", "") == "registration_ignored"]
    assert len(ignored) == len(INVALID)
    assert all(len(record.getMessage()) < 250 and record.getMessage().isprintable() for record in ignored)
    await store.aclose()


@pytest.mark.parametrize("host", ["a" * 256, "a\x00b", "\x1b]0;pwn\x07", "a b\n"])
def test_a_registration_names_a_host(host: str) -> None:
    info = BookieServiceInfo((Endpoint("bookie", host, 3181, "bookie-rpc"),))

    with pytest.raises(MetadataSerializationError, match=r"bookie b:1: .* no host") as caught:
        decode_service_info("b:1", encode_service_info(info))
    assert str(caught.value).isprintable()
