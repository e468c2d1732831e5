"""The embedded ZooKeeper and ZooKeeper itself cannot be told apart by what sessions do and see.

Results, errors, versions, transaction numbers, events and their order have to be the same; only times and ids differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

import pytest
from kazoo.protocol import serialization as codec

from simbookie.java import JavaRuntime
from simbookie.zookeeper import ZooKeeperServer
from simbookie.zookeeper.codes import ErrorCode, EventType
from tests.simbookie.zookeeper.programs import OPEN, Raw, Step, random_step, run
from tests.zookeepers import EmbeddedInThread

pytestmark = pytest.mark.zookeeper

STEPS = 120
_ROOTS = itertools.count(1)
COMPARED = set(ErrorCode) - {
    ErrorCode.QUOTA_EXCEEDED,  # limits of ours
    ErrorCode.AUTH_FAILED,  # ends the connection
    ErrorCode.RUNTIME_INCONSISTENCY,  # inside of transactions
}


@pytest.fixture(scope="module")
def original(java: JavaRuntime) -> Iterator[ZooKeeperServer]:
    """ZooKeeper itself, with no other clients, so that no others' transactions come between."""
    with ZooKeeperServer(java=java) as server:
        yield server


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedInThread]:
    with EmbeddedInThread() as server:
        yield server


class Pair:
    """Both servers, which run every program under a root of its own."""

    def __init__(self, original: ZooKeeperServer, embedded: EmbeddedInThread) -> None:
        self._ports = original.port, embedded.port
        self.happened: list[str] = []

    def parting(self, program: list[Step]) -> str | None:
        """Where the servers part, ``None`` if they do not."""
        root = f"/program-{next(_ROOTS)}"
        expected, found = (run(port, root, program) for port in self._ports)
        self.happened += expected
        for step, of_original, of_embedded in zip(program, expected, found, strict=True):
            if of_original != of_embedded:
                return f"{step}\nZooKeeper: {of_original}\nembedded:  {of_embedded}"
        return None

    def compare(self, program: list[Step]) -> None:
        """Fail with the shortest part of the program that parts them."""
        parting = self.parting(program)
        if parting is None:
            return
        for index in reversed(range(len(program))):
            shorter = program[:index] + program[index + 1 :]
            if (still := self.parting(shorter)) is not None:
                program, parting = shorter, still
        pytest.fail("\n".join((*map(repr, program), "they part at", parting)))


@pytest.fixture(scope="module")
def pair(original: ZooKeeperServer, embedded: EmbeddedInThread) -> Pair:
    return Pair(original, embedded)


def program(seed: int) -> list[Step]:
    rng = Random(seed)
    return [random_step(rng) for _ in range(STEPS)]


@pytest.mark.deep
def test_random_programs_see_the_same(pair: Pair) -> None:
    for seed in range(30):
        pair.compare(program(seed))
    happened = "\n".join(pair.happened)
    unseen = [code.name for code in COMPARED if f"code={int(code)}," not in happened]
    assert unseen == [], "a comparison without these errors compares little"
    assert [kind.name for kind in EventType if f"kind={int(kind)}," not in happened] == []


def test_containers_are_made_alike(pair: Pair) -> None:
    def container(root: str) -> Raw:
        return Raw(19, bytes(codec.Create2(f"{root}/box", b"x", OPEN, 4).serialize()), codec.Create2)

    def in_transaction(root: str) -> codec.Transaction:
        creates = [create(f"{root}/{create.__name__}", b"x", OPEN, 4) for create in (codec.Create, codec.Create2)]
        return codec.Transaction(creates)

    make, make_more = Step(0, "ask", container, "container"), Step(0, "ask", in_transaction, "containers")
    inside = Step(1, "ask", lambda root: codec.Create(f"{root}/box/a", b"", OPEN, 1), "create inside")
    look = Step(2, "ask", lambda root: codec.GetData(f"{root}/box", watcher=True), "look")
    pair.compare([make, make, look, inside, look, make_more])


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_a_thousand_others_do_so_too(pair: Pair) -> None:
    for seed in range(100, 1100):
        pair.compare(program(seed))
        pair.happened.clear()
