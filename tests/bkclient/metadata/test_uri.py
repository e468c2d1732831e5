"""Metadata service URIs."""

from __future__ import annotations

import sys
from random import Random

import pytest

from bkclient.errors import ArgumentError, MetadataStoreError
from bkclient.metadata.opening import open_store
from bkclient.metadata.paths import LedgerManager
from bkclient.metadata.uri import MemoryUri, ZooKeeperUri, parse_metadata_uri


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("mem://", MemoryUri("")),
        ("mem://name", MemoryUri("name")),
        ("mem://a/b", MemoryUri("a/b")),
        ("zk://h", ZooKeeperUri(("h:2181",))),
        ("zk://h:1/", ZooKeeperUri(("h:1",))),
        ("zk://h:1/a/b/", ZooKeeperUri(("h:1",), "/a/b")),
        ("zk+null://h:1/a", ZooKeeperUri(("h:1",), "/a")),
        ("zk+flat://h:1/a", ZooKeeperUri(("h:1",), "/a", LedgerManager.FLAT)),
        ("zk+hierarchical://h:1", ZooKeeperUri(("h:1",), "/ledgers", LedgerManager.HIERARCHICAL)),
        ("zk+longhierarchical://h:1", ZooKeeperUri(("h:1",), "/ledgers", LedgerManager.LONG_HIERARCHICAL)),
        ("zk://a:1;b;c:3/l", ZooKeeperUri(("a:1", "b:2181", "c:3"), "/l")),
        ("zk://a:1,b:2/l", ZooKeeperUri(("a:1", "b:2"), "/l")),
        ("zk://[::1]:7;[fe80::1]/l", ZooKeeperUri(("[::1]:7", "[fe80::1]:2181"), "/l")),
    ],
)
def test_a_uri_names_servers_root_and_ledger_manager(uri: str, expected: MemoryUri | ZooKeeperUri) -> None:
    assert parse_metadata_uri(uri) == expected


def test_a_zookeeper_uri_is_written_as_bookkeeper_writes_it() -> None:
    assert str(parse_metadata_uri("zk+null://a,b:2/l/")) == "zk://a:2181;b:2/l"
    assert str(parse_metadata_uri("zk+longhierarchical://a/l")) == "zk+longhierarchical://a:2181/l"


@pytest.mark.parametrize("uri", ["", "mem", "mem:name", "etcd://h:1", "zk+ms://h:1/l", "ZK://h:1", "http://h"])
async def test_an_unknown_scheme_is_refused_with_the_known_ones(uri: str) -> None:
    with pytest.raises(ArgumentError, match=r"mem://, zk://, zk\+null://, zk\+flat://, zk\+hierarchical://") as caught:
        await open_store(uri, rng=Random(7))
    assert repr(uri) in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    ["zk://", "zk:///l", "zk://h:0", "zk://h:65536", "zk://h:x", "zk://a;;b", "zk://::1/l", "zk://u@h:1", "zk://a b"],
)
def test_what_is_not_host_and_port_is_refused(uri: str) -> None:
    with pytest.raises(ArgumentError, match="which is not host:port"):
        parse_metadata_uri(uri)


@pytest.mark.parametrize("root", ["/a//b", "/a/../b", "/a b", "/zookeeper/l", "/\u00e9"])
def test_a_root_that_is_no_path_of_znodes_is_refused(root: str) -> None:
    with pytest.raises(ArgumentError, match="not the path of a znode"):
        parse_metadata_uri(f"zk://h:1{root}")


async def test_without_the_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("kazoo", "bkclient.metadata.zookeeper"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(MetadataStoreError, match=r"bkclient\[zookeeper\]"):
        await open_store("zk://h:1", rng=Random(7))
