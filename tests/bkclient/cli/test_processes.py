"""``bk`` as a process: pipes that close, signals, terminals; and once the whole of it on ZooKeeper and bookie processes."""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import IO

import pytest
import typer

from bkclient.cli.running import run_command
from simbookie.processes import ProcessCluster
from tests.bkclient.cli.invoking import invoke
from tests.zookeepers import AnyZooKeeper

pytestmark = pytest.mark.deep  # processes, and some of them wait

PATIENCE_S = 30


@contextmanager
def standalone(entries: int, *arguments: str, size: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.bkclient.cli.standalone", str(entries), str(size), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes], data: bytes | None = None) -> tuple[int, bytes, str]:
    output, errors = process.communicate(data, timeout=PATIENCE_S)
    return process.returncode, output, errors.decode()


def test_what_comes_through_a_pipe_goes_into_a_ledger() -> None:
    lines = b"".join(b"line %d\n" % number for number in range(20_000))
    with standalone(-1, "ledger", "append", "--create", "--json") as process:
        code, output, errors = ended(process, lines)

    assert (code, errors) == (0, "")
    assert json.loads(output)["entries"] == 20_000


def test_a_reader_that_has_seen_enough_ends_the_command_silently() -> None:
    with standalone(50, "ledger", "read", "0", size=20_000) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"entry 0 ")
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 141


def test_a_reader_that_does_not_read_holds_up_no_interrupt() -> None:
    with standalone(50, "ledger", "read", "0", size=20_000) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"e"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130


@pytest.mark.parametrize("arguments", [["read", "0"], ["info", "0"], ["list"]], ids=" ".join)
def test_a_closed_pipe_is_exit_code_141(arguments: list[str]) -> None:
    end_of_read, end_of_write = os.pipe()
    os.close(end_of_read)
    command = [sys.executable, "-m", "tests.bkclient.cli.standalone", "50", "0", "ledger", *arguments]
    try:
        with subprocess.Popen(command, stdout=end_of_write, stderr=subprocess.PIPE) as process:
            _, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        os.close(end_of_write)

    assert (process.returncode, errors) == (141, b"")


def on_terminal(*arguments: str, stdin: int | None) -> tuple[int, str]:
    """The exit code of a command and what it shows on a terminal that is its standard output and error."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tests.bkclient.cli.standalone", "-1", "0", *arguments]
    with subprocess.Popen(command, stdin=theirs if stdin is None else stdin, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        if stdin is None:
            os.write(ours, b"one\ntwo\n\x04")
        shown = b""
        with suppress(OSError):  # what Linux says when nobody has the other end any more
            while data := os.read(ours, 4096):
                shown += data
        os.close(ours)
        return process.wait(PATIENCE_S), shown.decode()


def test_there_is_a_progress_bar_on_a_terminal_for_who_appends_a_file(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"x" * 100 + b"\n")
    with (tmp_path / "input").open("rb") as file:
        code, shown = on_terminal("ledger", "append", "--create", stdin=file.fileno())

    assert code == 0
    assert "appending" in shown
    assert "101" in shown
    assert "ledger 0: 1 entries, 100 bytes" in shown


def test_who_types_the_entries_is_told_how_to_end() -> None:
    code, shown = on_terminal("ledger", "append", "--create", stdin=None)

    assert code == 0
    assert "Ctrl-D" in shown
    assert "ledger 0: 2 entries, 6 bytes" in shown


@pytest.mark.parametrize(("until_closed", "code"), [([], 0), (["--until-closed"], 130)])
def test_an_interrupt_ends_a_tail_in_peace(until_closed: list[str], code: int) -> None:
    with standalone(5, "ledger", "tail", "1", *until_closed) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(4)]
        process.send_signal(signal.SIGINT)
        status, rest, errors = ended(process)

    assert seen == [b"entry %d\n" % number for number in range(4)]
    assert (status, rest, errors) == (code, b"", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_an_append_with_the_ledger_closed_although_the_input_stands_still(
    number: signal.Signals, code: int
) -> None:
    with standalone(-1, "ledger", "append", "--create", "--print-ids") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        assert [process.stdout.readline(), process.stdout.readline()] == [b"0\n", b"1\n"]
        process.send_signal(number)
        assert process.stderr is not None
        told = process.stderr.read().decode()  # the input is left open
        assert process.wait(PATIENCE_S) == code

    assert told == "bk: not everything was appended: ledger 0 is closed, last entry 1\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("print_ids", [False, True])
def test_a_signal_ends_an_append_in_json_with_what_is_in_the_ledger(
    number: signal.Signals, code: int, *, print_ids: bool
) -> None:
    with standalone(-1, "ledger", "append", "--create", "--json", *["--print-ids"] * print_ids) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\ntwo\n" * 1000)
        process.stdin.flush()
        if print_ids:
            while process.stdout.readline() != b'{"entryId": 1999}\n':
                pass
        else:
            until_it_has_read(process)
        process.send_signal(number)
        output = process.stdout.read()
        assert process.wait(PATIENCE_S) == code

    told = json.loads(output)
    assert told["error"]["type"] == "Interrupted"
    assert (told["ledgerId"], told["entries"]) == (0, told["lastEntryId"] + 1)
    if print_ids:
        assert told["entries"] == 2000


def until_it_has_read(process: subprocess.Popen[bytes]) -> None:
    """Wait until ``process`` has taken all its input; the kernel counts what is left in a pipe."""
    assert process.stdin is not None
    while struct.unpack("i", fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)))[0]:
        time.sleep(0.01)


def test_a_command_that_is_interrupted_before_it_can_do_anything_says_so_in_json() -> None:
    async def never() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    with pytest.raises(typer.Exit) as ended, redirect_stdout(io.StringIO()) as output:
        run_command(never, as_json=True)

    assert ended.value.exit_code == 130
    assert json.loads(output.getvalue())["error"] == {
        "type": "Interrupted",
        "message": "Interrupted by Ctrl-C",
        "code": -15,
    }


def shown_beside(stdout: int | IO[bytes], *arguments: str) -> str:
    """What a command shows on a terminal that is its standard error only."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tests.bkclient.cli.standalone", "2000", "0", *arguments]
    with subprocess.Popen(command, stdout=stdout, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):
            while data := os.read(ours, 4096):
                shown += data
        os.close(ours)
        assert process.wait(PATIENCE_S) == 0
    return shown.decode()


