"""The same seed makes the same choices in every process, whatever the order of sets in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

PROGRAM = """
import random
from bkclient import ClientConfig, PlacementSettings
from bkclient.metadata.base import BookieSets
from bkclient.placement import BookieWeights, FixedLocations, LedgerShape
from bkclient.placement.factory import policy_from_config

places = {f"bookie-{n}": f"/zone-{n % 4}/domain-{n % 3}" for n in range(24)}
shape = LedgerShape(6, 3, 3)
for name in ("random", "rack-aware", "region-aware", "zone-aware"):
    for weighs in (False, True):
        weights = BookieWeights(3.0) if weighs else None
        if weights is not None:
            weights.retain(places)
            for n, bookie in enumerate(places):
                weights.learn(bookie, 1000 * n)
        config = ClientConfig(placement=PlacementSettings(policy=name, client_location="/zone-1/domain-1"))
        policy = policy_from_config(config, random.Random(11), locations=FixedLocations(places), weights=weights)
        policy.update(BookieSets(tuple(places), ("gone-1", "gone-2")))
        for _ in range(5):
            excluded = frozenset(("bookie-3", "bookie-7", "bookie-11"))
            ensemble = policy.new_ensemble(shape, excluded)
            print(name, weighs, ensemble, policy.replace(shape, ensemble, 2, excluded))
        if hasattr(policy, "propose_repair"):
            same_rack = ("bookie-0", "bookie-12", "bookie-1", "bookie-13", "bookie-2", "bookie-14")
            print(policy.propose_repair(shape, same_rack, frozenset(("bookie-5",))))
"""


def choices(hash_seed: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return finished.stdout


def test_choices_do_not_depend_on_the_order_of_sets() -> None:
    first = choices("1")
    assert "None" not in first
    assert len(first.splitlines()) == 4 * 2 * 5 + 2
    assert first == choices("4000000000")
