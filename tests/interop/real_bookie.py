"""Apache BookKeeper's own bookies as processes on this machine.

A bookie keeps its journal and ledgers in a folder of its own, with BookKeeper's defaults where they concern the safety of
data; sizes are small. It can be killed (SIGKILL), stood still (SIGSTOP) and started again on its data.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Final, Self

from bkclient.metadata.base import MetadataStore
from bkclient.metadata.opening import open_store
from tests.interop.builds import Build
from tests.ports import free_port
from tests.zookeepers import AnyZooKeeper

__all__ = ["RealBookie", "RealCluster"]

_START_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.1
_JOURNAL_HEADER_BYTES: Final = 512
_SETTINGS: Final = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "httpServerEnabled": "false",
    "zkTimeout": "4000",
    "journalMaxSizeMB": "64",
    "journalPreAllocSizeMB": "4",
    "logSizeLimit": "67108864",
    "skipListSizeLimit": "16777216",
    "numAddWorkerThreads": "1",
    "numReadWorkerThreads": "2",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.985",
    "gcWaitTime": "20000",
    "minorCompactionInterval": "3600",
    "majorCompactionInterval": "86400",
}


class RealBookie:
    """One bookie process. ``settings`` are further keys of ``bk_server.conf``."""

    def __init__(self, build: Build, directory: Path, metadata_uri: str, settings: dict[str, str]) -> None:
        self.build = build
        self.port = free_port()
        self.log_path = directory / "bookie.log"
        self.configuration = directory / "bk_server.conf"
        directory.mkdir(parents=True)
        lines = {
            **_SETTINGS,
            "metadataServiceUri": metadata_uri,
            "bookiePort": str(self.port),
            "journalDirectories": str(directory / "journal"),
            "ledgerDirectories": str(directory / "ledgers"),
            **settings,
        }
        self.configuration.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self._journals = [Path(path) for path in lines["journalDirectories"].split(",")]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bookie_id(self) -> str:
        """``host:port``, as it registers itself."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether there is a process; it may stand still."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id, ``None`` while there is no process."""
        return self._process.pid if self._process is not None and self.is_running else None

    def spawn(self) -> None:
        """Start the process; it registers itself when it serves."""
        command = self.build.command(
            "org.apache.bookkeeper.server.Main", "--conf", str(self.configuration), heap_mb=320, log_level="INFO"
        )
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; after SIGSTOP the process does stand still, to its last thread."""
        assert self._process is not None
        self._process.send_signal(number)
        if number is signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        """SIGTERM, and wait until it has flushed everything and ended.

        Not before the journal has its file: BookKeeper 4.18.0 that is told to end meanwhile never does. The interrupted journal
        thread calls ``System.exit``, which waits for the shutdown hook, which waits for the journal thread.
        """
        for _ in range(200):
            if self._has_journal():
                break
            time.sleep(0.05)
        self.signal(signal.SIGTERM)
        assert self._process is not None
        self._process.wait(_START_TIMEOUT_S)

    def _has_journal(self) -> bool:
        """Whether the newest file of each journal is there with its header, and what is reserved behind it."""
        newest = [
            max((folder / "current").glob("*.txn"), key=lambda path: int(path.stem, 16), default=None)
            for folder in self._journals
        ]
        return all(path is not None and path.stat().st_size > _JOURNAL_HEADER_BYTES for path in newest)

    def kill(self) -> None:
        """SIGKILL, whatever it is doing. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        """What it said last."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-30:])


class RealCluster:
    """Bookies of one version under one metadata URI, initialised by BookKeeper's own shell."""

    def __init__(
        self, build: Build, directory: Path, metadata_uri: str, settings: dict[str, str] | None = None
    ) -> None:
        self.build = build
        self.metadata_uri = metadata_uri
        self.bookies: list[RealBookie] = []
        self._directory = directory
        self._settings = settings or {}

    @classmethod
    def on(
        cls,
        zookeeper: AnyZooKeeper,
        build: Build,
        directory: Path,
        settings: dict[str, str] | None = None,
        *,
        manager: str = "hierarchical",
    ) -> Self:
        """A cluster with a root of its own, named after ``directory``, which keeps its bookies; ``with`` ends them."""
        uri = zookeeper.metadata_uri(f"/{directory.name}-{build.version}", manager=manager)
        return cls(build, directory, uri, settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, bookies: int) -> Self:
        """Format the metadata and start the bookies side by side."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self.add(bookies, wait=False)
        self.shell("initnewcluster")
        for bookie in self.bookies:
            bookie.spawn()
        self.wait_registered(*(bookie.bookie_id for bookie in self.bookies))
        return self

    def add(self, count: int = 1, *, wait: bool = True) -> list[RealBookie]:
        """More bookies; started and registered, unless ``wait`` is false: then not even started."""
        first = len(self.bookies)
        added = [
            RealBookie(self.build, self._directory / f"bookie-{first + i}", self.metadata_uri, self._settings)
            for i in range(count)
        ]
        self.bookies += added
        if wait:
            for bookie in added:
                bookie.spawn()
            self.wait_registered(*(bookie.bookie_id for bookie in added))
        return added

    def bookie(self, bookie_id: str) -> RealBookie:
        """The bookie of an id."""
        return next(bookie for bookie in self.bookies if bookie.bookie_id == bookie_id)

    def restart(self, bookie: RealBookie) -> None:
        """Start a killed bookie again on its data, and wait until it serves."""
        self.wait_unregistered(bookie.bookie_id)
        bookie.spawn()
        self.wait_registered(bookie.bookie_id)

    def wait_registered(self, *bookie_ids: str) -> None:
        """Wait until all of them are writable."""
        asyncio.run(self._wait(set(bookie_ids), present=True))

    def wait_unregistered(self, *bookie_ids: str) -> None:
        """Wait until the sessions of all of them have expired."""
        asyncio.run(self._wait(set(bookie_ids), present=False))

    async def _wait(self, bookie_ids: set[str], *, present: bool) -> None:
        store: MetadataStore = await open_store(self.metadata_uri, rng=Random(1))
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                while True:
                    writable = set((await store.bookies()).writable)
                    if bookie_ids <= writable if present else not bookie_ids & writable:
                        return
                    for bookie in self.bookies:
                        if present and bookie.bookie_id in bookie_ids and not bookie.is_running:
                            raise RuntimeError(f"bookie {bookie.bookie_id} has ended:\n{bookie.log_tail()}")
                    await asyncio.sleep(_POLL_S)
        finally:
            await store.aclose()

    def shell(self, *arguments: str, check: bool = True, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command of BookKeeper's own shell with the configuration of the first bookie."""
        configuration = str(self.bookies[0].configuration)
        done = subprocess.run(
            self.build.command(
                "org.apache.bookkeeper.bookie.BookieShell", "-conf", configuration, *arguments, log_level="INFO"
            ),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"bookkeeper shell {' '.join(arguments)}: {done.stdout}\n{done.stderr}")
        return done

    def close(self) -> None:
        """Kill them all."""
        for bookie in self.bookies:
            with contextlib.suppress(ProcessLookupError):
                bookie.kill()