def test_entries_that_go_through_a_pipe_are_not_mixed_with_a_progress_bar(tmp_path: Path) -> None:
    end_of_read, end_of_write = os.pipe()
    with subprocess.Popen(["cat"], stdin=end_of_read, stdout=subprocess.DEVNULL) as reader:
        os.close(end_of_read)
        try:
            assert shown_beside(end_of_write, "ledger", "read", "0") == ""
        finally:
            os.close(end_of_write)
        assert reader.wait(PATIENCE_S) == 0
    with (tmp_path / "entries").open("wb") as file:
        assert "reading" in shown_beside(file, "ledger", "read", "0")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_auto_recovery_runs_until_it_is_told_to_stop(number: signal.Signals) -> None:
    with standalone(3, "autorecovery", "run", "--json", "--name", "me") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "elected"
        process.send_signal(number)
        code, _, errors = ended(process)

    assert (code, errors) == (0, "")


def test_the_commands_work_together_on_a_real_cluster(zookeeper_server: AnyZooKeeper, zookeeper_root: str) -> None:
    uri = zookeeper_server.metadata_uri(zookeeper_root)

    def process(*arguments: str, stdin: bytes = b"") -> tuple[int, bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "bkclient.cli", *arguments],
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
            env=os.environ | {"BK_METADATA_URI": uri},
        )
        return done.returncode, done.stdout

    def bk(*arguments: str) -> tuple[int, bytes]:
        """The same in this process, which saves the time of starting one."""
        outcome = invoke(*arguments, BK_METADATA_URI=uri)
        return outcome.code, outcome.stdout

    with ProcessCluster(uri, 4, session_timeout_s=2.5) as cluster:
        code, output = bk("bookies", "--json")
        assert code == 0
        assert len(json.loads(output)["writable"]) == 4

        lines = b"".join(b"line %d\n" % number for number in range(1000))
        code, output = process("ledger", "append", "--create", "--json", "-e", "3", "-w", "3", "-a", "2", stdin=lines)
        assert code == 0
        ledger_id = str(json.loads(output)["ledgerId"])
        assert process("ledger", "read", ledger_id) == (0, lines)
        assert bk("ledger", "tail", ledger_id, "--until-closed", "--first", "999") == (0, b"line 999\n")

        code, output = bk("ledger", "create", "--json")
        created = str(json.loads(output)["ledgerId"])
        assert bk("ledger", "list")[1].split() == [ledger_id.encode(), created.encode()]
        assert bk("ledger", "list", "--state", "open")[1].split() == [created.encode()]
        code, output = bk("ledger", "recover", created, "--json")
        assert (code, json.loads(output)["state"]) == (0, "CLOSED")
        assert bk("ledger", "delete", created, "--force") == (0, b"")
        assert bk("ledger", "info", created)[0] == 1

        lost = json.loads(bk("ledger", "info", ledger_id, "--json")[1])["allEnsembles"]["0"][0]
        cluster.bookie(lost).kill()
        while len(json.loads(bk("bookies", "--json")[1])["writable"]) > 3:
            time.sleep(0.1)  # until ZooKeeper misses it
        assert bk("ledger", "check", ledger_id)[0] == 1
        code, output = bk("repair", "bookie", lost, "--json")
        assert (code, json.loads(output)["entriesCopied"]) == (0, 1000)
        assert bk("ledger", "check", ledger_id, "--thorough")[0] == 0
        assert bk("autorecovery", "status")[0] == 0
        assert bk("ledger", "read", ledger_id) == (0, lines)
