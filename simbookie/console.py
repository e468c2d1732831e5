"""The console script ``bk-sim``; imports nothing that may be missing, or takes long, before it can say so."""

from __future__ import annotations

from bkclient.program import run_program

__all__ = ["main"]


def main() -> None:
    """Run ``bk-sim``."""
    run_program("bk-sim", "simbookie.cli", "sim", "main")
