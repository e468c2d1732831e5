"""``bk-sim export`` and ``bk-sim import``: what a simulated disk holds, as a folder, and a folder on a simulated disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import typer

from bkclient.config.properties import parse_properties
from simbookie.cli.options import EXIT_FAILURE, Json, errors_end_the_program
from simbookie.crashes.exporting import export_run
from simbookie.crashes.kinds import STORE_KINDS
from simbookie.storage.base import CrashMode, StorageError
from simbookie.storage.conf import StorageConf
from simbookie.storage.data_folder import DataPlaces
from simbookie.storage.transfer import import_places
from simbookie.storage.volume import storage_in
from simbookie.world.loop import VirtualTimeLoop

__all__ = ["add_to"]

_MIB: Final = 1 << 20

_EXPORT_HELP: Final = """Write what the simulated disk of a killed bookie holds into a folder.

The bookie is that of a run of "bk-sim crashes": clients write, fence, delete and read, and the process is killed, or the power
fails, before a step; the seed decides all of it, --step at which. The folder has the files of a bookie of BookKeeper and a
bk_server.conf that names its folders, so BookKeeper's own shell reads it, "bk-sim inspect" does, and "bk-sim import" starts
from it, with --conf if there are several of a kind.

\b
Examples:
  bk-sim export run-7 --seed 7
  bk-sim export run-7 --seed 7 --step 40 --crash power-loss --storage interleaved --json
  bk-sim export run-8 --seed 8 --storage db-folders --journals 2

\b
Exit codes: 0 written; 1 the folder is not empty, or cannot be written; 2 wrong usage.
With --json: {"folder", "step", "files"}; "step" is the one that the bookie was killed before, null if it came to its end.
"""

_IMPORT_HELP: Final = """Start a bookie in virtual time on a copy of a folder, and tell what it would serve.

The folder is only read.

The folder is that of "bk-sim bookie --data", of a bookie of BookKeeper with one journal and one ledger directory in it, named
"journal" and "ledgers", or one that was exported. Of a bookie with others, or several, --conf has a bk_server.conf that names
them, and how it is configured. The journals are replayed, and every entry read, on simulated disks in memory, one for each.

\b
Examples:
  bk-sim import bookie-1
  bk-sim import run-7 --json
  bk-sim import --conf run-8/bk_server.conf

