"""The page that specifies histories says what the code does, and other programs can rely on it.

Parsed from docs/reference/history-format.md: the kinds (``* **`KIND`** (`field`, ...): ...``), the tables, the list of what
checks need, the code and the bytes it shows. What the page says in prose is pinned by the tests of the recorders, the
reader and the writer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from bkclient.errors import Code
from scenarios.checker import CLAUSES, FAMILIES, LOG_FAMILIES, codes
from scenarios.checker.facts import LedgerFacts
from scenarios.conditions import draw_conditions
from scenarios.history import FIELDS, KINDS, SCHEMA_VERSION, FieldType, HistoryWriter, Kind, read_history
from scenarios.history.schema import COMMON_FIELDS
from scenarios.history.writer import MAGIC

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "history-format.md").read_text(encoding="utf-8")

Reader = Callable[[Path], Iterator[dict[str, Any]]]

_EXAMPLES: dict[FieldType, Any] = {
    FieldType.LONG: -1,
    FieldType.STRING: "b0",
    FieldType.BOOLEAN: True,
    FieldType.FRAGMENTS: [[0, ["b0", "b1"]], [5, ["b0", "b2"]]],
}


def section(heading: str) -> str:
    """The text below a heading, up to the next one of the same or a higher level."""
    level, body = re.search(rf"^(#+) {re.escape(heading)}\n(.*)\Z", PAGE, re.MULTILINE | re.DOTALL).groups()  # type: ignore[union-attr]
    return re.split(rf"^#{{1,{len(level)}}} ", body, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of the tables in a text, without their head rows; a cell that is all code without its marks."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {index - 1 for index, line in enumerate(lines) if line.startswith("| ---")}
    body = [line for index, line in enumerate(lines) if index not in heads and not line.startswith("| ---")]
    return [[re.sub(r"^`([^`]+)`$", r"\1", cell.strip()) for cell in line.strip("|").split(" | ")] for line in body]


def bullets(text: str) -> list[str]:
    """The items of the lists in a text, each on one line."""
    return [re.sub(r"\s+", " ", item) for item in re.findall(r"^\* (.*(?:\n  .*)*)", text, re.MULTILINE)]


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def read() -> Reader:
    """The reader that the page shows."""
    (code,) = code_blocks("python")
    namespace: dict[str, Any] = {}
    exec(compile(code, "history-format.md", "exec"), namespace)
    reader: Reader = namespace["read"]
    return reader


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A history with one event of every kind, and one of unknown values."""
    path = tmp_path / "run.bkh"
    history = HistoryWriter({"scenario": "none", "seed": 1}, lambda: 7, path)
    for kind, names in KINDS.items():
        history.record(kind, "actor", 3, **{name: _EXAMPLES[FIELDS[name]] for name in names})
    history.record(Kind.LAC_ADV, "reader", lac=None, source=None, handle=None)
    history.close()
    return path


# The vocabulary ----------------------------------------------------------------------------------------------------


def test_the_page_specifies_every_kind_with_its_fields_in_order_and_no_other() -> None:
    described = [re.match(r"\*\*`(\w+)`\*\* \(([^)]*)\): \w", item) for item in bullets(section("Kinds"))]
    assert all(described), "an item of the list of kinds has another shape"
    found = [(match[1], tuple(re.findall(r"`(\w+)`", match[2]))) for match in described if match]
    assert sorted(found) == sorted((str(kind), names) for kind, names in KINDS.items())


def test_the_page_specifies_every_field_with_its_type_and_no_other() -> None:
    found = [(name, type_) for name, type_, meaning in rows(section("Fields")) if meaning]
    assert sorted(found) == sorted((name, str(type_)) for name, type_ in FIELDS.items())


def test_the_page_specifies_the_common_fields() -> None:
    assert [name for name, _, _ in rows(section("Common fields"))] == list(COMMON_FIELDS)


def test_nothing_on_the_page_looks_like_a_kind_but_is_none() -> None:
    roots = "|".join(sorted({kind.split("_")[0] for kind in KINDS}))
    mentioned = set(re.findall(rf"\b((?:{roots})(?:_[A-Z]+)+?)s?\b", PAGE))
    names_of_codes = {code.name for code in Code}
    assert mentioned - names_of_codes - {"READ_ONLY"} == {str(kind) for kind in KINDS if "_" in kind}


def test_the_page_lists_every_result_code_and_no_other() -> None:
    found = [(int(number), name) for number, name, meaning in rows(section("Result codes")) if meaning]
    assert found == [(code.value, code.name) for code in Code]


