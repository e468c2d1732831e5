"""``bk-verify``: one file for each command or group of commands, which :mod:`~spark_analysis.cli.app` lists.

What they share is in :mod:`~spark_analysis.cli.running`.
This file imports nothing that may be missing, or takes long, before it can say so.
"""

from __future__ import annotations

from bkclient.program import run_program

__all__ = ["main"]


def main() -> None:
    """The console script."""
    run_program("bk-verify", "spark_analysis.cli.app", "spark")
