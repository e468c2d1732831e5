"""The files that a job works on, and those that turn out to be no histories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scenarios.history import HistoryError
from spark_analysis.source import SUFFIX, HistoryFile, find_histories

__all__ = ["REJECTED_MAX", "NoHistoriesError", "Rejected", "histories_in", "problem_of"]

#: Rejected files that are named; more are only counted.
REJECTED_MAX: Final = 1000


class NoHistoriesError(Exception):
    """There is nothing to work on: the folder does not exist or holds no history."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file that is no usable history, and why."""

    file: str
    problem: str


def histories_in(folder: Path | str) -> list[HistoryFile]:
    """Every history below ``folder``, or ``folder`` itself if it is one; :class:`NoHistoriesError` if there is none."""
    try:
        files = find_histories(folder)
    except FileNotFoundError as error:
        raise NoHistoriesError(str(error)) from error
    if not files:
        raise NoHistoriesError(f"{folder}: holds no history (*{SUFFIX})")
    return files


def problem_of(error: Exception) -> str:
    """Why a history cannot be used, in a row that does not name its path."""
    if isinstance(error, HistoryError):
        return error.problem
    return f"holds what cannot be judged ({type(error).__name__}: {error})"
