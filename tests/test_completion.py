"""Shell completion of all four commands: subcommands, options, and the names that are known to programs or to a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import bkclient.sync
from scenarios.testing import TcpCluster

pytestmark = pytest.mark.deep  # a process for each line

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    """A cluster with the ledgers 0 to 11 and a log."""
    with TcpCluster(3) as cluster, bkclient.sync.connect(cluster.uri) as bk:
        for _ in range(12):
            bk.create_ledger().close()
        bk.logs.create("orders")
        yield cluster.uri


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    module, _, function = SCRIPTS[script].partition(":")
    code = f"import sys; sys.argv[0] = {script!r}; from {module} import {function}; sys.exit({function}())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**{name: value for name, value in os.environ.items() if name != "BK_METADATA_URI"}, **environment},
    )


def completed(line: str, **environment: str) -> list[str]:
    """What a shell offers at the end of ``line``."""
    words = line.split()
    script = words[0]
    variable = f"_{script.replace('-', '_').upper()}_COMPLETE"
    index = len(words) if line.endswith(" ") else len(words) - 1
    asked = {variable: "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(index), **environment}
    ended = run(script, **asked)
    assert ended.stderr == ""
    return ended.stdout.split()


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_command_installs_its_completion(script: str) -> None:
    assert "--install-completion" in run(script, "--help").stdout
    shown = run(script, "--show-completion", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert shown.returncode in {0, 2}, "2 where a shell has to be named"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("bk led", ["ledger"]),
        ("bk ledger re", ["read", "recover"]),
        ("bk-sim clu", ["cluster"]),
        ("bk-chaos sh", ["show", "shrink"]),
        ("bk-chaos run late-", ["late-add-after-replace", "late-answer-meets-next-read", "late-watches"]),
        ("bk-chaos plan late-", ["late-add-after-replace", "late-answer-meets-next-read", "late-watches"]),
        ("bk-chaos run dead-writer --mutant one-", ["one-denial-decides"]),
        ("bk-chaos show x.bkh --invariant NoLac", ["NoLacTruncation"]),
        ("bk-verify verify x --invariant NoLac", ["NoLacTruncation"]),
    ],
)
def test_names_that_programs_know(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("bk ledger read 1", ["1", "10", "11"]),
        ("bk ledger delete 3 1", ["1", "10", "11"]),
        ("bk log read o", ["orders"]),
    ],
)
def test_names_that_the_cluster_knows(uri: str, line: str, offered: list[str]) -> None:
    assert completed(line, BK_METADATA_URI=uri) == offered


def test_bookies_and_a_cluster_that_the_command_line_names(uri: str) -> None:
    assert len(completed(f"bk repair bookie --metadata {uri} ")) == 3


@pytest.mark.parametrize("uri", ["", "zk://127.0.0.1:1/ledgers", "nonsense"])
def test_without_a_cluster_nothing_is_offered_and_nothing_said(uri: str) -> None:
    assert completed("bk ledger read ", **({"BK_METADATA_URI": uri} if uri else {})) == []