def test_the_page_names_the_codes_that_checks_distinguish() -> None:
    distinguished = re.search(r"Checks distinguish only (.*?)\. ", re.sub(r"\s+", " ", section("Result codes")))
    assert distinguished is not None
    assert {int(number) for number in re.findall(r"-?\d+", distinguished[1])} == {
        codes.OK,
        codes.FENCED,
        *codes.NEGATIVES,
    }


def test_the_page_names_the_version_it_specifies() -> None:
    assert PAGE.startswith(f"# History format, version {SCHEMA_VERSION}\n")


# The file ----------------------------------------------------------------------------------------------------------


def test_the_page_specifies_the_keys_of_the_header() -> None:
    conditions = draw_conditions(1).as_header()
    run = ("scenario", "seed", "mutant", "transport", "package_version")
    table = {key: meaning for key, _, meaning in rows(section("Header"))}
    assert list(table) == [*HistoryWriter.full_header({}), *run, *conditions, "plan", "bookies", "merged"]
    assert table["format"] == MAGIC
    assert re.findall(r"`(\w+)`", table["cluster"]) == list(conditions["cluster"])


def test_the_reader_on_the_page_reads_what_the_writer_writes(read: Reader, written: Path) -> None:
    events = read_history(written)[1]
    assert list(read(written)) == [
        {
            "seq": event.seq,
            "time_us": event.time_us,
            "actor": event.actor,
            "kind": event.kind,
            "ledger": event.ledger,
            **event.fields,
        }
        for event in events
    ]
    assert len(events) == len(KINDS) + 1


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param(b"bk-history", b"bk-mystery", "not a history", id="foreign"),
        pytest.param(b"actor", b"eagle", "damaged", id="altered"),
        pytest.param(b"\xa6events", b"\xa6evelyn", "events", id="another footer"),
    ],
)
def test_the_reader_on_the_page_refuses_what_is_none_or_damaged(
    read: Reader, written: Path, old: bytes, new: bytes, problem: str
) -> None:
    head, found, tail = written.read_bytes().rpartition(old)
    assert found
    written.write_bytes(head + new + tail)
    with pytest.raises((ValueError, KeyError), match=problem):
        list(read(written))


def test_the_reader_on_the_page_refuses_a_truncated_history(read: Reader, written: Path) -> None:
    data = written.read_bytes()
    for length in (len(data) - 1, data.rindex(b"\x82\xa6events")):
        written.write_bytes(data[:length])
        with pytest.raises(ValueError, match="truncated"):
            list(read(written))


def test_the_reader_on_the_page_needs_no_more_than_msgpack() -> None:
    (code,) = code_blocks("python")
    assert re.findall(r"^\s*(?:import|from) (\w+)", code, re.MULTILINE) == ["hashlib", "msgpack"]


def test_the_bytes_on_the_page_are_those_the_writer_writes(tmp_path: Path) -> None:
    path = tmp_path / "example.bkh"
    history = HistoryWriter({}, lambda: 1500, path)
    history.record(Kind.BK_LAC, "bookie-0", 3, lac=4)
    history.close()
    (shown,) = code_blocks("text")
    header = msgpack.packb(HistoryWriter.full_header({}))
    assert header + bytes.fromhex(shown) == path.read_bytes()
    first_line = bytes.fromhex(shown.splitlines()[0])
    assert msgpack.unpackb(first_line) == [list(KINDS).index(Kind.BK_LAC), 0, 1500, "bookie-0", 3, 4]
    assert f"kind index {list(KINDS).index(Kind.BK_LAC)} (`BK_LAC`)" in PAGE


# What checks need --------------------------------------------------------------------------------------------------


def needs() -> list[tuple[set[str], set[str]]]:
    """The groups of clauses of the page, each with the kinds it is said to need."""
    return [
        (set(re.findall(r"\*\*(\w+)\*\*", item)), set(re.findall(r"`(\w+)`", item)))
        for item in bullets(section("What checks need"))
    ]


def test_the_page_names_every_clause_of_the_checker_once_and_no_other() -> None:
    named = [clause for clauses, _ in needs() for clause in sorted(clauses)]
    assert sorted(named) == sorted(CLAUSES)


@pytest.mark.parametrize("family", [*FAMILIES, *LOG_FAMILIES], ids=lambda family: family.__name__)
def test_the_page_names_every_kind_that_a_family_of_clauses_listens_to(family: Any) -> None:
    facts = () if family in LOG_FAMILIES else (LedgerFacts(1, set(), set()),)
    listens = {str(kind) for kind in family(*facts, lambda *_: None).handlers()}
    (kinds,) = (kinds for clauses, kinds in needs() if clauses == set(family.clauses))
    assert listens <= kinds <= set(KINDS)
