"""What a defect is that ``tests.tools.storage_defects`` plants in the storage of a bookie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

__all__ = ["Change", "StorageDefect"]

Change = tuple[Any, str, Any]
"""``(owner, name, replacement)``."""


@dataclass(frozen=True)
class StorageDefect:
    """One defect; ``kind`` is the store that it is planted in.

    ``test`` is the test that sees it, for a defect that crash runs do not come to: their clients send nothing while they wait
    for room, and checkpoints make up for some.
    """

    name: str
    mechanism: str
    changes: tuple[Change, ...]
    kind: str = "interleaved"
    test: str = ""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the defect while the context lasts."""
        patches = [mock.patch.object(owner, name, replacement) for owner, name, replacement in self.changes]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in reversed(patches):
                patch.stop()
