"""The tree without a server: what a transaction that is taken back leaves, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from simbookie.zookeeper.acl import OPEN_ACL, AclEntry, Identity
from simbookie.zookeeper.codes import ErrorCode, ZooKeeperError
from simbookie.zookeeper.tree import Transaction, ZnodeTree, check_path

PATHS = ("/a", "/a/b", "/a/b/c", "/d", "/d/e")
READ_ONLY = (AclEntry(1, Identity("world", "anyone")),)


def new_tree(*, znodes_max: int = 1000, bytes_max: int = 100_000) -> ZnodeTree:
    return ZnodeTree(znodes_max=znodes_max, bytes_max=bytes_max)


def at(tree: ZnodeTree, number: int, session_id: int = 0) -> Transaction:
    return Transaction(number, number * 1000, session_id)


def picture(tree: ZnodeTree) -> dict[str, object]:
    """Everything that can be seen of a tree."""
    pending, seen = ["/"], {}
    while pending:
        path = pending.pop()
        znode = tree.find(path)
        assert znode is not None
        seen[path] = (znode.data, znode.acl, znode.stat(), frozenset(znode.children))
        pending += [f"{path.rstrip('/')}/{name}" for name in znode.children]
    assert len(seen) == len(tree)
    return seen | {
        "bytes": tree.bytes,
        "ephemerals": [sorted(tree.ephemerals(session)) for session in range(3)],
        "containers": sorted(tree.empty_containers()),
    }


def change(tree: ZnodeTree, txn: Transaction, rng: Random) -> None:
    path, version, data = rng.choice(PATHS), rng.choice((-1, -1, 0, 1)), rng.randbytes(rng.randrange(5))
    changes: list[Callable[[], object]] = [
        lambda: tree.create(txn, path, data, OPEN_ACL, rng.choice((0, 0, 1, 2, 3)), is_container=rng.random() < 0.2),
        lambda: tree.create(txn, path, data, READ_ONLY, 0),
        lambda: tree.delete(txn, path, version),
        lambda: tree.set_data(txn, path, data, version),
        lambda: tree.check(txn, path, version),
    ]
    rng.choice(changes)()


@pytest.mark.parametrize("seed", range(50))
def test_a_transaction_that_is_taken_back_leaves_no_trace(seed: int) -> None:
    rng, tree = Random(seed), new_tree()
    for number in range(1, 60):
        txn = at(tree, number, session_id=rng.randrange(3))
        before, is_kept = picture(tree), rng.random() < 0.5
        for _ in range(rng.randrange(8)):
            with suppress(ZooKeeperError):
                change(tree, txn, rng)
        if not is_kept:
            txn.roll_back()
            assert picture(tree) == before
            assert txn.changes == []


@pytest.mark.parametrize("seed", range(10))
def test_what_is_counted_is_what_is_there(seed: int) -> None:
    rng, tree = Random(seed), new_tree()
    empty = tree.bytes
    for number in range(1, 300):
        with suppress(ZooKeeperError):
            change(tree, at(tree, number, session_id=rng.randrange(3)), rng)
    for session in range(1, 3):
        tree.end_session(at(tree, 1000, session_id=session))
        assert tree.ephemerals(session) == []
    for path in sorted((path for path in picture(tree) if path.startswith("/")), reverse=True):
        with suppress(ZooKeeperError):
            tree.delete(at(tree, 1001), path)
    assert (len(tree), tree.bytes) == (4, empty)


def refusal(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ZooKeeperError) as refused:
        act()
    return refused.value.code


def test_znodes_and_their_bytes_are_bounded() -> None:
    tree = new_tree(znodes_max=6, bytes_max=200)
    txn = at(tree, 1)
    tree.create(txn, "/a", b"x" * 50, OPEN_ACL, 0)
    before = picture(tree)
    long_list = [AclEntry(1, Identity("digest", f"user{number}:" + "x" * 28)) for number in range(9)]
    assert refusal(lambda: tree.create(txn, "/b", b"x" * 200, OPEN_ACL, 0)) is ErrorCode.QUOTA_EXCEEDED
    assert refusal(lambda: tree.create(txn, "/b", b"", long_list, 0)) is ErrorCode.QUOTA_EXCEEDED
    assert refusal(lambda: tree.set_data(txn, "/a", b"x" * 200, -1)) is ErrorCode.QUOTA_EXCEEDED
    assert refusal(lambda: tree.set_acl(txn, "/a", long_list, -1)) is ErrorCode.QUOTA_EXCEEDED
    assert picture(tree) == before
    tree.create(txn, "/b", b"", OPEN_ACL, 0)
    assert refusal(lambda: tree.create(txn, "/c", b"", OPEN_ACL, 0)) is ErrorCode.QUOTA_EXCEEDED
    tree.delete(txn, "/b")
    tree.create(txn, "/c", b"", OPEN_ACL, 0)
    tree.set_data(txn, "/a", b"", -1)


def test_numbers_of_sequential_znodes_count_like_java() -> None:
    tree = new_tree()
    parent = tree.find("/")
    assert parent is not None
    assert tree.create(at(tree, 1), "/n-", b"", OPEN_ACL, 2) == "/n-0000000000"
    parent.creates = 2**31 - 1
    assert tree.create(at(tree, 2), "/n-", b"", OPEN_ACL, 2) == "/n-2147483647"
    assert tree.create(at(tree, 3), "/n-", b"", OPEN_ACL, 2) == "/n--2147483648"


def test_the_version_that_means_any_is_left_out() -> None:
    tree = new_tree()
    tree.create(at(tree, 1), "/a", b"", OPEN_ACL, 0)
    znode = tree.find("/a")
    assert znode is not None
    for before, after in ((2**31 - 1, -(2**31)), (-2, 0)):
        znode.version = before
        assert tree.set_data(at(tree, 2), "/a", b"", -1).version == after


def test_a_znode_tells_who_changed_what_when() -> None:
    tree = new_tree()
    tree.create(at(tree, 1), "/a", b"x", OPEN_ACL, 0)
    tree.set_data(at(tree, 2), "/a", b"xyz", 0)
    tree.set_acl(at(tree, 3), "/a", OPEN_ACL, 0)
    tree.create(at(tree, 4, session_id=7), "/a/b", b"", OPEN_ACL, 1)
    tree.create(at(tree, 5), "/a/c", b"", OPEN_ACL, 0)
    tree.delete(at(tree, 6), "/a/c")
    assert tree.stat("/a") == (1, 2, 1000, 2000, 1, 3, 1, 0, 3, 1, 6)
    assert tree.stat("/a/b") == (4, 4, 4000, 4000, 0, 0, 0, 7, 0, 0, 4)
    tree.end_session(at(tree, 8, session_id=7))
    assert tree.stat("/a") == (1, 2, 1000, 2000, 1, 4, 1, 0, 3, 0, 8)


def test_containers_go_once_they_have_been_used() -> None:
    tree = new_tree()
    tree.create(at(tree, 1), "/box", b"", OPEN_ACL, 4, is_container=True)
    assert tree.empty_containers() == []
    tree.create(at(tree, 2), "/box/a", b"", OPEN_ACL, 0)
    assert tree.empty_containers() == []
    tree.delete(at(tree, 3), "/box/a")
    assert tree.empty_containers() == ["/box"]
    tree.delete_container(at(tree, 4), "/box")
    assert tree.find("/box") is None


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/\0", "/\x1f", "/\x7f", "/\ud800", "/\uffff"]
)
def test_what_cannot_be_a_path_is_refused(path: str) -> None:
    assert refusal(lambda: check_path(path)) is ErrorCode.BAD_ARGUMENTS


@pytest.mark.parametrize("path", ["/", "/a", "/a.b/..c/...", "/\u00e9\u4e2d", "/a b", "/\uffef"])
def test_what_can_be_a_path_is_not(path: str) -> None:
    check_path(path)
