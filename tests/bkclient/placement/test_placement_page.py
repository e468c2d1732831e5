"""What docs/using/placement.md shows works as it stands there."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from bkclient import BookKeeper
from bkclient.errors import Code, NotEnoughBookies
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.placement import PlacementPolicy, RegionAwarePlacement
from tests.bkclient.fakes import fake_cluster
from tests.settling import settled

PAGE = Path(__file__).parents[3] / "docs" / "using" / "placement.md"


def shown(number: int) -> dict[str, Any]:
    """The names that an example of the page defines."""
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(examples) == 2
    scope: dict[str, Any] = {}
    exec(compile(examples[number], str(PAGE), "exec"), scope)
    return scope


async def test_the_client_that_was_told_locations_places_by_them() -> None:
    name = "placement-page"
    registrar = MemoryMetadataService.named(name).session(rng=random.Random(1))
    for bookie_id in ("bk1:3181", "bk2:3181", "bk3:3181"):
        await registrar.register_bookie(bookie_id, BookieAddress("localhost", 1))
    try:
        async with shown(0)["client"](f"mem://{name}") as bk:
            assert isinstance(bk, BookKeeper)
            assert type(bk._placement.watcher.policy) is RegionAwarePlacement
            for _ in range(10):
                writer = await bk.create_ledger(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2)
                first, second = writer.metadata.last_fragment.ensemble
                assert first in ("bk1:3181", "bk2:3181")  # the own region
                assert second == "bk3:3181"
    finally:
        await registrar.aclose()
        MemoryMetadataService.forget(name)


@pytest.mark.behaviour("T-216")
async def test_the_policy_keeps_tenants_apart() -> None:
    policy: PlacementPolicy = shown(1)["TenantPlacement"](random.Random(1))
    async with fake_cluster("abcxyz", placement=policy) as where:
        for bookie_id in ("a", "x"):
            writer = await where.bk.create_ledger(
                ensemble_size=1,
                write_quorum_size=1,
                ack_quorum_size=1,
                custom_metadata={"tenant": bookie_id.encode()},
            )
            assert writer.metadata.last_fragment.ensemble == (bookie_id,)
        with pytest.raises(NotEnoughBookies):
            await where.bk.create_ledger(custom_metadata={"tenant": b"a"})
        anyone = await where.bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        before = anyone.metadata.last_fragment.ensemble
        where.transport.bookies[before[0]].code = Code.WRITE_ON_READ_ONLY_BOOKIE
        await anyone.append(b"x")
        await settled()
        after = anyone.metadata.last_fragment.ensemble
        assert after[0] not in before
        assert after[1:] == before[1:]
