"""Why a connection was refused, told along with the code.

Outcomes travel as plain codes through machines that know nothing of TLS or authentication, and most never reach the application.
The one that does should still say which certificate was wrong. So the code itself carries the reason, which costs nothing
while nothing is refused.
"""

from __future__ import annotations

from typing import Any, Self

__all__ = ["Refusal"]


class Refusal(int):
    """The code of a request that was never sent, because no connection could be trusted, with the ``reason`` for it.

    It equals the code and passes for it, and :func:`bkclient.errors.error_for` tells the reason. It is about the bookie and
    never about a ledger: other than an UNAUTHORIZED that a bookie answered, one of this kind ends no handle and no recovery.
    """

    __module__ = "bkclient.errors"

    reason: str

    def __new__(cls, code: int, reason: str) -> Self:
        """``code`` for ``reason``."""
        refusal = super().__new__(cls, code)
        refusal.reason = reason
        return refusal

    def __reduce__(self) -> tuple[Any, ...]:
        return Refusal, (int(self), self.reason)
