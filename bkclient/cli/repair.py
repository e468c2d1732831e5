"""``bk ledger check`` and ``bk repair``: what a ledger lacks, and giving it that once and now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from bkclient import BookKeeper
from bkclient.cli.access import connection_for
from bkclient.cli.completion import complete_bookie
from bkclient.cli.help import exit_codes
from bkclient.cli.options import BookieIds, ConfigFile, Json, JsonLines, LedgerIds, Metadata, Settings, Thorough
from bkclient.cli.output import print_json, print_json_line, print_lines, print_note, watched
from bkclient.cli.running import EXIT_UNAVAILABLE, Ending, run_with_client
from bkclient.errors import NoSuchLedger
from bkclient.repair import RepairAdmin
from bkclient.repair.bookie_recovery import BookieRecoveryFailed, BookieRecoveryReport
from bkclient.repair.events import EventKind, RepairEvent
from bkclient.repair.findings import FragmentReport, LedgerReport

__all__ = ["add_to", "report_as_json", "report_as_lines"]


def add_to(group: typer.Typer) -> None:
    """Add the commands of the group ``repair``, and ``check``, which is in the group ``ledger``, to ``group``."""
    group.command("check", help=_CHECK_HELP)(check)
    group.command("ledger", help=_REPAIR_LEDGER_HELP)(repair_ledgers)
    group.command("bookie", help=_REPAIR_BOOKIE_HELP)(repair_bookies)
    group.command("decommission", help=_REPAIR_DECOMMISSION_HELP)(decommission)


_CHECK_HELP: Final = f"""Check that every entry of a ledger has all its copies.

Asks each bookie for the first and the last entry of each fragment that it should store, and for a sample of the others
(-c auditorLedgerVerificationPercentage=10, for example); --thorough reads and compares every copy of every entry. Nothing is
changed, and a writer is not disturbed. A fragment that is being written may lack copies that are still in flight.

\b
Examples:
  bk ledger check 7
  bk ledger check 7 8 --thorough
  bk ledger check --all --json

\b
{exit_codes(ok="nothing is wrong", no="something is wrong, or there is no such ledger")}
With --json, one object per line for each ledger: {{"ledgerId", "sound", "copiesChecked", "fragments": [{{"firstEntryId",
"lastEntryId", "closed", "bad": [{{"bookieIndex", "bookieId", "flaw", "code", "entries", "entryCount"}}], "conflicts",
"conflictCount"}}]}}; sound fragments are left out.
"""


def check(
    ledgers: LedgerIds = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="All ledgers.")] = False,
    thorough: Thorough = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """Check ledgers."""
    if all_ == bool(ledgers):
        raise typer.BadParameter("exactly one of LEDGER and --all is required", param_hint="--all")
    connection = connection_for(metadata, config, settings)

    async def work(client: BookKeeper) -> None:
        admin = RepairAdmin(client, connection.repair)

        async def checked(ledger_id: int) -> LedgerReport | None:
            try:
                return await admin.check_ledger(ledger_id, thorough=thorough)
            except NoSuchLedger:
                if not all_:
                    raise
                return None  # deleted since it was listed

        await _judge(client.list_ledgers() if all_ else _each(ledgers or []), checked, as_json=as_json)

    run_with_client(connection, work, as_json=as_json)


_REPAIR_LEDGER_HELP: Final = f"""Check ledgers, copy missing entries to other bookies, and check again.

Fragments that may still be written to are not touched: "bk ledger recover" closes a ledger.

\b
Examples:
  bk repair ledger 7
  bk repair ledger 7 8 --thorough --json

\b
{exit_codes(ok="all ledgers are sound", no="some are not, or there is no such ledger")}
With --json: as check prints, for the second check.
"""


def repair_ledgers(
    ledgers: LedgerIds,
    *,
    thorough: Thorough = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """Repair ledgers."""
    connection = connection_for(metadata, config, settings)

    async def work(client: BookKeeper) -> None:
        admin = RepairAdmin(client, connection.repair)

        async def repaired(ledger_id: int) -> LedgerReport | None:
            return await admin.repair_ledger(ledger_id, thorough=thorough, on_progress=_teller(as_json=as_json))

        await _judge(_each(ledgers or []), repaired, as_json=as_json)

    run_with_client(connection, work, as_json=as_json)


_REPAIR_BOOKIE_HELP: Final = f"""Copy everything that bookies store to other bookies, and update the metadata.

