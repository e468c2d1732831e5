"""The console script ``bk-verify``; imports nothing that may be missing, or takes long, before it can say so."""

from __future__ import annotations

from bkclient.program import run_program

__all__ = ["main"]


def main() -> None:
    """Run ``bk-verify``."""
    run_program("bk-verify", "spark_analysis.cli", "spark", "main")
