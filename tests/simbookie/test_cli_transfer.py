"""``bk-sim export`` and ``import``: a killed bookie's disk as a folder, and what would be served from a folder."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simbookie.cli.app import app
from simbookie.crashes.kinds import SEVERAL_FOLDERS, STORE_KINDS
from tests.simbookie.admin.bench import operated


def invoke(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result


def exported(folder: Path, *options: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke("export", folder, "--json", *options).stdout)
    return found


def imported(*where: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke("import", *where, "--json", code=code).stdout)
    return found


def inspected(what: str, path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke("inspect", what, path, "--json").stdout)
    return found


ONE_FOLDER = [kind for kind in STORE_KINDS if not kind.endswith(SEVERAL_FOLDERS)]
SEVERAL = [kind for kind in STORE_KINDS if kind.endswith(SEVERAL_FOLDERS)]


@pytest.mark.parametrize("kind", ONE_FOLDER)
@pytest.mark.parametrize("crash", ["process", "power-loss"])
def test_what_a_killed_bookie_left_is_a_folder_that_a_bookie_starts_on(kind: str, crash: str, tmp_path: Path) -> None:
    facts = exported(tmp_path / "run", "--storage", kind, "--crash", crash, "--seed", 11)
    assert facts["step"] is None
    assert all((tmp_path / "run" / path).exists() for path in facts["files"])
    assert any(path.startswith("journal/current/") for path in facts["files"])
    conf = (tmp_path / "run" / "bk_server.conf").read_text()
    assert f"ledgerDirectories={tmp_path / 'run' / 'ledgers'}\n" in conf
    told = imported(tmp_path / "run")
    assert told["ledgers"]
    assert all(each["unreadable"] == [] for each in told["ledgers"])


@pytest.mark.parametrize(
    ("kind", "journals"), [("sorted", 2), *((kind, journals) for kind in SEVERAL for journals in (1, 3))]
)
@pytest.mark.parametrize("crash", ["process", "power-loss"])
def test_a_bookie_with_several_folders_goes_there_and_back(
    kind: str, journals: int, crash: str, tmp_path: Path
) -> None:
    """What is in the files, as they are listed, is what is served from them."""
    run = tmp_path / "run"
    facts = exported(run, "--storage", kind, "--journals", journals, "--crash", crash, "--seed", 11)
    names = [f"journal{index}" for index in range(journals)] if journals > 1 else ["journal"]
    stores = ["ledgers", "ledgers1"] if kind in SEVERAL else ["ledgers"]
    assert {path.partition("/")[0] for path in facts["files"]} == {*names, *stores}
    conf = (run / "bk_server.conf").read_text().splitlines()
    assert conf[0] == "journalDirectories=" + ",".join(str(run / name) for name in names)
    assert conf[1] == "ledgerDirectories=" + ",".join(str(run / name) for name in stores)
    told = imported("--conf", run / "bk_server.conf")
    assert told["folder"] == ", ".join(str(run / name) for name in (*names, *stores))
    served = {(ledger["ledger"], ledger["entries"]) for ledger in told["ledgers"] if ledger["entries"]}
    assert all(ledger["unreadable"] == [] for ledger in told["ledgers"])
    assert len(served) > 3

    journalled: set[tuple[int, int]] = set()
    logged: set[tuple[int, int]] = set()
    for index, name in enumerate(names):
        files = inspected("journal", run / name / "current")["journals"]
        records = [record for file in files for record in file["records"]]
        assert {record["ledger"] % journals for record in records} <= {index}
        journalled |= {(record["ledger"], record["entry"]) for record in records if record["kind"] == "entry"}
    for name in stores:
        for mark in sorted((run / name / "current").glob("lastMark*")):
            journal = names[int(mark.suffix[1:] or 0)]
            assert (run / journal / "current" / inspected("mark", mark)["journal"]).exists()
        for log in (run / name / "current").glob("*.log"):
            if log.stat().st_size:
                logged |= {(entry["ledger"], entry["entry"]) for entry in inspected("log", log)["entries"]}
    for ledger_id, count in served:
        in_journals, in_logs = ({each for each in found if each[0] == ledger_id} for found in (journalled, logged))
        assert len(in_journals) <= count <= len(in_journals | in_logs), "a log may have what no journal has yet"
    assert imported("--conf", run / "bk_server.conf") == told, "which changed nothing"


def test_a_folder_of_which_a_part_would_be_read_is_refused(tmp_path: Path) -> None:
    for name, options in (("a", ("--journals", 2)), ("b", ("--storage", "db-folders"))):
        run = tmp_path / name
        exported(run, *options, "--seed", 8)
        message = " ".join(invoke("import", run, code=2).stderr.replace("│", " ").split())
        assert "several of a kind in it: use --conf" in message
    (tmp_path / "a" / "bk_server.conf").unlink()
    assert "has no data of a bookie in journal/current" in invoke("import", tmp_path / "a", code=1).stderr
    (tmp_path / "b" / "bk_server.conf").write_text("ledgerDirectories=/nowhere\n")
    for arguments in (["--conf", tmp_path / "b" / "bk_server.conf"], []):
        assert "--conf" in invoke("import", *arguments, code=2).stderr
    (tmp_path / "c.conf").write_text(f"journalDirectories={tmp_path / 'x'}\nledgerDirectories={tmp_path / 'x'}\n")
    assert "x is no folder" in invoke("import", "--conf", tmp_path / "c.conf", code=1).stderr


def test_the_seed_and_the_step_decide_all_of_it(tmp_path: Path) -> None:
    first, second, other = (
        exported(tmp_path / name, "--seed", 3, "--step", step) for name, step in (("a", 60), ("b", 60), ("c", 61))
    )
    assert first["step"] is not None
    assert (first["step"], first["files"]) == (second["step"], second["files"])
    for path in first["files"]:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()
    assert imported(tmp_path / "a")["ledgers"] == imported(tmp_path / "b")["ledgers"]
    assert other["step"] is not None


def test_people_are_told_in_sentences(tmp_path: Path) -> None:
    text = invoke("export", tmp_path / "run", "--seed", 11).stdout
    assert text.startswith("the bookie came to its end, and was killed; ")
    lines = invoke("import", tmp_path / "run").stdout.splitlines()
    assert lines[0].startswith("ledger ")
    assert lines[-1].endswith(" entries")


def test_damage_is_told(tmp_path: Path) -> None:
    async def store() -> None:
        async with operated(tmp_path) as it:
            assert it.subject.connect is not None
            async with it.subject.connect() as client:
                writer = await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
                for _ in range(3):
                    await writer.append(b"entry")

    asyncio.run(store())
    ((ledger,)) = imported(tmp_path)["ledgers"]
    assert (ledger["entries"], ledger["last"], ledger["lac"], ledger["fenced"]) == (3, 2, 1, False)
    log = tmp_path / "ledgers/current/0.log"
    data = bytearray(log.read_bytes())
    data[1024 + 4 : 1024 + 20] = b"\xff" * 16  # the ids of the first entry
    log.write_bytes(data)
    ((ledger,)) = imported(tmp_path, code=1)["ledgers"]
    assert ledger["unreadable"] == [0]
    assert "  entry 0 cannot be read\n" in invoke("import", tmp_path, code=1).stdout


def test_wrong_usage_and_folders_that_will_not_do(tmp_path: Path) -> None:
    for options in (("--storage", "none"), ("--crash", "meteor")):
        invoke("export", tmp_path / "run", *options, code=2)
    (tmp_path / "file").write_text("mine")
    assert "is not an empty folder" in invoke("export", tmp_path, code=1).stderr
    invoke("import", tmp_path / "missing", code=2)
    exported(tmp_path / "run", "--seed", 11)
    (tmp_path / "run" / "large").write_bytes(bytes(2 << 20))
    assert "more than 1048576 bytes" in invoke("import", tmp_path / "run", "--memory-mib", 1, code=1).stderr