For bookies that will not come back. Ledgers that are being written to one of them are recovered and closed first, and their
writers fail. The command can be repeated to repair what is left.

\b
Examples:
  bk repair bookie 10.0.0.7:3181 --dry-run
  bk repair bookie 10.0.0.7:3181 10.0.0.8:3181 --skip-open
  bk repair bookie 10.0.0.7:3181 --ledger 12 --ledger 13 --json

\b
{exit_codes(ok="done, or, with --dry-run, shown", no="there is no such bookie")}
With --json: {{"ledgersExamined", "affected", "closed", "fragmentsReplaced", "entriesCopied", "bytesCopied", "skipped",
"failures", "unknown"}}; unknown lists bookies that the cluster does not know.
"""


def repair_bookies(
    bookies: BookieIds,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    ledger: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this ledger; may be repeated.", show_default=False)
    ] = None,
    skip_open: Annotated[bool, typer.Option("--skip-open", help="Skip open ledgers.")] = False,
    skip_unrecoverable: Annotated[
        bool, typer.Option("--skip-unrecoverable", help="Skip open ledgers that cannot be recovered.")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Ledgers to repair at a time.")] = 4,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Copy what bookies store to others."""
    connection = connection_for(metadata, config, settings)

    async def work(client: BookKeeper) -> None:
        admin = RepairAdmin(client, connection.repair)
        failed: BookieRecoveryFailed | None = None
        with _watched_repair(as_json=as_json) as tell:
            try:
                report = await admin.recover_bookie(
                    bookies,
                    ledger_ids=ledger,
                    dry_run=dry_run,
                    skip_open_ledgers=skip_open,
                    skip_unrecoverable=skip_unrecoverable,
                    concurrency=concurrency,
                    on_progress=tell,
                )
            except BookieRecoveryFailed as error:
                failed, report = error, error.report
        if as_json:
            print_json(_bookie_report_as_json(report))
        else:
            print_lines(
                f"{len(report.affected)} of {report.ledgers_examined} ledgers name the bookies: {len(report.closed)} closed, "
                f"{len(report.skipped)} skipped; {report.fragments_replaced} fragments, {report.entries_copied} entries copied"
            )
        if failed is not None:
            raise Ending(str(failed), code=EXIT_UNAVAILABLE, is_told=as_json)
        if report.unknown:
            raise Ending(
                f"there is no bookie {', '.join(report.unknown)}: no ledger names it, it is not registered and has no cookie; "
                "check the id",
                is_told=as_json,
            )

    run_with_client(connection, work, as_json=as_json)


_REPAIR_DECOMMISSION_HELP: Final = f"""Wait until no ledger needs a bookie that was shut down.

Auto-recovery copies the entries, after an audit that this command triggers; see "bk autorecovery run".

\b
Examples:
  bk repair decommission 10.0.0.7:3181
  bk repair decommission 10.0.0.7:3181 --timeout 3600 --json

\b
{exit_codes(ok="no ledger needs it", no="some still did at the timeout", refused="the bookie is running")}
With --json: {{"bookieId", "decommissioned"}}.
"""


