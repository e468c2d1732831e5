"""``bk-sim inspect cookie`` and ``mark``: small files, ours and those of Apache BookKeeper, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bkclient.metadata.records import Cookie, encode_cookie
from simbookie.cli.app import app
from simbookie.storage.journal.mark import LogMark


def invoke(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_a_cookie_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "VERSION"
    file.write_bytes(encode_cookie(Cookie("b0", ("/j0", "/j1"), ("/l0", "/l1"), "instance", ("/i0",))))
    assert json.loads(invoke("cookie", file, "--json").stdout) == {
        "file": str(file),
        "bookie": "b0",
        "journals": ["/j0", "/j1"],
        "ledgers": ["/l0", "/l1"],
        "indexes": ["/i0"],
        "instance": "instance",
    }
    file.write_text("4\nbookieHost: 'b1'\njournalDir: '/j'\nledgerDirs: '2\\t/a\\t/b'\n")
    assert invoke("cookie", file).stdout.splitlines()[1:] == [
        "bookie: b1",
        "journals: /j",
        "ledgers: /a, /b",
        "indexes: -",
        "instance: -",
    ]


def test_a_mark_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "lastMark"
    file.write_bytes(LogMark(0x19A2, 4096).encode())
    assert json.loads(invoke("mark", file, "--json").stdout) == {
        "file": str(file),
        "journal": "19a2.txn",
        "offset": 4096,
    }
    assert invoke("mark", file).stdout.splitlines()[1:] == ["journal: 19a2.txn", "offset: 4096"]


@pytest.mark.parametrize("command", ["cookie", "mark"])
@pytest.mark.parametrize("content", [b"", b"short", b"6\n", b"\xff" * 8, b"x" * 15])
def test_what_is_damaged_is_one_sentence(command: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert str(file) in invoke(command, file, code=1).stderr
    assert "bk-sim: " in invoke(command, tmp_path / "missing", code=1).stderr
