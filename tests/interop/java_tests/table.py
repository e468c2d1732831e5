"""Which of BookKeeper's test classes and methods apply to our bookies, as ``tests.toml`` lists them.

Every class of tests in the covered packages of their jar has a row. A class ``applies``, with all of its methods but those named
below it; or it does not, for a reason, and is not run. A method that does not apply has a reason and a verb: ``fails`` (it
is run, and must fail), ``may`` (it is run, and may do either) or ``skip`` (it is not run, because it would hang or show nothing).

A reason begins with its kind, one of :data:`KINDS`, by which the summary counts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final
from zipfile import ZipFile

__all__ = ["KINDS", "PACKAGE", "TABLE", "JavaTests", "Verb", "classes_in", "read_table"]

TABLE: Final = Path(__file__).with_name("tests.toml")
PACKAGE: Final = "org.apache.bookkeeper."
#: Packages of their jar of which every class must have a row.
COVERED: Final = ("client", "client.api", "client.impl", "test")
#: What reasons begin with, and what it means.
KINDS: Final[Mapping[str, str]] = {
    "no bookie": "the test runs no bookie: it is of the client alone, on mocks",
    "inside": "the test reaches into a bookie of Java in its own process",
    "java bookie": "all bookies of the test are of Java, brought by the test",
    "harness": "the test expects what bookies do only when BookKeeper's tests start them, and not when operators do",
    "limits": "theirs refuses what a queue of a thread has no room for; ours leaves it unread in the socket",
    "machine": "the test depends on the machine it runs on, not on the bookie",
}


class Verb(Enum):
    """What is done with a method that does not apply."""

    FAILS = "fails"
    MAY = "may"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class JavaTests:
    """One class of tests. ``reason`` says why it does not apply, if it does not; ``exceptions`` are its methods that do not."""

    name: str
    reason: str | None
    exceptions: Mapping[str, tuple[Verb, str]]

    @property
    def class_name(self) -> str:
        """With its package."""
        return PACKAGE + self.name

    def skipped(self) -> list[str]:
        """Methods that are not run."""
        return [method for method, (verb, _) in self.exceptions.items() if verb is Verb.SKIP]


def read_table(text: str) -> dict[str, JavaTests]:
    """The rows by class, in order; :class:`ValueError` for what cannot be one."""
    found = tomllib.loads(text)
    classes, methods = found.pop("classes", {}), found.pop("methods", {})
    if found:
        raise ValueError(f"the table of tests has sections that nobody reads: {', '.join(found)}")
    if strangers := sorted(set(methods) - set(classes)):
        raise ValueError(f"these classes have methods and no row: {', '.join(strangers)}")
    rows = {}
    for name, row in classes.items():
        reason = None if row == "applies" else _checked(name, row)
        exceptions = {method: _exception(f"{name}.{method}", entry) for method, entry in methods.get(name, {}).items()}
        if reason is not None and exceptions:
            raise ValueError(f"{name} is not run, and has methods listed")
        rows[name] = JavaTests(name, reason, exceptions)
    return rows


def _exception(where: str, entry: object) -> tuple[Verb, str]:
    if not isinstance(entry, dict) or len(entry) != 1:
        raise ValueError(f"{where} must have one verb and its reason, got {entry!r}")
    ((verb, reason),) = entry.items()
    return Verb(verb), _checked(where, reason)


def _checked(where: str, reason: str) -> str:
    kind, separator, _ = reason.partition(": ")
    if kind not in KINDS or (not separator and kind != "no bookie"):
        raise ValueError(
            f"{where} must apply, or have a reason that begins with one of {', '.join(KINDS)}; got {reason!r}"
        )
    return reason


def classes_in(jar: Path, *, everywhere: bool = False) -> Iterator[str]:
    """The classes of tests in the covered packages of ``jar``, or in all, without the common part of their names."""
    with ZipFile(jar) as archive:
        for path in sorted(archive.namelist()):
            package, _, name = path.removeprefix(PACKAGE.replace(".", "/")).removesuffix(".class").rpartition("/")
            is_test = name.startswith("Test") or name.endswith(("Test", "Tests", "Expiry", "Errors"))
            if path.endswith(".class") and "$" not in name and is_test:
                if not everywhere and package.replace("/", ".") not in COVERED:
                    continue
                yield f"{package.replace('/', '.')}.{name}"
