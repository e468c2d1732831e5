"""``bk-sim``: bookies and a metadata service for development, on one machine.

Exit codes of every command: 0 after an orderly stop (Ctrl-C or SIGTERM), 1 if it could not start or lost something it cannot do
without, 2 for wrong usage. Standard output holds what was asked for, one JSON object with ``--json``; logs and errors go to
standard error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bkclient.errors import BookKeeperError
from bkclient.metadata.uri import parse_metadata_uri
from simbookie.config import BookieConfig
from simbookie.java import JavaNotFoundError
from simbookie.processes import BookieProcess, BookieStartError, ProcessCluster
from simbookie.security_options import (
    AuthSecret,
    RequireCertificate,
    RequireTls,
    SecurityOptions,
    TlsCertificate,
    TlsKey,
    TlsKeyPassword,
    TlsTrust,
)
from simbookie.server import BookieServer, ServerConfig
from simbookie.serving import BookieOptions, run, serve_bookie, stop_signal, uvloop_is_installed
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorageConfig
from simbookie.zookeeper.choosing import USUAL_PORT, RunningZooKeeper, ZooKeeperKind, metadata_uri, running_zookeeper
from simbookie.zookeeper.java_server import ZooKeeperServer, ZooKeeperStartError

__all__ = ["app", "main"]

EXIT_FAILURE = 1
EXIT_USAGE = 2

_WHAT_SERVES: Final = {
    ZooKeeperKind.EMBEDDED: "an embedded ZooKeeper, in memory only,",
    ZooKeeperKind.JAVA: "ZooKeeper itself",
}

app = typer.Typer(
    name="bk-sim",
    help="Simulated BookKeeper bookies and a ZooKeeper to register them in, for development on one machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Uvloop = Annotated[
    bool | None,
    typer.Option("--uvloop/--no-uvloop", help="Run on uvloop.  [default: if it is installed]", show_default=False),
]
LogLevel = Annotated[str, typer.Option(help="What to log on standard error: debug, info, warning or error.")]
JournalSync = Annotated[float, typer.Option(min=0, help="How long one journal sync takes, in milliseconds.")]
JournalWait = Annotated[
    float, typer.Option(min=0, help="How long the first entry of a journal group waits for company, in milliseconds.")
]
Capacity = Annotated[int, typer.Option(min=1, help="MiB of entries one bookie takes; read-only above 95 % of it.")]
SessionTimeout = Annotated[
    float, typer.Option(min=0.1, help="Seconds until the metadata service misses a silent bookie.")
]
GarbageInterval = Annotated[float, typer.Option(min=0.1, help="Seconds between looks for deleted ledgers to remove.")]
MaxFrameSize = Annotated[
    int, typer.Option(min=1024, help="Largest frame accepted, in bytes; 5253120 for Pulsar with its default settings.")
]
ConnectionsMax = Annotated[int, typer.Option(min=1, help="Connections that one bookie serves at a time.")]
ConnectionsPerSource = Annotated[
    int | None,
    typer.Option(min=1, help="Connections of one source address.  [default: half of all]", show_default=False),
]
PendingAddsMax = Annotated[int, typer.Option(min=1, help="Adds of one bookie waiting for its journal at a time.")]

_BOOKIE_HELP = """Run one bookie and register it.

Everything is kept IN MEMORY: nothing is on disk, and when the process ends all its entries are gone, whatever it
acknowledged. The journal options give acknowledgements the timing of a real journal, not its durability.

\b
Examples:
  bk-sim bookie --metadata zk+hierarchical://127.0.0.1:2181/ledgers
  bk-sim bookie --metadata zk://127.0.0.1:2181/ledgers --port 3181 --id bookie-1 --journal-sync-ms 5
  bk-sim bookie --metadata zk://127.0.0.1:2181/ledgers --tls-certificate bookie.pem --tls-key bookie-key.pem --require-tls
  bk-sim bookie --metadata "zk://zk1:2181;zk2:2181/ledgers" --host 0.0.0.0 --advertised-host 10.0.0.7 --json

\b
Exit codes: 0 stopped by Ctrl-C or SIGTERM; 1 the port is taken or the metadata service fails; 2 wrong usage.
With --json: {"bookie_id", "host", "port", "metadata", "pid", "durable"}, once the bookie is registered.
"""

_ZOOKEEPER_HELP = """Run one ZooKeeper server on the loopback interface.

