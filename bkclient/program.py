"""How a console script begins and ends, whatever is missing and whenever it is interrupted.

Loading a command takes a good part of a second. Until it runs there is nothing to clean up, so Ctrl-C ends the program at once,
silently, with the exit code that it has later. A package that an extra brings and that is not installed is named in one
sentence, with the line that installs it. Everything that is not needed for this is imported later, here and in
:mod:`bkclient` itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import current_thread, main_thread
from typing import Any, Final

from bkclient import __version__

__all__ = ["EXIT_USAGE", "loading", "missing_package", "run_program"]

EXIT_USAGE: Final = 2
_EXIT_INTERRUPTED: Final = 130

_DISTRIBUTIONS: Final = {
    "click": "typer",
    "google_crc32c": "google-crc32c",
    "kazoo": "kazoo",
    "msgpack": "msgpack",
    "pyarrow": "pyarrow",
    "py4j": "pyspark",
    "pyspark": "pyspark",
    "rich": "rich",
    "shellingham": "typer",
    "typer": "typer",
}
"""Packages that may be missing because an extra was not asked for, with the distributions that bring them."""


def run_program(name: str, module: str, extra: str, run: str = "run") -> None:
    """Load ``module`` and call its function ``run``; ``name`` is the program's, ``extra`` what installs what it needs.

    ``--version`` as the first argument is answered here, so that it is answered whatever is missing.
    """
    if sys.argv[1:2] == ["--version"]:
        sys.stdout.write(f"{name} {__version__}\n")
        return
    is_handled = _is_handled()
    try:
        with loading():
            program: Callable[[], Any] = getattr(import_module(module), run)
        program()
    except ModuleNotFoundError as error:
        package = missing_package(error)
        if package is None:
            raise
        sys.stderr.write(f"{name}: {package} is not installed; run: pip install 'bkclient[{extra}]'\n")
        sys.exit(EXIT_USAGE)
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)
    finally:
        if is_handled:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # what was to be done is done, and the exit code is decided


@contextmanager
def loading() -> Iterator[None]:
    """While a program, or a command of it, is loaded in this block, Ctrl-C ends the process at once."""
    is_handled = _is_handled()
    if is_handled:
        signal.signal(signal.SIGINT, _end_at_once)
    try:
        yield
    finally:
        if is_handled:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def missing_package(error: ModuleNotFoundError) -> str | None:
    """The distribution that lacks for ``error``, if it is one that an extra brings."""
    return _DISTRIBUTIONS.get((error.name or "").partition(".")[0])


def _is_handled() -> bool:
    """Whether Ctrl-C is: not where it is ignored, as in the background of a shell, nor in another thread than the main one."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler and current_thread() is main_thread()


def _end_at_once(_: int, __: object) -> None:
    os._exit(_EXIT_INTERRUPTED)
