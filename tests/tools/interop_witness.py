"""A pytest plug-in that writes down what became of every test, phase by phase, and whose code was tested.

Loaded into the runs of :mod:`tests.tools.interop_defects` with ``-p``. The file that the environment names gets a JSON value
a line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

import bkclient
import simbookie

__all__ = ["FILE"]

#: The environment variable that names the file.
FILE: Final = "INTEROP_WITNESS"


def _write(**value: Any) -> None:
    with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What was raised, without the source code around it, which would hold the words that somebody looks for."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(report.longrepr or "")[-2000:] if crash is None else str(crash.message)


def pytest_configure() -> None:
    _write(imported=[str(Path(str(package.__file__)).resolve()) for package in (bkclient, simbookie)])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(test=report.nodeid, phase="collection", outcome="failed", reason=_reason(report))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _write(
        test=report.nodeid, phase=report.when, outcome=report.outcome, reason=_reason(report) if report.failed else ""
    )
