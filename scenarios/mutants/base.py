"""What a mutant is: a known defect, switched on from outside the shipped code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bkclient.transport.base import BookieTransport
from scenarios.clauses import invariants_of

__all__ = ["Mutant", "Replacement"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """One named attribute of a module or class, and what ``make`` makes of the original for the duration of a run."""

    owner: Any
    name: str
    make: Callable[[Any], Any] = field(repr=False)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put it in place for as long as the block lasts."""
        has_own = self.name in vars(self.owner)
        original = getattr(self.owner, self.name)
        setattr(self.owner, self.name, self.make(original))
        try:
            yield
        finally:
            if has_own:
                setattr(self.owner, self.name, original)
            else:
                delattr(self.owner, self.name)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted defect. ``clauses`` are the numbers of those of which at least one must be seen broken to call it caught."""

    name: str
    summary: str
    clauses: tuple[str, ...]
    wrap_transport: Callable[[BookieTransport], BookieTransport] | None = field(default=None, repr=False)
    replaces: tuple[Replacement, ...] = field(default=(), repr=False)

    @property
    def invariants(self) -> tuple[str, ...]:
        """The names under which the clauses are reported."""
        return tuple(invariants_of(self.clauses))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put everything that is replaced in place for as long as the block lasts."""
        with ExitStack() as stack:
            for replacement in self.replaces:
                stack.enter_context(replacement.in_place())
            yield
