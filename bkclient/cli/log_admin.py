"""``bk log``: look at logs, check them, trim and delete them."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from bkclient.cli.access import connection_for
from bkclient.cli.completion import complete_log
from bkclient.cli.help import exit_codes
from bkclient.cli.log import NO_LOG, Compress, Name, Start, StartMs, parsed_start, run_with_logs
from bkclient.cli.options import ConfigFile, Json, JsonLines, Metadata, Settings, Thorough
from bkclient.cli.output import print_json, print_json_line, print_lines
from bkclient.cli.repair import report_as_json, report_as_lines
from bkclient.cli.running import Ending, confirm_deletion
from bkclient.log import LogLedgerReport, LogManifest, Logs, NoSuchLog

__all__ = ["add_to"]

LogNames = Annotated[
    list[str], typer.Argument(help="Logs.", metavar="LOG...", show_default=False, autocompletion=complete_log)
]


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group ``log``."""
    group.command("list", help=_LIST_HELP)(list_)
    group.command("info", help=_INFO_HELP)(info)
    group.command("check", help=_LOG_CHECK_HELP)(check)
    group.command("trim", help=_TRIM_HELP)(trim)
    group.command("compact", help=_COMPACT_HELP)(compact)
    group.command("cursors", help=_CURSORS_HELP)(cursors)
    group.command("delete", help=_LOG_DELETE_HELP)(delete)


_LIST_HELP: Final = f"""List the logs of the cluster, in alphabetical order.

\b
Examples:
  bk log list
  bk log list --json | jq -r .log

\b
{exit_codes(ok="listed")}
With --json, one object per line for each log: {{"log", "owner", "epoch", "partitions", "ledgers", "entries", "bytes",
"cursors"}}; entries and bytes are those of ledgers that have ended.
"""