ZooKeeper itself, if there are Java 17 and PySpark, whose jars contain it; otherwise a small server of its protocol inside this
process, which keeps everything in memory and does all that BookKeeper needs.

\b
Examples:
  bk-sim zookeeper --port 2181
  bk-sim zookeeper --port 2181 --server embedded --json
  bk-sim zookeeper --port 2181 --server java --data-dir ./zookeeper

\b
Exit codes: 0 stopped by Ctrl-C or SIGTERM; 1 ZooKeeper did not start, or ended; 2 wrong usage.
With --json: {"address", "metadata", "server", "log", "pid"}, once it answers; "server" is "embedded" or "java", and "log" is null
for the embedded one.
"""

_CLUSTER_HELP = """Run a ZooKeeper and several bookie processes until Ctrl-C or SIGTERM, then stop them all.

Nothing has to be installed besides bkclient[sim]. The bookies keep everything in memory; see "bk-sim bookie --help". A bookie
that stops or dies is reported, and not started again. The last line of output sets BK_METADATA_URI for the shell it is pasted
into, so that "bk" finds the cluster.

\b
--zookeeper says what serves the metadata:
  embedded  a small server of ZooKeeper's protocol inside this process, in memory; there at once
  java      ZooKeeper itself; needs Java 17 and bkclient[spark], and takes a second or two more to start
  auto      java where both are installed, otherwise embedded

\b
Examples:
  bk-sim cluster --bookies 3
  bk-sim cluster --zookeeper embedded --zookeeper-port 12181
  bk-sim cluster --bookies 5 --journal-sync-ms 2 --log-dir ./logs --json
  bk-sim cluster --bookies 6 --racks 3
  bk-sim cluster --tls-certificate bookie.pem --tls-key bookie-key.pem --tls-trust ca.pem --require-client-certificate

