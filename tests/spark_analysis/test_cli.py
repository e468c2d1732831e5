"""``bk-verify``: what it prints and how it exits. Run in this process, so that it finds the session that is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar, Self
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from simbookie.java import JavaNotFoundError
from spark_analysis.cli import app as cli
from spark_analysis.cli import running as cli_running
from spark_analysis.cli.app import app
from spark_analysis.invariants import INVARIANTS
from tests.spark_analysis.recorded import bystander, record, truncated, truncating

pytestmark = pytest.mark.timeout(600)

ONE = ("--invariant", "nolactruncation")


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output, and standard error."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


# Without Spark -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["verify", "check", "compare", "lac", "analyse", "ingest", "report", "stream", "replay"]
)
def test_settings_of_spark_reach_the_session(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def opened(master: str | None, **options: Any) -> SparkSession:
        given.append((master, options["settings"]))
        raise JavaNotFoundError("not here")

    monkeypatch.setattr(cli_running, "open_session", opened)
    path = record(tmp_path / "good.bkh", bystander())
    to = ("--to", tmp_path / "to") if command in {"ingest", "report", "stream"} else ()
    code, _, err = run(command, path, *to, "--conf", "spark.driver.memory=2g", "--conf", "spark.a=b=c")
    assert (code, "not here" in err) == (2, True)
    assert given == [(None, {"spark.driver.memory": "2g", "spark.a": "b=c"})]


@pytest.mark.parametrize("told", ["spark.driver.memory", "driver.memory=2g", ""])
def test_what_is_no_setting_is_refused_before_spark_starts(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_running, "open_session", None)
    path = record(tmp_path / "good.bkh", bystander())
    assert run("verify", path, "--conf", told) == (2, "", f"bk-verify: --conf wants spark.NAME=VALUE, got {told!r}\n")


def test_the_list_names_every_invariant_with_its_statement() -> None:
    code, out, _ = run("list")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == len(INVARIANTS)
    for line, invariant in zip(lines, INVARIANTS, strict=True):
        assert line.startswith(invariant.name)
        assert line.endswith(invariant.statement)


def test_the_list_is_json_where_that_is_asked_for() -> None:
    code, out, _ = run("list", "--json")
    assert code == 0
    assert json.loads(out) == {
        "invariants": [
            {"name": invariant.name, "statement": invariant.statement, "clauses": list(invariant.clauses)}
            for invariant in INVARIANTS
        ]
    }


def test_unusable_arguments_exit_with_2_and_a_reason(tmp_path: Path) -> None:
    for arguments, reason in (
        ((), "Missing argument"),
        ((tmp_path / "nowhere",), "no such folder or file"),
        ((tmp_path, "--invariant", "Nonsense"), "there is no invariant Nonsense; there are NoLacTruncation"),
        ((tmp_path, "--max-witnesses", -1), "max-witnesses"),
        ((tmp_path, "--colour"), "colour"),
    ):
        code, out, err = run("verify", *arguments)
        assert (code, out) == (2, "")
        assert reason in err


def test_without_java_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java(*_: object, **_options: object) -> SparkSession:
        raise JavaNotFoundError("no Java anywhere")

    record(tmp_path / "good.bkh", bystander())
    monkeypatch.setattr(cli_running, "open_session", no_java)
    code, _, err = run("verify", tmp_path)
    assert code == 2
    assert err == "bk-verify: no Java anywhere\n"


@pytest.mark.parametrize(
    "error",
    [
        PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
        Py4JNetworkError("Answer from Java side is empty"),
    ],
)
def test_a_failure_of_spark_exits_with_3_and_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Not with 1, which says that an invariant is violated."""

    def fails(*_: object, **_options: object) -> SparkSession:
        raise error

    record(tmp_path / "good.bkh", bystander())
    monkeypatch.setattr(cli_running, "open_session", fails)
    code, out, err = run("verify", tmp_path)
    assert (code, out) == (3, "")
    assert err.startswith("bk-verify: Spark failed, and nothing was judged: ")
    assert err.count("\n") == 1


def test_a_defect_of_the_program_exits_with_3_and_shows_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(cli, "app", breaks)
    with pytest.raises(SystemExit) as exit_:
        cli.run()
    assert exit_.value.code == 3
    assert "RuntimeError: a defect" in capsys.readouterr().err


# With Spark ----------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_folder_without_histories_is_unusable(tmp_path: Path) -> None:
    code, out, err = run("verify", tmp_path)
    assert (code, out) == (2, "")
    assert "holds no history" in err


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_clean_history_exits_with_0(tmp_path: Path) -> None:
    code, out, err = run("verify", record(tmp_path / "good.bkh", bystander()), *ONE, "--json")
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert (shown["histories"], shown["rejected"], shown["violations"]) == (1, [], [])
    (invariant,) = shown["invariants"]
    assert (invariant["name"], invariant["checked"], invariant["holds"]) == ("NoLacTruncation", 1, 1)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_violation_exits_with_1_even_beside_an_unusable_file(tmp_path: Path) -> None:
    record(tmp_path / "bad.bkh", truncating(7))
    truncated(tmp_path / "torn.bkh")
    code, out, _ = run("verify", tmp_path, *ONE)
    assert code == 1
    assert "NoLacTruncation" in out
    assert "bad.bkh" in out
    assert "entry 1 was acknowledged" in out
    assert "torn.bkh" in out
    assert "truncated" in out


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_an_unusable_file_exits_with_2_and_the_others_are_judged(tmp_path: Path) -> None:
    record(tmp_path / "good.bkh", bystander())
    truncated(tmp_path / "torn.bkh")
    code, out, err = run("verify", tmp_path, *ONE, "--json")
    assert code == 2
    shown = json.loads(out)
    assert [entry["file"] for entry in shown["rejected"]] == ["torn.bkh"]
    assert shown["invariants"][0]["holds"] == 1
    assert "torn.bkh" in err


class Terminal:
    """Stands in for a console: what its status line says, one after the other."""

    shown: ClassVar[list[str]] = []

    def __init__(self, *, stderr: bool) -> None:
        assert stderr

    def status(self, text: str) -> Any:
        self.shown.append(text)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shown.append("")

    def update(self, text: str) -> None:
        self.shown.append(text)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_says_which_part_is_judged(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    monkeypatch.setattr(Terminal, "shown", [])
    monkeypatch.setattr(cli_running, "Console", Terminal)
    monkeypatch.setattr(sys, "stderr", Mock(isatty=lambda: is_terminal))
    with cli_running.parts_shown("verifying") as tell:
        tell(0, 1)
        assert Terminal.shown == (["verifying ..."] if is_terminal else [])
        tell(1, 3)
    assert Terminal.shown == (["verifying ...", "verifying, part 2 of 3 ...", ""] if is_terminal else [])
