"""``bk-sim zookeeper`` and ``bk-sim cluster``: a metadata service, and bookies in processes of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from simbookie.cli.options import (
    Capacity,
    ConnectionsMax,
    ConnectionsPerSource,
    GarbageInterval,
    JournalSync,
    JournalWait,
    Json,
    LogLevel,
    MaxFrameSize,
    PendingAddsMax,
    SessionTimeout,
    Uvloop,
    announce,
    check_admin,
    choose_loop,
    errors_end_the_program,
    start_logging,
)
from simbookie.development.control import relays_for
from simbookie.development.running import Controls
from simbookie.processes import BookieProcess, ProcessCluster
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
from simbookie.serving import stop_signal
from simbookie.zookeeper.choosing import USUAL_PORT, RunningZooKeeper, ZooKeeperKind, metadata_uri, running_zookeeper
from simbookie.zookeeper.java_server import ZooKeeperServer, ZooKeeperStartError

__all__ = ["add_to"]

_WHAT_SERVES: Final = {
    ZooKeeperKind.EMBEDDED: "an embedded ZooKeeper, in memory only,",
    ZooKeeperKind.JAVA: "ZooKeeper itself",
}


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("zookeeper", help=_ZOOKEEPER_HELP)(zookeeper)
    app.command("cluster", help=_CLUSTER_HELP)(cluster)


_ZOOKEEPER_HELP: Final = """Run one ZooKeeper server on the loopback interface.

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

_CLUSTER_HELP: Final = """Run a ZooKeeper and several bookie processes until Ctrl-C or SIGTERM, then stop them all.

Nothing has to be installed besides bkclient[sim]. The bookies keep everything in memory; see "bk-sim bookie --help". A bookie
that stops or dies is reported, and not started again. The last line of output sets BK_METADATA_URI for the shell it is pasted
into, so that "bk" finds the cluster.

\b
--zookeeper says what serves the metadata:
  embedded  a small server of ZooKeeper's protocol inside this process, in memory; there at once
  java      ZooKeeper itself; needs Java 17 and bkclient[spark], and takes a second or two more to start
  auto      java where both are installed, otherwise embedded

--ui serves a page to look at the cluster and to break it, --commands takes the same actions on standard input, one a line:
crash, restart, pause, resume, partition and heal a bookie, add one, list, help. With either, bookies keep their data in files, in
the folder of the logs, so that one that crashed comes back with what it had; and connections pass through a relay, which can cut
them.

\b
Examples:
  bk-sim cluster --bookies 3
  bk-sim cluster --zookeeper embedded --zookeeper-port 12181
  bk-sim cluster --bookies 5 --journal-sync-ms 2 --log-dir ./logs --json
  bk-sim cluster --bookies 6 --racks 3
  bk-sim cluster --admin
  bk-sim cluster --watch
  bk-sim cluster --ui
  bk-sim cluster --commands
  bk-sim cluster --tls-certificate bookie.pem --tls-key bookie-key.pem --tls-trust ca.pem --require-client-certificate

\b
Exit codes: 0 stopped by Ctrl-C or SIGTERM; 1 something did not start, or ZooKeeper ended; 2 wrong usage.
With --json: {"metadata", "zookeeper", "server", "log_dir", "bookies": [{"bookie_id", "host", "port", "pid", "log",
"admin_port"}]}, once all serve, with --racks "location_script", and with --ui "page"; "server" is "embedded" or "java".
"""


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
    """Run one ZooKeeper server."""
    with errors_end_the_program(as_json=as_json):
        start_logging(log_level)
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
        announce(facts, text, as_json=as_json)
        await _watch(server, [], stop)


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
    admin: Annotated[
        bool,
        typer.Option("--admin", help="Have each bookie serve operators by HTTP, on a port of its own on loopback."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show what the bookies do, live, on standard error; implies --admin.")
    ] = False,
    ui: Annotated[
        bool, typer.Option("--ui", help="Serve a page to look at the cluster and to break it; implies --admin.")
    ] = False,
    ui_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 lets the system choose.")] = 8090,
    ui_host: Annotated[
        str, typer.Option(help="Address of the page. Beyond loopback its address has a secret token.")
    ] = "127.0.0.1",
    commands: Annotated[
        bool, typer.Option("--commands", help="Take commands on standard input; --ui does in a terminal.")
    ] = False,
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
    """Run a ZooKeeper and several bookies."""
    with errors_end_the_program(as_json=as_json):
        start_logging(log_level)
        use_uvloop = choose_loop(uvloop)
        check_admin(admin or watch or ui, "--watch" if watch else "--ui" if ui else "--admin")
        if watch and as_json:
            raise typer.BadParameter("is for people: it does not go with --json", param_hint="--watch")
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
            *(("--admin-port", "0") if admin or watch or ui else ()),
            *security.arguments(),
            *(("--connections-per-source-max", str(connections_per_source_max)) if connections_per_source_max else ()),
        ]
        is_controlled = ui or commands
        relays, relayed = relays_for()
        cluster = partial(
            ProcessCluster,
            bookies=bookies,
            racks=racks,
            log_dir=log_dir,
            session_timeout_s=session_timeout_s,
            options=options,
            options_of=relayed if is_controlled else lambda _index: (),
            keeps_data=is_controlled,
        )
        controls = (
            Controls(relays, commands=commands, page=(ui_host, ui_port) if ui else None) if is_controlled else None
        )
        asyncio.run(_run_cluster(cluster, zookeeper, zookeeper_port, controls, shows=watch, as_json=as_json))


