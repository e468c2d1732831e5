"""The disk that a bookie leaves when it is killed, as a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from simbookie.crashes.kinds import SEVERAL_FOLDERS
from simbookie.crashes.making import journal_folders, ledger_folders
from simbookie.crashes.runs import play_life
from simbookie.crashes.schedule import draw_operations
from simbookie.crashes.settings import RunSettings
from simbookie.crashes.subject import Subject
from simbookie.storage.base import CrashMode
from simbookie.storage.kinds import StoreKind
from simbookie.storage.quirks import REPAIRED
from simbookie.storage.transfer import export_disk

__all__ = ["export_run"]

#: So many lives' operations are done in one, for something to be there.
_LIVES: Final = 6
#: What asks for the entry logs that the rest of a store's name tells.
_LOGS: Final = {
    "": "",
    "per-ledger": "entryLogPerLedgerEnabled=true\n",
    "direct": "dbStorage_directIOEntryLogger=true\n",
}


def export_run(
    target: Path, kind: str, seed: int, step: int | None, mode: CrashMode, *, journals: int = 1
) -> tuple[str | None, list[str]]:
    """Have a bookie live to step number ``step``, or to the end, be killed, and its disk written to ``target``.

    Returns the step that it was killed before and the paths written. With the files goes a ``bk_server.conf`` that names their
    folders: ``journal``, or ``journal0`` and so on, and ``ledgers``, and ``ledgers1`` where there are two. Raises as
    :func:`~simbookie.storage.transfer.export_disk`.
    """
    settings = replace(RunSettings.draw(kind, seed, REPAIRED), journals=journals, has_faults=False)
    subject = Subject(settings)
    rng = Random(f"export {seed}")  # noqa: S311
    operations = [each for _ in range(_LIVES) for each in draw_operations(rng, has_faults=False)]
    reached = play_life(subject, operations, crash_at=step or 0, mode=mode)
    files = export_disk(subject.disk, target)
    if journals == 1:
        (target / "journal0").rename(target / "journal")
        files = [path.replace("journal0/", "journal/", 1) for path in files]
    place = target.absolute()
    names = [folder.path.partition("/")[0] for folder in journal_folders(settings, subject.disk)]
    (target / "bk_server.conf").write_text(
        f"journalDirectories={_listed(place, ['journal'] if journals == 1 else names)}\n"
        f"ledgerDirectories={_listed(place, [each.path.partition('/')[0] for each in ledger_folders(settings, subject.disk)])}\n"
        f"ledgerStorageClass={StoreKind(kind.partition('-')[0]).class_name}\n"
        f"{_LOGS[kind.removesuffix(SEVERAL_FOLDERS).partition('-')[2]]}"
    )
    return reached, files


def _listed(place: Path, names: list[str]) -> str:
    return ",".join(str(place / name) for name in names)
