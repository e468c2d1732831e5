"""Random programs of several sessions, for any server of ZooKeeper's protocol.

Container znodes are left out: ZooKeeper removes the empty ones once a minute, and this takes a transaction number from a program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from kazoo.protocol import serialization as codec
from kazoo.protocol.serialization import int_struct, long_struct, write_string
from kazoo.security import ACL, Id, make_acl, make_digest_acl

from tests.simbookie.zookeeper.raw_client import Names, RawSession

__all__ = ["OPEN", "SESSIONS", "Raw", "Step", "random_step", "run"]

SESSIONS = 3
UNHEARD_OF = 999
OPEN = (make_acl("world", "anyone", all=True),)
ACLS: tuple[tuple[ACL, ...], ...] = (
    *(OPEN, OPEN, OPEN, OPEN, OPEN, OPEN),
    (make_acl("world", "anyone", read=True),),
    (make_acl("world", "anyone", admin=True),),
    (make_acl("world", "anyone", create=True, delete=True),),
    (make_digest_acl("ann", "secret", all=True), make_acl("world", "anyone", read=True)),
    (make_digest_acl("ann", "secret", all=True),),
    (ACL(31, Id("auth", "any")),),
    (ACL(31, Id("ip", "127.0.0.1")),),
    (ACL(31, Id("ip", "10.0.0.0/8")), ACL(1, Id("ip", "127.0.0.0/8"))),
    (ACL(31, Id("world", "nobody")),),
    (ACL(31, Id("digest", "no-colon")),),
    (ACL(31, Id("ip", "not an address")),),
    (ACL(31, Id("unheard-of", "x")),),
    (),
)
#: Below the program's root, but for those that do not begin with a slash, which are taken as they are.
PATHS = (
    *("/a", "/a", "/a", "/a/b", "/a/b", "/a/b", "/a/b/c", "/c", "/c", "/c/d", "/e"),
    *(
        "",
        "/",
        "/a/",
        "//",
        "/a//b",
        "/./a",
        "/a/..",
        "/a/...",
        "/\u00e9",
        "/x\u0001",
        "/x\u0085",
        "/\ufff5",
        "/\U0001f600",
        "/\0",
    ),
    *("no-slash", "zookeeper/x"),
)
VERSIONS = (-1, -1, -1, 0, 0, 1, 2, 7, -2)
FLAGS = (0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 5, 7, -1)
#: In a transaction this flag makes a container, alone it does not.
FLAGS_WITHOUT_CONTAINER = tuple(flags for flags in FLAGS if flags != 4)
DATA = (b"", b"x", b"longer", None)

Build = Callable[[str], Any]


@dataclass(frozen=True)
class Step:
    """What one session does: a request, given the root, or something with its connection."""

    session: int
    what: str
    build: Build
    text: str

    def __repr__(self) -> str:
        return f"{self.session}: {self.text}"


@dataclass(frozen=True)
class Raw:
    """A request that kazoo has no class for."""

    type: int
    body: bytes
    answered_as: Any = None

    def serialize(self) -> bytes:
        return self.body


class InAnyOrder:
    """Reads a vector of which ZooKeeper leaves the order open."""

    def __init__(self, texts_each: int) -> None:
        self._texts_each = texts_each

    def deserialize(self, frame: bytes, offset: int) -> list[list[str]]:
        (count,) = int_struct.unpack_from(frame, offset)
        offset += int_struct.size
        items: list[list[str]] = [[] for _ in range(count)]
        for item in items:
            for _ in range(self._texts_each):
                text, offset = codec.read_string(frame, offset)
                item.append(text)
        return sorted(items)


def placed(root: str, path: str) -> str:
    return root + path if path.startswith("/") or not path else path


def texts(values: Sequence[str]) -> bytes:
    packed: bytes = int_struct.pack(len(values)) + b"".join(write_string(value) for value in values)
    return packed


def request(rng: Random, kinds: Sequence[str], flags_from: Sequence[int] = FLAGS) -> tuple[Build, str]:
    """A request, as what builds it for a root, and what it is called."""
    kind = rng.choice(kinds)
    path, version, flags = rng.choice(PATHS), rng.choice(VERSIONS), rng.choice(flags_from)
    data, acl, watch = rng.choice(DATA), rng.choice(ACLS), rng.random() < 0.5
    builders: dict[str, Build] = {
        "create": lambda root: codec.Create(placed(root, path), data, acl, flags),
        "create2": lambda root: codec.Create2(placed(root, path), data, acl, flags),
        "delete": lambda root: codec.Delete(placed(root, path), version),
        "exists": lambda root: codec.Exists(placed(root, path), watch),
        "get": lambda root: codec.GetData(placed(root, path), watch),
        "set": lambda root: codec.SetData(placed(root, path), data, version),
        "get-acl": lambda root: codec.GetACL(placed(root, path)),
        "set-acl": lambda root: codec.SetACL(placed(root, path), acl, version),
        "children": lambda root: codec.GetChildren(placed(root, path), watch),
        "children2": lambda root: codec.GetChildren2(placed(root, path), watch),
        # ZooKeeper says this path back in bytes that are no UTF-8, which is not to be imitated
        "sync": lambda root: codec.Sync(placed(root, path.replace("\U0001f600", "!"))),
        "check": lambda root: codec.CheckVersion(placed(root, path), version),
        "authenticate": lambda _: codec.Auth(0, "digest", "ann:secret"),
        "count": lambda root: Raw(104, write_string(placed(root, path))),
        "ephemerals": lambda root: Raw(103, write_string(root), InAnyOrder(1)),
        "who-am-i": lambda _: Raw(107, b"", InAnyOrder(2)),
        "add-watch": lambda root: Raw(106, write_string(placed(root, path)) + int_struct.pack(int(watch))),
        "has-watch": lambda root: Raw(17, write_string(placed(root, path)) + int_struct.pack(version % 6 + 1)),
        "remove-watch": lambda root: Raw(18, write_string(placed(root, path)) + int_struct.pack(version % 6 + 1)),
        "unheard-of": lambda _: Raw(UNHEARD_OF, b""),
        "garbage": lambda _: Raw(1, b"\0\0\0\x7f"),
    }
    return builders[kind], f"{kind} {path!r} version={version} flags={flags} data={data!r} acl={acl} watch={watch}"


WRITES = ("create", "create2", "delete", "set", "check")
ALL = (
    *("create",) * 8,
    *("create2",) * 2,
    *("delete",) * 4,
    *("set",) * 4,
    *("exists", "get", "children", "children2") * 3,
    *("get-acl", "set-acl", "set-acl", "sync", "count", "ephemerals", "authenticate", "garbage"),
    *("add-watch", "has-watch", "remove-watch", "who-am-i", "unheard-of"),
)


def multi(rng: Random) -> tuple[Build, str]:
    parts = [request(rng, WRITES, FLAGS_WITHOUT_CONTAINER) for _ in range(rng.randrange(6))]
    return (
        lambda root: codec.Transaction([build(root) for build, _ in parts]),
        f"multi [{'; '.join(text for _, text in parts)}]",
    )


def rewatch(rng: Random) -> tuple[Build, str]:
    """SET_WATCHES as of some transactions ago."""
    lists = [rng.sample(sorted({*PATHS[:11]}), rng.randrange(4)) for _ in range(3)]
    age = rng.randrange(9)

    def build(root: str) -> Callable[[int], Raw]:
        return lambda zxid: Raw(
            101,
            long_struct.pack(zxid - age) + b"".join(texts([placed(root, path) for path in paths]) for paths in lists),
        )

    return build, f"set-watches {lists} as of {age} transactions ago"


def random_step(rng: Random) -> Step:
    """One step of one session."""
    session = rng.randrange(SESSIONS)
    what = rng.choice(("ask",) * 16 + ("multi",) * 2 + ("rewatch", "reconnect", "close"))
    if what in ("reconnect", "close"):
        return Step(session, what, lambda _: None, what)
    makers: dict[str, Callable[[Random], tuple[Build, str]]] = {
        "ask": partial(request, kinds=ALL),
        "multi": multi,
        "rewatch": rewatch,
    }
    build, text = makers[what](rng)
    return Step(session, what, build, text)


def run(port: int, root: str, program: Sequence[Step]) -> list[str]:
    """What a program of several sessions sees, step by step; ``root`` must not be there yet."""
    names = Names()
    sessions = [RawSession(port, names, f"session {number}") for number in range(SESSIONS)]
    seen: list[object] = []
    try:
        first = sessions[0]
        assert first.connect()
        first.ping()
        names.start = first.last_zxid
        for session in sessions[1:]:
            assert session.connect()
        made = first.ask(codec.Create(root, b"", OPEN, 0))
        assert made is not None
        assert made.code == 0
        for step in program:
            reply = _take(step, sessions[step.session], root)
            happened: list[object] = []
            for session in sessions:
                if session.ping() is None:  # the server closed the connection
                    happened.append(("lost", session.connect()))
                events, session.events = session.events, []
                if step.what == "close":
                    events.sort(key=lambda event: (event.zxid, event.path, event.kind))  # ephemerals go in any order
                happened.append(events)
            seen.append((reply, happened))
    finally:
        for session in sessions:
            session.ask(codec.CloseInstance)
            session.drop()
    return _without_root(seen, root)


def _take(step: Step, session: RawSession, root: str) -> object:
    if step.what == "reconnect":
        return session.connect()
    if step.what == "close":
        reply = session.ask(codec.CloseInstance)
        session.session_id, session.password = 0, bytes(16)
        return reply, session.connect()
    request = step.build(root)
    if step.what == "rewatch":
        request = request(session.last_zxid)
    reply = session.ask(request)
    if request.type == UNHEARD_OF:
        return reply, session.ends()
    return reply


def _without_root(seen: Sequence[object], root: str) -> list[str]:
    return [repr(part).replace(root, "") for part in seen]
