"""``bk ledger``: commands about ledgers as such. Those that carry entries are in :mod:`bkclient.cli.ledger_data`."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Final

import typer

from bkclient import BookKeeper
from bkclient.cli import ledger_data
from bkclient.cli.access import connection_for, password_from
from bkclient.cli.completion import complete_ledger
from bkclient.cli.help import NO_LEDGER, WRONG_PASSWORD, exit_codes
from bkclient.cli.options import (
    AckQuorum,
    AskPassword,
    ConfigFile,
    Custom,
    Digest,
    Ensemble,
    Json,
    JsonLines,
    LedgerId,
    Metadata,
    NewLedgerId,
    PasswordFile,
    Settings,
    WriteQuorum,
)
from bkclient.cli.output import print_json, print_json_line, print_lines
from bkclient.cli.running import Ending, confirm_deletion, run_with_client
from bkclient.errors import NoSuchLedger
from bkclient.ledger import LedgerMetadata, LedgerState

__all__ = ["add_to", "metadata_as_json"]

_LOOKUPS_AT_A_TIME: Final = 32


class State(StrEnum):
    """States of a ledger, as they are typed."""

    OPEN = "open"
    IN_RECOVERY = "in-recovery"
    CLOSED = "closed"


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group ``ledger``."""
    group.command("create", help=_CREATE_HELP)(create)
    group.command("info", help=_INFO_HELP)(info)
    group.command("list", help=_LIST_HELP)(list_)
    group.command("recover", help=_RECOVER_HELP)(recover)
    group.command("delete", help=_DELETE_HELP)(delete)


_CREATE_HELP: Final = f"""Create a ledger and print its id.

Only the creator of a ledger can write to it, so this one stays empty: use "bk ledger append --create" to create and fill one.
Without --close it stays open until a client recovers it.

\b
Examples:
  bk ledger create
  bk ledger create --ensemble 5 --write-quorum 3 --ack-quorum 2 --custom owner=me --close
  bk ledger create --ledger-id 4711 --digest mac --password-file secret.txt --json

\b
{exit_codes(ok="created", refused="the id is taken")}
With --json: what info prints.
"""


def create(
    *,
    ensemble: Ensemble = 3,
    write_quorum: WriteQuorum = 2,
    ack_quorum: AckQuorum = 2,
    digest: Digest = "crc32c",
    custom: Custom = None,
    ledger_id: NewLedgerId = None,
    close: Annotated[bool, typer.Option("--close", help="Close it immediately.")] = False,
    password_file: PasswordFile = None,
    ask_password: AskPassword = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Create a ledger."""
    new = ledger_data.new_ledger(ensemble, write_quorum, ack_quorum, digest, custom)
    connection = connection_for(metadata, config, settings)
    password = password_from(password_file, ask=ask_password, is_new=True)

    async def work(client: BookKeeper) -> None:
        writer = await client.create_ledger(**new, ledger_id=ledger_id, password=password)
        if close:
            await writer.close()
        if as_json:
            print_json(metadata_as_json(writer.metadata))
        else:
            print_lines(str(writer.ledger_id))

    run_with_client(connection, work, as_json=as_json)


_INFO_HELP: Final = f"""Show a ledger's metadata.

\b
Examples:
  bk ledger info 7
  bk ledger info 7 --json

\b
{exit_codes(ok="shown", no=NO_LEDGER)}
With --json: {{"ledgerId", "metadataFormatVersion", "state", "ensembleSize", "writeQuorumSize", "ackQuorumSize", "lastEntryId",
"length", "digestType", "hasPassword", "ctime", "customMetadata", "allEnsembles"}}, named as in BookKeeper; values of
customMetadata are base64, ensembles are listed by their first entry, ctime (ms since 1970) is null if it is not stored.
"""


def info(
    ledger: LedgerId,
    *,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show a ledger's metadata."""

    async def work(client: BookKeeper) -> None:
        found = await client.ledger_metadata(ledger)
        if as_json:
            print_json(metadata_as_json(found))
        else:
            print_lines(*_metadata_as_lines(found))

    run_with_client(connection_for(metadata, config, settings), work, as_json=as_json)


_LIST_HELP: Final = f"""List ledgers.

\b
Examples:
  bk ledger list
  bk ledger list --state open --state in-recovery --long
  bk ledger list --json | jq .ledgerId

\b
{exit_codes(ok="listed")}
With --json, one object per line for each ledger: {{"ledgerId"}}; with --state or --long also
{{"state", "lastEntryId", "length"}}.
"""


def list_(
    *,
    state: Annotated[
        list[State] | None, typer.Option(help="Only ledgers in this state; may be repeated.", show_default=False)
    ] = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="Show state, last entry and bytes too.")] = False,
    limit: Annotated[int | None, typer.Option(min=0, help="Stop after this many ledgers.", show_default=False)] = None,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: JsonLines = False,
) -> None:
    """List ledgers."""
    connection = connection_for(metadata, config, settings)

    async def work(client: BookKeeper) -> None:
        wanted = {_STATES[name] for name in state or State}
        count = 0
        async for ledger_id, found in _ledgers(client, is_looked_up=long or bool(state)):
            if count == limit:
                break
            if found is not None and found.state not in wanted:
                continue
            count += 1
            if as_json:
                print_json_line({"ledgerId": ledger_id} | ({} if found is None else _end_as_json(found)))
            elif found is None or not long:
                print_lines(str(ledger_id))
            else:
                print_lines(f"{ledger_id}\t{found.state.name}\t{found.last_entry_id}\t{found.length}")

    run_with_client(connection, work, as_json=as_json)


