"""One seed, split into independent streams by name.

Every component of a run draws from its own stream, whose seed depends on the run's seed and the component's name alone. So a
component that draws more or less than before, or that is made earlier or later, changes nothing for the others: a fault can
be taken out of a run without changing the rest of its chances.

A generator takes far longer to seed than to make, and many draw nothing in a run: each is seeded at its first draw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import Any

__all__ = ["chance", "split", "split_seed"]


def split_seed(seed: int, name: str) -> int:
    """The seed of the stream ``name``: 128 bits that depend on nothing but the arguments."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "big")


def split(seed: int, name: str) -> Random:
    """A generator of its own for the component ``name``."""
    stream = _Unseeded.__new__(_Unseeded)
    stream.__dict__["origin"] = seed, name
    return stream


def chance(seed: int, name: str) -> Callable[[], float]:
    """The draws from 0 to 1 of the stream ``name``, for components that draw at once and often."""
    return Random(split_seed(seed, name)).random  # noqa: S311  simulated chance, not a secret


class _Unseeded(Random):
    """A generator before its first draw, with which it becomes an ordinary one. Whatever draws goes by these methods."""

    def random(self) -> float:
        return _begun(self).random()

    def getrandbits(self, k: int, /) -> int:
        return _begun(self).getrandbits(k)

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        return _begun(self).gauss(mu, sigma)  # which keeps every second number

    def seed(self, *arguments: Any, **options: Any) -> None:
        _begun(self).seed(*arguments, **options)

    def getstate(self) -> tuple[Any, ...]:
        return _begun(self).getstate()

    def setstate(self, state: tuple[Any, ...]) -> None:
        _begun(self).setstate(state)

    def __reduce__(self) -> Any:
        return _begun(self).__reduce__()


def _begun(stream: Random) -> Random:
    """The same generator, seeded. A method of it that was kept may be called later once more."""
    origin = stream.__dict__.pop("origin", None)
    if origin is not None:
        stream.__class__ = Random
        stream.seed(split_seed(*origin))
    return stream
