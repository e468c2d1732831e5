"""Which ZooKeeper a development cluster gets, at which port, and what its user is told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import simbookie.zookeeper.choosing as under_test
from simbookie.java import JavaNotFoundError, JavaRuntime
from simbookie.zookeeper import HOST, ZooKeeperKind, ZooKeeperStartError, running_zookeeper
from tests.ports import free_port


@pytest.fixture
def usual_port(monkeypatch: pytest.MonkeyPatch) -> int:
    port = free_port()
    monkeypatch.setattr(under_test, "USUAL_PORT", port)
    return port


def pretend_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    executable = tmp_path / "java"
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    monkeypatch.setattr(under_test, "find_java", lambda: JavaRuntime(executable, 17, "a test"))
    for module in ("choosing", "java_server"):
        monkeypatch.setattr(f"simbookie.zookeeper.{module}.zookeeper_class_path", list)


def no_java() -> JavaRuntime:
    raise JavaNotFoundError("no Java")


async def test_the_usual_port_is_taken_if_it_is_free(usual_port: int) -> None:
    said: list[str] = []
    async with running_zookeeper(ZooKeeperKind.EMBEDDED, None, say=said.append) as (kind, server):
        assert (kind, server.address) == (ZooKeeperKind.EMBEDDED, f"{HOST}:{usual_port}")
        assert server.is_running
        assert said == []
    assert not server.is_running


async def test_another_port_is_taken_and_told_if_the_usual_one_is_not_free(usual_port: int) -> None:
    said: list[str] = []
    with socket.create_server((HOST, usual_port)):
        async with running_zookeeper(ZooKeeperKind.EMBEDDED, None, say=said.append) as (_, server):
            assert server.address != f"{HOST}:{usual_port}"
            assert said == [f"port {usual_port} is taken, so ZooKeeper gets another one"]


async def test_the_usual_port_may_be_taken_between_a_look_at_it_and_the_start(
    monkeypatch: pytest.MonkeyPatch, usual_port: int
) -> None:
    monkeypatch.setattr(under_test, "port_is_taken", lambda _: False)
    said: list[str] = []
    with socket.create_server((HOST, usual_port)):
        async with running_zookeeper(ZooKeeperKind.EMBEDDED, None, say=said.append) as (_, server):
            assert server.address != f"{HOST}:{usual_port}"
            assert said == [f"port {usual_port} is taken, so ZooKeeper gets another one"]


async def test_the_usual_port_may_be_taken_while_zookeeper_itself_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, usual_port: int
) -> None:
    """Java's word for it is an exception in its log; the other port is tried with Java, too."""
    starts = tmp_path / "starts"
    pretend_java(monkeypatch, tmp_path, f"echo start >> {starts}; echo java.net.BindException: in use >&2; exit 1")
    monkeypatch.setattr(under_test, "port_is_taken", lambda _: False)
    said: list[str] = []
    async with running_zookeeper(ZooKeeperKind.AUTO, None, say=said.append) as (kind, server):
        assert kind is ZooKeeperKind.EMBEDDED
        assert server.address != f"{HOST}:{usual_port}"
        assert said[0] == f"port {usual_port} is taken, so ZooKeeper gets another one"
        assert starts.read_text().count("start") > 1


@pytest.mark.parametrize("kind", list(ZooKeeperKind))
async def test_a_port_that_was_asked_for_is_not_replaced(kind: ZooKeeperKind) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ZooKeeperStartError, match=f"port {port} of 127.0.0.1 is taken"):
            async with running_zookeeper(kind, port):
                pass


async def test_without_java_the_embedded_one_serves_unless_java_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("choosing", "java_server"):
        monkeypatch.setattr(f"simbookie.zookeeper.{module}.zookeeper_class_path", list)
    monkeypatch.setattr(under_test, "find_java", no_java)
    async with running_zookeeper(ZooKeeperKind.AUTO, free_port()) as (kind, _):
        assert kind is ZooKeeperKind.EMBEDDED
    with pytest.raises(JavaNotFoundError):
        async with running_zookeeper(ZooKeeperKind.JAVA, free_port()):
            pass


async def test_a_java_that_does_not_start_zookeeper_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend_java(monkeypatch, tmp_path, "echo out of luck >&2; exit 3")
    said: list[str] = []
    async with running_zookeeper(ZooKeeperKind.AUTO, free_port(), say=said.append) as (kind, _):
        assert kind is ZooKeeperKind.EMBEDDED
        assert said == ["ZooKeeper itself did not start, so the embedded one serves: ZooKeeper ended with status 3."]
    with pytest.raises(ZooKeeperStartError, match="out of luck"):
        async with running_zookeeper(ZooKeeperKind.JAVA, free_port()):
            pass


@pytest.mark.zookeeper
@pytest.mark.usefixtures("java", "usual_port")
async def test_zookeeper_itself_serves_where_it_can() -> None:
    async with running_zookeeper(ZooKeeperKind.AUTO, None) as (kind, server):
        assert kind is ZooKeeperKind.JAVA
        assert server.is_running
    assert not server.is_running