async def _ledgers(client: BookKeeper, *, is_looked_up: bool) -> AsyncIterator[tuple[int, LedgerMetadata | None]]:
    """All ledger ids, with their metadata if asked for; what is deleted meanwhile is left out."""
    window: list[int] = []

    async def looked_up() -> AsyncIterator[tuple[int, LedgerMetadata | None]]:
        found = await asyncio.gather(*(_metadata_or_none(client, ledger_id) for ledger_id in window))
        for ledger_id, metadata in zip(window, found, strict=True):
            if metadata is not None:
                yield ledger_id, metadata
        window.clear()

    async for ledger_id in client.list_ledgers():
        if not is_looked_up:
            yield ledger_id, None
            continue
        window.append(ledger_id)
        if len(window) == _LOOKUPS_AT_A_TIME:
            async for item in looked_up():
                yield item
    async for item in looked_up():
        yield item


async def _metadata_or_none(client: BookKeeper, ledger_id: int) -> LedgerMetadata | None:
    try:
        return await client.ledger_metadata(ledger_id)
    except NoSuchLedger:
        return None


_RECOVER_HELP: Final = f"""Take a ledger over from its writer and close it.

Acknowledged entries are kept; the writer, if it is still running, can append no more. A closed ledger is left as it is.
A recovery that fails changes no entries and can be repeated.

\b
Examples:
  bk ledger recover 7
  bk ledger recover 7 --json

\b
{exit_codes(ok="closed", no=NO_LEDGER, refused=WRONG_PASSWORD)}
With --json: {{"ledgerId", "state", "lastEntryId", "length", "wasClosed"}}.
"""


