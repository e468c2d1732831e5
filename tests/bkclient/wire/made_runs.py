"""Runs of adds, made of what is known of each add."""

from __future__ import annotations

from typing import TypeVar

from bkclient.wire.runs import Run

__all__ = ["MadeAdd", "run_of"]

Token = TypeVar("Token")

MadeAdd = tuple[int, Token, int, bytes]
"""``(entry id, token, bytes of the frame, acknowledgement)``."""


def run_of(adds: list[MadeAdd[Token]], deadline: float) -> Run[Token]:
    """The run of these adds, each of which may have another token."""
    entry_ids, tokens, sizes, acknowledgements = zip(*adds, strict=True)
    return Run(entry_ids, list(enumerate(tokens)), sizes, acknowledgements, deadline)