def decommission(
    bookie: Annotated[
        str,
        typer.Argument(
            help="The bookie.",
            metavar="BOOKIE",
            show_default=False,
            autocompletion=complete_bookie,
        ),
    ],
    *,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait at most.", metavar="SECONDS", show_default=False)
    ] = None,
    poll: Annotated[float, typer.Option(min=0.1, help="Seconds between checks.", metavar="SECONDS")] = 30.0,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Wait until a bookie is not needed."""
    connection = connection_for(metadata, config, settings)

    async def work(client: BookKeeper) -> None:
        admin = RepairAdmin(client, connection.repair)
        is_done = True
        try:
            await admin.decommission(bookie, timeout_s=timeout, poll_s=poll, on_progress=_teller(as_json=as_json))
        except TimeoutError:
            is_done = False
        if as_json:
            print_json({"bookieId": bookie, "decommissioned": is_done})
        elif is_done:
            print_lines(f"no ledger needs {bookie}")
        if not is_done:
            raise Ending(f"ledgers still need {bookie}", is_told=as_json)

    run_with_client(connection, work, as_json=as_json)


# What was found ----------------------------------------------------------------------------------------------------


async def _each(ledger_ids: list[int]) -> AsyncIterator[int]:
    for ledger_id in ledger_ids:
        yield ledger_id


async def _judge(ledger_ids: AsyncIterator[int], report_on: Callable[[int], Any], *, as_json: bool) -> None:
    """Print a report on each ledger; the answer is no if something is wrong with one of them."""
    examined = wrong = 0
    async for ledger_id in ledger_ids:
        report: LedgerReport | None = await report_on(ledger_id)
        if report is None:
            continue
        examined += 1
        wrong += not report.is_sound
        if as_json:
            print_json_line(report_as_json(report))
        else:
            print_lines(*report_as_lines(report))
    if wrong:
        raise Ending(f"something is wrong with {wrong} of {examined} ledgers", is_told=as_json)


def report_as_json(report: LedgerReport) -> dict[str, Any]:
    """A report for programs."""
    return {
        "ledgerId": report.ledger_id,
        "sound": report.is_sound,
        "copiesChecked": report.copies_checked,
        "fragments": [_fragment_as_json(found) for found in report.fragments],
    }


def _fragment_as_json(found: FragmentReport) -> dict[str, Any]:
    return {
        "firstEntryId": found.fragment.first_entry_id,
        "lastEntryId": found.fragment.last_entry_id,
        "closed": found.fragment.is_final,
        "bad": [
            {
                "bookieIndex": bad.position,
                "bookieId": bad.bookie_id,
                "flaw": bad.flaw.value,
                "code": int(bad.code),
                "entries": list(bad.entry_ids),
                "entryCount": bad.entry_count,
            }
            for bad in found.bad
        ],
        "conflicts": list(found.conflicts),
        "conflictCount": found.conflict_count,
    }


def report_as_lines(report: LedgerReport) -> list[str]:
    """A report for people."""
    if report.is_sound:
        return [f"ledger {report.ledger_id}: nothing is wrong, {report.copies_checked} copies read"]
    lines = [f"ledger {report.ledger_id}: {report.copies_checked} copies read"]
    for found in report.fragments:
        fragment = found.fragment
        state = "" if fragment.is_final else ", still open"
        lines.append(f"  entries {fragment.first_entry_id} to {fragment.last_entry_id}{state}")
        for bad in found.bad:
            entries = f", entries {', '.join(map(str, bad.entry_ids))}" if bad.entry_ids else ""
            more = f" and {bad.entry_count - len(bad.entry_ids)} more" if bad.entry_count > len(bad.entry_ids) else ""
            lines.append(f"    {bad.bookie_id}: {bad.flaw.value}{entries}{more}")
        if found.conflict_count:
            lines.append(
                f"    copies disagree on {found.conflict_count} entries: {', '.join(map(str, found.conflicts))}"
            )
    return lines


def _bookie_report_as_json(report: BookieRecoveryReport) -> dict[str, Any]:
    return {
        "ledgersExamined": report.ledgers_examined,
        "affected": report.affected,
        "closed": report.closed,
        "fragmentsReplaced": report.fragments_replaced,
        "entriesCopied": report.entries_copied,
        "bytesCopied": report.bytes_copied,
        "skipped": {str(ledger_id): reason for ledger_id, reason in report.skipped.items()},
        "failures": {str(ledger_id): str(error) for ledger_id, error in report.failures.items()},
        "unknown": report.unknown,
    }


# What is being done ------------------------------------------------------------------------------------------------


def _teller(*, as_json: bool) -> Callable[[RepairEvent], None]:
    """Tells people each step that is worth a line, on standard error."""

    def tell(event: RepairEvent) -> None:
        if not as_json and event.kind not in {EventKind.EXAMINED, EventKind.COPIED}:
            print_note(_event_as_line(event))

    return tell


@contextmanager
def _watched_repair(*, as_json: bool) -> Iterator[Callable[[RepairEvent], None]]:
    """The same, with a progress bar of the entries copied."""
    told = _teller(as_json=as_json)
    copied = 0
    with watched("copying", None, is_printing=False) as move:

        def tell(event: RepairEvent) -> None:
            nonlocal copied
            if event.kind is EventKind.COPIED:
                copied += 1
                move(copied)
            told(event)

        yield tell


def _event_as_line(event: RepairEvent) -> str:
    where = "" if event.ledger_id < 0 else f"ledger {event.ledger_id}"
    if event.first_entry_id >= 0:
        where += f" from entry {event.first_entry_id}"
    return ": ".join(part for part in (where, event.kind.value, event.detail) if part)
