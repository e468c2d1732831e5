"""The switch of Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from simbookie.collector_off import collector_off


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
