"""The page on interoperability and the tests that fill it belong together, and a run that is not whole is found out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scenarios.plan.library import library_names, library_plan
from scenarios.processes import problems_of as problems_of_plan
from tests.bkclient.wire import heard
from tests.bkclient.wire.golden_files import golden_files
from tests.interop import matrix, storages
from tests.interop.matrix import FAILED, SECTIONS, Matrix, Outcome, render
from tests.tools import interop_page
from tests.tools.interop_page import (
    PAGE,
    STORAGES_MADE_BY,
    between,
    marked_rows,
    problems_of,
    replaced,
    rows_of,
    storage_steps,
)

VERSIONS = {golden.version for golden in golden_files()}
ROWS = rows_of(between(PAGE.read_text(encoding="utf-8"), "results"))

SECTION = SECTIONS["test_tools"]
WHOLE: list[Outcome] = [
    (SECTION, "both", "1.0", "v3", "yes"),
    (SECTION, "both", "1.0", "v2", "refused"),
    (SECTION, "neither", "1.0", "", "yes"),
]
MARKS = [(SECTION, "both"), (SECTION, "neither")]


def test_every_marked_test_has_a_row_on_the_page() -> None:
    assert sorted(set(marked_rows()) - set(ROWS)) == []


def test_every_row_of_the_page_has_a_test() -> None:
    assert sorted(set(ROWS) - set(marked_rows())) == []


def test_no_cell_of_the_page_is_empty_or_tells_of_a_failure() -> None:
    assert [row for row, cells in ROWS.items() if "" in cells or FAILED in cells] == []
    assert {len(cells) for cells in ROWS.values()} == {2 * len(VERSIONS)}


def test_the_page_tells_of_the_versions_that_were_heard() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for version in VERSIONS:
        assert f"| {version} v3 | {version} v2 |" in page


def test_the_table_of_storages_has_no_hole() -> None:
    table = between(PAGE.read_text(encoding="utf-8"), "storages", by=STORAGES_MADE_BY)
    cells = storages.rows_in(table)

    assert list(storages.holes_in(cells, sorted(VERSIONS), storage_steps())) == []
    assert storages.render(cells, VERSIONS, storage_steps()) == table.strip(), "and nothing else"


def test_a_hole_among_storages_and_a_failure_are_found() -> None:
    cells = {(name, "1.0", step): "yes" for name in storages.NAMES for step in ("a", "b")}
    assert list(storages.holes_in(cells, ["1.0"], ["a", "b"])) == []

    first, last = storages.NAMES[0], storages.NAMES[-1]
    del cells[first, "1.0", "a"]
    cells[last, "1.0", "b"] = storages.FAILED

    assert list(storages.holes_in(cells, ["1.0"], ["a", "b"])) == [
        f"storage '{first}', 1.0, 'a' has not been run",
        f"storage '{last}', 1.0, 'b' failed",
    ]
    shown = storages.rows_in(storages.render(cells, ["1.0"], ["a", "b"]))
    assert (shown[first, "1.0", "a"], shown[last, "1.0", "b"]) == ("", storages.FAILED)


def test_cells_of_storages_are_kept_one_by_one(tmp_path: Path) -> None:
    first, second = storages.Storages(), storages.Storages()
    first.cells = {("x", "1.0", "a"): "yes", ("x", "1.0", "b"): "NO"}
    second.cells = {("x", "1.0", "b"): "yes"}

    for each in (first, second, storages.Storages()):
        each.save(tmp_path / "kept.json")

    assert storages.load(tmp_path / "kept.json") == {("x", "1.0", "a"): "yes", ("x", "1.0", "b"): "yes"}


def test_the_table_of_vectors_is_what_the_golden_captures_say() -> None:
    assert between(PAGE.read_text(encoding="utf-8"), "vectors") == heard.table()


def test_no_vector_was_heard_from_nobody() -> None:
    assert "nobody" not in between(PAGE.read_text(encoding="utf-8"), "vectors")


def test_nothing_is_wrong_with_a_whole_run() -> None:
    assert list(problems_of(WHOLE, MARKS, ["1.0"])) == []
    assert rows_of(render(WHOLE)) == {(SECTION, "both"): ["yes", "refused"], (SECTION, "neither"): ["yes", "yes"]}


@pytest.mark.parametrize(
    ("outcomes", "marks", "versions", "problem"),
    [
        (WHOLE[1:], MARKS, ["1.0"], f"'both' ({SECTION}) has a hole"),
        (WHOLE[:2], MARKS, ["1.0"], f"no test of 'neither' ({SECTION}) was run"),
        (WHOLE, MARKS[:1], ["1.0"], f"no test is marked with 'neither' ({SECTION})"),
        (WHOLE, MARKS, ["1.0", "1.1"], "the run met 1.0, and the page is about 1.0, 1.1"),
        ([*WHOLE, (SECTION, "both", "1.0", "v3", FAILED)], MARKS, ["1.0"], f"'both' ({SECTION}) failed"),
        ([], [], ["1.0"], "the run met nobody, and the page is about 1.0"),
    ],
)
def test_each_way_not_to_be_whole_is_found(
    outcomes: list[Outcome], marks: list[tuple[str, str]], versions: list[str], problem: str
) -> None:
    assert list(problems_of(outcomes, marks, versions)) == [problem]


def test_what_failed_and_went_well_at_the_second_attempt_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results.json"
    monkeypatch.setattr(matrix, "RESULTS", results)
    first, second = Matrix(), Matrix()
    first.outcomes = [
        (SECTION, "a", "1.0", "", FAILED),
        (SECTION, "b", "1.0", "", FAILED),
        (SECTION, "c", "1.0", "", "yes"),
    ]
    second.outcomes = [(SECTION, "a", "1.0", "", "yes"), (SECTION, "b", "1.0", "", FAILED)]

    first.save()
    second.save_second_attempt()

    rows = rows_of(render(tuple(each) for each in json.loads(results.read_text())))
    assert [(operation, cells[0]) for (_, operation), cells in rows.items()] == [
        ("a", "yes, at the second attempt"),
        ("b", FAILED),
        ("c", "yes"),
    ]


def test_a_run_is_counted_and_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "RESULTS", tmp_path / "results.json")
    assert matrix.load_run() is None
    first, second = Matrix(), Matrix()
    first.outcomes = second.outcomes = [(SECTION, "a", "1.0", "", "yes")]
    first.tests = {"a": True, "b": False, "c": False}
    second.tests = {"b": True, "c": False}

    first.save()
    assert matrix.load_run() == matrix.Run(3, 2, 0)
    second.save_second_attempt()

    run = matrix.load_run()
    assert run is not None
    assert run.sentence == "It had 3 tests. 1 of them passed at the second attempt only. 1 failed."
    assert matrix.Run(3, 0, 0).sentence == "It had 3 tests, all of which passed at the first attempt."


def test_the_page_knows_how_many_plans_real_bookies_can_play() -> None:
    playable = [name for name in library_names() if not list(problems_of_plan(library_plan(name), records=False))]
    told = re.findall(r"(\d+) fault plans|one of the (\d+) has the verdict", PAGE.read_text(encoding="utf-8"))
    assert {int(one or other) for one, other in told} == {len(playable)}
    assert len(told) == 2


def test_what_is_written_between_markers_leaves_the_rest_alone() -> None:
    page = "above\n<!-- it: written by make interop -->\nold\n<!-- end of it -->\nbelow\n"

    again = replaced(page, "it", "new\n\n")

    assert again == page.replace("old", "new")
    assert between(again, "it") == "new\n"
    assert replaced(again, "it", "new") == again


@pytest.mark.parametrize("page", ["", "<!-- end of it --><!-- it: written by make interop -->"])
def test_a_page_without_its_markers_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="once each, in this order"):
        replaced(page, "it", "new")


@pytest.mark.parametrize("results", [None, "[]", '[["What lies in ZooKeeper", "nothing", "1.0", "v3", "yes"]]'])
def test_a_run_that_is_not_whole_leaves_the_page_as_it_is(
    results: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, file = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text("as it was")
    if results is not None:
        file.write_text(results)
    monkeypatch.setattr(interop_page, "PAGE", page)
    monkeypatch.setattr(interop_page, "RESULTS", file)

    assert interop_page.main() == 1

    assert page.read_text() == "as it was"
    assert capsys.readouterr().err != ""


def test_a_whole_run_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, file = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    rows = marked_rows()
    text = ",".join(
        f'["{section}", "{operation}", "{version}", "", "as new"]'
        for section, operation in rows
        for version in sorted(VERSIONS)
    )
    file.write_text(f"[{text}]")
    monkeypatch.setattr(interop_page, "PAGE", page)
    monkeypatch.setattr(interop_page, "RESULTS", file)
    monkeypatch.setattr(interop_page, "load_run", lambda: matrix.Run(7, 0, 0))
    steps = storage_steps()
    cells = {(name, version, step): "yes" for name in storages.NAMES for version in VERSIONS for step in steps}
    monkeypatch.setattr(storages, "load", lambda: cells)

    assert interop_page.main() == 0
    assert storages.rows_in(between(page.read_text(encoding="utf-8"), "storages", by=STORAGES_MADE_BY)) == cells
    assert "It had 7 tests, all of" in between(page.read_text(encoding="utf-8"), "run")

    cells.popitem()
    assert interop_page.main() == interop_page.main(["storages"]) == 1

    written = rows_of(between(page.read_text(encoding="utf-8"), "results"))
    assert set(written) == set(rows)
    assert {cell for cells in written.values() for cell in cells} == {"as new"}
