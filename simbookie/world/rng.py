"""One seed, split into independent streams by name.

Every component of a run draws from its own stream, whose seed depends on the run's seed and the component's name alone. So a
component that draws more or less than before, or that is made earlier or later, changes nothing for the others: a fault can
be taken out of a run without changing the rest of its chances.
"""

from __future__ import annotations

import hashlib
from random import Random

__all__ = ["split", "split_seed"]


def split_seed(seed: int, name: str) -> int:
    """The seed of the stream ``name``: 128 bits that depend on nothing but the arguments."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "big")


def split(seed: int, name: str) -> Random:
    """A generator of its own for the component ``name``."""
    return Random(split_seed(seed, name))  # noqa: S311  simulated chance, not a secret
