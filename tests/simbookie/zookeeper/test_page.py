"""docs/using/development-cluster.md tells the truth: its program runs, and the limits are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from simbookie.zookeeper import ConnectionLimits, Limits, ZooKeeperKind

PAGE = (Path(__file__).parents[3] / "docs" / "using" / "development-cluster.md").read_text()


def test_its_program_runs() -> None:
    program = PAGE.partition("```python\n")[2].partition("```")[0]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def table(head: str) -> str:
    """The rows of the table whose first column is headed so."""
    return PAGE.partition(f"\n| {head} |")[2].partition("\n\n")[0]


def test_its_limits_are_the_defaults() -> None:
    rows = {row[0]: row[1] for row in re.findall(r"^\| ([a-z][^|]*) \| ([^|]*) \|", table("limit"), re.MULTILINE)}
    limits, connections = Limits(), ConnectionLimits()
    assert rows == {
        "frame (`jute.maxbuffer`)": "1 MiB - 1 byte; 1 KiB before there is a session",
        "connections, of one source and of all": f"{connections.connections_max}",
        "time to ask for a session": f"{connections.connect_timeout_s:g} s",
        "events that a client does not read": f"{connections.backlog_max >> 20} MiB",
        "sessions": f"{limits.sessions_max:,} of {limits.session_timeout_min_s} to {limits.session_timeout_max_s:g} s",
        "znodes, and bytes of them all": f"{limits.znodes_max:,} and {limits.bytes_max >> 20} MiB",
        "path": f"{limits.path_size_max:,} characters",
        "watches of a kind, of all clients and of one": f"{limits.watches_max:,} and {limits.watches_per_client_max:,}",
    }
    assert connections.frame_size_max == (1 << 20) - 1
    assert connections.connections_per_source_max == connections.connections_max


def test_it_names_every_choice() -> None:
    assert set(re.findall(r"^\| `([a-z]+)` \|", table("`--zookeeper`"), re.MULTILINE)) == set(ZooKeeperKind)
