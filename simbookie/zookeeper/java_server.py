"""A real ZooKeeper server for tests and experiments, run from the jars that PySpark brings along.

The metadata driver for ZooKeeper has to be tried against ZooKeeper itself, and an unmodified Java client needs one to
find simulated bookies. PySpark's distribution contains the server's classes and everything they need, so nothing else
has to be downloaded; only a Java runtime is needed (:mod:`simbookie.java`).

It is one standalone server on the loopback interface: no security, no replication, no forced writes to disk. What it
keeps survives the process, not a crash of the machine. Never use it for data that matters.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import importlib.util
import os
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from simbookie.java import JavaRuntime, find_java
from simbookie.standstill import stop
from simbookie.start_errors import PortTakenError, ZooKeeperStartError

__all__ = [
    "HOST",
    "PortTakenError",
    "ZooKeeperServer",
    "ZooKeeperStartError",
    "port_is_taken",
    "port_taken_message",
    "zookeeper_class_path",
]

HOST: Final = "127.0.0.1"
TICK_TIME_MS_DEFAULT: Final = 500
START_TIMEOUT_S_DEFAULT: Final = 60.0
SNAPSHOTS_KEPT: Final = 3

_MAIN_CLASS: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_JARS: Final = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "netty-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "commons-io-*.jar",
    "commons-cli-*.jar",
)
_POLL_INTERVAL_S: Final = 0.05
_PROBE_TIMEOUT_S: Final = 1.0
_STOP_TIMEOUT_S: Final = 10.0
_PORT_ATTEMPTS_MAX: Final = 3
_LOG_LINES_SHOWN: Final = 6


def zookeeper_class_path() -> list[Path]:
    """The jars of PySpark that a ZooKeeper server needs; :class:`ZooKeeperStartError` if there are none."""
    spec = importlib.util.find_spec("pyspark")
    roots = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    jars = [jar for root in roots for pattern in _JARS for jar in sorted((root / "jars").glob(pattern))]
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise ZooKeeperStartError("a ZooKeeper server is run from the jars of PySpark: install bkclient[spark]")
    return jars


class ZooKeeperServer:
    """One server process, as a context manager, synchronous or asynchronous.

    ``port`` is chosen free if not given. ``data_dir`` is a temporary directory, removed by :meth:`close`, if not given.
    ``tick_time_ms`` is the grain of session expiry; sessions last at least two and at most two hundred ticks.
    :meth:`stop` and :meth:`start` restart it on the same port with the same data.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        data_dir: Path | None = None,
        java: JavaRuntime | None = None,
        tick_time_ms: int = TICK_TIME_MS_DEFAULT,
        start_timeout_s: float = START_TIMEOUT_S_DEFAULT,
    ) -> None:
        self._requested_port = port
        self._port = port
        self._data_dir = None if data_dir is None else data_dir.absolute()
        self._java = java
        self._tick_time_ms = tick_time_ms
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._resources = ExitStack()

    @property
    def port(self) -> int:
        """The port; ``RuntimeError`` before the first start if none was given."""
        if self._port is None:
            raise RuntimeError("the port is chosen when the server is started")
        return self._port

    @property
    def address(self) -> str:
        """``host:port``, as ZooKeeper clients want it."""
        return f"{HOST}:{self.port}"

    @property
    def log_path(self) -> Path:
        """What the server printed, of all starts; ``RuntimeError`` before the first one."""
        if self._data_dir is None:
            raise RuntimeError("the data directory is chosen when the server is started")
        return self._data_dir / "zookeeper.log"

    @property
    def is_running(self) -> bool:
        """Whether the process is there; it may still be paused."""
        return self._process is not None and self._process.poll() is None

    def metadata_uri(self, root: str = "/ledgers", *, manager: str = "hierarchical") -> str:
        """The metadata service URI of a BookKeeper cluster at ``root`` of this server."""
        return f"zk+{manager}://{self.address}{root}"

    def start(self) -> None:
        """Start the process and wait until it answers; :class:`ZooKeeperStartError` if it does not in time."""
        if self.is_running:
            return
        java = self._java = self._java or find_java()
        if self._data_dir is None:
            directory = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="zookeeper-"))
            self._data_dir = Path(directory)
        if self._port is not None and port_is_taken(self._port):
            raise PortTakenError(port_taken_message(self._port))
        self._data_dir.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _PORT_ATTEMPTS_MAX + 1):
            self._port = self._port or _free_port()
            try:
                self._start_process(java, self._data_dir)
            except ZooKeeperStartError as error:
                # Between looking at a port and the server binding it, another program may have taken it.
                if "BindException" not in str(error):
                    raise
                if self._requested_port is not None or attempt == _PORT_ATTEMPTS_MAX:
                    raise PortTakenError(port_taken_message(self.port)) from error
                self._port = None
            else:
                return

    def stop(self) -> None:
        """Kill the process, as a crash would; its data stay. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            atexit.unregister(process.kill)
            process.kill()
            process.wait(_STOP_TIMEOUT_S)

    def pause(self) -> None:
        """Let the process stand still: connections stay up, and nothing is answered until :meth:`resume`."""
        stop(self._started())

    def resume(self) -> None:
        """Let a paused process run on."""
        self._started().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop, and remove a temporary data directory. Idempotent."""
        self.stop()
        self._resources.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _start_process(self, java: JavaRuntime, data_dir: Path) -> None:
        configuration = data_dir / "zoo.cfg"
        configuration.write_text(self._configuration(data_dir))
        command = [
            str(java.executable),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.awt.headless=true",
            "-Dlog4j2.level=WARN",
            "-Dzookeeper.forceSync=no",
            "-cp",
            os.pathsep.join(str(jar) for jar in zookeeper_class_path()),
            _MAIN_CLASS,
            str(configuration),
        ]
        with self.log_path.open("ab") as log:
            log_start = log.tell()
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=data_dir
            )
        atexit.register(self._process.kill)
        for _ in range(int(self._start_timeout_s / _POLL_INTERVAL_S)):
            if _answers(self.port, data_dir):
                return
            with suppress(subprocess.TimeoutExpired):
                status = self._process.wait(_POLL_INTERVAL_S)
                self.stop()
                raise ZooKeeperStartError(f"ZooKeeper ended with status {status}.{self._log_tail(log_start)}")
        self.stop()
        raise ZooKeeperStartError(
            f"ZooKeeper did not answer on {self.address} within {self._start_timeout_s} s.{self._log_tail(log_start)}"
        )

    def _configuration(self, data_dir: Path) -> str:
        settings = {
            "tickTime": self._tick_time_ms,
            "minSessionTimeout": 2 * self._tick_time_ms,
            "maxSessionTimeout": 200 * self._tick_time_ms,
            "dataDir": str(data_dir / "data").replace("\\", "\\\\"),
            "clientPort": self.port,
            "clientPortAddress": HOST,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "conf,ruok,srvr,envi,mntr,cons,wchs",
            "autopurge.snapRetainCount": SNAPSHOTS_KEPT,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _log_tail(self, start: int) -> str:
        text = self.log_path.read_bytes()[start:].decode(errors="replace").strip()
        lines = [
            line for line in text.splitlines() if not line.startswith("\tat ")
        ]  # frames of Java's stack help nobody here
        return "".join(f"\n    {line}" for line in lines[-_LOG_LINES_SHOWN:]) or " It printed nothing."

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process


def port_is_taken(port: int) -> bool:
    """Whether another program listens on a port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: old connections do not count
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def port_taken_message(port: int) -> str:
    """What to tell a user whose port is taken."""
    return f"port {port} of {HOST} is taken by another program: stop it, or choose another port"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int, data_dir: Path) -> bool:
    """Whether the server at the port takes sessions and is the one that works on ``data_dir``, not an older one."""
    try:
        with socket.create_connection((HOST, port), _PROBE_TIMEOUT_S) as connection:
            connection.sendall(b"conf")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    # Before it can serve, the same command is answered with a sentence that says so.
    return f"dataDir={data_dir / 'data'}".encode() in answer
