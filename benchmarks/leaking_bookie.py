"""``bk-sim`` with a leak, to see whether a soak tells: of every add so many bytes are kept for good."""

from __future__ import annotations

import os
from typing import Any, Final

from simbookie.cli import main
from simbookie.processes import BookieProcess
from simbookie.storage.journaled import JournaledStorage

__all__ = ["LEAK_VARIABLE", "LeakingBookie"]

#: The environment variable that says how many.
LEAK_VARIABLE: Final = "SOAK_LEAKS_BYTES_PER_ADD"


class LeakingBookie(BookieProcess):
    """A process of this module."""

    module = "benchmarks.leaking_bookie"


def _leak(size: int) -> None:
    kept: list[bytes] = []
    add_entry = JournaledStorage.add_entry

    def leaking(storage: JournaledStorage, *arguments: Any, **options: Any) -> None:
        kept.append(b"\xff" * size)
        add_entry(storage, *arguments, **options)

    setattr(JournaledStorage, "add_entry", leaking)  # noqa: B010  in the place of a method


if __name__ == "__main__":
    _leak(int(os.environ[LEAK_VARIABLE]))
    main()
