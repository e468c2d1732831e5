"""What the files of a bookie tell, in the words of BookKeeper's shell and in those of ``bk-sim inspect``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simbookie.storage.entry_logs.format import BLOCK_SIZE, HEADER_SIZE, EntryLogHeader
from tests.interop.changing_hands import Place, inspected
from tests.interop.held import KEY, Promised, body_of

__all__ = ["entries_told", "ledgers_in", "logs_in", "what_is_wrong_with_the_form", "what_the_shell_finds_wrong"]

_LOCATION: Final = re.compile(r"entry (\d+)\s*:\s*\(log: ?(\d+), pos: (\d+)\)")
_SHOWN: Final = 400
#: What fills a block behind what is flushed, in a log that consists of blocks.
_PADDING: Final = b"\xf0"


def entries_told(text: str) -> dict[tuple[int, int], int]:
    """Sizes of entries that BookKeeper's shell told of, in the words of 4.17 or in those of 4.18."""
    return {(ledger_id, entry_id): size for ledger_id, entry_id, _, size in _records_told(text)}


def _records_told(text: str) -> list[tuple[int, int, int, int]]:
    """Ledger, entry, offset and size of each record or entry."""
    old = re.findall(r"Lid=(-?\d+), Eid=(-?\d+), ByteOffset=(\d+), EntrySize=(\d+)", text)
    new = re.findall(r"entryId=(-?\d+), entrySize=(\d+), ledgerId=(-?\d+)(?:, position=(\d+))?", text)
    records = [*old, *((ledger, number, offset or -1, size) for number, size, ledger, offset in new)]
    return [(int(ledger), int(number), int(offset), int(size)) for ledger, number, offset, size in records]


def _files(folders: list[Path], suffix: str) -> list[Path]:
    pattern = f"*/*/*{suffix}" if suffix == ".idx" else f"*{suffix}"
    return [path for folder in folders for path in sorted((folder / "current").glob(pattern))]


def _told_by_us(place: Place, database: str, rows: str) -> Iterator[dict[str, Any]]:
    """What index files say, one by one, or the rows of the databases of a name."""
    for path in _files(place.ledgers, ".idx"):
        yield inspected("index", str(path))
    for folder in place.ledgers:
        if (path := folder / "current" / database).is_dir():
            yield from inspected("index", str(path))[rows]


def ledgers_in(place: Place, *, lacs_fall: bool) -> dict[int, tuple[object, ...]]:
    """By ledger: its key, whether it is fenced, and its explicit LAC, as the files have it while no bookie runs."""
    return {
        row["ledger"]: (row["master_key"], row["fenced"], None if lacs_fall else row["explicit_lac"])
        for row in _told_by_us(place, "ledgers", "ledgers")
    }


def _locations(place: Place) -> dict[tuple[int, int], tuple[int, int]]:
    """By ledger and entry: entry log and position."""
    found = {}
    for row in _told_by_us(place, "locations", "entries"):
        for each in row.get("entries", [row]):
            found[row["ledger"], each["entry"]] = (each["log"], each["position"])
    return found


@dataclass(frozen=True)
class _Question:
    """A command of the shell, and what is wrong with what it says, if anything."""

    command: Sequence[str]
    is_right: Callable[[str], bool]


def what_the_shell_finds_wrong(place: Place, promised: Promised) -> list[str]:
    """Let BookKeeper's shell read every file of a bookie that was stopped in order, and compare with what was promised."""
    questions = [*_small(place), *_journals(place), *_logs(place, promised), *_indexes(place, promised)]
    # the last one opens the store, which allocates an entry log
    questions.append(_Question(["localconsistencycheck"], lambda text: "Check passed" in text))
    answers = place.shell(*(question.command for question in questions), check=False)
    return [
        f"{' '.join(question.command)}: {answer[-_SHOWN:]}"
        for question, answer in zip(questions, answers, strict=True)
        if not question.is_right(answer)
    ]


def logs_in(place: Place) -> set[Path]:
    """The entry logs that there are."""
    return set(_files(place.ledgers, ".log"))


def what_is_wrong_with_the_form(place: Place, logs: set[Path]) -> list[str]:
    """Where ``logs`` that a real bookie wrote have not the form that the layout asks for, and that ours gives them."""
    return [
        f"{path.name} is no log of '{place.layout.logs}'"
        for path in sorted(logs)
        if path.stat().st_size > BLOCK_SIZE and not _has_form(path, place.layout.logs)
    ]


