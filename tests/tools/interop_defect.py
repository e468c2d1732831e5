"""What a planted defect is, and which interoperability tests have to notice it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["NEWEST", "OLDEST", "Defect", "Selection", "one"]

NEWEST: Final = "4.18.0"
OLDEST: Final = "4.17.3"


@dataclass(frozen=True, slots=True)
class Selection:
    """Tests of one module, with one version of BookKeeper; ``words`` are to be found in the parameters of each."""

    module: str
    functions: tuple[str, ...]
    words: tuple[str, ...] = ()
    version: str = NEWEST

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests without their parameters, as pytest is told."""
        return tuple(f"tests/interop/{self.module}.py::{function}" for function in self.functions)

    @property
    def expression(self) -> str:
        """What pytest is told after ``-k``; it tells apart selections that share a run, too."""
        return f"({' or '.join(self.functions)}) and {' and '.join((self.version, *self.words))}"

    def chooses(self, test: str) -> bool:
        """Whether a test, with its parameters, is one of the selection."""
        return test.partition("[")[0] in self.tests and all(word in test for word in (self.version, *self.words))


@dataclass(frozen=True, slots=True)
class Defect:
    """``old``, which occurs once in ``path``, becomes ``new``, and a test fails with an error like ``because``.

    ``unseen_because`` says why it cannot: then the selection is where one would look first.
    """

    name: str
    path: str
    old: str
    new: str
    tests: Selection
    because: str
    unseen_because: str = ""


def one(module: str, function: str, *words: str, version: str = NEWEST) -> Selection:
    """One test, with what is to be found in its parameters."""
    return Selection(module, (function,), words, version)
