"""What is loaded, and what is not, before a program does its work: without a clock, by the modules of a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 60

#: Runs a statement, whatever it prints and however it ends, and tells what is loaded then.
PROGRAM = """
import atexit, contextlib, io, json, sys
def tell(to=sys.stdout):
    json.dump(sorted(sys.modules), to)
atexit.register(tell)
sys.argv = {arguments!r}
with contextlib.redirect_stdout(io.StringIO()):
    {statement}
"""

#: What a client is made of, and nobody needs who only asks for help.
CLIENT = {"anyio", "asyncio", "bkclient._client.client", "bkclient.config", "google.protobuf", "google_crc32c", "ssl"}
#: What comes with extras, and features that most programs do not use. Typer from 0.29 on reads options by pydantic (decision 38).
EXTRAS = {"fastapi", "h11", "kazoo", "opentelemetry", "prometheus_client", "pyarrow", "pydantic", "pyspark", "rich"}
EXTRAS |= {"typer", "uvloop"}
#: Parts of the standard library that take long, for features that most programs do not use.
SLOW = {"concurrent.futures.process", "importlib.metadata", "multiprocessing"}
OTHERS = {"scenarios.library", "scenarios.mutants", "scenarios.machines", "scenarios.sweep", "simbookie.bookie"}

HELP = CLIENT | OTHERS | SLOW | EXTRAS - {"typer"}


def loaded_by(statement: str, *arguments: str) -> set[str]:
    program = PROGRAM.format(statement=statement, arguments=list(arguments))
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT
    )
    return set(json.loads(ended.stdout))


def started(script: str, *arguments: str) -> set[str]:
    module = {"bk": "bkclient.cli", "bk-sim": "simbookie.cli", "bk-chaos": "scenarios.cli"}.get(
        script, "spark_analysis.cli"
    )
    return loaded_by(f"import {module} as script; script.main()", script, *arguments)


def test_a_bookie_does_not_load_the_client_that_repairs_ledgers() -> None:
    loaded = loaded_by("import simbookie.cli.bookie")
    assert "simbookie.garbage" in loaded
    assert "bkclient._client.client" not in loaded


@pytest.mark.parametrize("package", ["bkclient", "simbookie", "scenarios", "spark_analysis"])
def test_a_package_loads_nothing_until_a_name_of_it_is_used(package: str) -> None:
    assert loaded_by(f"import {package}") & (CLIENT | OTHERS | SLOW | EXTRAS) == set()


def test_a_client_loads_no_extra_and_no_other_application() -> None:
    loaded = loaded_by("import bkclient; bkclient.connect")

    assert loaded >= CLIENT
    assert loaded & (EXTRAS | OTHERS | SLOW | {"bkclient.cli", "bkclient.repair"}) == set()


def test_a_name_of_configuration_does_not_load_the_client() -> None:
    assert loaded_by("import bkclient; bkclient.ClientConfig") & (CLIENT - {"bkclient.config"} | EXTRAS | SLOW) == set()


@pytest.mark.parametrize("script", ["bk", "bk-sim", "bk-chaos", "bk-verify"])
def test_help_loads_no_command(script: str) -> None:
    loaded = started(script, "--help")

    assert "typer" in loaded
    assert loaded & HELP == set()


@pytest.mark.parametrize("group", ["ledger", "repair", "autorecovery"])
def test_help_of_a_group_loads_no_command(group: str) -> None:
    assert started("bk", group, "--help") & (HELP - SLOW) == set()  # Typer itself loads those


def test_a_command_of_bk_loads_what_it_needs_and_no_other_command() -> None:
    loaded = started("bk", "ledger", "info", "0", "-m", "mem://unknown")

    assert "bkclient.cli.ledger" in loaded
    assert loaded & {"bkclient.cli.autorecovery", "bkclient.cli.repair", "kazoo"} == set()


def test_a_run_of_a_scenario_loads_no_worlds_sweeps_or_defects() -> None:
    needed = {"scenarios.library", "simbookie.bookie"}
    loaded = started("bk-chaos", "run", "calm-writes", "--json")

    assert loaded >= CLIENT | needed
    assert loaded & (EXTRAS - {"typer"} | OTHERS - needed | {"scenarios.timeline", "simbookie.zookeeper"}) == set()


def test_a_simulation_loads_no_slow_part_of_the_standard_library() -> None:
    assert loaded_by("from scenarios.runner import run_scenario; run_scenario('calm-writes', 0)") & SLOW == set()


def test_what_is_loaded_is_seen() -> None:
    """The witness counts."""
    assert loaded_by("import multiprocessing, scenarios.sweep") >= {"scenarios.library", "multiprocessing"}
