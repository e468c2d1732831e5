"""Property tests with many times their examples, and other ones each time: what those that every run repeats have missed.

``make test`` has to take minutes, and to fail for everybody or for nobody, so most properties try a hundred examples that are
always the same. This plugin of pytest has them try 25 times as many (``MORE=100`` for another number), drawn anew. What failed
is kept in ``.hypothesis`` and tried first by the next run.

Run as ``make properties``, or for some of them::

    MORE=100 .venv/bin/pytest -p tests.tools.more_examples -m hypothesis --timeout 0 tests/bkclient/transport
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.detection import is_hypothesis_test

__all__ = ["pytest_collection_modifyitems", "with_more_examples"]

#: Where Hypothesis keeps the settings of a test; there is no public name.
_SETTINGS = "_hypothesis_internal_use_settings"


def with_more_examples(test: Callable[..., Any], times: int) -> None:
    """Have the property test try ``times`` as many examples, by chance."""
    own: settings = getattr(test, _SETTINGS)
    setattr(test, _SETTINGS, settings(own, max_examples=own.max_examples * times, derandomize=False))


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """All that was collected; a test that is collected with several parameters is one.

    But for state machines, whose settings are elsewhere: ``make stateful`` runs them at length.
    """
    times = int(os.environ.get("MORE", "25"))
    found = {getattr(item.obj, "__func__", item.obj): None for item in items if isinstance(item, pytest.Function)}
    for test in filter(is_hypothesis_test, found):
        if hasattr(test, _SETTINGS):
            with_more_examples(test, times)
