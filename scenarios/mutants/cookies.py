"""Defects of bookies that start with other disks than theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from scenarios.mutants.base import Mutant, Replacement, always
from simbookie.cookies import InvalidCookie
from simbookie.integrity import IntegrityCheck
from simbookie.start_checks import StartChecks

__all__ = ["COOKIE_MUTANTS"]


def _starts_anyway(verify: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """A cookie that does not fit is no reason not to start."""

    async def mutated(self: Any) -> None:
        with suppress(InvalidCookie):
            await verify(self)

    return mutated


async def _checks_nothing(_self: Any) -> None:
    """Nothing is looked at, and nothing done."""


COOKIE_MUTANTS: Final = (
    Mutant(
        name="bookie-ignores-its-cookie",
        summary="a bookie starts although its disks have no cookie, or another one's",
        clauses=("D15",),
        in_runs=True,
        past="M47",
        replaces=(Replacement(StartChecks, "verify", _starts_anyway),),
    ),
    Mutant(
        name="bookie-vouches-for-what-it-lost",
        summary="a bookie that starts in doubt neither fences its ledgers nor says that it does not know what it lacks",
        clauses=("D17",),
        in_runs=True,
        past="M45",
        replaces=(Replacement(IntegrityCheck, "before_serving", always(_checks_nothing)),),
    ),
    Mutant(
        name="bookie-in-doubt-leaves-closed-ledgers-unfenced",
        summary="a bookie that starts in doubt fences no ledger that is closed",
        clauses=("D17",),
        in_runs=True,
        past="M46",
        replaces=(Replacement(IntegrityCheck, "_fence", always(lambda _self, _ledger_id: None)),),
    ),
)
