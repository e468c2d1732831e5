"""What a mutant is: a known defect, switched on from outside the shipped code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from bkclient.transport.base import BookieTransport
from scenarios.clauses import invariants_of

__all__ = ["Function", "Mutant", "Replacement", "always"]

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A named attribute of a module or class; ``make`` returns its replacement for the original, for the duration of a run."""

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


def always(value: object) -> Callable[[object], object]:
    """A ``make`` that returns ``value`` for any original."""
    return lambda _original: value


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted defect.

    The defect is caught when at least one of ``clauses`` is broken. ``world`` is the name of a world of machines
    (:data:`scenarios.machines.worlds.WORLDS`) that shows it, "" if none does; ``in_runs`` is true if runs of scenarios show it.
    ``past`` is its number among the defects of the past, or that of the rule that it breaks, in docs/reference/conformance.md.

    It is planted into a run by ``wrap_transport`` if that is given, and otherwise, as into a world, by ``replaces``.
    """

    name: str
    summary: str
    clauses: tuple[str, ...]
    world: str = ""
    in_runs: bool = False
    past: str = ""
    wrap_transport: Callable[[BookieTransport], BookieTransport] | None = field(default=None, repr=False)
    replaces: tuple[Replacement, ...] = field(default=(), repr=False)

    @property
    def invariants(self) -> tuple[str, ...]:
        """The names under which the clauses are reported."""
        return tuple(invariants_of(self.clauses))

    def applied_to_run(self) -> AbstractContextManager[None]:
        """Like :meth:`applied`, for a run whose transport is wrapped if ``wrap_transport`` is given."""
        return nullcontext() if self.wrap_transport is not None else self.applied()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put everything that is replaced in place for as long as the block lasts."""
        with ExitStack() as stack:
            for replacement in self.replaces:
                stack.enter_context(replacement.in_place())
            yield
