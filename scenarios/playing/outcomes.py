"""What comes of the operations of a program."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

from bkclient.errors import BookKeeperError

__all__ = ["MissingError", "all_ended"]


class MissingError(Exception):
    """What an operation is about does not exist, because an earlier one was refused."""


async def all_ended(started: Iterable[Awaitable[Any]]) -> None:
    """Wait for all outcomes but those that were cancelled; raises the first refusal."""
    outcomes = await asyncio.gather(*started, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BookKeeperError):
            raise outcome
