"""``bk-sim bookie``: one bookie, registered, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bkclient.config.properties import parse_properties
from bkclient.metadata.uri import parse_metadata_uri
from simbookie.cli.options import (
    Capacity,
    ConnectionsMax,
    ConnectionsPerSource,
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
from simbookie.conf_effects import EFFECTIVE_KEYS, FRAME_KEY, check_keys, unknown_keys
from simbookie.config import BookieConfig, limits_of_conf, state_of_conf
from simbookie.garbage import GarbageConfig
from simbookie.integrity import IntegrityConfig
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
from simbookie.serving import BookieOptions, OnReady, run, serve_bookie
from simbookie.storage.conf import StorageConf
from simbookie.storage.data_folder import FOLDER_KEYS, DataPlaces
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.kinds import StoreKind
from simbookie.storage.memory import MemoryStorageConfig
from simbookie.uncaught import end_on_defects_of_storage

__all__ = ["add_to"]

_log: Final = logging.getLogger(__name__)
_GARBAGE_INTERVAL_MS: Final = "60000"
#: What options are if they are not given; then the file counts.
_PENDING_ADDS: Final = 10_000
_FRAME_SIZE: Final = 5_242_880


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("bookie", help=_BOOKIE_HELP)(bookie)


_BOOKIE_HELP: Final = """Run one bookie and register it.

Without --data everything is kept IN MEMORY: nothing is on disk, and when the process ends all its entries are gone, whatever
it acknowledged. The journal options give acknowledgements the timing of a real journal, not its durability.

With --data DIR they are on disk, in the files of a bookie of BookKeeper: what was acknowledged is synced, and is there after any
end of the process. A folder is one bookie's for good, so it needs an --id or a --port of its own. Without --data they are in the
folders that a --conf names, if it names any.

\b
Examples:
  bk-sim bookie --metadata zk+hierarchical://127.0.0.1:2181/ledgers
  bk-sim bookie --metadata zk://127.0.0.1:2181/ledgers --port 3181 --id bookie-1 --journal-sync-ms 5
  bk-sim bookie --metadata zk://127.0.0.1:2181/ledgers --tls-certificate bookie.pem --tls-key bookie-key.pem --require-tls
  bk-sim bookie --metadata zk://127.0.0.1:2181/ledgers --port 3181 --data bookie-1
  bk-sim bookie --metadata zk://127.0.0.1:2181/ledgers --port 3181 --data bookie-1 --storage db
  bk-sim bookie --metadata zk://127.0.0.1:2181/ledgers --port 3181 --data bookie-1 --conf bk_server.conf
  bk-sim bookie --metadata zk://127.0.0.1:2181/ledgers --port 3181 --data bookie-1 --admin-port 8080
  bk-sim bookie --metadata "zk://zk1:2181;zk2:2181/ledgers" --host 0.0.0.0 --advertised-host 10.0.0.7 --json

