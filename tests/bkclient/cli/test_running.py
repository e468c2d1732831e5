"""How commands end: exit codes, one line for every error, settings that cannot be, help."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer

from bkclient import errors
from bkclient.cli.access import PASSWORD_VARIABLE, connection_for, password_from
from bkclient.cli.app import app
from bkclient.cli.running import (
    EXIT_INTERRUPTED,
    EXIT_NO,
    EXIT_OUTPUT_GONE,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    Ending,
    exit_code_of,
    run_command,
)
from tests.bkclient.cli.invoking import Invoke, invoke


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Ending("no"), EXIT_NO),
        (errors.NoSuchLedger(), EXIT_NO),
        (errors.NoSuchEntry(), EXIT_NO),
        (errors.ArgumentError(), EXIT_USAGE),
        (errors.UnauthorizedAccess(), EXIT_REFUSED),
        (errors.LedgerFenced(), EXIT_REFUSED),
        (errors.DigestMismatch(), EXIT_REFUSED),
        (errors.LedgerExists(), EXIT_REFUSED),
        (errors.MetadataStoreError(), EXIT_UNAVAILABLE),
        (errors.NotEnoughBookies(), EXIT_UNAVAILABLE),
        (errors.RequestTimeout(), EXIT_UNAVAILABLE),
        (errors.BookieNotAvailable(), EXIT_UNAVAILABLE),
        (errors.LedgerRecoveryFailed(), EXIT_UNAVAILABLE),
        (OSError("disk"), EXIT_UNAVAILABLE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_the_exit_code_says_whether_to_try_again(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code


def test_what_can_be_retried_is_never_called_refused() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BookKeeperError)
    ]

    assert [kind for kind in kinds if kind.retriable and exit_code_of(kind()) != EXIT_UNAVAILABLE] == []
    assert len(kinds) > 30


def ended_by(error: BaseException, *, as_json: bool = False) -> int:
    async def work() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(typer.Exit) as ended:
        run_command(work, as_json=as_json)
    return int(ended.value.exit_code)


def test_an_error_is_one_line_with_its_advice_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_by(errors.NotEnoughBookies("two\nlines", ledger_id=7)) == EXIT_UNAVAILABLE

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "bk: ledger 7: two [NOT_ENOUGH_BOOKIES -6]. Start more bookies or choose a smaller ensemble.\n"
    )


def test_an_error_in_json_is_an_object_on_standard_output_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_by(errors.UnauthorizedAccess(ledger_id=7), as_json=True) == EXIT_REFUSED

    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["type"], error["code"]) == ("UnauthorizedAccess", -102)
    assert error["message"].startswith("ledger 7: ")


def test_an_interrupt_and_a_closed_pipe_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_by(KeyboardInterrupt()) == EXIT_INTERRUPTED == 130
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.dup2", lambda *_: None)
        assert ended_by(BrokenPipeError()) == EXIT_OUTPUT_GONE == 141

    assert capsys.readouterr() == ("", "")


def test_a_defect_is_not_dressed_up_as_an_error() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_command(work)


# Where the cluster is ----------------------------------------------------------------------------------------------


def test_the_command_line_wins_over_the_environment_and_both_over_the_file(tmp_path: Path, bk: Invoke) -> None:
    file = tmp_path / "bk.properties"
    file.write_text("metadataServiceUri = mem://of-the-file\naddEntryTimeoutSec = 7\n")

    assert connection_for(None, file, None).metadata_uri == "mem://of-the-file"
    assert connection_for("mem://given", file, None).metadata_uri == "mem://given"
    assert connection_for(None, file, None).config.timeouts.add_s == 7
    assert connection_for(None, file, ["addEntryTimeoutSec=8"]).config.timeouts.add_s == 8
    listed = bk("bookies", "--json", "--config", str(file))
    assert len(listed.json["writable"]) == 3, "BK_METADATA_URI wins over the file"
    assert bk("bookies", "--json", "-m", "mem://given").json == {"writable": [], "readOnly": []}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["bookies", "-m", ""], "no metadata URI given"),
        (["bookies", "-m", "etcd://x"], "none of the known schemes"),
        (["bookies", "-m", "mem://x", "-c", "novalue"], "key=value"),
        (["bookies", "-m", "mem://x", "-c", "readTimeoot=1"], "readTimeout"),
        (["bookies", "-m", "mem://x", "-c", "addEntryTimeoutSec=soon"], "addEntryTimeoutSec"),
        (["bookies", "-m", "mem://x", "--config", "/nowhere/at/all"], "/nowhere/at/all"),
        (["ledger", "create", "-m", "mem://x", "--digest", "md5"], "crc32c"),
        (["ledger", "create", "-m", "mem://x", "-e", "2", "-w", "3"], "ensemble"),
        (["ledger", "create", "-m", "mem://x", "--custom", "x"], "key=value"),
        (["ledger", "create", "-m", "mem://x", "--password-file", "/nowhere"], "/nowhere"),
        (["ledger", "create", "-m", "mem://x", "--password-file", "/dev/null", "--ask-password"], "mutually exclusive"),
        (["ledger", "create", "-m", "mem://x", "--ledger-id", "-1"], "--ledger-id"),
        (["ledger", "append", "-m", "mem://x", "--create", "--whole", "--length-prefixed"], "mutually exclusive"),
        (["ledger", "append", "-m", "mem://x", "--create", "1", "--ledger-id", "2"], "must be equal"),
        (["ledger", "read", "-m", "mem://x", "-1"], "No such option"),
        (["ledger", "read", "-m", "mem://x", "seven"], "LEDGER"),
        (["ledger", "read", "-m", "mem://x", "7", "-o", "xml"], "xml"),
        (["ledger", "list", "-m", "mem://x", "--state", "lost"], "lost"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_names_the_mistake(arguments: list[str], complaint: str) -> None:
    result = invoke(*arguments)

    assert result.code == EXIT_USAGE
    assert complaint in " ".join(result.stderr.split())
    assert result.stdout == b""


def test_a_metadata_service_that_is_not_there_is_not_available() -> None:
    result = invoke("bookies", "-m", "zk://127.0.0.1:1/ledgers", "-c", "zkTimeout=200", "--json")

    assert result.code == EXIT_UNAVAILABLE
    assert result.json["error"]["code"] == -9
    assert len(result.stderr.splitlines()) == 1


# Help --------------------------------------------------------------------------------------------------------------


def commands() -> list[tuple[str, ...]]:
    def walk(command: Any, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        children: dict[str, Any] = getattr(command, "commands", {})
        return [found for name, child in children.items() for found in walk(child, (*path, name))] or [path]

    return walk(typer.main.get_command(app), ())


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_of_every_command_has_examples_exit_codes_and_json(path: tuple[str, ...]) -> None:
    shown = invoke(*path, "--help")

    assert shown.code == 0
    assert f"  bk {' '.join(path)}" in shown.text
    assert "Exit codes: 0 " in shown.text
    assert "With --json" in shown.text


def test_without_arguments_there_is_help() -> None:
    assert "Exit codes of every command" in invoke().text + invoke().stderr


def test_shells_can_complete_commands() -> None:
    assert "--install-completion" in invoke("--help").text


def test_a_password_of_the_environment_may_be_any_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, PASSWORD_VARIABLE, os.fsdecode(b"\xff\x01"))

    assert password_from(None, ask=False) == b"\xff\x01"


def test_a_password_is_read_from_no_option(bk: Invoke) -> None:
    assert bk("ledger", "create", "--password", "secret").code == EXIT_USAGE
