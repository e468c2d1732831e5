"""Fixtures of the tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bkclient.cli.cluster import ThreadedCluster
from tests.bkclient.cli.invoking import Invoke, invoke_at


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    """Three bookies; tests of a module share them and leave all alive."""
    with ThreadedCluster() as running:
        yield running


@pytest.fixture
def bk(cluster: ThreadedCluster) -> Invoke:
    """Runs ``bk`` against the cluster."""
    return invoke_at(cluster)
