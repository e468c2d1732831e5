"""Every console script in every broken environment: a package is missing, nobody answers, Ctrl-C comes at any moment.

There is one sentence on standard error at most, never a traceback, and the exit code is one that is documented.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 60
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
#: The extra that each needs, the packages that it brings and when they are needed.
NEEDS = {
    "bk": ("cli", {"typer": ["--help"], "rich": ["bookies", "-m", "mem://x"]}),
    "bk-sim": ("sim", {"typer": ["--help"]}),
    "bk-chaos": ("sim", {"typer": ["--help"], "rich": ["list"], "msgpack": ["run", "calm-writes"]}),
    "bk-verify": ("spark", {"typer": ["--help"], "rich": ["list"], "pyspark": ["list"], "pyarrow": ["list"]}),
}

WITHOUT = """
import sys
sys.modules[{package!r}] = None
"""

#: Sends Ctrl-C to itself when the {number}th module is looked for, counted from the first of the command line.
INTERRUPTED = """
import os, signal, sys
class Interrupter:
    seen = -1
    def find_spec(self, name, path=None, target=None):
        if self.seen >= 0 or name == {first!r}:
            self.seen += 1
            if self.seen == {number}:
                os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupter())
"""


def started(script: str, prelude: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What becomes of ``script``, started as an installed one is, after ``prelude``."""
    module, _, function = SCRIPTS[script].partition(":")
    code = f"{prelude}\nimport sys\nsys.argv[0] = {script!r}\nfrom {module} import {function}\nsys.exit({function}())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
    )


def test_every_script_is_in_the_tables() -> None:
    assert set(SCRIPTS) == set(NEEDS)


@pytest.mark.parametrize(
    ("script", "package"), [(script, package) for script, (_, packages) in NEEDS.items() for package in packages]
)
def test_a_missing_package_is_one_sentence_with_the_line_that_installs_it(script: str, package: str) -> None:
    extra, packages = NEEDS[script]
    ended = started(script, WITHOUT.format(package=package), *packages[package])

    assert ended.stderr == f"{script}: {package} is not installed; run: pip install 'bkclient[{extra}]'\n"
    assert (ended.returncode, ended.stdout) == (2, "")


def test_a_module_of_our_own_that_is_missing_is_a_defect() -> None:
    ended = started("bk", WITHOUT.format(package="bkclient._client.client"), "bookies")

    assert ended.returncode == 1
    assert "ModuleNotFoundError" in ended.stderr


MOMENTS = [
    *(("bk", number) for number in (0, 1, 10)),
    *((script, number) for number in (0, 40) for script in ("bk-sim", "bk-chaos", "bk-verify")),
]


@pytest.mark.parametrize(("script", "number"), MOMENTS)
def test_an_interrupt_while_a_script_is_loaded_ends_it_silently(script: str, number: int) -> None:
    ended = started(script, INTERRUPTED.format(first=first_module(script), number=number), "--help")

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize("number", [0, 1, 10, 100])
def test_an_interrupt_while_a_command_is_loaded_ends_it_silently(number: int) -> None:
    ended = started("bk", INTERRUPTED.format(first="bkclient.cli.bookies", number=number), "bookies", "--help")

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_an_interrupt_after_everything_is_loaded_does_not_come_in_this_way() -> None:
    """The witness counts: a number that is never reached lets the command end as ever."""
    ended = started("bk", INTERRUPTED.format(first=first_module("bk"), number=10_000), "--help")

    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    """Shells start what runs in the background so."""
    prelude = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    ended = started("bk", prelude + INTERRUPTED.format(first=first_module("bk"), number=5), "--help")

    assert (ended.returncode, ended.stderr) == (0, "")


def first_module(script: str) -> str:
    return {"bk": "bkclient.cli.app", "bk-sim": "simbookie.cli.app", "bk-chaos": "scenarios.cli.app"}.get(
        script, "spark_analysis.cli.app"
    )


class TestTheMetadataService:
    """What users are told when it is not there."""

    def test_without_its_driver_the_line_that_installs_it_is_told(self) -> None:
        ended = started("bk", WITHOUT.format(package="kazoo"), "bookies", "-m", "zk://127.0.0.1:1/ledgers", "--json")

        assert ended.returncode == 2
        assert ended.stderr == (
            "bk: zk://127.0.0.1:1/ledgers needs kazoo, which is not installed [METADATA_STORE -9]. "
            "Install it: pip install 'bkclient[zookeeper]'.\n"
        )
        assert json.loads(ended.stdout)["error"]["type"] == "MetadataDriverMissing"

    def test_one_that_refuses_is_told_in_one_line_with_the_reason(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            uri = f"zk://127.0.0.1:{unused.getsockname()[1]}/ledgers"
            ended = started("bk", "", "bookies", "-m", uri)

        assert (ended.returncode, ended.stdout) == (3, "")
        assert len(ended.stderr.splitlines()) == 1
        assert "connection refused" in ended.stderr

    def test_one_whose_name_does_not_resolve_is_told_in_one_line_with_the_reason(self) -> None:
        ended = started("bk", "", "bookies", "-m", "zk://no-such-host.invalid:2181/ledgers")

        assert (ended.returncode, ended.stdout) == (3, "")
        assert len(ended.stderr.splitlines()) == 1
        assert "no-such-host.invalid:2181: the name cannot be resolved" in ended.stderr

    def test_an_application_without_logging_writes_nothing_to_standard_error(self) -> None:
        program = (
            "import asyncio, bkclient\n"
            "async def main():\n"
            "    try:\n"
            "        async with bkclient.connect('zk://127.0.0.1:1;no-such-host.invalid:2/ledgers'): pass\n"
            "    except bkclient.BookKeeperError as error: print(type(error).__name__)\n"
            "asyncio.run(main())\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT
        )

        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "MetadataStoreError\n", "")


def test_a_file_that_is_no_history_is_refused_without_starting_spark(tmp_path: Path) -> None:
    file = tmp_path / "notes.bkh"
    file.write_text("these are notes")
    no_java = (
        "import simbookie.java\n"
        "def no(*_): raise AssertionError('Spark was about to be started')\n"
        "simbookie.java.find_java = no\n"
    )
    ended = started("bk-verify", no_java, "verify", str(file))

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"bk-verify: {file}: is not a history (it does not start with a history header)\n"