\b
Exit codes: 0 everything could be read; 1 the bookie would not start, or an entry cannot be read; 2 wrong usage.
With --json: {"folder", "ledgers": [{"ledger", "entries", "last", "lac", "fenced", "unreadable"}]}.
"""


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("export", help=_EXPORT_HELP)(export)
    app.command("import", help=_IMPORT_HELP)(import_folder)


def export(
    folder: Annotated[Path, typer.Argument(help="Where to write; made, or empty.", show_default=False)],
    *,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is done to the bookie.")] = 0,
    step: Annotated[
        int | None, typer.Option(min=1, help="Kill it before this step.  [default: at the end]", show_default=False)
    ] = None,
    crash: Annotated[str, typer.Option(help="process, or power-loss.")] = "process",
    storage: Annotated[str, typer.Option(help=f"The ledger store: {', '.join(STORE_KINDS)}.")] = "sorted",
    journals: Annotated[int, typer.Option(min=1, max=8, help="How many journals the bookie has.")] = 1,
    as_json: Json = False,
) -> None:
    """Write a disk."""
    modes = {mode.name.lower().replace("_", "-"): mode for mode in CrashMode}
    if storage not in STORE_KINDS:
        raise typer.BadParameter(f"must be {' or '.join(STORE_KINDS)}, got {storage!r}", param_hint="--storage")
    if crash not in modes:
        raise typer.BadParameter(f"must be {' or '.join(modes)}, got {crash!r}", param_hint="--crash")
    with errors_end_the_program(as_json=as_json):
        reached, files = export_run(folder, storage, seed, step, modes[crash], journals=journals)
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "step": reached, "files": files}))
        return
    ending = f"was killed before {reached}" if reached is not None else "came to its end, and was killed"
    typer.echo(f"the bookie {ending}; {len(files)} files are in {folder}")


@dataclass(frozen=True, slots=True)
class _Served:
    """What a bookie would serve of a ledger."""

    ledger: int
    entries: int
    last: int
    lac: int
    fenced: bool
    unreadable: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def import_folder(
    folder: Annotated[
        Path | None, typer.Argument(help="A bookie's folder.", exists=True, file_okay=False, show_default=False)
    ] = None,
    *,
    conf: Annotated[
        Path | None,
        typer.Option(
            help="A bk_server.conf that names the folders, if no folder is given, and configures the bookie.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    memory_mib: Annotated[
        int, typer.Option(min=1, help="MiB that the copy may take, divided among its folders.")
    ] = 1024,
    as_json: Json = False,
) -> None:
    """Read a folder."""
    places, storage_conf = _subject_of(folder, conf)
    with errors_end_the_program(as_json=as_json), _virtual_time() as loop:
        ledgers = loop.run_until_complete(_served(places, storage_conf, memory_mib * _MIB))
    if as_json:
        typer.echo(json.dumps({"folder": str(places), "ledgers": [each.as_json() for each in ledgers]}))
    else:
        for each in ledgers:
            state = "fenced" if each.fenced else "open"
            typer.echo(f"ledger {each.ledger}: {each.entries} entries up to {each.last}, LAC {each.lac}, {state}")
            for entry_id in each.unreadable:
                typer.echo(f"  entry {entry_id} cannot be read")
        typer.echo(f"{len(ledgers)} ledgers, {sum(each.entries for each in ledgers)} entries")
    if any(each.unreadable for each in ledgers):
        raise typer.Exit(EXIT_FAILURE)


def _subject_of(folder: Path | None, conf: Path | None) -> tuple[DataPlaces, StorageConf]:
    """Where the data is, and how the bookie is configured."""
    try:
        known = {} if conf is None else parse_properties(conf.read_text(encoding="utf-8"))
        places = DataPlaces.inside(folder) if folder is not None else DataPlaces.of_conf(known)
        storage_conf = StorageConf.from_conf(known)
        if folder is not None and conf is None:
            _refuse_several(folder / "bk_server.conf")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--conf") from None
    if places is None:
        raise typer.BadParameter("name a folder, or a --conf that names the folders of a bookie", param_hint="FOLDER")
    return places, storage_conf


def _refuse_several(conf: Path) -> None:
    """Of a folder that was exported with several of a kind only a part would be read."""
    if not conf.is_file():
        return
    places = DataPlaces.of_conf(parse_properties(conf.read_text(encoding="utf-8")))
    if places is not None and max(len(places.journals), len(places.ledgers)) > 1:
        raise typer.BadParameter(f"there are several of a kind in it: use --conf {conf}", param_hint="FOLDER")


@contextmanager
def _virtual_time() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    try:
        yield loop
    finally:
        loop.close()


async def _served(places: DataPlaces, conf: StorageConf, capacity_bytes: int) -> list[_Served]:
    # twice the bytes: what is replayed is flushed
    rng = Random(0)  # noqa: S311  nothing of it is to be told
    journals, ledgers, indexes = await import_places(places, rng=rng, capacity_bytes=capacity_bytes)
    storage = storage_in(journals, ledgers, conf, clock_ms=lambda: 0, rng=rng, indexes=indexes)
    opened = asyncio.Event()
    storage.open(opened.set, lambda _is_full: None)
    await opened.wait()
    found = []
    for ledger_id in storage.ledger_ids():
        info = storage.ledger(ledger_id)
        if info is None:
            continue
        ids = storage.entry_ids(ledger_id)
        unreadable = [entry_id for entry_id in ids if not await _is_readable(storage.read_entry, ledger_id, entry_id)]
        found.append(_Served(ledger_id, len(ids), ids[-1] if ids else -1, info.lac, info.fenced, tuple(unreadable)))
    storage.crash(CrashMode.PROCESS)
    return found


async def _is_readable(read_entry: Any, ledger_id: int, entry_id: int) -> bool:
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_read(_token: object, body: bytes | None, error: StorageError | None) -> None:
        done.set_result(error is None and body is not None)

    read_entry(ledger_id, entry_id, on_read, None)
    return await done
