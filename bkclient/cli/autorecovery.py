"""``bk autorecovery``: running auto-recovery, and what of it is stored in the cluster."""

from __future__ import annotations

import socket
import time
from typing import Annotated, Any

import typer

from bkclient import BookKeeper
from bkclient.cli.access import connection_for
from bkclient.cli.help import (
    AUTORECOVERY_AUDIT_HELP,
    AUTORECOVERY_DISABLE_HELP,
    AUTORECOVERY_ENABLE_HELP,
    AUTORECOVERY_HELP,
    AUTORECOVERY_RUN_HELP,
    AUTORECOVERY_STATUS_HELP,
)
from bkclient.cli.options import ConfigFile, Json, JsonLines, Metadata, Settings
from bkclient.cli.output import print_json, print_json_line, print_lines
from bkclient.cli.running import EXIT_NO, run_with_client
from bkclient.repair import RepairAdmin
from bkclient.repair.service import AutoRecovery, RepairEvent

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(help=AUTORECOVERY_HELP, no_args_is_help=True, rich_markup_mode=None)
    group.command("run", help=AUTORECOVERY_RUN_HELP, short_help="Run an auditor and a worker.")(run)
    group.command("status", help=AUTORECOVERY_STATUS_HELP, short_help="Show which ledgers lack copies.")(status)
    group.command("enable", help=AUTORECOVERY_ENABLE_HELP, short_help="Let auto-recovery work.")(enable)
    group.command("disable", help=AUTORECOVERY_DISABLE_HELP, short_help="Have auto-recovery rest.")(disable)
    group.command("audit", help=AUTORECOVERY_AUDIT_HELP, short_help="Look for lost bookies at once.")(audit)
    app.add_typer(group, name="autorecovery")


def run(
    *,
    name: Annotated[
        str | None,
        typer.Option(help="What locks say about this program.  [default: the host's name]", show_default=False),
    ] = None,
    auditor: Annotated[bool, typer.Option("--auditor/--no-auditor", help="Find ledgers that lack copies.")] = True,
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Repair them.")] = True,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """Run auto-recovery."""
    if not auditor and not worker:
        raise typer.BadParameter("one of both has to run", param_hint="--no-auditor and --no-worker")
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
            print_lines(f"auditor: {facts['auditor'] or 'nobody'}; {'enabled' if facts['enabled'] else 'disabled'}")
            for mark in lacking:
                locked = "" if mark["lockedBy"] is None else f", {mark['lockedBy']} works on it"
                print_lines(f"ledger {mark['ledgerId']} lacks {', '.join(mark['missing']) or 'copies'}{locked}")
        if lacking:
            raise typer.Exit(EXIT_NO)

    run_with_client(connection, work, as_json=as_json)


def enable(
    *, metadata: Metadata = None, config: ConfigFile = None, settings: Settings = None, as_json: Json = False
) -> None:
    """Let auto-recovery work."""
    _switch(metadata, config, settings, is_on=True, as_json=as_json)


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
