"""What contenders work on: a ZooKeeper and bookies in processes of their own, ours or Apache's, and the Java client.

All of it is on this machine and talks over the loopback interface. Journals and ledgers of Apache's bookies are in memory, in
a ``tmpfs``: they write and force their journal as always, in groups with their default wait of 2 ms, only that no disk is
waited for. (``journalWriteData=false`` would leave out that work, and so flatter them.) Bookies of ours keep everything in
memory anyway.
"""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import typer

import bkclient
from benchmarks.java_client import FastBuild, JavaClient, build_to_run
from benchmarks.measuring import OURS, Result, machine, report
from bkclient import BookKeeper, ClientConfig, LedgerWriter
from bkclient.metadata.base import BookieAddress
from simbookie.processes import ProcessCluster
from tests.interop.real_bookie import RealCluster

__all__ = ["Bench", "Bookies", "Metadata", "a_bench", "a_writer", "command", "config_of", "connected"]

#: A busy machine is no failed bookie.
_PATIENT: Final = {"add_s": 60.0, "read_s": 60.0}
#: With an ack quorum of two the third bookie may fall behind without bound, and would refuse entries in the end.
_UNBOUNDED: Final = "10000000"
_MEMORY: Final = Path("/dev/shm")


class Metadata(Protocol):
    """What a client has to know of bookies: where their metadata is."""

    @property
    def uri(self) -> str:
        """The URI of the metadata service."""


class Bookies(Metadata, Protocol):
    """Bookies of one kind, with metadata of their own."""

    @property
    def addresses(self) -> list[BookieAddress]:
        """Of all that were started."""

    @property
    def pids(self) -> list[int]:
        """The processes that run."""

    def add(self) -> None:
        """Start one more."""

    def kill(self, address: str) -> None:
        """End the one that listens at ``host:port``, at once."""


class _OurBookies:
    def __init__(self, processes: ProcessCluster) -> None:
        self.uri = processes.metadata_uri
        self._processes = processes

    @property
    def addresses(self) -> list[BookieAddress]:
        return [bookie.address for bookie in self._processes.bookies]

    @property
    def pids(self) -> list[int]:
        return [bookie.pid for bookie in self._processes.bookies if bookie.pid is not None]

    def add(self) -> None:
        self._processes.add()

    def kill(self, address: str) -> None:
        next(each for each in self._processes.bookies if f"{each.address.host}:{each.address.port}" == address).kill()


class _ApacheBookies:
    def __init__(self, cluster: RealCluster) -> None:
        self.uri = cluster.metadata_uri
        self._cluster = cluster

    @property
    def addresses(self) -> list[BookieAddress]:
        return [BookieAddress("127.0.0.1", bookie.port) for bookie in self._cluster.bookies]

    @property
    def pids(self) -> list[int]:
        return [bookie.pid for bookie in self._cluster.bookies if bookie.pid is not None]

    def add(self) -> None:
        self._cluster.add()

    def kill(self, address: str) -> None:
        self._cluster.bookie(address).kill()


@dataclass
class Bench:
    """One run: what there is, and how much is to be measured. ``scale`` multiplies amounts."""

    rounds: int
    scale: float
    zookeeper: str
    folder: Path
    build: FastBuild | None
    java: JavaClient | None
    kinds: tuple[str, ...]
    protocols: tuple[int, ...]
    #: What was left out, and why.
    without: list[str] = field(default_factory=list)
    _roots: Iterator[int] = field(default_factory=itertools.count)

    def machine(self) -> dict[str, Any]:
        """Where this run is made, and how much of it there is."""
        version = None if self.build is None else self.build.version
        return machine(bookkeeper=version, rounds=str(self.rounds), scale=f"{self.scale:g}")

    def scaled(self, amount: int, least: int = 1) -> int:
        """``amount`` as much as this run measures."""
        return max(least, int(amount * self.scale))

    @contextmanager
    def bookies(self, kind: str, count: int = 3, options: Sequence[str] = ()) -> Iterator[Bookies]:
        """Fresh bookies; ``options`` are for ours."""
        root = f"bench-{next(self._roots)}"
        uri = f"zk+hierarchical://{self.zookeeper}/{root}"
        if kind == "ours":
            options = ("--capacity-mib", "8192", "--pending-adds-max", _UNBOUNDED, *options)
            with ProcessCluster(uri, count, options=options) as processes:
                yield _OurBookies(processes)
            return
        assert self.build is not None, "there are only bookies that can be started"
        directory = self.folder / root
        settings = {f"maxPending{what}RequestsPerThread": _UNBOUNDED for what in ("Add", "Read")}
        with RealCluster(self.build, directory, uri, settings) as cluster:
            try:
                cluster.start(count)
                yield _ApacheBookies(cluster)
            finally:
                cluster.close()
                shutil.rmtree(directory, ignore_errors=True)

    def java_call(self, do: str, bookies: Bookies, protocol: int, **request: Any) -> dict[str, Any]:
        """Have the Java client do it; that client stays for other requests."""
        self.java_begin(do, bookies, protocol, **request)
        assert self.java is not None, "only asked for if it is there"
        return self.java.finish()

    def java_begin(
        self, do: str, bookies: Bookies, protocol: int, properties: Mapping[str, str] | None = None, **request: Any
    ) -> None:
        """The same, but its answer is not waited for. ``properties`` are further ones of the client."""
        assert self.java is not None, "only asked for if it is there"
        every = {
            "metadataServiceUri": bookies.uri,
            "useV2WireProtocol": str(protocol == 2).lower(),
            "addEntryTimeoutSec": "60",
            "readEntryTimeoutSec": "60",
            **(properties or {}),
        }
        self.java.begin(do, client=every, **request)

    def warm(self, bookies: Bookies, protocol: int) -> None:
        """Let the JVM compile what appends and reads run; once for each set of bookies, as they have their own client."""
        if self.java is None:
            return
        entries = 60_000
        common: dict[str, Any] = {"entries": entries}
        ledger = self.java_call("append", bookies, protocol, size=100, window=1000, **common)["ledger"]
        self.java_call("read", bookies, protocol, ledger=ledger, piece=1000, **common)
        if protocol == 2:
            self.java_call("read", bookies, protocol, ledger=ledger, piece=1000, batch=True, **common)


