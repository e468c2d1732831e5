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
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from bkclient.errors import BookKeeperError
from bkclient.metadata.uri import parse_metadata_uri
from simbookie.config import BookieConfig
from simbookie.java import JavaNotFoundError
from simbookie.processes import BookieStartError, ProcessCluster
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
from simbookie.zookeeper import ZooKeeperServer, ZooKeeperStartError, serve_zookeeper

__all__ = ["app", "main"]

EXIT_FAILURE = 1
EXIT_USAGE = 2

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

_ZOOKEEPER_HELP = """Run one ZooKeeper server on the loopback interface, from the jars of PySpark. Needs Java.

\b
Examples:
  bk-sim zookeeper --port 2181
  bk-sim zookeeper --port 2181 --data-dir ./zookeeper --json

\b
Exit codes: 0 stopped by Ctrl-C or SIGTERM; 1 no Java, or ZooKeeper did not start or ended; 2 wrong usage.
With --json: {"address", "metadata", "log", "pid"}, once it answers.
"""

_CLUSTER_HELP = """Run a ZooKeeper and several bookie processes until Ctrl-C or SIGTERM, then stop them all.

The bookies keep everything in memory; see "bk-sim bookie --help". A bookie that stops or dies is reported, and not started
again.

\b
Examples:
  bk-sim cluster --bookies 3
  bk-sim cluster --bookies 5 --journal-sync-ms 2 --log-dir ./logs --json
  bk-sim cluster --bookies 6 --racks 3
  bk-sim cluster --tls-certificate bookie.pem --tls-key bookie-key.pem --tls-trust ca.pem --require-client-certificate

\b
Exit codes: 0 stopped by Ctrl-C or SIGTERM; 1 something did not start, or ZooKeeper ended; 2 wrong usage.
With --json: {"metadata", "zookeeper", "log_dir", "bookies": [{"bookie_id", "host", "port", "pid", "log"}]}, once all serve;
and with --racks "location_script".
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
                max_frame_size=max_frame_size, connections_max=connections_max, security=security.security()
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
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 2181,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where to keep data.  [default: a temporary directory]", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    def announce(server: ZooKeeperServer) -> None:
        facts = {
            "address": server.address,
            "metadata": server.metadata_uri(),
            "log": str(server.log_path),
            "pid": os.getpid(),
        }
        _print(facts, f"ZooKeeper serves on {server.address}; metadata URI {server.metadata_uri()}", as_json=as_json)

    with _errors_end_the_program(as_json=as_json), _sigterm_as_interrupt():
        status = serve_zookeeper(port=port, data_dir=data_dir, on_ready=announce)
        if status != 0:
            raise ZooKeeperStartError(f"ZooKeeper ended by itself with status {status}")


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
        typer.Option(min=1, max=65535, help="Port of ZooKeeper.  [default: any free one]", show_default=False),
    ] = None,
    log_dir: Annotated[
        Path | None, typer.Option(help="Where to put logs.  [default: a temporary directory]", show_default=False)
    ] = None,
    journal_sync_ms: JournalSync = 0.0,
    journal_wait_ms: JournalWait = 0.0,
    capacity_mib: Capacity = 1024,
    max_frame_size: MaxFrameSize = 5_242_880,
    connections_max: ConnectionsMax = 10_000,
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
        ]
        asyncio.run(_run_cluster(bookies, racks, zookeeper_port, log_dir, session_timeout_s, options, as_json=as_json))


async def _run_cluster(
    bookies: int,
    racks: int,
    zookeeper_port: int | None,
    log_dir: Path | None,
    session_timeout_s: float,
    options: list[str],
    *,
    as_json: bool,
) -> None:
    stop = stop_signal()
    async with ZooKeeperServer(port=zookeeper_port) as server:
        uri = server.metadata_uri()
        processes = ProcessCluster(
            uri, bookies, log_dir=log_dir, session_timeout_s=session_timeout_s, options=options, racks=racks
        )
        async with processes:
            facts: dict[str, Any] = {
                "metadata": uri,
                "zookeeper": server.address,
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
            text = f"metadata URI {uri}\nbookies, in memory only:{names}"
            if racks:
                facts["location_script"] = str(processes.location_script)
                text += f"\nclients learn racks by networkTopologyScriptFileName={processes.location_script}"
            _print(facts, text, as_json=as_json)
            await _watch(server, processes, stop)
            await asyncio.to_thread(processes.terminate)


async def _watch(server: ZooKeeperServer, processes: ProcessCluster, stop: asyncio.Event) -> None:
    """Wait for ``stop``, report bookies that end, and raise if ZooKeeper does."""
    alive = list(processes.bookies)
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


def _print(facts: dict[str, Any], text: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(facts) if as_json else text)
    sys.stdout.flush()


def _start_logging(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise typer.BadParameter(f"{level!r} is none of debug, info, warning, error", param_hint="--log-level")
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


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, previous)


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
