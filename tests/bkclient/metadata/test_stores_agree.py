"""The store in memory is a model of the one in ZooKeeper: the same operations have the same outcomes in both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from random import Random

import pytest

from bkclient.errors import BookKeeperError
from bkclient.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from bkclient.metadata.base import BookieAddress, MetadataStore
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.opening import open_store
from tests.zookeepers import AnyZooKeeper

LEDGER_IDS = (0, 0, 1, 1, 9999, 2**31 - 2, 2**31 - 1, 2**40, -1)
BOOKIE_IDS = ("a:1", "b:1", "name", "read/only")
STEPS = 200


@dataclass(frozen=True)
class Step:
    """One operation with everything that was drawn for it."""

    session: int
    kind: str
    ledger_id: int
    version: int
    metadata: LedgerMetadata
    bookie_id: str
    read_only: bool


def draw(rng: Random) -> Step:
    ledger_id = rng.choice(LEDGER_IDS)
    format_version = rng.choice((1, 2, 3, 3, 3, 4))
    metadata = LedgerMetadata(
        ledger_id,
        2,
        1,
        1,
        (Fragment(0, ("a:1", "b:1" if rng.random() < 0.9 else rng.choice(BOOKIE_IDS))),),
        state=rng.choice((LedgerState.OPEN, LedgerState.IN_RECOVERY)),
        digest_type=rng.choice(tuple(DigestType)),
        password=rng.randbytes(2),
        custom_metadata={"k": rng.randbytes(1)} if rng.random() < 0.5 else {},
        format_version=format_version,
        creator_token=rng.randrange(1, 4),
    )
    if format_version == 1:
        metadata = replace(metadata, digest_type=None, has_password=False, password=b"", custom_metadata={})
    if rng.random() < 0.2:
        metadata = metadata.closed(rng.randrange(9), 10)
    kinds = (
        "create",
        "create",
        "write",
        "write",
        "write",
        "read",
        "delete",
        "list",
        "register",
        "unregister",
        "bookies",
    )
    return Step(
        rng.randrange(2),
        rng.choice(kinds),
        ledger_id,
        rng.choice((-1, 0, 0, 0, 1, 1, 2)),
        metadata,
        rng.choice(BOOKIE_IDS),
        rng.random() < 0.5,
    )


async def listed(store: MetadataStore) -> list[int]:
    return [ledger_id async for ledger_id in store.list_ledgers()]


async def outcome(store: MetadataStore, step: Step) -> object:
    address = BookieAddress("h", 1)
    operations: dict[str, Callable[[], Awaitable[object]]] = {
        "create": lambda: store.create_ledger(step.metadata),
        "write": lambda: store.write_ledger(step.metadata, step.version),
        "read": lambda: store.read_ledger(step.ledger_id),
        "delete": lambda: store.delete_ledger(step.ledger_id),
        "list": lambda: listed(store),
        "register": lambda: store.register_bookie(step.bookie_id, address, read_only=step.read_only),
        "unregister": lambda: store.unregister_bookie(step.bookie_id),
        "bookies": store.bookies,
    }
    try:
        return await operations[step.kind]()
    except BookKeeperError as error:
        return type(error), error.ledger_id, error.bookie_id


@pytest.mark.parametrize("seed", range(3))
async def test_both_stores_give_the_same_outcomes(
    seed: int, zookeeper_server: AnyZooKeeper, zookeeper_root: str
) -> None:
    uri, service, rng = zookeeper_server.metadata_uri(zookeeper_root), MemoryMetadataService(), Random(seed)
    in_memory = [service.session(rng=Random(1)) for _ in range(2)]
    in_zookeeper = [await open_store(uri, rng=Random(2), initialise=True) for _ in range(2)]
    seen: dict[str, int] = {}
    owners: dict[str, int] = {}
    for number in range(STEPS):
        step = draw(rng)
        if step.kind == "register":
            # Waiting out another session's claim would take the test its time; the tests of each store cover it.
            step = replace(step, session=owners.setdefault(step.bookie_id, step.session))
        expected = await outcome(in_memory[step.session], step)
        assert await outcome(in_zookeeper[step.session], step) == expected, (number, step)
        key = f"{step.kind} {expected[0].__name__ if isinstance(expected, tuple) else 'ok'}"
        seen[key] = seen.get(key, 0) + 1
    for store in (*in_memory, *in_zookeeper):
        await store.aclose()
    assert {"create ok", "create LedgerExists", "write ok", "write MetadataVersionConflict", "read ok"} <= {*seen}
