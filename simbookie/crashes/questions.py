"""What a bookie is asked that no invariant tells: each answer in words, one with a defect and another without."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from simbookie.crashes import after
from simbookie.storage.base import StorageError

if TYPE_CHECKING:
    from simbookie.crashes.subject import Subject

__all__ = ["QUESTIONS"]

Question = Callable[..., Awaitable[str]]


async def _lac(subject: Subject, ledger_id: int) -> str:
    info = subject.storage.ledger(ledger_id)
    return f"the LAC is {info.lac}" if info is not None else "there is no ledger"


async def _entry(subject: Subject, ledger_id: int, entry_id: int) -> str:
    found: Any = await after.read_entry(subject.storage, ledger_id, entry_id)
    if isinstance(found, StorageError):
        return "the entry cannot be read"
    return "there is no entry" if found is None else "the entry is there"


async def _add(subject: Subject) -> str:
    return f"the add is told {subject.last_answer}"


async def _ledgers(subject: Subject) -> str:
    return f"{len(subject.storage.ledger_ids())} ledgers are stored"


async def _files(subject: Subject, pattern: str) -> str:
    names = [path.rpartition("/")[2] for path in subject.disk.image() if fnmatchcase(path, pattern)]
    return f"{', '.join(names)} is left" if names else "nothing is left"


async def _compacted(subject: Subject) -> str:
    garbage = subject.storage.garbage
    assert garbage is not None
    return f"{sum(each.stats.bytes_of_compacted for each in garbage.collectors)} bytes were brought back"


#: By name: the LAC of a ledger; an entry of one; the add that was answered last; ledgers; files whose path a pattern fits; and
#: what compactions have brought.
QUESTIONS: Final[dict[str, Question]] = {
    "lac": _lac,
    "entry": _entry,
    "add": _add,
    "ledgers": _ledgers,
    "files": _files,
    "compacted": _compacted,
}
