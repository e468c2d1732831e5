"""``bk autorecovery``: running auto-recovery, and what of it is stored in the cluster."""

from __future__ import annotations

import socket
import time
from typing import Annotated, Any, Final

import typer

from bkclient import BookKeeper
from bkclient.cli.access import connection_for
from bkclient.cli.help import exit_codes
from bkclient.cli.options import ConfigFile, Json, JsonLines, Metadata, Settings
from bkclient.cli.output import print_json, print_json_line, print_lines
from bkclient.cli.running import EXIT_NO, run_with_client
from bkclient.repair import RepairAdmin
from bkclient.repair.service import AutoRecovery, RepairEvent

__all__ = ["add_to"]


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group ``autorecovery``."""
    group.command("run", help=_AUTORECOVERY_RUN_HELP)(run)
    group.command("status", help=_AUTORECOVERY_STATUS_HELP)(status)
    group.command("enable", help=_AUTORECOVERY_ENABLE_HELP)(enable)
    group.command("disable", help=_AUTORECOVERY_DISABLE_HELP)(disable)
    group.command("audit", help=_AUTORECOVERY_AUDIT_HELP)(audit)


_AUTORECOVERY_RUN_HELP: Final = f"""Run an auditor and a worker until Ctrl-C or SIGTERM.

Any number may run, together with Apache BookKeeper's own: auditors elect one leader, and workers share the work.

\b
Examples:
  bk autorecovery run
  bk autorecovery run --config bk_server.conf --no-auditor --name worker-3
  bk autorecovery run --json

\b
{exit_codes(ok="ended by Ctrl-C or SIGTERM")}
With --json, one object per line for each event: {{"event", "ledgerId", "detail"}}; ledgerId may be null.
"""


def run(
    *,
    name: Annotated[
        str | None,
        typer.Option(help="Name of this program in locks.  [default: the host name]", show_default=False),
    ] = None,
    auditor: Annotated[bool, typer.Option("--auditor/--no-auditor", help="Find under-replicated ledgers.")] = True,
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Repair them.")] = True,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """Run auto-recovery."""
    if not auditor and not worker:
        raise typer.BadParameter("--no-auditor and --no-worker are mutually exclusive", param_hint="--no-worker")
    connection = connection_for(metadata, config, settings)

    def tell(event: RepairEvent) -> None:
        ledger_id = None if event.ledger_id < 0 else event.ledger_id
        if as_json:
            print_json_line({"event": event.kind.value, "ledgerId": ledger_id, "detail": event.detail})
        else:
            where = "" if ledger_id is None else f"ledger {ledger_id}"
            print_lines(": ".join(part for part in (where, event.kind.value, event.detail) if part))

    async def work(client: BookKeeper) -> None:
        service = AutoRecovery(
            client,
            connection.repair,
            name=name or socket.gethostname(),
            wall_clock_ms=_now_ms,
            with_auditor=auditor,
            with_worker=worker,
            on_event=tell,
        )
        await service.run()

    run_with_client(connection, work, as_json=as_json, interrupted=0, terminated=0)


_AUTORECOVERY_STATUS_HELP: Final = f"""Show the auditor, whether auto-recovery is enabled, and the under-replicated ledgers.

\b
Examples:
  bk autorecovery status
  bk autorecovery status --json

\b
{exit_codes(ok="no ledger is under-replicated", no="some are")}
With --json: {{"auditor", "enabled", "lostBookieRecoveryDelay", "underReplicated": [{{"ledgerId", "missing", "ctime",
"lockedBy"}}]}}.
"""


def status(
    *, metadata: Metadata = None, config: ConfigFile = None, settings: Settings = None, as_json: Json = False
) -> None:
    """Show what auto-recovery has to do."""
    connection = connection_for(metadata, config, settings)

    async def work(client: BookKeeper) -> None:
        admin = RepairAdmin(client, connection.repair)
        marks = admin.under_replication()
        lacking: list[dict[str, Any]] = [
            {
                "ledgerId": mark.ledger_id,
                "missing": list(mark.missing),
                "ctime": mark.marked_ms,
                "lockedBy": await marks.holder(mark.ledger_id),
            }
            async for mark in marks.marks()
        ]
        facts: dict[str, Any] = {
            "auditor": await admin.auditor(),
            "enabled": await marks.is_enabled(),
            "lostBookieRecoveryDelay": await marks.lost_bookie_recovery_delay_s(),
            "underReplicated": lacking,
        }
        if as_json:
            print_json(facts)
        else:
            print_lines(f"auditor: {facts['auditor'] or 'none'}; {'enabled' if facts['enabled'] else 'disabled'}")
            for mark in lacking:
                locked = "" if mark["lockedBy"] is None else f", {mark['lockedBy']} works on it"
                print_lines(f"ledger {mark['ledgerId']} lacks {', '.join(mark['missing']) or 'copies'}{locked}")
        if lacking:
            raise typer.Exit(EXIT_NO)

    run_with_client(connection, work, as_json=as_json)


_AUTORECOVERY_ENABLE_HELP: Final = f"""Enable auto-recovery.

\b
Examples:
  bk autorecovery enable

\b
{exit_codes(ok="enabled")}
With --json: {{"enabled"}}.
"""


def enable(
    *, metadata: Metadata = None, config: ConfigFile = None, settings: Settings = None, as_json: Json = False
) -> None:
    """Let auto-recovery work."""
    _switch(metadata, config, settings, is_on=True, as_json=as_json)


_AUTORECOVERY_DISABLE_HELP: Final = f"""Disable auto-recovery, for example during a rolling restart of bookies.

\b
Examples:
  bk autorecovery disable

\b
{exit_codes(ok="disabled")}
With --json: {{"enabled"}}.
"""


def disable(
    *, metadata: Metadata = None, config: ConfigFile = None, settings: Settings = None, as_json: Json = False
) -> None:
    """Have auto-recovery rest."""
    _switch(metadata, config, settings, is_on=False, as_json=as_json)


def _switch(metadata: Metadata, config: ConfigFile, settings: Settings, *, is_on: bool, as_json: bool) -> None:
    connection = connection_for(metadata, config, settings)

    async def work(client: BookKeeper) -> None:
        marks = RepairAdmin(client, connection.repair).under_replication()
        await (marks.enable() if is_on else marks.disable())
        if as_json:
            print_json({"enabled": await marks.is_enabled()})

    run_with_client(connection, work, as_json=as_json)


_AUTORECOVERY_AUDIT_HELP: Final = f"""Trigger an audit: look for lost bookies now, without waiting for their return.

\b
Examples:
  bk autorecovery audit

\b
{exit_codes(ok="triggered")}
With --json: {{"asked"}}.
"""


def audit(
    *, metadata: Metadata = None, config: ConfigFile = None, settings: Settings = None, as_json: Json = False
) -> None:
    """Look for lost bookies at once."""
    connection = connection_for(metadata, config, settings)

    async def work(client: BookKeeper) -> None:
        await RepairAdmin(client, connection.repair).trigger_audit()
        if as_json:
            print_json({"asked": True})

    run_with_client(connection, work, as_json=as_json)


def _now_ms() -> int:
    return int(time.time() * 1000)
