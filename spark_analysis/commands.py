"""Command lines that show something again, for people to copy."""

from __future__ import annotations

import shlex
from pathlib import Path

from spark_analysis.dataset.layout import is_dataset
from spark_analysis.source import SUFFIX

__all__ = ["replay_command"]


def replay_command(folder: Path | str, history: str) -> str:
    """The command that makes the run of ``history`` in ``folder`` again.

    A data set does not tell where its files are; there the name is that which the file had when it was taken in.
    """
    is_known = not is_dataset(folder)
    path = Path(folder) if Path(folder).suffix == SUFFIX else Path(folder) / history
    return f"bk-chaos replay {shlex.quote(str(path) if is_known else history)}"