def list_(
    *,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """List logs."""

    async def work(logs: Logs) -> None:
        async for name in logs.names():
            try:
                found = await logs.info(name)
                facts = _summary_as_json(name, found, await _ledgers_of(logs, name))
            except NoSuchLog:
                continue  # deleted since it was listed
            if as_json:
                print_json_line(facts)
            else:
                owner = f"owned by {found.owner}" if found.owner else "no owner"
                print_lines(f"{name}\t{facts['ledgers']} ledgers\t{facts['entries']} entries\t{owner}")

    run_with_logs(connection_for(metadata, config, settings), work, as_json=as_json)


async def _ledgers_of(logs: Logs, name: str) -> dict[str, LogManifest]:
    """The log, or its partitions, by name."""
    return {part: await logs.info(part) for part in await logs.partitions(name)}


def _summary_as_json(name: str, manifest: LogManifest, parts: dict[str, LogManifest]) -> dict[str, Any]:
    ledgers = [ledger for part in parts.values() for ledger in part.ledgers]
    return {
        "log": name,
        "owner": manifest.owner or None,
        "epoch": manifest.epoch,
        "partitions": manifest.partitions,
        "ledgers": len(ledgers),
        "entries": sum(ledger.entries for ledger in ledgers),
        "bytes": sum(ledger.length for ledger in ledgers),
        "cursors": len({cursor for part in parts.values() for cursor in part.cursors}),
    }


_INFO_HELP: Final = f"""Show what the metadata store holds about a log.

\b
Examples:
  bk log info orders
  bk log info orders --json

\b
{exit_codes(ok="shown", no=NO_LOG)}
With --json: {{"log", "logId", "epoch", "owner", "createdMs", "ledgers", "trimmed", "trimmedThrough", "compacted", "compacting",
"dropped", "cursors", "settings", "partitions"}}; entries and bytes of a ledger that may be written to are null, and each
partition is shown as a log. "compacted" is null or {{"ledgerId", "throughLedgerId", "throughEntryId", "messages"}}; "trimmed" and
"dropped" are ledgers that are still to be deleted.
"""


def info(
    name: Name,
    *,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show a log."""

    async def work(logs: Logs) -> None:
        found = await logs.info(name)
        parts = await _ledgers_of(logs, name) if found.partitions else {}
        if as_json:
            print_json(_info_as_json(name, found) | {"partitions": [_info_as_json(*part) for part in parts.items()]})
            return
        print_lines(f"log {name}: {f'owned by {found.owner}' if found.owner else 'no owner'}, epoch {found.epoch}")
        print_lines(*_info_as_lines(found))
        for part, manifest in parts.items():
            entries = sum(ledger.entries for ledger in manifest.ledgers)
            print_lines(f"  {part}: {len(manifest.ledgers)} ledgers, {entries} entries")
            print_lines(*(f"  {line}" for line in _rest_as_lines(manifest)))
        if found.cursors:
            print_lines(f"  cursors: {', '.join(found.cursors)}")

    run_with_logs(connection_for(metadata, config, settings), work, as_json=as_json)


def _info_as_lines(manifest: LogManifest) -> list[str]:
    lines = []
    for ledger in manifest.ledgers:
        end = "open" if ledger.end is None else f"{ledger.entries} entries, {ledger.length} bytes"
        lines.append(f"  ledger {ledger.ledger_id}: {end}")
    return lines + _rest_as_lines(manifest)


def _rest_as_lines(manifest: LogManifest) -> list[str]:
    """What there is beside the ledgers that hold messages."""
    lines, made = [], manifest.compacted
    if manifest.trimmed_through >= 0:
        lines.append(f"  trimmed through ledger {manifest.trimmed_through}")
    if made is not None:
        through = f"{made.through_ledger_id}:{made.through_entry_id}"
        lines.append(f"  compacted through {through}, to {made.messages} messages in ledger {made.ledger_id}")
    if manifest.compacting >= 0:
        lines.append(f"  being compacted, to ledger {manifest.compacting}")
    if left := [*manifest.trimmed, *manifest.dropped]:
        lines.append(f"  still to be deleted: ledgers {', '.join(map(str, left))}")
    return lines


def _info_as_json(name: str, manifest: LogManifest) -> dict[str, Any]:
    made = manifest.compacted
    return {
        "log": name,
        "logId": manifest.log_id,
        "epoch": manifest.epoch,
        "owner": manifest.owner or None,
        "createdMs": manifest.created_ms,
        "ledgers": [
            {
                "ledgerId": ledger.ledger_id,
                "epoch": ledger.epoch,
                "entries": None if ledger.end is None else ledger.entries,
                "bytes": None if ledger.end is None else ledger.length,
            }
            for ledger in manifest.ledgers
        ],
        "trimmed": list(manifest.trimmed),
        "trimmedThrough": manifest.trimmed_through,
        "compacted": None
        if made is None
        else {
            "ledgerId": made.ledger_id,
            "throughLedgerId": made.through_ledger_id,
            "throughEntryId": made.through_entry_id,
            "messages": made.messages,
        },
        "compacting": None if manifest.compacting < 0 else manifest.compacting,
        "dropped": list(manifest.dropped),
        "cursors": list(manifest.cursors),
        "settings": manifest.settings.as_dict(),
    }


_TRIM_HELP: Final = f"""Delete the ledgers of a log that its retention does not keep and no cursor needs.

\b
Examples:
  bk log trim orders
  bk log trim orders --before 7:0
  bk log trim clicks --before 7:0:3

\b
{exit_codes(ok="trimmed, or there was nothing to trim", no=NO_LOG)}
With --json: {{"log", "ledgers"}}.
"""


def trim(
    name: Name,
    *,
    before: Annotated[
        str | None,
        typer.Option(
            help="Delete what lies before this message, in its partition, instead; latest is after all messages.",
            metavar="ID",
            show_default=False,
        ),
    ] = None,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Trim a log."""

    async def work(logs: Logs) -> None:
        ledgers = await logs.trim(name, None if before is None else parsed_start([before])[0])
        if as_json:
            print_json({"log": name, "ledgers": ledgers})
        else:
            print_lines(f"log {name}: {len(ledgers)} ledgers deleted")

    run_with_logs(connection_for(metadata, config, settings), work, as_json=as_json)


_COMPACT_HELP: Final = f"""Compact a log by key: keep the newest message of each key, for "bk log read --compacted".

A message with an empty payload deletes its key, messages without a key are left out. The log itself is not changed.

\b
Examples:
  bk log compact settings
  bk log compact settings --compression zlib

\b
{exit_codes(ok="compacted, or there was nothing new", no=NO_LOG, refused="another compaction began meanwhile")}
With --json: {{"log", "messages"}}.
"""


def compact(
    name: Name,
    *,
    compression: Compress = "none",
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Compact a log."""

    async def work(logs: Logs) -> None:
        messages = await logs.compact(name, compression=compression)
        if as_json:
            print_json({"log": name, "messages": messages})
        else:
            print_lines(f"log {name}: {messages} messages are left")

    run_with_logs(connection_for(metadata, config, settings), work, as_json=as_json)


_CURSORS_HELP: Final = f"""List the cursors of a log, with what they have not acknowledged.

\b
Examples:
  bk log cursors orders
  bk log cursors orders --remove billing
  bk log cursors orders --reset billing --start 7:0
  bk log cursors orders --reset billing --start-ms 1764000000000

With --reset everything before --start or --start-ms counts as acknowledged and nothing from there on. A program that has the
cursor open is deposed; consumers of the group open it again.

\b
{exit_codes(ok="listed, reset or removed", no=NO_LOG, refused="there is no such cursor, or the message was trimmed")}
With --json, one object per line for each cursor: {{"cursor", "position", "holes", "backlogEntries"}}.
"""


def cursors(
    name: Name,
    *,
    remove: Annotated[
        str | None, typer.Option(help="Remove this cursor first.", metavar="CURSOR", show_default=False)
    ] = None,
    reset: Annotated[
        str | None,
        typer.Option(help="Reset this cursor first, to --start or --start-ms.", metavar="CURSOR", show_default=False),
    ] = None,
    start: Start = None,
    start_ms: StartMs = None,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """List the cursors of a log."""
    if bool(start) + (start_ms is not None) != (reset is not None):
        raise typer.BadParameter("takes one of --start and --start-ms, which are for it only", param_hint="--reset")

    async def work(logs: Logs) -> None:
        if remove is not None:
            await logs.remove_cursor(name, remove)
        if reset is not None:
            await logs.reset_cursor(name, reset, parsed_start(start) if start else None, start_ms=start_ms)
        for cursor in await logs.cursors(name):
            if as_json:
                facts = {"cursor": cursor.name, "position": str(cursor.position), "holes": cursor.holes}
                print_json_line(facts | {"backlogEntries": cursor.backlog_entries})
            else:
                print_lines(f"{cursor.name}\t{cursor.position}\t{cursor.holes} holes\t{cursor.backlog_entries} entries")

    run_with_logs(connection_for(metadata, config, settings), work, as_json=as_json)


_LOG_CHECK_HELP: Final = f"""Check that a log has all its ledgers, and that these have all their copies.

Each ledger has to exist, to be closed where the log says that it has ended, and to end with the same entry. Copies are checked
as by "bk ledger check". Nothing is changed, and an owner is not disturbed.

\b
Examples:
  bk log check orders
  bk log check orders --thorough --json

\b
{exit_codes(ok="nothing is wrong", no="something is wrong, or there is no such log")}
With --json, one object per line for each ledger: {{"log", "ledgerId", "sound", "open", "problems", "copiesChecked",
"fragments"}}; fragments are as of "bk ledger check".
"""


def check(
    name: Name,
    *,
    thorough: Thorough = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """Check a log."""
    connection = connection_for(metadata, config, settings)

    async def work(logs: Logs) -> None:
        examined = wrong = 0
        async for report in logs.check(name, thorough=thorough, config=connection.repair):
            examined += 1
            wrong += not report.is_sound
            if as_json:
                print_json_line(_check_as_json(report))
            else:
                print_lines(*_check_as_lines(report))
        if wrong:
            raise Ending(f"something is wrong with {wrong} of {examined} ledgers of log {name}", is_told=as_json)

    run_with_logs(connection, work, as_json=as_json)


def _check_as_json(report: LogLedgerReport) -> dict[str, Any]:
    found = {"copiesChecked": 0, "fragments": []} if report.copies is None else report_as_json(report.copies)
    own = {"sound": report.is_sound, "open": report.is_open, "problems": list(report.problems)}
    return {"log": report.log, "ledgerId": report.ledger_id} | found | own


def _check_as_lines(report: LogLedgerReport) -> list[str]:
    lines = [f"ledger {report.ledger_id}: not found"] if report.copies is None else report_as_lines(report.copies)
    if report.problems and report.copies is not None and report.copies.is_sound:
        lines = [f"ledger {report.ledger_id}: {report.copies.copies_checked} copies read"]
    return lines + [f"  {problem}" for problem in report.problems]


_LOG_DELETE_HELP: Final = f"""Delete logs with all their messages and cursors. A deletion cannot be undone.

An owner that publishes is deposed, and readers fail.

\b
Examples:
  bk log delete orders
  bk log delete orders events --force

\b
{exit_codes(ok="deleted", no="there is no such log (not an error with --force), or you answered no")}
With --json: {{"deleted": [names]}}; --force is required.
"""


def delete(
    names: LogNames,
    *,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Do not ask for confirmation, and ignore logs that do not exist.")
    ] = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Delete logs."""
    connection = connection_for(metadata, config, settings)
    if not force:
        confirm_deletion(f"log {', '.join(names)} of {connection.metadata_uri}", as_json=as_json)

    async def work(logs: Logs) -> None:
        deleted, missing = [], []
        for name in dict.fromkeys(names):
            try:
                await logs.delete(name)
            except NoSuchLog:
                missing.append(name)
            else:
                deleted.append(name)
        if missing and not force:
            raise Ending(f"there is no log {', '.join(missing)}")
        if as_json:
            print_json({"deleted": deleted})

    run_with_logs(connection, work, as_json=as_json)