async def _run_cluster(
    make: Callable[[str], ProcessCluster],
    kind: ZooKeeperKind,
    zookeeper_port: int | None,
    controls: Controls | None,
    *,
    shows: bool,
    as_json: bool,
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
                        "admin_port": process.admin_port,
                    }
                    for process in processes.bookies
                ],
            }
            names = "".join(f"\n  {bookie_id}" for bookie_id in processes.bookie_ids)
            how = "bookies, in memory only:" if controls is None else "bookies, with data until the end:"
            text = f"{_WHAT_SERVES[served]} serves on {server.address}\n{how}{names}"
            if processes.has_racks:
                facts["location_script"] = str(processes.location_script)
                text += f"\nclients learn racks by networkTopologyScriptFileName={processes.location_script}"
            async with AsyncExitStack() as running:
                if controls is not None:
                    page = await running.enter_async_context(controls.running(processes, _say))
                    if page is not None:
                        facts["page"] = page
                        text += f"\nlook at it, and break it: {page}"
                text += f"\nCtrl-C stops all of them. For bk in another shell:\nexport BK_METADATA_URI={uri}"
                announce(facts, text, as_json=as_json)
                if shows:
                    from simbookie.cluster_view import ClusterView  # noqa: PLC0415  optional

                    with ClusterView() as view:
                        await _watch(server, processes.bookies, stop, view.update)
                else:
                    await _watch(server, processes.bookies, stop)
            await asyncio.to_thread(processes.terminate)


async def _watch(
    server: RunningZooKeeper,
    bookies: Sequence[BookieProcess],
    stop: asyncio.Event,
    show: Callable[[Sequence[BookieProcess]], Awaitable[None]] | None = None,
) -> None:
    """Wait for ``stop``, report bookies that end, and raise if ZooKeeper does; ``show`` all of them now and then."""
    told: set[BookieProcess] = set()
    while not stop.is_set():
        if show is not None:
            await show(bookies)
        try:
            async with asyncio.timeout(0.5):
                await stop.wait()
        except TimeoutError:
            told = {process for process in told if not process.is_running}
            for process in [process for process in bookies if not process.is_running and process not in told]:
                told.add(process)
                typer.echo(f"bookie {process.bookie_id} {process.ending}; see {process.log_path}", err=True)
            if not server.is_running and not stop.is_set():
                raise ZooKeeperStartError("ZooKeeper ended by itself") from None


def _say(sentence: str) -> None:
    typer.echo(sentence, err=True)
