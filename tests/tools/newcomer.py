"""Follows README from its install line to its last shell command, word by word, as a newcomer would.

    python -m tests.tools.newcomer

Builds the wheel, makes an empty environment, and runs what README shows with nothing else on the path but the few programs that
it uses: no Java, no development tools. Prints how long each step took, and ends with 1 if a step fails or does not print what it
should. The packages are downloaded (or come from pip's cache), so the time for installing is mostly the network's.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
README: Final = ROOT / "README.md"
_PROGRAMS: Final = ("sh", "seq", "env")
_START_TIMEOUT_S: Final = 60.0
_COMMAND_TIMEOUT_S: Final = 120.0


class NewcomerError(Exception):
    """A step of README does not do what README says."""


@dataclass(frozen=True)
class Steps:
    """What README tells a newcomer to do, in order; comments of its lines are left out."""

    install: str
    first_program: str
    run_first: str
    start_cluster: str
    second_program: str
    run_second: str
    commands: tuple[str, ...]


def _section(page: str, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise NewcomerError(f"README has no section {title!r}")
    return found[1]


def _shell_lines(text: str) -> list[str]:
    lines = re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return [re.sub(r"\s{2,}#.*", "", line) for line in lines]


def _program(text: str) -> str:
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    if found is None:
        raise NewcomerError("README shows no program")
    return found[1]


def steps_of(page: str) -> Steps:
    """The steps in README's text; :class:`NewcomerError` if it is not built as expected."""
    first, with_cluster = _section(page, "A first program"), _section(page, "With a cluster")
    (install,) = _shell_lines(_section(page, "Install"))
    (run_first,) = _shell_lines(first)
    start, run_second, *commands = _shell_lines(with_cluster)
    if not commands:
        raise NewcomerError("README shows no command after the programs")
    return Steps(install, _program(first), run_first, start, _program(with_cluster), run_second, tuple(commands))


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
                raise NewcomerError(f"{command!r} did not come to serve:\n{output.read_text()}")
            time.sleep(0.05)
        yield last
        process.send_signal(signal.SIGINT)
        if process.wait(_START_TIMEOUT_S) != 0:
            raise NewcomerError(f"{command!r} ended with {process.returncode}:\n{output.read_text()}")
    finally:
        process.kill()
        process.wait()


def run(command: str, environment: dict[str, str], folder: Path) -> str:
    """What a shell command prints; :class:`NewcomerError` if it fails or writes to standard error."""
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
        raise NewcomerError(f"{command!r} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def follow(steps: Steps, environment: dict[str, str], folder: Path) -> Iterator[tuple[str, str]]:
    """Do everything after the installation; yields each command with what it printed."""
    (folder / "first.py").write_text(steps.first_program)
    (folder / "second.py").write_text(steps.second_program)
    yield steps.run_first, run(steps.run_first, environment, folder)
    with cluster(steps.start_cluster, environment, folder) as export:
        yield steps.start_cluster, export
        name, _, value = export.removeprefix("export ").partition("=")
        environment = {**environment, name: value}
        for command in (steps.run_second, *steps.commands):
            yield command, run(command, environment, folder)


def _empty_environment(folder: Path) -> dict[str, str]:
    """A path with a new virtual environment and next to nothing else on it."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    (folder / "bin").mkdir()
    for program in _PROGRAMS:
        found = shutil.which(program)
        if found is None:
            raise NewcomerError(f"this machine has no {program}")
        (folder / "bin" / program).symlink_to(found)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HOME", "LANG"))}
    return {**kept, "PATH": f"{folder / 'venv' / 'bin'}:{folder / 'bin'}", "PIP_FIND_LINKS": str(folder / "dist")}


def main() -> int:
    """Build, install, follow; 1 if README and the product do not agree."""
    steps = steps_of(README.read_text())
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        folder = Path(name)
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        environment = _empty_environment(folder)
        began = last = time.monotonic()
        try:
            # pip tells of newer versions of itself on standard error
            run(f"{steps.install} --quiet --disable-pip-version-check", environment, folder)
            for command, printed in chain([(steps.install, "")], follow(steps, environment, folder)):
                now = time.monotonic()
                sys.stdout.write(f"{now - last:6.1f} s  {command}\n")
                sys.stdout.writelines(f"            {line}\n" for line in printed.splitlines()[-3:])
                sys.stdout.flush()
                last = now
        except NewcomerError as error:
            sys.stdout.write(f"{error}\n")
            return 1
        sys.stdout.write(f"{time.monotonic() - began:6.1f} s in all\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
