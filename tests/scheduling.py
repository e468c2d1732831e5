"""Which process of ``-n auto --dist loadfile`` runs which tests, and in what order.

A process takes a file of tests at a time, and one all tests of Spark: a session costs as much as hundreds of tests. What takes
longest begins first. A long file that begins late is run to its end by one process while all others have nothing to do.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

__all__ = ["LONG", "SPARK", "LongestFirst", "seconds"]

SPARK: Final = "tests/spark_analysis/"

#: Files, and the tests of Spark, that take seconds: how many, in ``make test`` or ``make deep``, whichever is more.
LONG: Final[Mapping[str, float]] = tomllib.loads(Path(__file__).with_name("long_files.toml").read_text())["seconds"]

#: What a test takes in any other file.
_TEST_S: Final = 0.02


def seconds(scope: str, tests: int) -> float:
    """About how long ``tests`` tests of ``scope`` take."""
    return max(LONG.get(scope, 0.0), tests * _TEST_S)


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Hands out files of tests, the longest first, and all tests of Spark as one file."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return SPARK if scope.startswith(SPARK) else scope

    def _assign_work_unit(self, node: WorkerController) -> None:
        longest = max(self.workqueue, key=lambda scope: seconds(scope, len(self.workqueue[scope])))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)
