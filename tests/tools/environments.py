"""Runs the tests in environments other than the pinned one: other Pythons, the lowest and the highest versions allowed.

    python -m tests.tools.environments    # every environment that this machine can make
    python -m tests.tools.environments 3.13-highest --pytest "-x -n 2"
    python -m tests.tools.environments --brief --at-once 4    # what depends on them most, as .ci/run does

An environment is a Python and an end of the ranges in pyproject.toml: ``lowest`` takes the oldest version of every direct
dependency that is allowed, ``highest`` the newest of everything. uv resolves and installs. Environments are made under ``build/``
and kept; one is made anew when pyproject.toml has changed. A Python that this machine does not have is named and left out. All of
them have sniffio, which changes what anyio does; an environment in which no test is found has failed. Of several at once, each
prints what it has to say when it is through.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
FOLDER: Final = ROOT / "build" / "environments"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
#: What is tested: all that depends on what is installed. Pages, fixed tables and Spark's own behaviour are the pinned run's.
TESTS: Final = ("tests/bkclient", "tests/simbookie", "tests/scenarios", "tests/end_to_end", "tests/test_examples.py")
#: Of these, what stands closest to the event loop, the interpreter and the libraries: sockets, tasks and cancellation, bytes,
#: drivers of metadata services, the simulator's virtual time, and the command line.
TESTS_BRIEF: Final = (
    *("tests/bkclient/wire", "tests/bkclient/transport", "tests/bkclient/metadata", "tests/bkclient/security"),
    *("tests/bkclient/_client/test_background.py", "tests/bkclient/_client/test_client_tasks.py"),
    *("tests/bkclient/_client/reading/test_reads.py", "tests/bkclient/repair/test_patience.py"),
    *("tests/bkclient/cli/test_repairs.py", "tests/scenarios/test_cli.py", "tests/simbookie/test_cli.py"),
    *("tests/simbookie/tcp", "tests/simbookie/world/test_determinism.py", "tests/simbookie/world/test_loop.py"),
    *("tests/simbookie/world/test_process.py", "tests/end_to_end/test_client_life.py"),
    *("tests/scenarios/testing", "tests/bkclient/sync"),
)
#: Spark and Java are slow and do not change with the Python packages; searches repeat what other tests say once.
LEFT_OUT: Final = "not deep and not sweep and not interop and not spark and not zookeeper"
#: For a test that hangs; old versions are slower, and several environments may be run side by side.
TIMEOUT_S: Final = 600

#: Environments are made one after the other: each builds the project in this folder.
_MAKING: Final = threading.Lock()


@dataclass(frozen=True)
class Environment:
    """A Python and an end of the allowed versions."""

    python: str
    end: str

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"{self.python}-{self.end}"

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return FOLDER / self.name

    @property
    def executable(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def output(self) -> Path:
        """What its last run printed, where it was one of several at once."""
        return self.folder / "output"

    @property
    def is_made(self) -> bool:
        """Whether it stands and is newer than what it was made from."""
        mark = self.folder / "made"
        return mark.exists() and mark.stat().st_mtime > (ROOT / "pyproject.toml").stat().st_mtime


#: The oldest of everything on the oldest Python; the newest of everything on all of them.
ENVIRONMENTS: Final = (Environment(PYTHONS[0], "lowest"), *(Environment(python, "highest") for python in PYTHONS))
#: In brief; the ordinary tests run on the oldest Python, with pinned versions that are hardly older than the newest.
ENVIRONMENTS_BRIEF: Final = tuple(e for e in ENVIRONMENTS if e != Environment(PYTHONS[0], "highest"))


def find_python(version: str) -> str | None:
    """A working interpreter of ``version``, from PATH or pyenv; None if there is none."""
    pyenv = os.environ.get("PYENV_ROOT", str(Path("~/.pyenv").expanduser()))
    installed = sorted(Path(pyenv).glob(f"versions/{version}.*/bin/python"))
    candidates = [shutil.which(f"python{version}"), *map(str, installed)]
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "-c", "import venv"], check=False, capture_output=True)
        if done.returncode == 0:
            return candidate
    return None


def make(environment: Environment, interpreter: str) -> None:
    """Install the project with its tests' dependencies."""
    shutil.rmtree(environment.folder, ignore_errors=True)
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", interpreter, str(environment.folder)], cwd=ROOT, check=True)
    resolution = "lowest-direct" if environment.end == "lowest" else "highest"
    install = [*uv, "pip", "install", "--python", str(environment.executable), "--resolution", resolution]
    subprocess.run([*install, "--editable", ".[dev-test]"], cwd=ROOT, check=True)
    (environment.folder / "made").touch()


def run(environment: Environment, tests: Sequence[str], options: Sequence[str], *, is_alone: bool = True) -> bool:
    """Whether there are tests and all pass. Its output is kept in a file unless ``is_alone``."""
    command = [str(environment.executable), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", LEFT_OUT]
    command += ["--timeout", str(TIMEOUT_S), *options, *tests]
    if is_alone:
        return subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    with environment.output.open("wb") as output:
        return subprocess.run(command, cwd=ROOT, check=False, stdout=output, stderr=subprocess.STDOUT).returncode == 0


def made_and_run(environment: Environment, tests: Sequence[str], options: Sequence[str], *, is_alone: bool) -> str:
    """What came of it, in a word or two."""
    interpreter = find_python(environment.python)
    if interpreter is None:
        say(f"== {environment.name} is left out: this machine has no Python {environment.python}")
        return "left out"
    say(f"== {environment.name} ({interpreter})")
    if not environment.is_made:
        with _MAKING:
            make(environment, interpreter)
    began = time.monotonic()
    passed = run(environment, tests, options, is_alone=is_alone)
    result = f"{'passed' if passed else 'FAILED'} in {time.monotonic() - began:.0f} s"
    if not is_alone:
        say(f"== {environment.name} {result}\n{environment.output.read_text(encoding='utf-8', errors='replace')}")
    return result


def main() -> int:
    """Make and run what was asked for; 1 if tests failed, 2 if nothing could be run, unless that is no matter (--brief)."""
    parser = argparse.ArgumentParser(description="Run the tests with other Pythons and other versions of dependencies.")
    names = [environment.name for environment in ENVIRONMENTS]
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which: {', '.join(names)}; all by default, or with --brief all but one",
    )
    parser.add_argument("--pytest", default="", metavar="OPTIONS", help="further options for pytest, as one word")
    parser.add_argument(
        "--brief", action="store_true", help="fewer tests; a machine without any of the Pythons is no failure"
    )
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="how many run at the same time; 1 by default"
    )
    arguments = parser.parse_args()
    by_default = [environment.name for environment in (ENVIRONMENTS_BRIEF if arguments.brief else ENVIRONMENTS)]
    wanted = arguments.names or by_default
    if unknown := set(wanted) - set(names):
        parser.error(f"there is no environment {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    chosen = [environment for environment in ENVIRONMENTS if environment.name in wanted]
    tests, options = TESTS_BRIEF if arguments.brief else TESTS, arguments.pytest.split()
    with ThreadPoolExecutor(arguments.at_once) as pool:
        found = pool.map(lambda one: made_and_run(one, tests, options, is_alone=arguments.at_once == 1), chosen)
        results = {environment.name: result for environment, result in zip(chosen, found, strict=True)}
    for name, result in results.items():
        say(f"{name:14} {result}")
    if any(result.startswith("FAILED") for result in results.values()):
        return 1
    return 0 if arguments.brief or any(result.startswith("passed") for result in results.values()) else 2


def say(line: str) -> None:
    """A line on standard output, now."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
