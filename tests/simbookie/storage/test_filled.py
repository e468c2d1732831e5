"""Disks that fill up and are emptied again."""

from __future__ import annotations

import itertools

import pytest

from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_disk_that_was_filled_several_times_has_its_capacity_when_all_are_gone(order: tuple[int, ...]) -> None:
    for disk in (SimulatedDisk(capacity_bytes=1000), MemoryStorage(MemoryStorageConfig(capacity_bytes=1000))):
        limits = (10, 0, 100)
        empties = [disk.fill(left) for left in limits]
        for number, gone in enumerate(order):
            assert disk.capacity().free == min(limits[other] for other in order[number:])
            empties[gone]()
            empties[gone]()
        assert disk.capacity().total == disk.capacity().free == 1000
