"""The table of BookKeeper's own tests, and how a run of them is judged by it; the tests themselves need Java and Maven."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.interop.java_tests.__main__ import Ran, judge, summary
from tests.interop.java_tests.table import KINDS, TABLE, JavaTests, Verb, classes_in, read_table

ROWS = read_table(TABLE.read_text(encoding="utf-8"))


def ran(method: str, *, passed: bool, skipped: bool = False) -> Ran:
    return Ran(method, method, passed, skipped, 1.0, "" if passed else "AssertionError")


TESTS = JavaTests(
    "client.Some", None, {"odd": (Verb.FAILS, "inside: it casts"), "either": (Verb.MAY, "inside: by chance")}
)


def test_the_table_can_be_read_and_most_of_it_applies() -> None:
    applying = [tests for tests in ROWS.values() if tests.reason is None]
    assert len(applying) > len(ROWS) // 2
    assert ROWS["client.LedgerRecoveryTest"].class_name == "org.apache.bookkeeper.client.LedgerRecoveryTest"


@pytest.mark.parametrize(
    ("method", "passed", "skipped", "is_right"),
    [
        ("plain", True, False, True),
        ("plain", False, False, False),
        ("plain", False, True, True),
        ("odd", False, False, True),
        ("odd", True, False, False),
        ("either", True, False, True),
        ("either", False, False, True),
    ],
)
def test_a_run_is_judged_by_what_the_table_wants(method: str, passed: bool, skipped: bool, is_right: bool) -> None:
    assert judge(TESTS, ran(method, passed=passed, skipped=skipped)).is_right is is_right


def test_the_summary_counts_what_applies_and_why_the_rest_does_not() -> None:
    whole = JavaTests("client.Mocked", "no bookie", {})
    judged = [
        judge(TESTS, ran(method, passed=passed)) for method, passed in (("a", True), ("b", False), ("odd", False))
    ]
    told = summary([TESTS, whole], {TESTS.name: judged}, 0)
    assert "1 classes ran. Of 2 tests that apply 1 passed, 0 at the second attempt." in told
    assert "| no bookie | 1 | 0 |" in told
    assert "| inside | 0 | 2 |" in told


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[clases]\n"a.B" = "applies"', "nobody reads: clases"),
        ('[classes]\n"a.B" = "because"', "must apply, or have a reason"),
        ('[classes]\n"a.B" = "inside"', "must apply, or have a reason"),
        ('[methods."a.B"]\nm = {fails = "inside: it casts"}', "have methods and no row: a.B"),
        ('[classes]\n"a.B" = "applies"\n[methods."a.B"]\nm = {fails = "it casts"}', "a.B.m must apply, or have"),
        ('[classes]\n"a.B" = "applies"\n[methods."a.B"]\nm = "fails"', "must have one verb"),
        ('[classes]\n"a.B" = "applies"\n[methods."a.B"]\nm = {breaks = "inside: it casts"}', "'breaks' is not a valid"),
        (
            '[classes]\n"a.B" = "no bookie"\n[methods."a.B"]\nm = {skip = "inside: it casts"}',
            "is not run, and has methods",
        ),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_table(text)


def test_classes_of_tests_are_found_in_a_jar(tmp_path: Path) -> None:
    names = ["client/TestA", "client/ATest", "client/ATest$Inner", "client/Util", "client/api/BTest", "bookie/CTest"]
    with ZipFile(tmp_path / "tests.jar", "w") as jar:
        for name in names:
            jar.writestr(f"org/apache/bookkeeper/{name}.class", b"")
    assert list(classes_in(tmp_path / "tests.jar")) == ["client.ATest", "client.TestA", "client.api.BTest"]
    assert set(classes_in(tmp_path / "tests.jar", everywhere=True)) - set(classes_in(tmp_path / "tests.jar")) == {
        "bookie.CTest"
    }


def test_every_kind_of_reason_is_used() -> None:
    reasons = [tests.reason for tests in ROWS.values() if tests.reason is not None]
    reasons += [reason for tests in ROWS.values() for _, reason in tests.exceptions.values()]
    assert {reason.partition(": ")[0] for reason in reasons} == set(KINDS)
