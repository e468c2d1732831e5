"""The folders of one bookie, which change hands between a bookie of BookKeeper's and one of ours: same id, port and cookie."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from typer.testing import CliRunner

from simbookie.cli.app import app
from simbookie.processes import BookieProcess
from tests.interop.builds import Build
from tests.interop.real_bookie import RealCluster
from tests.zookeepers import AnyZooKeeper

__all__ = ["DISKS", "DiskLayout", "Place", "inspected"]

_PACKAGE: Final = "org.apache.bookkeeper.bookie"
_STORES: Final[Mapping[str, Mapping[str, str]]] = {
    "Db": {
        "ledgerStorageClass": f"{_PACKAGE}.storage.ldb.DbLedgerStorage",
        "dbStorage_writeCacheMaxSizeMb": "2",
        "dbStorage_readAheadCacheMaxSizeMb": "8",
        "dbStorage_rocksDB_blockCacheSize": "16777216",
    },
    "Sorted": {
        "ledgerStorageClass": f"{_PACKAGE}.SortedLedgerStorage",
        "skipListSizeLimit": "300000",
        "skipListArenaChunkSize": "8192",
        "skipListArenaMaxAllocSize": "4096",
    },
    "Interleaved": {"ledgerStorageClass": f"{_PACKAGE}.InterleavedLedgerStorage"},
}
_LOGS: Final[Mapping[str, Mapping[str, str]]] = {
    "shared logs": {},
    "a log per ledger": {"entryLogPerLedgerEnabled": "true", "maximumNumberOfActiveEntryLogs": "100"},
    "direct logs": {
        "dbStorage_directIOEntryLogger": "true",
        "dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB": "8",
        "dbStorage_directIOEntryLoggerTotalReadBufferSizeMB": "8",
        "dbStorage_directIOEntryLoggerReadBufferSizeMB": "1",
    },
}
#: Logs are rotated, checkpoints come often, and garbage is not collected: ledgers here are in no metadata.
_SETTINGS: Final = {
    "logSizeLimit": "400000",
    "flushInterval": "1000",
    "gcWaitTime": "3600000",
    "zkTimeout": "3000",
    "journalMaxSizeMB": "1",
    "journalMaxBackups": "2",
}
_END: Final = re.compile(r"^=== end of command (-?\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DiskLayout:
    """A kind of storage, a kind of entry logs, and how many folders there are of journals and of ledgers."""

    store: str
    logs: str
    folders: int = 1

    @property
    def name(self) -> str:
        """As the page has it."""
        return f"{self.store}, {self.logs}" + (f", {self.folders} folders of each kind" if self.folders > 1 else "")

    @property
    def has_index_files(self) -> bool:
        """Whether each ledger has an index file, and not a place in a database."""
        return self.store != "Db"

    @property
    def settings(self) -> dict[str, str]:
        """Keys of ``bk_server.conf``, which both kinds of bookies are told."""
        return {**_SETTINGS, **_STORES[self.store], **_LOGS[self.logs]}


DISKS: Final = (
    DiskLayout("Db", "shared logs"),
    DiskLayout("Db", "a log per ledger"),
    DiskLayout("Db", "direct logs"),
    DiskLayout("Db", "shared logs", folders=2),
    DiskLayout("Sorted", "shared logs"),
    DiskLayout("Sorted", "a log per ledger"),
    DiskLayout("Sorted", "shared logs", folders=2),
    DiskLayout("Interleaved", "shared logs"),
    DiskLayout("Interleaved", "a log per ledger"),
    DiskLayout("Interleaved", "shared logs", folders=2),
)


@dataclass
class Place:
    """One bookie's folders, and which of the two bookies runs on them. Blocking throughout."""

    layout: DiskLayout
    cluster: RealCluster
    ours: BookieProcess
    journals: list[Path]
    ledgers: list[Path]
    _copies: Path
    _taken: list[Path] = field(default_factory=list)

    @classmethod
    def new(
        cls,
        layout: DiskLayout,
        zookeeper: AnyZooKeeper,
        build: Build,
        directory: Path,
        settings: Mapping[str, str] | None = None,
    ) -> Place:
        """Nothing runs yet, and nothing is there. ``settings`` are keys that count more than those of the layout."""
        root = directory / "bookie-0"
        journals, ledgers = (
            [root / (kind if number == 0 else f"{kind}-{number + 1}") for number in range(layout.folders)]
            for kind in ("journal", "ledgers")
        )
        folders = {"journalDirectories": journals, "ledgerDirectories": ledgers}
        named = {key: ",".join(map(str, paths)) for key, paths in folders.items()}
        cluster = RealCluster.on(zookeeper, build, directory, {**layout.settings, **(settings or {}), **named})
        (bookie,) = cluster.add(1, wait=False)
        options = ["--conf", str(bookie.configuration), "--session-timeout-s", "3"]
        if layout.folders == 1:
            options += ["--data", str(root)]
        ours = BookieProcess(
            "ours",
            cluster.metadata_uri,
            directory,
            port=bookie.port,
            bookie_id=bookie.bookie_id,
            options=options,
            stop_timeout_s=60.0,
        )
        return cls(layout, cluster, ours, journals, ledgers, directory / "copies")

    @property
    def port(self) -> int:
        """Where either of them listens."""
        return self.cluster.bookies[0].port

    def start_ours(self) -> None:
        """Have our bookie serve what is there."""
        if any(self.journals[0].parent.glob("journal*/current")):  # otherwise there is no cluster yet
            self._wait_until_nobody_is_registered()
        self.ours.start()

    def start_real(self) -> None:
        """Have BookKeeper's bookie serve what is there."""
        self.cluster.restart(self.cluster.bookies[0])

    def tell_of_shared_logs(self, *, instead: bool) -> None:
        """Have who starts next write shared logs ``instead`` of those of the layout, or these again."""
        own = _LOGS[self.layout.logs]
        self.configure(dict.fromkeys(own) if instead else own)

    def configure(self, settings: Mapping[str, str | None]) -> None:
        """Change the configuration of who starts next; keys without a value go."""
        configuration = self.cluster.bookies[0].configuration
        lines = configuration.read_text().splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in settings]
        added = [f"{key}={value}" for key, value in settings.items() if value is not None]
        configuration.write_text("".join(f"{line}\n" for line in [*kept, *added]))

    def end(self) -> None:
        """Stop in order the one that runs."""
        if self.ours.is_running:
            assert self.ours.terminate() == 0
        else:
            self.cluster.bookies[0].end()

    def kill(self) -> None:
        """SIGKILL the one that runs."""
        self.ours.kill()
        self.cluster.bookies[0].kill()

    def contents(self) -> dict[Path, bytes]:
        """Every file, byte for byte."""
        folders = (*self.journals, *self.ledgers)
        return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}

    def copy(self) -> Path:
        """Copy the folders as they are while nothing runs."""
        target = self._copies / str(len(self._taken))
        self._taken.append(target)
        for folder in (*self.journals, *self.ledgers):
            shutil.copytree(folder, target / folder.name)
        return target

    def put_back(self, copy: Path) -> None:
        """Put a copy in the place of what is there."""
        for folder in (*self.journals, *self.ledgers):
            shutil.rmtree(folder)
            shutil.copytree(copy / folder.name, folder)

    def shell(self, *commands: Sequence[str], check: bool = True) -> list[str]:
        """What BookKeeper's own shell says to each command, in one JVM.

        All have to succeed; without ``check`` one that does not is answered with its exit code alone.
        """
        configuration = str(self.cluster.bookies[0].configuration)
        done = subprocess.run(
            self.cluster.build.command("peer.Shells", configuration, log_level="INFO"),
            input="".join(json.dumps(list(command)) + "\n" for command in commands),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=True,
        )
        parts = _END.split(done.stdout)
        answers, codes = parts[0:-1:2], parts[1::2]
        for command, answer, code in zip(commands, answers, codes, strict=True):
            assert code == "0" or not check, f"bookkeeper shell {' '.join(command)}: {answer}"
        return [answer if code == "0" else f"exit code {code}" for answer, code in zip(answers, codes, strict=True)]

    def close(self) -> None:
        """Kill what runs."""
        with suppress(ProcessLookupError):
            self.kill()

    def _wait_until_nobody_is_registered(self) -> None:
        if self.cluster.bookies[0].is_running or self.ours.is_running:
            raise RuntimeError("a bookie runs on these folders")
        self.cluster.wait_unregistered(self.cluster.bookies[0].bookie_id)


def inspected(*words: str) -> dict[str, Any]:
    """What ``bk-sim inspect`` says in JSON."""
    done = CliRunner().invoke(app, ["inspect", *words, "--json"])
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    return told
