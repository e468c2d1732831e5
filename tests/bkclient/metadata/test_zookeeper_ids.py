"""The end of the id counters, which no real server reaches in a test: a fake session counts from where it is told."""

from __future__ import annotations

import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError

from bkclient.errors import LedgerIdOverflow, MetadataStoreError
from bkclient.metadata.paths import LedgerManager
from bkclient.metadata.zookeeper.ids import LedgerIdGenerator

LAST = 2**31 - 2


class FakeSession:
    """As much of a session as the generator needs, over a dictionary of paths and their counters."""

    def __init__(self, **counters: int) -> None:
        self.counters = {"/l": 0} | {
            f"/l/{name.replace('__', '/').replace('_', '-')}": n for name, n in counters.items()
        }
        self.deleted: list[str] = []
        self.forgetful = False

    async def exists(self, path: str) -> object | None:
        return object() if path in self.counters else None

    async def children(self, path: str) -> list[str]:
        prefix = f"{path}/"
        return sorted(name.removeprefix(prefix) for name in self.counters if name.startswith(prefix))

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        parent, _, _ = path.rpartition("/")
        if parent not in self.counters:
            raise NoNodeError
        if sequence:
            assert ephemeral
            number = self.counters[parent]
            self.counters[parent] = number + 1 if number < 2**31 - 1 else -(2**31)
            return f"{path}{number:010d}"
        if path in self.counters:
            raise NodeExistsError
        if not self.forgetful:
            self.counters[path] = 0
        return path

    def delete_later(self, path: str) -> None:
        self.deleted.append(path)
        self.counters.pop(path, None)


def generator(session: FakeSession, manager: LedgerManager) -> LedgerIdGenerator:
    return LedgerIdGenerator(session, "/l", manager)  # type: ignore[arg-type]


async def test_the_directory_of_the_counter_is_made_on_demand_and_the_counters_znode_removed() -> None:
    session = FakeSession()
    assert await generator(session, LedgerManager.HIERARCHICAL).generate() == 0
    assert session.deleted == ["/l/idgen/ID-0000000000"]


@pytest.mark.parametrize("manager", [LedgerManager.HIERARCHICAL, LedgerManager.LONG_HIERARCHICAL])
@pytest.mark.parametrize("exhausted", [LAST + 1, -(2**31), -5])
async def test_after_the_last_short_id_come_long_ones(manager: LedgerManager, exhausted: int) -> None:
    session = FakeSession(idgen=LAST)
    ids = generator(session, manager)
    assert await ids.generate() == LAST
    session.counters["/l/idgen"] = exhausted
    assert [await ids.generate(), await ids.generate()] == [2**32, 2**32 + 1]
    session.counters["/l/idgen"] = 0
    assert await generator(session, manager).generate() == 2**32 + 2, "a new client went back to short ids"


@pytest.mark.parametrize("manager", [LedgerManager.FLAT, LedgerManager.LEGACY_HIERARCHICAL])
async def test_managers_without_long_ids_run_out(manager: LedgerManager) -> None:
    session = FakeSession(idgen=LAST + 1)
    session.counters["/l"] = LAST + 1
    with pytest.raises(LedgerIdOverflow):
        await generator(session, manager).generate()
    assert "/l/idgen-long" not in session.counters


async def test_when_the_low_half_runs_over_the_next_high_half_begins() -> None:
    session = FakeSession(idgen_long=0, idgen_long__HOB_0000000001=LAST)
    ids = generator(session, LedgerManager.HIERARCHICAL)
    assert [await ids.generate() for _ in range(3)] == [(1 << 32) + LAST, 2 << 32, (2 << 32) + 1]


async def test_three_directories_of_high_halves_are_kept() -> None:
    names = {f"idgen_long__HOB_{number:010d}": 0 for number in (1, 2, 3, 4)}
    session = FakeSession(idgen_long=0, **names)
    session.counters["/l/idgen-long/HOB-0000000004"] = LAST + 1
    assert await generator(session, LedgerManager.HIERARCHICAL).generate() == 5 << 32
    assert await session.children("/l/idgen-long") == ["HOB-0000000003", "HOB-0000000004", "HOB-0000000005"]


async def test_a_directory_that_another_client_just_made_is_used() -> None:
    session = FakeSession(idgen_long=0, idgen_long__HOB_0000000001=LAST + 1, idgen_long__HOB_0000000002=7)
    ids = generator(session, LedgerManager.HIERARCHICAL)
    assert await ids._open_high_bits("/l/idgen-long", 2) == 2
    assert await ids.generate() == (2 << 32) + 7


async def test_the_end_of_63_bits_is_an_overflow() -> None:
    session = FakeSession(idgen_long=0, idgen_long__HOB_2147483647=LAST)
    ids = generator(session, LedgerManager.HIERARCHICAL)
    assert await ids.generate() == ((2**31 - 1) << 32) + LAST < 2**63
    with pytest.raises(LedgerIdOverflow):
        await ids.generate()


async def test_a_directory_that_never_stays_is_given_up() -> None:
    session = FakeSession()
    session.forgetful = True
    with pytest.raises(MetadataStoreError, match="disappears as often as it is made"):
        await generator(session, LedgerManager.HIERARCHICAL).generate()


async def test_directories_that_are_always_full_are_given_up() -> None:
    session = FakeSession(idgen_long=0, **{f"idgen_long__HOB_{number:010d}": LAST + 1 for number in range(1, 20)})
    ids = generator(session, LedgerManager.HIERARCHICAL)
    ids._high_bits = lambda directory: _only_first()  # type: ignore[method-assign]
    with pytest.raises(MetadataStoreError, match="are used up"):
        await ids.generate()


async def _only_first() -> list[int]:
    return [1]
