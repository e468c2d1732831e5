"""Who of a group has which partitions, by rendezvous hashing with bounds.

Each partition goes to the member that weighs most for it, among those that have room. All who know the same members come to the
same division, and a member that comes or goes moves little more than the partitions that are its own. The bounds are as narrow as
they can be: the numbers of partitions that two members have differ by one at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

__all__ = ["divided"]

_BITS: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15


def divided(member_ids: Sequence[str], partitions: Sequence[int]) -> dict[int, str]:
    """By partition, the id of the member that has it. ``member_ids`` are different ones, in any order, and not none."""
    floor, extra = divmod(len(partitions), len(member_ids))
    seeds = {member_id: _seed(member_id) for member_id in sorted(member_ids)}
    loads = dict.fromkeys(seeds, 0)
    found: dict[int, str] = {}
    for partition in partitions:
        room = [each for each, load in loads.items() if load < floor or (extra and load == floor)]
        chosen = max(room, key=lambda each: _mixed(seeds[each] + partition * _STEP))
        if loads[chosen] == floor:
            extra -= 1
        loads[chosen] += 1
        found[partition] = chosen
    return found


def _seed(member_id: str) -> int:
    return int.from_bytes(blake2b(member_id.encode(), digest_size=8).digest(), "big")


def _mixed(value: int) -> int:
    """The finalizer of SplitMix64: every bit of the result depends on every bit of ``value``."""
    value &= _BITS
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _BITS
    return value ^ (value >> 31)
