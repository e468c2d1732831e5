"""What is used unless something else is asked for, and exit codes; apart from what uses them, which takes seconds to load."""

from __future__ import annotations

from typing import Final

__all__ = [
    "EXIT_DISAGREE",
    "EXIT_FAILED",
    "EXIT_UNDECIDED",
    "EXIT_UNUSABLE",
    "EXIT_VIOLATED",
    "LOCAL_MASTER",
    "MAX_WITNESSES_DEFAULT",
]

LOCAL_MASTER: Final = "local[*]"
MAX_WITNESSES_DEFAULT: Final = 100

EXIT_VIOLATED: Final = 1
EXIT_UNUSABLE: Final = 2
#: Nothing was judged: Spark, or the program itself, failed.
EXIT_FAILED: Final = 3
#: The witnesses disagree, so one of them is wrong.
EXIT_DISAGREE: Final = 4
#: Nothing is broken, but some runs came to no verdict and prove nothing.
EXIT_UNDECIDED: Final = 5
