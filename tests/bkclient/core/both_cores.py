"""What both cores make of the same: results, errors and what is left behind have to be equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bkclient._core import CORES, is_built, using_core

__all__ = ["needs_compiled_core", "same_in_both", "with_each_core"]

needs_compiled_core = pytest.mark.skipif(not is_built(), reason="the compiled core was not built (make core)")

#: For tests of what both have to do; ``core`` is for :func:`~bkclient._core.using_core`.
with_each_core = pytest.mark.parametrize("core", CORES if is_built() else ["python"])


def same_in_both(run: Callable[[], Any]) -> Any:
    """What ``run`` returns, or says when it raises, which is the same with both cores."""
    outcomes = []
    for name in CORES:
        with using_core(name):
            outcomes.append(_outcome(run))
    assert outcomes[1] == outcomes[0], "the compiled core does something else than the definition"
    return outcomes[0]


def _outcome(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:  # noqa: BLE001 - whichever it is, the other core has to raise it too
        return type(error), str(error)
