"""Follows README, and then the page about tests, from the install line to the last command, word by word, as a newcomer would.

    python -m tests.tools.newcomer

Builds the wheel, makes an empty environment for each page, and runs what the page shows with nothing else on the path but the few
programs that it uses: no Java, no development tools. Prints how long each step took, and ends with 1 if a step fails, does not
print what it should, or comes too late: the first acknowledged append a minute after the beginning, the replay of a failing test
ten minutes. The packages are downloaded (or come from pip's cache), so the time for installing is mostly the network's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.tools import newcomer_readme, newcomer_testing
from tests.tools.following import ROOT, FollowingError, run

_PROGRAMS: Final = ("sh", "seq", "env")
#: What may pass from the beginning to the first acknowledged append, and to the replay of a test that failed.
_APPEND_WITHIN_S: Final = 60.0
_REPLAY_WITHIN_S: Final = 600.0


def _empty_environment(folder: Path, wheels: Path) -> dict[str, str]:
    """A path with a new virtual environment and next to nothing else on it."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    (folder / "bin").mkdir()
    for program in _PROGRAMS:
        found = shutil.which(program)
        if found is None:
            raise FollowingError(f"this machine has no {program}")
        (folder / "bin" / program).symlink_to(found)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HOME", "LANG"))}
    return {**kept, "PATH": f"{folder / 'venv' / 'bin'}:{folder / 'bin'}", "PIP_FIND_LINKS": str(wheels)}


class _Watch:
    """Prints each step with the time it took."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def step(self, command: str, printed: str = "") -> float:
        """The seconds since the beginning, after a step."""
        now = time.monotonic()
        sys.stdout.write(f"{now - self._last:6.1f} s  {command}\n")
        sys.stdout.writelines(f"            {line}\n" for line in printed.splitlines()[-3:])
        sys.stdout.flush()
        self._last = now
        return now - self._began


def _check_time(what: str, passed_s: float, limit_s: float) -> None:
    sys.stdout.write(f"{passed_s:6.1f} s from the beginning to {what}\n")
    if passed_s > limit_s:
        raise FollowingError(f"{what} must come within {limit_s:g} s")


def _install(line: str, environment: dict[str, str], folder: Path) -> None:
    # pip tells of newer versions of itself on standard error
    run(f"{line} --quiet --disable-pip-version-check", environment, folder)


def _walk(folder: Path) -> None:
    """Follow README in one environment, and the page about tests in another."""
    readme = newcomer_readme.steps_of(newcomer_readme.README.read_text(encoding="utf-8"))
    testing = newcomer_testing.steps_of(newcomer_testing.PAGE.read_text(encoding="utf-8"))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    first, second = folder / "first", folder / "second"
    for place in (first, second):
        place.mkdir()
    environment = _empty_environment(first, folder / "dist")
    watch = _Watch()
    _install(readme.install, environment, first)
    watch.step(readme.install)
    for command, printed in newcomer_readme.follow(readme, environment, first):
        passed_s = watch.step(command, printed)
        if command == readme.run_first:
            _check_time("the first acknowledged append", passed_s, _APPEND_WITHIN_S)

    test_environment = _empty_environment(second, folder / "dist")
    _install(testing.install, test_environment, second)
    watch.step(testing.install)
    for done in newcomer_testing.follow(testing, test_environment, second, environment):
        passed_s = watch.step(done.command, done.printed)
        if done.is_replay:
            _check_time("the replay of a failing test", passed_s, _REPLAY_WITHIN_S)


def main() -> int:
    """Build, install, follow; 1 if the pages and the product do not agree."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        try:
            _walk(Path(name))
        except FollowingError as error:
            sys.stdout.write(f"{error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
