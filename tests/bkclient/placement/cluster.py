"""Clusters for tests of placement: where bookies are, by short notation, and slow but certain judges of ensembles."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from bkclient.metadata.base import BookieSets
from bkclient.placement import FixedLocations, LedgerShape, RackAwarePlacement, RegionAwarePlacement, ZoneAwarePlacement

NONE: frozenset[str] = frozenset()


class Updatable(Protocol):
    def update(self, bookies: BookieSets) -> None: ...


P = TypeVar("P", bound=Updatable)


def locations(**places: str) -> dict[str, str]:
    """``a="r1 r1 r2"`` names bookies a0, a1 and a2 in the racks /r1, /r1 and /r2; ``eu="x/y"`` one in /x/y."""
    return {
        f"{name}{number}": f"/{place}" for name, text in places.items() for number, place in enumerate(text.split())
    }


def sets(writable: Iterable[str], read_only: Iterable[str] = ()) -> BookieSets:
    return BookieSets(tuple(sorted(writable)), tuple(sorted(read_only)))


def told(policy: P, writable: Iterable[str], read_only: Iterable[str] = ()) -> P:
    """``policy``, which knows these bookies now."""
    policy.update(sets(writable, read_only))
    return policy


def racks(places: dict[str, str], *, seed: int = 1, **options: object) -> RackAwarePlacement:
    policy = RackAwarePlacement(random.Random(seed), FixedLocations(places), **options)  # type: ignore[arg-type]
    return told(policy, places)


def regions(places: dict[str, str], *, seed: int = 1, **options: object) -> RegionAwarePlacement:
    policy = RegionAwarePlacement(random.Random(seed), FixedLocations(places), **options)  # type: ignore[arg-type]
    return told(policy, places)


def zones(places: dict[str, str], *, seed: int = 1, **options: object) -> ZoneAwarePlacement:
    policy = ZoneAwarePlacement(random.Random(seed), FixedLocations(places), **options)  # type: ignore[arg-type]
    return told(policy, places)


def write_sets(ensemble: Sequence[str], write_quorum_size: int) -> list[list[str]]:
    size = len(ensemble)
    return [[ensemble[(entry + w) % size] for w in range(write_quorum_size)] for entry in range(size)]


def spans_racks(ensemble: Sequence[str], places: dict[str, str], write_quorum_size: int, least: int) -> bool:
    """Whether every write set is in at least ``least`` racks, counted the slow way."""
    return all(len({places[b] for b in write_set}) >= least for write_set in write_sets(ensemble, write_quorum_size))


def is_durable(ensemble: Sequence[str], places: dict[str, str], shape: LedgerShape, min_regions: int) -> bool:
    """Whether no ``min_regions`` - 1 regions hold an ack quorum of any entry, by trying all of them."""
    region = {bookie_id: place.split("/")[1] for bookie_id, place in places.items()}
    for write_set in write_sets(ensemble, shape.write_quorum_size):
        for lost in itertools.combinations(sorted(set(region.values())), min_regions - 1):
            if sum(region[bookie_id] in lost for bookie_id in write_set) >= shape.ack_quorum_size:
                return False
    return True


def keeps_zones(ensemble: Sequence[str], places: dict[str, str], write_quorum_size: int, least: int) -> bool:
    """Whether every write set has ``least`` zones, and no zone with several bookies in one upgrade domain."""
    for write_set in write_sets(ensemble, write_quorum_size):
        by_zone: dict[str, list[str]] = {}
        for bookie_id in write_set:
            _, zone, domain = places[bookie_id].split("/")
            by_zone.setdefault(zone, []).append(domain)
        if len(by_zone) < least or any(len(d) > 1 and len(set(d)) == 1 for d in by_zone.values()):
            return False
    return True


def assert_sound(
    ensemble: Sequence[str], shape: LedgerShape, writable: Collection[str], excluded: Collection[str]
) -> None:
    """What holds for an ensemble of any policy (PL-2, PL-5)."""
    assert len(ensemble) == shape.ensemble_size
    assert len(set(ensemble)) == len(ensemble)
    assert set(ensemble) <= set(writable)
    assert not set(ensemble) & set(excluded)


def assert_fair(counts: Counter[str], expected: dict[str, float]) -> None:
    """Each count is within five standard deviations of what was expected; a seeded test that passes passes for ever."""
    total = sum(counts.values())
    assert set(counts) <= set(expected)
    for name, share in expected.items():
        mean = total * share
        deviation = (mean * (1 - share)) ** 0.5
        assert abs(counts[name] - mean) <= 5 * deviation + 1, f"{name}: {counts[name]} of {total}, expected {mean:.0f}"
