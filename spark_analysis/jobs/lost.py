"""What executors had computed is lost with them; a verification then begins again.

Relations that many questions start from are kept where they were computed, and their plans are cut there (``localCheckpoint``):
planning would take minutes otherwise. So Spark cannot compute a lost part again by itself. Histories do not change, and to judge
them once more costs what it cost the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

__all__ = ["ATTEMPTS_MAX", "again_if_lost"]

#: A cluster that loses executors in each of so many attempts has another problem.
ATTEMPTS_MAX: Final = 3

#: What Spark calls it when a part of a kept relation is where no executor is any more.
_LOST: Final = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"

_Result = TypeVar("_Result")


def again_if_lost(work: Callable[[], _Result]) -> _Result:
    """The result of ``work``, which begins again if an executor was lost with something that is needed.

    Raises what ``work`` raises, and the loss itself after :data:`ATTEMPTS_MAX` of them.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return work()
        except (Py4JJavaError, PySparkException) as error:
            if _LOST not in str(error):
                raise
    return work()
