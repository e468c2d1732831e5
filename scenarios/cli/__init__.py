"""``bk-chaos``: one file for each command or group of commands, which :mod:`~scenarios.cli.app` lists.

What they share is beside them: names of what is run, options, output.
This file imports nothing that may be missing, or takes long, before it can say so.
"""

from __future__ import annotations

from bkclient.program import run_program

__all__ = ["main"]


def main() -> None:
    """The console script."""
    run_program("bk-chaos", "scenarios.cli.app", "sim")
