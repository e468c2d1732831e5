"""What it takes to follow a page: commands that are run as they stand there, and an error with what was printed."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "FollowingError", "cluster", "run"]

ROOT: Final = Path(__file__).resolve().parent.parent.parent
_START_TIMEOUT_S: Final = 60.0
_COMMAND_TIMEOUT_S: Final = 300.0


class FollowingError(Exception):
    """A step of a page does not do what the page says."""


@contextmanager
def cluster(command: str, environment: dict[str, str], folder: Path) -> Iterator[str]:
    """The running cluster; yields the last line that it printed. Ctrl-C must end it with status 0."""
    output = folder / "cluster.out"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command.split(), env=environment, cwd=folder, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not (last := output.read_text().rstrip().rpartition("\n")[2]).startswith("export "):
            if process.poll() is not None or time.monotonic() > deadline:
                raise FollowingError(f"{command!r} did not come to serve:\n{output.read_text()}")
            time.sleep(0.05)
        yield last
        process.send_signal(signal.SIGINT)
        if process.wait(_START_TIMEOUT_S) != 0:
            raise FollowingError(f"{command!r} ended with {process.returncode}:\n{output.read_text()}")
    finally:
        process.kill()
        process.wait()


def run(command: str, environment: dict[str, str], folder: Path) -> str:
    """What a shell command prints; :class:`FollowingError` if it fails or writes to standard error."""
    done = subprocess.run(
        ["sh", "-c", command],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0 or done.stderr:
        raise FollowingError(f"{command!r} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
