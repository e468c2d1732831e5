from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from random import Random

import pytest

from simbookie.world.rng import chance, split, split_seed


def test_a_stream_depends_on_seed_and_name_alone() -> None:
    first = [split(7, "network").random() for _ in range(3)]
    split(7, "metadata").random()
    assert [split(7, "network").random() for _ in range(3)] == first
    assert len(set(first)) == 1, "every call starts the stream anew"


def test_names_and_seeds_give_different_streams() -> None:
    assert len({split_seed(seed, name) for seed in range(20) for name in ("a", "b", "1/a", "")}) == 80


def test_the_split_is_the_same_in_every_process_and_version() -> None:
    assert split_seed(1, "network") == 0x5848519F1EB2C18BD956D09F3CED51C6


DRAWS: dict[str, Callable[[Random], object]] = {
    "random": lambda rng: rng.random(),
    "uniform": lambda rng: rng.uniform(1, 2),
    "randrange": lambda rng: rng.randrange(100),
    "choice": lambda rng: rng.choice("abcdef"),
    "choices": lambda rng: rng.choices("abcdef", k=3),
    "sample": lambda rng: rng.sample("abcdef", 3),
    "shuffle": lambda rng: rng.shuffle([1, 2, 3]),
    "getrandbits": lambda rng: rng.getrandbits(70),
    "randbytes": lambda rng: rng.randbytes(5),
    "gauss": lambda rng: rng.gauss(),
    "normalvariate": lambda rng: rng.normalvariate(),
    "gammavariate": lambda rng: rng.gammavariate(1.5, 1.0),
    "getstate": lambda rng: rng.getstate(),
    "seed": lambda rng: rng.seed(4),
    "setstate": lambda rng: rng.setstate(Random(9).getstate()),
    "copy": lambda rng: copy.deepcopy(rng).random(),
    "pickle": lambda rng: pickle.loads(pickle.dumps(rng)).random(),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_stream_draws_as_a_generator_with_its_seed_whatever_is_drawn_first(draw: Callable[[Random], object]) -> None:
    stream, generator = split(7, "network"), Random(split_seed(7, "network"))
    assert draw(stream) == draw(generator)
    assert [stream.random() for _ in range(3)] == [generator.random() for _ in range(3)]
    assert (type(stream), stream.getstate()) == (Random, generator.getstate())


def test_a_method_that_was_kept_before_the_first_draw_goes_on_with_the_stream() -> None:
    stream = split(7, "network")
    kept = stream.random
    assert [kept(), stream.random(), kept()] == [draw() for draw in [chance(7, "network")] for _ in range(3)]