def config_of(protocol: int, window: int = 1000, **groups: Any) -> ClientConfig:
    """Our client's configuration: defaults, but for the window, and for patience."""
    return ClientConfig().with_changes(
        connections={"protocol_version": protocol},
        limits={"max_in_flight_entries": window, "max_client_in_flight_entries": max(window, 20_000)},
        timeouts=_PATIENT,
        **groups,
    )


def connected(bookies: Metadata, protocol: int, window: int = 1000, **groups: Any) -> bkclient.PendingClient:
    """Our client of these bookies."""
    return bkclient.connect(bookies.uri, config=config_of(protocol, window, **groups))


async def a_writer(client: BookKeeper, write_quorum: int = 3) -> LedgerWriter:
    """Of a new ledger with three bookies, all of which store every entry; two acknowledge it."""
    return await client.create_ledger(ensemble_size=3, write_quorum_size=write_quorum, ack_quorum_size=2)


# Setting up ----------------------------------------------------------------------------------------------------------


@contextmanager
def _zookeeper(log_path: Path) -> Iterator[str]:
    """ZooKeeper itself where it can be started, in a process of its own; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "simbookie.cli", "zookeeper", "--json", "--port", str(port)]
    with log_path.open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        said = b""
        while not said.endswith(b"}\n"):
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"ZooKeeper did not start: {log_path.read_text(errors='replace')[-500:]}")
            said += line
        yield json.loads(said)["address"]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def a_bench(
    *, rounds: int, scale: float, kinds: Sequence[str], protocols: Sequence[int], java: bool
) -> Iterator[Bench]:
    """What a run needs, for as long as the block lasts."""
    build, reason = build_to_run() if java else (None, "without Apache BookKeeper's client and bookies, as asked for")
    without = [reason] if reason else []
    if "compiled" not in OURS:
        without.append("without the compiled core: 'make core' builds it")
    wanted = tuple(kind for kind in kinds if kind == "ours" or build is not None)
    if not _MEMORY.is_dir() and "apache" in wanted:
        without.append(f"without Apache BookKeeper's bookies: there is no {_MEMORY} for their journals")
        wanted = ("ours",)
    with ExitStack() as stack:
        place = _MEMORY if _MEMORY.is_dir() else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=place)))
        zookeeper = stack.enter_context(_zookeeper(folder / "zookeeper.log"))
        client = stack.enter_context(JavaClient(build, folder / "java.log")) if build is not None else None
        yield Bench(rounds, scale, zookeeper, folder, build, client, wanted, tuple(protocols), without)


Measure = Callable[[Bench], list[Result]]


def command(measure: Measure, about: str) -> None:
    """The command line of one subject."""

    def main(
        rounds: Annotated[int, typer.Option(help="rounds counted, after one that is not")] = 5,
        scale: Annotated[float, typer.Option(help="multiplies how much is done in a round")] = 1.0,
        bookies: Annotated[list[str] | None, typer.Option(help="ours, apache; may be given again")] = None,
        protocol: Annotated[list[int] | None, typer.Option(help="wire protocol versions; may be given again")] = None,
        java: Annotated[bool, typer.Option(help="use Apache BookKeeper's client and bookies")] = True,  # noqa: FBT002
        json_output: Annotated[bool, typer.Option("--json", help="one JSON object on stdout")] = False,  # noqa: FBT002
    ) -> None:
        with a_bench(
            rounds=rounds, scale=scale, kinds=bookies or ("ours", "apache"), protocols=protocol or (3, 2), java=java
        ) as bench:
            results = measure(bench)
            for each in bench.without:
                print(each, file=sys.stderr)
            report(results, bench.machine(), as_json=json_output)

    main.__doc__ = about
    typer.run(main)
