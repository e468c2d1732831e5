from __future__ import annotations

from simbookie.world.rng import split, split_seed


def test_a_stream_depends_on_seed_and_name_alone() -> None:
    first = [split(7, "network").random() for _ in range(3)]
    split(7, "metadata").random()
    assert [split(7, "network").random() for _ in range(3)] == first
    assert len(set(first)) == 1, "every call starts the stream anew"


def test_names_and_seeds_give_different_streams() -> None:
    assert len({split_seed(seed, name) for seed in range(20) for name in ("a", "b", "1/a", "")}) == 80


def test_the_split_is_the_same_in_every_process_and_version() -> None:
    assert split_seed(1, "network") == 0x5848519F1EB2C18BD956D09F3CED51C6
