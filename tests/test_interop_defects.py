"""The table of planted defects fits the sources and the tests, and the tool that plants them is not easily satisfied."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.matrix import SECTIONS
from tests.tools import interop_defects
from tests.tools.conformance import ROOT
from tests.tools.interop_defect_table import DEFECTS, Defect, Selection
from tests.tools.interop_defects import (
    MADE_BY,
    DefectError,
    Outcome,
    Report,
    Verdict,
    copied_tree,
    fingerprint,
    judge,
    load,
    noted,
    planted,
    render,
    run,
    save,
    write_page,
)
from tests.tools.interop_page import PAGE, between, rows_of

TESTS = Selection("test_it", ("test_one", "test_other"), ("v3",), "1.0")
DEFECT = Defect("a typing error", "module.py", "return 1", "return 2", TESTS, "assert 2 == 1")


# The table -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name.replace(" ", "-"))
def test_the_old_text_of_each_defect_is_in_its_file_once(defect: Defect) -> None:
    assert (ROOT / defect.path).read_text(encoding="utf-8").count(defect.old) == 1
    assert defect.new != defect.old


@pytest.fixture(scope="module")
def collected() -> list[str]:
    """The interoperability tests with their parameters, as pytest names them with or without built peers."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "interop", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "tests/interop"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if "::" in line]
    assert found, done.stdout + done.stderr
    return found


def test_each_selection_names_tests_that_there_are(collected: list[str]) -> None:
    def is_chosen(selection: Selection, function: str, test: str) -> bool:
        for version in ("4.17.3", "4.18.0", "missing"):
            words = tuple(word.replace(selection.version, version) for word in selection.words)
            if replace(selection, functions=(function,), words=words, version=version).chooses(test):
                return True
        return False

    empty = [
        (defect.name, function)
        for defect in DEFECTS
        for function in defect.tests.functions
        if not any(is_chosen(defect.tests, function, test) for test in collected)
    ]
    assert empty == []


def test_there_are_defects_for_every_section_of_the_page() -> None:
    sections = {section for section, _ in rows_of(between(PAGE.read_text(encoding="utf-8"), "results"))}

    assert sections
    assert sections - {SECTIONS.get(defect.tests.module) for defect in DEFECTS} == set()


def test_names_are_unique() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)


def test_the_page_shows_the_table() -> None:
    shown = between(PAGE.read_text(encoding="utf-8"), "defects", by=MADE_BY)

    rows = [line.split(" | ")[0].removeprefix("| ") for line in shown.splitlines() if line.startswith("| ")]
    names = [row for row in rows if not row.startswith("defect")]
    assert sorted(names) == sorted(defect.name for defect in DEFECTS)
    assert all(
        function in shown for defect in DEFECTS if not defect.unseen_because for function in defect.tests.functions
    )


# Planting ------------------------------------------------------------------------------------------------------------


def test_a_defect_is_planted_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("def f():\n    return 1\n")

    with planted(tmp_path, DEFECT):
        assert file.read_text() == "def f():\n    return 2\n"

    assert file.read_text() == "def f():\n    return 1\n"


@pytest.mark.parametrize("text", ["return 3", "return 1 or return 1"])
def test_a_defect_that_does_not_fit_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "module.py").write_text(text)

    with (
        pytest.raises(DefectError, match=r"'a typing error': its old text is \d times in module.py"),
        planted(tmp_path, DEFECT),
    ):
        pass

    assert (tmp_path / "module.py").read_text() == text


# Judging -------------------------------------------------------------------------------------------------------------


def passed(test: str = "a") -> list[Report]:
    return [Report(test, phase, "passed", "") for phase in ("setup", "call", "teardown")]


@pytest.mark.parametrize(
    ("reports", "noticed", "trouble"),
    [
        ([*passed("a"), Report("b", "call", "failed", "assert 2 == 1")], ("b",), ""),
        (passed(), (), ""),
        ([Report("b", "call", "failed", "TimeoutError")], (), "though not as expected"),
        ([Report("b", "setup", "failed", "assert 2 == 1")], (), "in its setup"),
        ([Report("b", "collection", "failed", "assert 2 == 1")], (), "in its collection"),
        ([*passed(), Report("a", "teardown", "failed", "assert 2 == 1")], (), "in its teardown"),
        ([], (), "no test was run to its end"),
        ([Report("a", "setup", "skipped", "")], (), "no test was run to its end"),
    ],
    ids=["noticed", "survived", "other-error", "set-up", "collection", "tear-down", "nothing", "skipped"],
)
def test_only_a_test_that_fails_in_its_body_for_the_expected_reason_has_noticed(
    reports: list[Report], noticed: tuple[str, ...], trouble: str
) -> None:
    verdict = judge(reports, DEFECT.because)

    assert verdict.noticed_by == noticed
    assert trouble in verdict.trouble
    assert bool(verdict.trouble) == bool(trouble)