def recover(
    ledger: LedgerId,
    *,
    password_file: PasswordFile = None,
    ask_password: AskPassword = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Take a ledger over and close it."""
    connection = connection_for(metadata, config, settings)
    password = password_from(password_file, ask=ask_password)

    async def work(client: BookKeeper) -> None:
        was_closed = (await client.ledger_metadata(ledger)).is_closed
        async with await client.open_ledger(ledger, password=password, recover=True) as reader:
            end = reader.metadata
        if as_json:
            print_json({"ledgerId": ledger} | _end_as_json(end) | {"wasClosed": was_closed})
        else:
            done = "was closed before" if was_closed else "recovered and closed"
            print_lines(f"ledger {ledger} {done}: last entry {end.last_entry_id}, {end.length} bytes")

    run_with_client(connection, work, as_json=as_json)


_DELETE_HELP: Final = f"""Delete ledgers. Bookies drop their entries some time later.

No password is needed, and open ledgers are deleted too. A deletion cannot be undone.

\b
Examples:
  bk ledger delete 7
  bk ledger delete 7 8 9 --force

\b
{exit_codes(ok="deleted", no="there is no such ledger (not an error with --force), or you answered no")}
With --json: {{"deleted": [ids]}}; --force is required.
"""


def delete(
    ledgers: Annotated[
        list[int],
        typer.Argument(
            help="The ledgers.",
            metavar="LEDGER...",
            min=0,
            show_default=False,
            autocompletion=complete_ledger,
        ),
    ],
    *,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Do not ask for confirmation, and ignore ledgers that do not exist.")
    ] = False,
    metadata: Metadata = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Delete ledgers."""
    connection = connection_for(metadata, config, settings)
    if not force:
        confirm_deletion(f"ledger {', '.join(map(str, ledgers))} of {connection.metadata_uri}", as_json=as_json)

    async def work(client: BookKeeper) -> None:
        missing = []
        for ledger_id in ledgers:
            if not force and await _metadata_or_none(client, ledger_id) is None:
                missing.append(ledger_id)
                continue
            await client.delete_ledger(ledger_id)
        if missing:
            raise Ending(f"there is no ledger {', '.join(map(str, missing))}")
        if as_json:
            print_json({"deleted": ledgers})

    run_with_client(connection, work, as_json=as_json)


# Metadata for programs and people ----------------------------------------------------------------------------------

_STATES: Final = {
    State.OPEN: LedgerState.OPEN,
    State.IN_RECOVERY: LedgerState.IN_RECOVERY,
    State.CLOSED: LedgerState.CLOSED,
}


def metadata_as_json(metadata: LedgerMetadata) -> dict[str, Any]:
    """``metadata`` under BookKeeper's names for its parts; the password is not shown."""
    return {
        "ledgerId": metadata.ledger_id,
        "metadataFormatVersion": metadata.format_version,
        **_end_as_json(metadata),
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum_size,
        "ackQuorumSize": metadata.ack_quorum_size,
        "digestType": None if metadata.digest_type is None else metadata.digest_type.name,
        "hasPassword": metadata.has_password,
        "ctime": metadata.ctime_ms,
        "customMetadata": _base64_values(metadata.custom_metadata),
        "allEnsembles": {str(fragment.first_entry_id): list(fragment.ensemble) for fragment in metadata.fragments},
    }


def _end_as_json(metadata: LedgerMetadata) -> dict[str, Any]:
    return {"state": metadata.state.name, "lastEntryId": metadata.last_entry_id, "length": metadata.length}


def _base64_values(custom: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode("ascii") for key, value in custom.items()}


def _metadata_as_lines(metadata: LedgerMetadata) -> list[str]:
    digest = "none" if metadata.digest_type is None else metadata.digest_type.name
    lines = [
        f"ledger {metadata.ledger_id}: {metadata.state.name}",
        f"  ensemble {metadata.ensemble_size}, write quorum {metadata.write_quorum_size}, ack quorum {metadata.ack_quorum_size}",
        f"  digest {digest}, metadata format {metadata.format_version}",
    ]
    if metadata.is_closed:
        lines.append(f"  last entry {metadata.last_entry_id}, {metadata.length} bytes")
    lines += [f"  {key} = {value.decode(errors='backslashreplace')}" for key, value in metadata.custom_metadata.items()]
    ends = [str(later.first_entry_id - 1) for _, later in pairwise(metadata.fragments)]
    ends.append(str(metadata.last_entry_id) if metadata.is_closed else "...")
    for fragment, end in zip(metadata.fragments, ends, strict=True):
        lines.append(f"  entries {fragment.first_entry_id} to {end} on {', '.join(fragment.ensemble)}")
    return lines