\b
Exit codes: 0 stopped by Ctrl-C or SIGTERM; 1 something did not start, or ZooKeeper ended; 2 wrong usage.
With --json: {"metadata", "zookeeper", "server", "log_dir", "bookies": [{"bookie_id", "host", "port", "pid", "log"}]}, once all
serve, and with --racks "location_script"; "server" is "embedded" or "java".
"""


@app.command(help=_BOOKIE_HELP, short_help="Run one bookie, in memory.")
def bookie(
    *,
    metadata: Annotated[str, typer.Option(help="URI of the metadata service, zk://host:port/root for example.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 lets the system choose.")] = 0,
    bookie_id: Annotated[
        str | None, typer.Option("--id", help="Bookie id.  [default: host:port]", show_default=False)
    ] = None,
    advertised_host: Annotated[
        str | None, typer.Option(help="Host that clients are told.  [default: --host]", show_default=False)
    ] = None,
    journal_sync_ms: JournalSync = 0.0,
    journal_wait_ms: JournalWait = 0.0,
    capacity_mib: Capacity = 1024,
    max_frame_size: MaxFrameSize = 5_242_880,
    connections_max: ConnectionsMax = 10_000,
    connections_per_source_max: ConnectionsPerSource = None,
    pending_adds_max: PendingAddsMax = 10_000,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_key_password: TlsKeyPassword = None,
    tls_trust: TlsTrust = None,
    require_tls: RequireTls = False,
    require_client_certificate: RequireCertificate = False,
    auth_secret: AuthSecret = None,
    session_timeout_s: SessionTimeout = 10.0,
    garbage_interval_s: GarbageInterval = 60.0,
    exit_with_stdin: Annotated[bool, typer.Option("--exit-with-stdin", hidden=True)] = False,
    uvloop: Uvloop = None,
    log_level: LogLevel = "warning",
    as_json: Json = False,
) -> None:
    with _errors_end_the_program(as_json=as_json):
        _start_logging(log_level)
        use_uvloop = _choose_loop(uvloop)
        parse_metadata_uri(metadata)
        security = SecurityOptions(
            tls_certificate,
            tls_key,
            tls_key_password,
            tls_trust,
            auth_secret,
            require_tls,
            require_client_certificate,
        )
        options = BookieOptions(
            metadata_uri=metadata,
            host=host,
            port=port,
            bookie_id=bookie_id,
            advertised_host=advertised_host,
            session_timeout_s=session_timeout_s,
            garbage_interval_s=garbage_interval_s,
            exit_with_stdin=exit_with_stdin,
            storage=MemoryStorageConfig(
                journal=JournalConfig(group_wait_max_s=journal_wait_ms / 1000, sync_latency_s=journal_sync_ms / 1000),
                capacity_bytes=capacity_mib << 20,
            ),
            bookie=BookieConfig(pending_adds_max=pending_adds_max),
            server=ServerConfig(
                max_frame_size=max_frame_size,
                connections_max=connections_max,
                connections_per_source_max=connections_per_source_max,
                security=security.security(),
            ),
        )

        run(serve_bookie(options, partial(_announce_bookie, metadata, as_json=as_json)), uvloop=use_uvloop)


def _announce_bookie(metadata: str, server: BookieServer, *, as_json: bool) -> None:
    address = server.address
    facts = {
        "bookie_id": server.bookie.bookie_id,
        "host": address.host,
        "port": address.port,
        "metadata": metadata,
        "pid": os.getpid(),
        "durable": False,
    }
    text = f"bookie {server.bookie.bookie_id} serves on {address.host}:{address.port}, in memory only"
    _print(facts, text, as_json=as_json)


@app.command(help=_ZOOKEEPER_HELP, short_help="Run one ZooKeeper server.")
def zookeeper(
    *,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = USUAL_PORT,
    server: Annotated[
        ZooKeeperKind, typer.Option(help="ZooKeeper itself (java), or one of our own (embedded).")
    ] = ZooKeeperKind.AUTO,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where ZooKeeper itself keeps data.  [default: a temporary directory]", show_default=False),
    ] = None,
    log_level: LogLevel = "warning",
    as_json: Json = False,
) -> None:
    with _errors_end_the_program(as_json=as_json):
        _start_logging(log_level)
        if data_dir is not None:
            if server is ZooKeeperKind.EMBEDDED:
                raise typer.BadParameter("the embedded ZooKeeper does not keep data on disk", param_hint="--data-dir")
            server = ZooKeeperKind.JAVA
        asyncio.run(_run_zookeeper(server, port, data_dir, as_json=as_json))


async def _run_zookeeper(kind: ZooKeeperKind, port: int, data_dir: Path | None, *, as_json: bool) -> None:
    stop = stop_signal()
    async with running_zookeeper(kind, port, data_dir=data_dir, say=_say) as (served, server):
        facts = {
            "address": server.address,
            "metadata": metadata_uri(server),
            "server": served,
            "log": str(server.log_path) if isinstance(server, ZooKeeperServer) else None,
            "pid": os.getpid(),
        }
        text = f"{_WHAT_SERVES[served]} serves on {server.address}; metadata URI {metadata_uri(server)}"
        _print(facts, text, as_json=as_json)
        await _watch(server, [], stop)


@app.command(help=_CLUSTER_HELP, short_help="Run a ZooKeeper and several bookies.")
def cluster(
    *,
    bookies: Annotated[int, typer.Option(min=1, max=100, help="How many bookies.")] = 3,
    racks: Annotated[
        int,
        typer.Option(
            min=0,
            max=100,
            help="Deal the bookies to so many racks, and make a script that tells clients which is in which.  [default: none]",
            show_default=False,
        ),
    ] = 0,
    zookeeper_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of ZooKeeper.  [default: 2181, or any free one]", show_default=False),
    ] = None,
    zookeeper: Annotated[
        ZooKeeperKind, typer.Option(help="ZooKeeper itself (java), or one of our own (embedded).")
    ] = ZooKeeperKind.AUTO,
    log_dir: Annotated[
        Path | None, typer.Option(help="Where to put logs.  [default: a temporary directory]", show_default=False)
    ] = None,
    journal_sync_ms: JournalSync = 0.0,
    journal_wait_ms: JournalWait = 0.0,
    capacity_mib: Capacity = 1024,
    max_frame_size: MaxFrameSize = 5_242_880,
    connections_max: ConnectionsMax = 10_000,
    connections_per_source_max: ConnectionsPerSource = None,
    pending_adds_max: PendingAddsMax = 10_000,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_key_password: TlsKeyPassword = None,
    tls_trust: TlsTrust = None,
    require_tls: RequireTls = False,
    require_client_certificate: RequireCertificate = False,
    auth_secret: AuthSecret = None,
    session_timeout_s: SessionTimeout = 4.0,
    garbage_interval_s: GarbageInterval = 60.0,
    uvloop: Uvloop = None,
    log_level: LogLevel = "warning",
    as_json: Json = False,
) -> None:
    with _errors_end_the_program(as_json=as_json):
        _start_logging(log_level)
        use_uvloop = _choose_loop(uvloop)
        security = SecurityOptions(
            tls_certificate,
            tls_key,
            tls_key_password,
            tls_trust,
            auth_secret,
            require_tls,
            require_client_certificate,
        )
        security.security()  # wrong usage is found here, not by every bookie
        options = [
            *("--journal-sync-ms", str(journal_sync_ms), "--journal-wait-ms", str(journal_wait_ms)),
            *("--capacity-mib", str(capacity_mib), "--log-level", log_level),
            *("--max-frame-size", str(max_frame_size), "--connections-max", str(connections_max)),
            *("--pending-adds-max", str(pending_adds_max), "--garbage-interval-s", str(garbage_interval_s)),
            "--uvloop" if use_uvloop else "--no-uvloop",
            *security.arguments(),
            *(("--connections-per-source-max", str(connections_per_source_max)) if connections_per_source_max else ()),
        ]
        cluster = partial(
            ProcessCluster,
            bookies=bookies,
            racks=racks,
            log_dir=log_dir,
            session_timeout_s=session_timeout_s,
            options=options,
        )
        asyncio.run(_run_cluster(cluster, zookeeper, zookeeper_port, as_json=as_json))


async def _run_cluster(
    make: Callable[[str], ProcessCluster], kind: ZooKeeperKind, zookeeper_port: int | None, *, as_json: bool
) -> None:
    stop = stop_signal()
    async with running_zookeeper(kind, zookeeper_port, say=_say) as (served, server):
        uri = metadata_uri(server)
        async with make(uri) as processes:
            facts: dict[str, Any] = {
                "metadata": uri,
                "zookeeper": server.address,
                "server": served,
                "log_dir": str(processes.log_dir),
                "bookies": [
                    {
                        "bookie_id": process.bookie_id,
                        "host": process.address.host,
                        "port": process.address.port,
                        "pid": process.pid,
                        "log": str(process.log_path),
                    }
                    for process in processes.bookies
                ],
            }
            names = "".join(f"\n  {bookie_id}" for bookie_id in processes.bookie_ids)
            text = f"{_WHAT_SERVES[served]} serves on {server.address}\nbookies, in memory only:{names}"
            if processes.has_racks:
                facts["location_script"] = str(processes.location_script)
                text += f"\nclients learn racks by networkTopologyScriptFileName={processes.location_script}"
            text += f"\nCtrl-C stops all of them. For bk in another shell:\nexport BK_METADATA_URI={uri}"
            _print(facts, text, as_json=as_json)
            await _watch(server, processes.bookies, stop)
            await asyncio.to_thread(processes.terminate)


async def _watch(server: RunningZooKeeper, bookies: Sequence[BookieProcess], stop: asyncio.Event) -> None:
    """Wait for ``stop``, report bookies that end, and raise if ZooKeeper does."""
    alive = list(bookies)
    while not stop.is_set():
        try:
            async with asyncio.timeout(0.5):
                await stop.wait()
        except TimeoutError:
            for process in [process for process in alive if not process.is_running]:
                alive.remove(process)
                typer.echo(f"bookie {process.bookie_id} {process.ending}; see {process.log_path}", err=True)
            if not server.is_running and not stop.is_set():
                raise ZooKeeperStartError("ZooKeeper ended by itself") from None


def _say(sentence: str) -> None:
    typer.echo(sentence, err=True)


def _print(facts: dict[str, Any], text: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(facts) if as_json else text)
    sys.stdout.flush()


def _start_logging(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise typer.BadParameter(f"must be debug, info, warning or error, got {level!r}", param_hint="--log-level")
    logging.basicConfig(level=number, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")


def _choose_loop(wanted: bool | None) -> bool:  # noqa: FBT001  three-valued
    is_installed = uvloop_is_installed()
    if wanted and not is_installed:
        raise typer.BadParameter("uvloop is not installed: install bkclient[fast]", param_hint="--uvloop")
    return is_installed if wanted is None else wanted


@contextmanager
def _errors_end_the_program(*, as_json: bool) -> Iterator[None]:
    """Turn what can go wrong outside this program into a message and an exit code."""
    try:
        yield
    except (BookKeeperError, BookieStartError, ZooKeeperStartError, JavaNotFoundError, OSError) as error:
        if as_json:
            typer.echo(json.dumps({"error": {"type": type(error).__name__, "message": str(error)}}))
        typer.echo(f"error: {error}", err=True)
        usage = isinstance(error, BookKeeperError) and isinstance(error, ValueError)
        raise typer.Exit(EXIT_USAGE if usage else EXIT_FAILURE) from None


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
