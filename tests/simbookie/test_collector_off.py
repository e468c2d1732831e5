"""Python's garbage collector: its switch, and what it need not look at."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from simbookie.collector_off import collector_off
from simbookie.serving import run


@pytest.fixture(autouse=True)
def _on_again() -> Iterator[None]:
    yield
    gc.enable()


def test_it_is_off_in_the_block_and_on_after_it() -> None:
    with collector_off():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_an_error() -> None:
    with pytest.raises(KeyError), collector_off():
        raise KeyError
    assert gc.isenabled()


def test_blocks_nest() -> None:
    with collector_off():
        with collector_off():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_was_off_stays_off() -> None:
    gc.disable()
    with collector_off():
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_bookie_process_does_not_look_at_what_it_has_imported(uvloop: bool) -> None:
    """A full collection of it would be a pause of 10 to 20 ms, in which nobody gets an answer."""
    if uvloop:
        pytest.importorskip("uvloop")

    async def main() -> int:
        return gc.get_freeze_count()

    gc.unfreeze()  # what the tests' own tools have set aside
    assert run(main(), uvloop=uvloop) > 10_000
    assert gc.get_freeze_count() == 0
