"""The command line: help, wrong usage, what is printed, and how a command ends."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from bkclient import ClientConfig, PlacementSettings, TlsSettings, connect
from bkclient.errors import UnauthorizedAccess
from bkclient.security.auth import SharedSecret
from simbookie.cli.app import app
from tests.ports import free_port
from tests.tls import MUTUAL, pem

OFFERS_TLS = ("--tls-certificate", pem("bookie"), "--tls-key", pem("bookie-key"))
COMMANDS = ("bookie", "zookeeper", "cluster")

each_zookeeper = pytest.mark.parametrize("kind", ["embedded", pytest.param("java", marks=pytest.mark.zookeeper)])


#: Options of "bk-sim bookie" that are different for each bookie of a cluster.
OF_ONE_BOOKIE = {
    "metadata",
    "host",
    "port",
    "bookie_id",
    "advertised_host",
    "advertised_port",
    "data",
    "storage",
    "conf",
    "admin_port",
    "admin_host",
    "exit_with_stdin",
}


def options(command: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(app)  # typed by a copy of click inside Typer
    return {str(option.name): option for option in group.commands[command].loaded().params}


NUMBERS = [
    name
    for name, option in options("bookie").items()
    if name not in OF_ONE_BOOKIE and isinstance(option.default, int | float) and not isinstance(option.default, bool)
]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


@contextmanager
def announced(
    *arguments: str,
    stopped_by: signal.Signals = signal.SIGTERM,
    is_quiet: bool = True,
    environment: dict[str, str] | None = None,
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """A command that serves, as a process, and what it announces; stopped in the end, it succeeds and has no more to say."""
    command = [sys.executable, "-m", "simbookie.cli", *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
            process.send_signal(stopped_by)
            rest, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, rest) == (0, b"")
    assert not (is_quiet and errors)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples_and_exit_codes(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert f"  bk-sim {command} --" in result.stdout
    assert "Exit codes: 0 " in result.stdout
    assert "--json" in result.stdout


def test_help_says_that_nothing_is_durable() -> None:
    assert "nothing is on disk" in invoke("bookie", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bookie"], "--metadata"),
        (["bookie", "--metadata", "etcd://x"], "none of the known schemes"),
        (["bookie", "--metadata", "mem://", "--port", "70000"], "--port"),
        (["bookie", "--metadata", "mem://", "--journal-sync-ms", "-1"], "--journal-sync-ms"),
        (["bookie", "--metadata", "mem://", "--log-level", "loud"], "--log-level"),
        (
            ["bookie", "--metadata", "mem://", "--tls-certificate", pem("bookie")],
            "--tls-certificate and --tls-key must be given together",
        ),
        (["bookie", "--metadata", "mem://", "--require-tls"], "TLS options require --tls-certificate"),
        (["cluster", *OFFERS_TLS, "--require-client-certificate"], "requires --tls-trust"),
        (
            ["cluster", "--tls-certificate", pem("bookie"), "--tls-key", pem("client-key")],
            "not a certificate and its key",
        ),
        (["bookie", "--metadata", "mem://", "--auth-secret", "absent"], "--auth-secret"),
        (["cluster", "--bookies", "0"], "--bookies"),
        (["zookeeper", "--port", "0"], "--port"),
        (["zookeeper", "--server", "embedded", "--data-dir", "x"], "--data-dir"),
        (["cluster", "--zookeeper", "etcd"], "--zookeeper"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_names_the_mistake(arguments: list[str], complaint: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stdout == ""


def test_a_cluster_has_every_option_of_its_bookies() -> None:
    assert set(options("bookie")) - OF_ONE_BOOKIE - set(options("cluster")) == set()


@pytest.mark.parametrize("name", [*NUMBERS, "connections_per_source_max"])
def test_a_cluster_hands_its_options_on_to_its_bookies(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    given: list[Any] = []

    async def run_cluster(*arguments: Any, shows: bool, as_json: bool) -> None:
        given.extend(arguments)

    monkeypatch.setattr("simbookie.cli.cluster._run_cluster", run_cluster)
    flag = options("cluster")[name].opts[0]
    default = options("cluster")[name].default
    value = 7 if default is None else default + 1
    assert invoke("cluster", flag, str(value)).exit_code == 0
    handed_on = given[0].keywords  # to ProcessCluster
    words = handed_on["options"]
    if name == "session_timeout_s":  # the cluster's own business
        assert handed_on[name] == value
    else:
        assert words[words.index(flag) + 1] == str(value)


def test_uvloop_must_be_installed_to_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simbookie.cli.options.uvloop_is_installed", lambda: False)
    result = invoke("bookie", "--metadata", "mem://", "--uvloop")
    assert result.exit_code == 2
    assert "bkclient[fast]" in result.stderr


def test_a_failure_is_exit_code_1_with_one_json_object() -> None:
    result = invoke("bookie", "--metadata", "mem://", "--host", "203.0.113.1", "--json", "--no-uvloop")
    assert result.exit_code == 1
    assert result.stderr.startswith("bk-sim: ")
    assert set(json.loads(result.stdout)["error"]) == {"type", "message"}


@pytest.mark.parametrize("loop", ["--uvloop", "--no-uvloop"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_bookie_announces_itself_and_stops_in_order(loop: str, number: signal.Signals) -> None:
    if loop == "--uvloop":
        pytest.importorskip("uvloop")
    arguments = ("bookie", "--metadata", "mem://", "--id", "b7", loop)
    with announced(*arguments, stopped_by=number) as (process, facts):
        assert facts["port"] > 0
        assert facts.pop("listening_port") == facts.pop("port")
        assert facts == {
            "bookie_id": "b7",
            "host": "127.0.0.1",
            "metadata": "mem://",
            "pid": process.pid,
            "durable": False,
            "admin_port": None,
        }


@each_zookeeper
def test_a_cluster_announces_itself_reports_bookies_that_end_and_stops_everything(kind: str) -> None:
    port = str(free_port())
    options = ("--bookies", "3", "--zookeeper", kind, "--zookeeper-port", port, "--admin")
    with announced("cluster", *options) as (process, facts):
        assert set(facts) == {"metadata", "zookeeper", "server", "log_dir", "bookies"}
        assert (facts["metadata"], facts["server"]) == (f"zk://127.0.0.1:{port}/ledgers", kind)
        assert [set(bookie) for bookie in facts["bookies"]] == [
            {"bookie_id", "host", "port", "pid", "log", "admin_port"}
        ] * 3
        for bookie in facts["bookies"]:
            url = f"http://127.0.0.1:{bookie['admin_port']}/api/v1/bookie/is_ready"
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert answer.read() == b"OK"
        assert process.stderr is not None
        killed, stopped, _ = facts["bookies"]
        os.kill(killed["pid"], signal.SIGKILL)
        assert f"bookie {killed['bookie_id']} died of SIGKILL; see " in process.stderr.readline().decode()
        os.kill(stopped["pid"], signal.SIGTERM)
        assert f"bookie {stopped['bookie_id']} stopped; see " in process.stderr.readline().decode()


def test_the_last_line_of_a_cluster_is_all_that_bk_has_to_know() -> None:
    command = [sys.executable, "-m", "simbookie.cli", "cluster", "--bookies", "1", "--zookeeper", "embedded"]
    with subprocess.Popen(
        [*command, "--zookeeper-port", str(free_port())], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            while not (lines and lines[-1].startswith("export ")):
                lines.append(process.stdout.readline())
                assert lines[-1], lines
            shell = lines[-1] + "; ".join(
                f"{sys.executable} -m bkclient.cli {bk}"
                for bk in ("ledger append --create -e 1 -w 1 -a 1 > /dev/null", "ledger read 0")
            )
            done = subprocess.run(
                ["sh", "-c", shell], input="something\n", capture_output=True, text=True, timeout=90, check=True
            )
            assert done.stdout == "something\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=30)[0] == ""
            assert process.returncode == 0
        finally:
            process.kill()


def test_a_cluster_without_java_has_an_embedded_zookeeper(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    arguments = ("cluster", "--bookies", "1", "--zookeeper-port", str(free_port()))
    with announced(*arguments, environment=environment) as (_, facts):
        assert facts["server"] == "embedded"


def test_a_java_that_is_missing_is_missed_only_where_it_was_asked_for(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    arguments = ("cluster", "--zookeeper", "java", "--zookeeper-port", str(free_port()))
    command = [sys.executable, "-m", "simbookie.cli", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("bk-sim: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["zookeeper", "--port"], ["cluster", "--zookeeper-port"]])
@pytest.mark.parametrize("kind", ["embedded", "java", "auto"])
def test_a_taken_port_is_one_sentence(command: list[str], kind: str) -> None:
    name, option = command
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = invoke(name, option, port, "--server" if name == "zookeeper" else "--zookeeper", kind)
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        result.stderr
        == f"bk-sim: port {port} of 127.0.0.1 is taken by another program: stop it, or choose another port\n"
    )


def test_a_cluster_in_racks_tells_clients_where_its_bookies_are() -> None:
    async def place(metadata: str, script: str) -> None:
        config = ClientConfig(
            placement=PlacementSettings(location_script=script, enforce_min_racks_per_write_quorum=True)
        )
        async with connect(metadata, config=config) as bk:
            for _ in range(5):
                writer = await bk.create_ledger(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2)
                ensemble = writer.metadata.last_fragment.ensemble
                assert {bookie_id.partition(".")[2] for bookie_id in ensemble} == {"rack-1", "rack-2"}
                await writer.append(b"x")
                await writer.close()

    arguments = ("--bookies", "4", "--racks", "2", "--zookeeper", "embedded", "--zookeeper-port", str(free_port()))
    with announced("cluster", *arguments) as (_, facts):
        ids = [bookie["bookie_id"] for bookie in facts["bookies"]]
        assert ids == ["bookie-0.rack-1", "bookie-1.rack-2", "bookie-2.rack-1", "bookie-3.rack-2"]
        asyncio.run(place(facts["metadata"], facts["location_script"]))


@each_zookeeper
def test_zookeeper_announces_itself_and_stops(kind: str) -> None:
    port = str(free_port())
    with announced("zookeeper", "--port", port, "--server", kind) as (_, facts):
        assert facts["address"] == f"127.0.0.1:{port}"
        assert facts["metadata"] == f"zk://127.0.0.1:{port}/ledgers"
        assert facts["server"] == kind
        with socket.create_connection(("127.0.0.1", int(port)), 5) as connection:
            connection.sendall(b"ruok")
            assert connection.recv(4) == b"imok"


@pytest.mark.zookeeper
@pytest.mark.usefixtures("java")
def test_zookeeper_itself_keeps_its_data_where_it_is_told(tmp_path: Path) -> None:
    with announced("zookeeper", "--port", str(free_port()), "--data-dir", str(tmp_path / "zk")) as (_, facts):
        assert facts["server"] == "java"
    assert (tmp_path / "zk" / "zookeeper.log").exists()


@pytest.mark.zookeeper
@pytest.mark.usefixtures("java")
def test_a_zookeeper_that_ends_is_a_failure() -> None:
    command = [
        sys.executable,
        "-m",
        "simbookie.cli",
        "zookeeper",
        "--port",
        str(free_port()),
        "--server",
        "java",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            threads = Path(f"/proc/{process.pid}/task").iterdir()  # each has the children that it started
            (child,) = [child for thread in threads for child in (thread / "children").read_text().split()]
            os.kill(int(child), signal.SIGKILL)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, errors) == (1, "bk-sim: ZooKeeper ended by itself\n")


def test_a_cluster_demands_tls_certificates_and_a_secret(tmp_path: Path) -> None:
    async def write(metadata: str, *, auth: bool) -> None:
        provider = SharedSecret(b"a secret of enough bytes") if auth else None
        async with connect(metadata, config=ClientConfig(tls=TlsSettings(**MUTUAL)), auth=provider) as bk:
            writer = await bk.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
            await writer.append(b"x")

    secret = tmp_path / "secret"
    secret.write_bytes(b"a secret of enough bytes\n")
    demands = ("--tls-trust", pem("authority"), "--require-tls", "--require-client-certificate")
    zookeeper = ("--zookeeper", "embedded", "--zookeeper-port", str(free_port()))
    security = (*OFFERS_TLS, *demands, "--auth-secret", str(secret))
    with announced("cluster", "--bookies", "1", *zookeeper, *security) as (_, facts):
        asyncio.run(write(facts["metadata"], auth=True))
        with pytest.raises(UnauthorizedAccess):
            asyncio.run(write(facts["metadata"], auth=False))


def test_a_bookie_serves_operators_where_it_is_told_to(tmp_path: Path) -> None:
    serves = ("bookie", "--metadata", "mem://operated", "--id", "b0", "--json")
    with announced(*serves) as (_, facts):
        assert facts["admin_port"] is None
    conf = tmp_path / "bk_server.conf"
    conf.write_text("gcWaitTime=60000\n")
    data = ("--data", str(tmp_path / "data"), "--conf", str(conf))
    with announced(*serves, *data, "--admin-port", "0") as (_, facts):
        with urllib.request.urlopen(f"http://127.0.0.1:{facts['admin_port']}/heartbeat", timeout=10) as answer:
            assert answer.read() == b"OK\n"
        base = f"http://127.0.0.1:{facts['admin_port']}/api/v1"
        with urllib.request.urlopen(f"{base}/config/server_config", timeout=10) as answer:
            told = json.load(answer)
        assert told["gcWaitTime"] == "60000"
        assert told["ledgerDirectories"] == str(tmp_path / "data" / "ledgers")
        assert told["httpServerPort"] == str(facts["admin_port"])
        with urllib.request.urlopen(f"{base}/bookie/sanity", timeout=10) as answer:
            assert json.load(answer)["passed"] is True


def test_what_is_shown_live_is_not_for_programs() -> None:
    ended = invoke("cluster", "--watch", "--json")
    assert (ended.exit_code, "does not go with --json" in " ".join(ended.output.split())) == (2, True)


def test_operators_need_what_the_extra_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h11", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for arguments in (
        ("bookie", "--metadata", "mem://a", "--admin-port", "0"),
        ("cluster", "--admin"),
        ("cluster", "--watch"),
    ):
        ended = invoke(*arguments)
        assert ended.exit_code == 2
        assert "bkclient[admin]" in ended.output
