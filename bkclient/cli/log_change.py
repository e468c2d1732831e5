"""``bk log``: change the settings of logs, and give up ledgers of theirs that are lost."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from bkclient.cli.access import connection_for
from bkclient.cli.help import exit_codes
from bkclient.cli.log import NO_LOG, Name, run_with_logs
from bkclient.cli.options import ConfigFile, Json, LedgerId, Metadata, Settings
from bkclient.cli.output import print_json, print_lines
from bkclient.cli.running import confirm_deletion
from bkclient.log import Logs, LogSettings

__all__ = ["add_to"]

_NONE: Final = "none"


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group ``log``."""
    group.command("set", help=_SET_HELP)(set_)
    group.command("drop-ledger", help=_DROP_HELP)(drop_ledger)


_SET_HELP: Final = f"""Change settings of a log; without any, show them.

An owner follows them from its next ledger on, trimming at once. What is not named stays. "none" ends a retention.

\b
Examples:
  bk log set orders
  bk log set orders --retention-s 86400 --retention-bytes none
  bk log set clicks --max-entries 10000 --json

\b
{exit_codes(ok="changed, or shown", no=NO_LOG, refused="it is a partition of a log")}
With --json: {{"log", "settings"}}.
"""


def _number(help_: str, low: float) -> Any:
    return typer.Option(min=low, help=help_, show_default=False)


def _retention(help_: str, unit: str) -> Any:
    return typer.Option(help=f'{help_} "none" for no limit.', metavar=unit, show_default=False)


def set_(
    name: Name,
    *,
    ensemble: Annotated[
        int | None, typer.Option("--ensemble", "-e", min=1, help="Bookies of a new ledger.", show_default=False)
    ] = None,
    write_quorum: Annotated[
        int | None,
        typer.Option("--write-quorum", "-w", min=1, help="Bookies that store each entry.", show_default=False),
    ] = None,
    ack_quorum: Annotated[
        int | None,
        typer.Option("--ack-quorum", "-a", min=1, help="Bookies that must acknowledge it.", show_default=False),
    ] = None,
    max_entries: Annotated[int | None, _number("Entries after which a ledger is replaced.", 1)] = None,
    max_bytes: Annotated[int | None, _number("Bytes after which a ledger is replaced.", 1)] = None,
    min_age_s: Annotated[float | None, _number("But not before this age, in seconds.", 0)] = None,
    max_age_s: Annotated[float | None, _number("Replace it in any case at this age.", 0.001)] = None,
    retention_s: Annotated[str | None, _retention("Keep messages for so many seconds;", "SECONDS")] = None,
    retention_bytes: Annotated[str | None, _retention("Keep the last so many bytes;", "BYTES")] = None,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Change settings of a log."""
    wanted: dict[str, Any] = {
        "ensemble_size": ensemble,
        "write_quorum_size": write_quorum,
        "ack_quorum_size": ack_quorum,
        "max_ledger_entries": max_entries,
        "max_ledger_bytes": max_bytes,
        "min_ledger_s": min_age_s,
        "max_ledger_s": max_age_s,
    }
    changes = {key: value for key, value in wanted.items() if value is not None}
    if retention_s is not None:
        changes["retention_s"] = _parsed(retention_s, float, "--retention-s")
    if retention_bytes is not None:
        changes["retention_bytes"] = _parsed(retention_bytes, int, "--retention-bytes")

    async def work(logs: Logs) -> None:
        found: LogSettings = (
            await logs.change_settings(name, **changes) if changes else (await logs.info(name)).settings
        )
        if as_json:
            print_json({"log": name, "settings": found.as_dict()})
        else:
            print_lines(*(f"{key}\t{_NONE if value is None else value}" for key, value in found.as_dict().items()))

    run_with_logs(connection_for(metadata, config, settings), work, as_json=as_json)


def _parsed(text: str, kind: type[float | int], option: str) -> float | None:
    if text == _NONE:
        return None
    try:
        return kind(text)
    except ValueError:
        raise typer.BadParameter(f'must be a number or "{_NONE}", got {text!r}', param_hint=option) from None


_DROP_HELP: Final = f"""Give up a ledger of a log whose metadata are lost, with all of its messages.

The log cannot be read beyond such a ledger, nor taken over if it is the last one. First try to restore its metadata from a
backup of the metadata service. The program that owned the log last must have ended: nobody can fence the ledger any more. Of a
log with partitions name the partition.

\b
Examples:
  bk log check orders
  bk log drop-ledger orders 17
  bk log drop-ledger clicks-partition-3 42 --force

\b
{exit_codes(ok="given up", no=f"{NO_LOG}, or you answered no", refused="the log has no such ledger, or it is not lost")}
With --json: {{"log", "ledgerId", "entries", "bytes"}}; entries and bytes are null where they are not known. --force is required.
"""


def drop_ledger(
    name: Name,
    ledger: LedgerId,
    *,
    force: Annotated[bool, typer.Option("--force", "-f", help="Do not ask for confirmation.")] = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Give up a ledger that is lost."""
    connection = connection_for(metadata, config, settings)
    if not force:
        confirm_deletion(f"ledger {ledger} of log {name} of {connection.metadata_uri}", as_json=as_json)

    async def work(logs: Logs) -> None:
        lost = await logs.drop_lost_ledger(name, ledger)
        entries, size = (None, None) if lost.end is None else (lost.entries, lost.length)
        if as_json:
            print_json({"log": name, "ledgerId": ledger, "entries": entries, "bytes": size})
        else:
            what = "what it held is not known" if entries is None else f"with {entries} entries, {size} bytes"
            print_lines(f"log {name}: ledger {ledger} was given up, {what}")

    run_with_logs(connection, work, as_json=as_json)