def _has_form(path: Path, kind: str) -> bool:
    entries = inspected("log", str(path))["entries"]
    data = path.read_bytes()
    header = EntryLogHeader.decode(data)
    if kind == "direct logs":
        end = entries[-1]["position"] + entries[-1]["bytes"] if entries else BLOCK_SIZE
        padding = data[end : end + -end % BLOCK_SIZE]
        is_padded = header.map_offset > 0 or padding == _PADDING * len(padding)
        return is_padded and data[:BLOCK_SIZE] == header.encode_block()
    ledgers = {row["ledger"] for row in entries}
    return data[:HEADER_SIZE] == header.encode() and (kind != "a log per ledger" or len(ledgers) <= 1)


def _small(place: Place) -> Iterator[_Question]:
    marks = []
    for number in range(len(place.journals)):
        name = "lastMark" if len(place.journals) == 1 else f"lastMark.{number}"
        mark = inspected("mark", str(place.ledgers[0] / "current" / name))
        file_id = int(mark["journal"].removesuffix(".txn"), 16)
        marks.append(f"Journal Id - {file_id}({mark['journal']}), Pos - {mark['offset']}")
    yield _Question(["lastmark"], lambda text: all(mark in text for mark in marks))
    for option, folders in (("txn", place.journals), ("log", place.ledgers), ("idx", place.ledgers)):
        # files of that name that are not the bookie's but its database's are listed, too
        names = sorted({path.name for folder in folders for path in (folder / "current").rglob(f"*.{option}")})
        pattern = re.compile(rf"\b[0-9a-f]+\.{option}\b")
        yield _Question(
            ["listfilesondisc", f"-{option}"],
            lambda text, pattern=pattern, names=names: sorted(set(pattern.findall(text))) == names,  # type: ignore[misc]
        )
    bookie_id = place.cluster.bookies[0].bookie_id
    yield _Question(["cookie_get", bookie_id], lambda text: f'bookieHost: "{bookie_id}"' in text)


def _journals(place: Place) -> Iterator[_Question]:
    for path in _files(place.journals, ".txn"):
        (journal,) = inspected("journal", str(path))["journals"]
        ours = [(row["ledger"], row["position"]) for row in journal["records"] if row["kind"] != "padding"]
        yield _Question(
            ["readjournal", "-dir", str(path.parent), str(int(path.stem, 16))],
            lambda text, ours=ours: [(ledger, offset) for ledger, _, offset, _ in _records_told(text)] == ours,  # type: ignore[misc]
        )


def _logs(place: Place, promised: Promised) -> Iterator[_Question]:
    """Each log has what we say it has, and together they have what was promised."""
    together: dict[tuple[int, int], int] = {}
    names: set[str] = set()
    for path in _files(place.ledgers, ".log"):
        if path.stat().st_size == 0:
            continue  # allocated ahead
        log = inspected("log", str(path))
        entries = {(row["ledger"], row["entry"]): row["bytes"] for row in log["entries"]}
        together |= entries
        if path.name in names:
            continue  # the shell is told a name, and takes the first folder that has it
        names.add(path.name)
        ledgers = {int(ledger_id): size for ledger_id, size in log["ledgers"].items()}
        yield _Question(["readlog", path.name], lambda text, entries=entries: entries_told(text) == entries)  # type: ignore[misc]
        yield _Question(["readlogmetadata", path.stem], lambda text, ledgers=ledgers: _totals(text) == ledgers)  # type: ignore[misc]
    assert together == {
        (ledger_id, entry_id): len(body_of(ledger_id, entry_id))
        for ledger_id, entry_ids in promised.entries.items()
        for entry_id in entry_ids
    }


def _totals(text: str) -> dict[int, int]:
    """Bytes of each ledger in a log."""
    return {int(ledger): int(size) for ledger, size in re.findall(r"(?:Lid|ledgerId)=(\d+), \w+=(\d+)", text)}


def _indexes(place: Place, promised: Promised) -> Iterator[_Question]:
    where = _locations(place)
    for ledger_id, entry_ids in promised.entries.items():
        expected = {entry_id: where[ledger_id, entry_id] for entry_id in entry_ids}
        is_fenced = ledger_id in promised.fenced

        def is_right(text: str, expected: object = expected, is_fenced: bool = is_fenced) -> bool:
            found = {int(entry): (int(log), int(position)) for entry, log, position in _LOCATION.findall(text)}
            if found != expected or not place.layout.has_index_files:
                return found == expected
            has_key = KEY.hex() in text.lower().replace(" ", "")
            return has_key and ("true" in re.findall(r"isFenced\s*: (\w+)", text)) == is_fenced

        options = ["-m"] if place.layout.has_index_files else []
        yield _Question(["ledger", *options, str(ledger_id)], is_right)