def test_a_run_that_tested_other_code_than_the_copy_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "bkclient" / "__init__.py", tmp_path.parent / "bkclient" / "__init__.py"
    report = '{"test": "a", "phase": "call", "outcome": "passed", "reason": ""}\n'

    assert noted(f'{{"imported": ["{inside}"]}}\n{report}', tmp_path) == [Report("a", "call", "passed", "")]
    for lines in (f'{{"imported": ["{inside}", "{outside}"]}}\n{report}', report, ""):
        with pytest.raises(DefectError, match="not the copy"):
            noted(lines, tmp_path)


# The whole way, with tests that need no peers ------------------------------------------------------------------------

PROJECT = {
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\nmarkers = ["interop: it"]\n',
    "bkclient/__init__.py": "def value():\n    return 1\n",
    "simbookie/__init__.py": "",
    "tests/interop/test_it.py": (
        "import pytest\nimport bkclient\npytestmark = pytest.mark.interop\n"
        "@pytest.mark.parametrize('wire', ['v2', 'v3'])\n@pytest.mark.parametrize('build', ['1.0'])\n"
        "def test_one(wire, build):\n    assert bkclient.value() == 1\n"
        "def test_unrelated():\n    raise RuntimeError\n"
    ),
}


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """A copy of a tiny project under version control."""
    project, peers = tmp_path / "project", tmp_path / "peers"
    witness = ROOT / "tests" / "tools" / "interop_witness.py"
    for name, text in {**PROJECT, "tests/tools/interop_witness.py": witness.read_text(encoding="utf-8")}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (peers / "1.0" / "lib").mkdir(parents=True)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=project, check=True)
    (project / "not-tracked").write_text("")
    with copied_tree(project, peers) as made:
        yield made


IN_PROJECT = replace(DEFECT, path="bkclient/__init__.py", tests=replace(TESTS, functions=("test_one",)))


def test_the_copy_has_what_is_tracked_and_the_peers(copy: Path) -> None:
    assert (copy / "bkclient" / "__init__.py").is_file()
    assert (copy / "build" / "interop" / "1.0" / "lib").is_dir()
    assert not (copy / "not-tracked").exists()


def test_the_defect_in_the_copy_is_what_is_tested(copy: Path) -> None:
    test = "tests/interop/test_it.py::test_one[1.0-v3]"

    assert interop_defects.without_a_defect(copy, [IN_PROJECT.tests]) == {IN_PROJECT.tests: ""}
    verdict = interop_defects.examine(copy, IN_PROJECT)
    assert (verdict.noticed_by, verdict.trouble, verdict.reason.splitlines()[0]) == ((test,), "", "assert 2 == 1")
    # Another time stamp is not needed for the sound text to be read again.
    assert judge(run(copy, [IN_PROJECT.tests]), DEFECT.because) == Verdict(())


def test_a_selection_that_fails_without_a_defect_is_of_no_use(copy: Path) -> None:
    (copy / "bkclient" / "__init__.py").write_text("def value():\n    return 3\n")

    (trouble,) = interop_defects.without_a_defect(copy, [IN_PROJECT.tests]).values()

    assert "without a defect tests/interop/test_it.py::test_one[1.0-v3] failed in its call" in trouble


def test_a_selection_of_nothing_is_of_no_use(copy: Path) -> None:
    nothing = replace(IN_PROJECT.tests, words=("v4",))

    assert interop_defects.without_a_defect(copy, [nothing]) == {nothing: "without a defect no test was run"}


# The page ------------------------------------------------------------------------------------------------------------

UNSEEN = replace(DEFECT, name="a slow answer", unseen_because="slow is not wrong")
SEEN = {
    DEFECT.name: Outcome(fingerprint(DEFECT), ("tests/interop/test_it.py::test_one[1.0-v3]",), 1.5),
    UNSEEN.name: Outcome(fingerprint(UNSEEN), (), 2.0),
}


def test_outcomes_are_kept(tmp_path: Path) -> None:
    assert load(tmp_path / "none.json") == {}
    save(tmp_path / "some.json", SEEN)
    assert load(tmp_path / "some.json") == SEEN


def test_the_page_tells_who_noticed_and_why_nobody_does(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- defects: written by make interop-defects -->\n<!-- end of defects -->\nbelow\n")

    assert write_page([DEFECT, UNSEEN], SEEN, page) == []

    assert between(page.read_text(), "defects", by=MADE_BY).strip() == render([DEFECT, UNSEEN], SEEN)
    assert "| a typing error | `module.py` | `test_it.py: test_one`, 1.0 |" in page.read_text()
    assert "| a slow answer | slow is not wrong |" in page.read_text()


@pytest.mark.parametrize(
    ("defect", "outcomes"),
    [
        (DEFECT, {}),
        (replace(DEFECT, new="return 4"), SEEN),
        (DEFECT, {DEFECT.name: Outcome(fingerprint(DEFECT), (), 1.0)}),
        (UNSEEN, {UNSEEN.name: Outcome(fingerprint(UNSEEN), ("a",), 1.0)}),
    ],
    ids=["never-run", "changed-since", "survived", "noticed-after-all"],
)
def test_a_defect_that_was_not_seen_as_the_table_says_leaves_the_page_alone(
    tmp_path: Path, defect: Defect, outcomes: dict[str, Outcome]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("as it was")

    assert write_page([defect], outcomes, page) == [defect.name]

    assert page.read_text() == "as it was"