\b
Exit codes: 0 stopped by Ctrl-C or SIGTERM; 1 the port is taken, the metadata service fails, the data cannot be used, or the
storage failed in a way that it does not know; 2 wrong usage.
With --json: {"bookie_id", "host", "port", "listening_port", "metadata", "pid", "durable", "admin_port"}, once the bookie is
registered; "port" is what clients are told.
"""


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
    advertised_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port that clients are told, of a relay for example.  [default: --port]",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder to keep everything in.  [default: in memory]", file_okay=False, show_default=False),
    ] = None,
    storage: Annotated[
        StoreKind | None,
        typer.Option(
            help="With --data: how entries are kept; db needs the extra rocksdb.  [default: as they are there, or sorted]",
            show_default=False,
        ),
    ] = None,
    journal_sync_ms: JournalSync = 0.0,
    journal_wait_ms: JournalWait = 0.0,
    capacity_mib: Capacity = 1024,
    max_frame_size: MaxFrameSize = _FRAME_SIZE,
    connections_max: ConnectionsMax = 10_000,
    connections_per_source_max: ConnectionsPerSource = None,
    pending_adds_max: PendingAddsMax = _PENDING_ADDS,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_key_password: TlsKeyPassword = None,
    tls_trust: TlsTrust = None,
    require_tls: RequireTls = False,
    require_client_certificate: RequireCertificate = False,
    auth_secret: AuthSecret = None,
    session_timeout_s: SessionTimeout = 10.0,
    garbage_interval_s: Annotated[
        float | None,
        typer.Option(min=0.1, help="Seconds between runs of the garbage collector.  [default: 60]", show_default=False),
    ] = None,
    conf: Annotated[
        Path | None,
        typer.Option(
            help="With data on disk: a bk_server.conf, whose keys of journal, logs, garbage collection and disks count. "
            "Without --data its folders count too.",
            show_default=False,
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    admin_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Serve operators by HTTP on this port, 0 for any: metrics, state, garbage collection.  [default: not served]",
            show_default=False,
        ),
    ] = None,
    admin_host: Annotated[str, typer.Option(help="Address for that. It asks for no password.")] = "127.0.0.1",
    exit_with_stdin: Annotated[bool, typer.Option("--exit-with-stdin", hidden=True)] = False,
    uvloop: Uvloop = None,
    log_level: LogLevel = "warning",
    as_json: Json = False,
) -> None:
    """Run one bookie."""
    with errors_end_the_program(as_json=as_json):
        start_logging(log_level)
        use_uvloop = choose_loop(uvloop)
        check_admin(admin_port is not None, "--admin-port")
        parse_metadata_uri(metadata)
        known = {} if conf is None else parse_properties(conf.read_text(encoding="utf-8"))
        places = _places(data, known)
        if places is not None and port == 0 and bookie_id is None:
            raise typer.BadParameter(
                "requires --id or --port, so that the bookie is the same one next time", param_hint="--data"
            )
        if places is not None and journal_sync_ms != 0:
            raise typer.BadParameter(
                "does not go with --data: there the disk decides how long a sync takes", param_hint="--journal-sync-ms"
            )
        if conf is not None and places is None:
            raise typer.BadParameter(
                "requires --data, or folders in the file: in memory there is nothing to configure", param_hint="--conf"
            )
        if storage is not None and places is None:
            raise typer.BadParameter("requires --data: in memory there is one kind", param_hint="--storage")
        keys = EFFECTIVE_KEYS - FOLDER_KEYS if data is not None else EFFECTIVE_KEYS
        storage_conf = _storage_conf(known, keys, conf, journal_wait_ms, garbage_interval_s)
        if storage is not None:
            storage_conf = replace(storage_conf, kind=storage)
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
            advertised_port=advertised_port,
            session_timeout_s=session_timeout_s,
            garbage=GarbageConfig(
                storage_conf.compaction.gc_interval_s,
                storage_conf.overreplicated_interval_s,
                storage_conf.lookups_per_s,
            ),
            exit_with_stdin=exit_with_stdin,
            storage=MemoryStorageConfig(
                journal=JournalConfig(group_wait_max_s=journal_wait_ms / 1000, sync_latency_s=journal_sync_ms / 1000),
                capacity_bytes=capacity_mib << 20,
            ),
            data=places,
            conf=storage_conf,
            admin_port=admin_port,
            admin_host=admin_host,
            properties=known,
            integrity=_integrity_conf(known),
            bookie=_bookie_conf(known, pending_adds_max, storage_conf.add_wait_max_s if places is not None else 0.0),
            server=ServerConfig(
                max_frame_size=_frame_size(known, max_frame_size),
                connections_max=connections_max,
                connections_per_source_max=connections_per_source_max,
                security=security.security(),
            ),
        )

        run(
            _serve(options, partial(_announce_bookie, metadata, places, admin_host, as_json=as_json)), uvloop=use_uvloop
        )


async def _serve(options: BookieOptions, on_ready: OnReady) -> None:
    end_on_defects_of_storage(asyncio.get_running_loop())
    await serve_bookie(options, on_ready)


def _places(data: Path | None, known: dict[str, str]) -> DataPlaces | None:
    """Where the data is: what the option says, or else what the file does."""
    if data is not None:
        return DataPlaces.inside(data)
    with _errors_of_conf():
        return DataPlaces.of_conf(known)


def _bookie_conf(known: dict[str, str], pending_adds_max: int, add_wait_max_s: float) -> BookieConfig:
    """What the file says of requests and of the bookie's state; ``pending_adds_max`` counts more if it was given."""
    with _errors_of_conf():
        check_keys(known)
        limits: dict[str, Any] = dict(limits_of_conf(known))
        if pending_adds_max != _PENDING_ADDS:
            limits["pending_adds_max"] = pending_adds_max
        return BookieConfig(add_wait_max_s=add_wait_max_s, **limits, **state_of_conf(known))


def _integrity_conf(known: dict[str, str]) -> IntegrityConfig:
    with _errors_of_conf():
        return IntegrityConfig.from_conf(known)


def _frame_size(known: dict[str, str], said: int) -> int:
    if FRAME_KEY not in known or said != _FRAME_SIZE:
        return said
    try:
        return int(known[FRAME_KEY])
    except ValueError:
        raise typer.BadParameter(
            f"{FRAME_KEY} must be a whole number, got {known[FRAME_KEY]!r}", param_hint="--conf"
        ) from None


def _storage_conf(
    known: dict[str, str],
    keys: frozenset[str],
    path: Path | None,
    journal_wait_ms: float,
    garbage_interval_s: float | None,
) -> StorageConf:
    """What the file says, and what options say instead; ``keys`` have an effect."""
    without = sorted(key for key in known if key not in keys)
    if without:
        _log.warning("%s: %d keys have no effect here: %s", path, len(without), ", ".join(without))
    unknown = unknown_keys(known)
    if unknown:
        _log.warning("%s: no bookie has the keys %s: are they misspelt?", path, ", ".join(unknown))
    with _errors_of_conf(hint="--conf" if path is not None else None):
        conf = StorageConf.from_conf({"gcWaitTime": _GARBAGE_INTERVAL_MS, "journalMaxGroupWaitMSec": "0", **known})
        if journal_wait_ms > 0:
            conf = replace(conf, journal=replace(conf.journal, group_wait_max_s=journal_wait_ms / 1000))
        if garbage_interval_s is not None:
            conf = replace(conf, compaction=replace(conf.compaction, gc_interval_s=garbage_interval_s))
        return conf


@contextmanager
def _errors_of_conf(*, hint: str | None = "--conf") -> Iterator[None]:
    """Have a ``ValueError`` end the command as a wrong option does."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def _announce_bookie(
    metadata: str,
    data: DataPlaces | None,
    admin_host: str,
    server: BookieServer,
    admin_port: int | None,
    *,
    as_json: bool,
) -> None:
    address = server.address
    facts = {
        "bookie_id": server.bookie.bookie_id,
        "host": address.host,
        "port": address.port,
        "listening_port": server.port,
        "metadata": metadata,
        "pid": os.getpid(),
        "durable": data is not None,
        "admin_port": admin_port,
    }
    where = f"with its data in {data}" if data is not None else "in memory only"
    text = f"bookie {server.bookie.bookie_id} serves on {address.host}:{address.port}, {where}"
    if admin_port is not None:
        text += f"\noperators are served on http://{admin_host}:{admin_port}/metrics and /api/v1"
    announce(facts, text, as_json=as_json)
