"""Which ZooKeeper a development cluster gets, and at which port."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from simbookie.java import JavaNotFoundError, JavaRuntime, find_java
from simbookie.zookeeper.embedded import EmbeddedZooKeeper
from simbookie.zookeeper.java_server import (
    HOST,
    PortTakenError,
    ZooKeeperServer,
    ZooKeeperStartError,
    port_is_taken,
    port_taken_message,
    zookeeper_class_path,
)

__all__ = ["USUAL_PORT", "RunningZooKeeper", "ZooKeeperKind", "metadata_uri", "running_zookeeper"]

USUAL_PORT: Final = 2181


class ZooKeeperKind(StrEnum):
    """``AUTO`` is ZooKeeper itself where it can be started, and the embedded server elsewhere."""

    AUTO = "auto"
    EMBEDDED = "embedded"
    JAVA = "java"


class RunningZooKeeper(Protocol):
    """What is common to both."""

    @property
    def address(self) -> str:
        """``host:port``, as ZooKeeper clients want it."""

    @property
    def is_running(self) -> bool:
        """Whether it serves; ZooKeeper itself may end without being asked to."""


def metadata_uri(server: RunningZooKeeper, root: str = "/ledgers") -> str:
    """The metadata service URI of a BookKeeper cluster at ``root`` of a server, whatever its layout."""
    return f"zk://{server.address}{root}"


@asynccontextmanager
async def running_zookeeper(
    kind: ZooKeeperKind, port: int | None, *, data_dir: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> AsyncIterator[tuple[ZooKeeperKind, RunningZooKeeper]]:
    """Start a server on the loopback interface, end it in the end; yields which kind it is, and the server.

    Without ``port`` the usual one is taken if it is free when the server binds it, and otherwise any. ``data_dir`` is for
    ZooKeeper itself, which has a temporary one without it. ``say`` is told, in a sentence, of everything that is not as one
    may expect.

    Raises :class:`~simbookie.zookeeper.java_server.ZooKeeperStartError` if a server cannot be started, and
    :class:`~simbookie.java.JavaNotFoundError` if ``JAVA`` was asked for and there is none.
    """
    async with AsyncExitStack() as stack:
        if port is not None:
            yield await _serving(stack, kind, port, data_dir, say)
            return
        try:
            found = await _serving(stack, kind, USUAL_PORT, data_dir, say)
        except PortTakenError:
            say(f"port {USUAL_PORT} is taken, so ZooKeeper gets another one")
            found = await _serving(stack, kind, 0, data_dir, say)
        yield found


async def _serving(
    stack: AsyncExitStack, kind: ZooKeeperKind, port: int, data_dir: Path | None, say: Callable[[str], None]
) -> tuple[ZooKeeperKind, RunningZooKeeper]:
    """A server at ``port``, or at any if it is 0; ``stack`` ends it."""
    if port_is_taken(port):
        raise PortTakenError(port_taken_message(port))
    java = None if kind is ZooKeeperKind.EMBEDDED else _find_java(is_needed=kind is ZooKeeperKind.JAVA)
    if java is not None:
        try:
            server = ZooKeeperServer(port=port or None, data_dir=data_dir, java=java)
            return ZooKeeperKind.JAVA, await stack.enter_async_context(server)
        except ZooKeeperStartError as error:
            if kind is ZooKeeperKind.JAVA or (port and isinstance(error, PortTakenError)):
                raise
            reason, _, _ = str(error).partition("\n")
            say(f"ZooKeeper itself did not start, so the embedded one serves: {reason}")
    try:
        return ZooKeeperKind.EMBEDDED, await stack.enter_async_context(EmbeddedZooKeeper(host=HOST, port=port))
    except OSError as error:
        # Another program may have taken it since it was looked at.
        failure = PortTakenError if error.errno == errno.EADDRINUSE else ZooKeeperStartError
        raise failure(f"ZooKeeper cannot listen on port {port} of {HOST}: {error}") from error


def _find_java(*, is_needed: bool) -> JavaRuntime | None:
    """A Java that can run ZooKeeper, for which PySpark has to be there, too; errors are raised if it ``is_needed``."""
    try:
        zookeeper_class_path()
        return find_java()
    except (ZooKeeperStartError, JavaNotFoundError):
        if is_needed:
            raise
        return None
