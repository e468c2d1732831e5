"""Plants defects and sees whether the interoperability tests notice: the proof that they can fail.

A test against a real peer that passes says little as long as nobody saw it fail. So each defect of
:mod:`tests.tools.interop_defect_table` is planted, alone, in a copy of the work tree, and the tests named beside it are run
there, against the same built peers. A defect counts as noticed if one of them fails in its own body, after collection and
set-up, with an error that says what the table expects; what fails otherwise proves nothing and is told as such. Before that
the same tests have to pass on the copy as it is.

Some defects no peer can notice. They are in the table too, with the reason, so that nobody takes their absence for an
oversight; they have to survive.

Run by ``make interop-defects``, as ``python -m tests.tools.interop_defects [PART_OF_A_NAME ...]``. Outcomes are kept under
``build/interop``, each with a fingerprint of its defect, and once every defect of the table has one the table in
``docs/reference/interop.md`` is written from them. One run of pytest at a time; a quarter of an hour, most of which real
bookies take to start.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tools.conformance import ROOT
from tests.tools.interop_defect_table import DEFECTS, Defect, Selection
from tests.tools.interop_page import PAGE, replaced
from tests.tools.interop_witness import FILE

__all__ = ["KEPT", "Outcome", "Verdict", "copied_tree", "judge", "main", "noted", "planted", "render", "write_page"]

KEPT: Final = ROOT / "build" / "interop" / "defects.json"
MADE_BY: Final = "make interop-defects"
_PEERS: Final = ROOT / "build" / "interop"
#: The longest a selection may take; a defect may make every request of a test wait for its timeout.
_RUN_MAX_S: Final = 600.0
_FAREWELL_S: Final = 60.0
#: What would change what the tests in the copy do, beside the versions, which each defect chooses.
_NOT_INHERITED: Final = ("INTEROP_SECOND_ATTEMPT", "REWRITE_GOLDEN", "PYTEST_ADDOPTS", "PYTEST_PLUGINS")


class DefectError(Exception):
    """The table or the copy is not what it has to be."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one run of pytest wrote down about one phase of one test."""

    test: str
    phase: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """``noticed_by``: tests that failed for the expected ``reason``. ``trouble``: why the run is no proof, empty if it is one."""

    noticed_by: tuple[str, ...]
    trouble: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one defect, for the page."""

    fingerprint: str
    noticed_by: tuple[str, ...]
    seconds: float


# The copy ------------------------------------------------------------------------------------------------------------


def tracked_files(root: Path) -> list[str]:
    """What is under version control and still there."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    return [name for name in listing.split("\0") if name and (root / name).is_file()]


@contextmanager
def copied_tree(root: Path = ROOT, peers: Path = _PEERS) -> Iterator[Path]:
    """A copy of the tracked files in a temporary folder, with the built peers within reach and nothing else of ``build``."""
    with tempfile.TemporaryDirectory(prefix="interop-defects-") as folder:
        copy = Path(folder) / "tree"
        for name in tracked_files(root):
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target)
        reachable = copy / "build" / "interop"
        reachable.mkdir(parents=True)
        for version in sorted(peers.glob("*/")):
            (reachable / version.name).symlink_to(version.resolve(), target_is_directory=True)
        yield copy


@contextmanager
def planted(copy: Path, defect: Defect) -> Iterator[None]:
    """The defect in the copy for a while; :class:`DefectError` if its old text is not there exactly once."""
    file = copy / defect.path
    sound = file.read_text(encoding="utf-8")
    found = sound.count(defect.old)
    if found != 1:
        raise DefectError(f"'{defect.name}': its old text is {found} times in {defect.path}, and has to be there once")
    file.write_text(sound.replace(defect.old, defect.new), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(sound, encoding="utf-8")


# A run ---------------------------------------------------------------------------------------------------------------


def run(copy: Path, selections: Sequence[Selection]) -> list[Report]:
    """What became of the selected tests, all of one version; :class:`DefectError` if something else than the copy was tested."""
    witness = copy.parent / "witness.jsonl"
    witness.write_text("")
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    environment |= {
        "BOOKKEEPER_VERSIONS": selections[0].version,
        "PYTHONPATH": str(copy),  # goes before the editable installation, which is asked last
        "PYTHONDONTWRITEBYTECODE": "1",  # a defect may be planted and removed within the resolution of a time stamp
        FILE: str(witness),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-m", "interop", "-p", "no:cacheprovider"]
    command += ["-p", "tests.tools.interop_witness", f"--basetemp={copy.parent / 'run'}"]
    command += dict.fromkeys(test for selection in selections for test in selection.tests)
    command += ["-k", " or ".join(dict.fromkeys(f"({selection.expression})" for selection in selections))]
    with (copy.parent / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=copy, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(_RUN_MAX_S * len(selections))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # so that it ends its bookies
            try:
                process.wait(_FAREWELL_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    try:
        return noted(witness.read_text(encoding="utf-8"), copy)
    except DefectError as error:
        said = (copy.parent / "output").read_text(encoding="utf-8", errors="replace")
        raise DefectError(f"{error}; pytest said: {said[-2000:]}") from None


def noted(lines: str, copy: Path) -> list[Report]:
    """The reports in what the witness wrote; :class:`DefectError` if it saw other code than that of ``copy``."""
    values = [json.loads(line) for line in lines.splitlines()]
    imported = [path for value in values for path in value.get("imported", ())]
    strangers = [path for path in imported if not Path(path).is_relative_to(copy.resolve())]
    if strangers or not imported:
        raise DefectError(f"the tests imported {', '.join(strangers) or 'nothing'}, not the copy with the defect")
    return [Report(**value) for value in values if "imported" not in value]


def judge(reports: Sequence[Report], because: str) -> Verdict:
    """Who failed in the body of a test with an error that ``because``, a regular expression, is found in."""
    failed = [report for report in reports if report.outcome == "failed"]
    noticed = [each for each in failed if each.phase == "call" and re.search(because, each.reason)]
    if noticed:
        return Verdict(tuple(dict.fromkeys(report.test for report in noticed)), reason=noticed[0].reason)
    if failed:
        first = failed[0]
        return Verdict((), f"{first.test} failed in its {first.phase}, though not as expected: {first.reason[:600]}")
    if not any(report.phase == "call" for report in reports):
        return Verdict((), "no test was run to its end")
    return Verdict(())


# What comes of it ----------------------------------------------------------------------------------------------------


def fingerprint(defect: Defect) -> str:
    """Changes with everything that an outcome depends on, the tests and the code around the defect apart."""
    facts = (defect.path, defect.old, defect.new, defect.because, *defect.tests.tests, defect.tests.expression)
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def load(file: Path) -> dict[str, Outcome]:
    """What earlier runs saw, by the names of the defects."""
    if not file.is_file():
        return {}
    values: Mapping[str, tuple[str, Sequence[str], float]] = json.loads(file.read_text(encoding="utf-8"))
    return {name: Outcome(mark, tuple(tests), seconds) for name, (mark, tests, seconds) in values.items()}


def save(file: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Keep them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    values = {name: [each.fingerprint, list(each.noticed_by), each.seconds] for name, each in outcomes.items()}
    file.write_text(json.dumps(values, indent=0) + "\n", encoding="utf-8")


def short(test: str) -> str:
    """A test without its folder and parameters."""
    return test.partition("[")[0].removeprefix("tests/interop/").replace("::", ": ")


def render(defects: Iterable[Defect], outcomes: Mapping[str, Outcome]) -> str:
    """The tables of the page, in Markdown."""
    seen = [defect for defect in defects if not defect.unseen_because]
    unseen = [defect for defect in defects if defect.unseen_because]
    lines = ["| defect | planted in | noticed by, on |", "|---|---|---|"]
    for defect in seen:
        tests = ", ".join(
            f"`{each}`" for each in dict.fromkeys(short(test) for test in outcomes[defect.name].noticed_by)
        )
        lines.append(f"| {defect.name} | `{defect.path}` | {tests}, {defect.tests.version} |")
    lines += ["", "| defect that nobody notices | why |", "|---|---|"]
    lines += [f"| {defect.name} | {defect.unseen_because} |" for defect in unseen]
    return "\n".join(lines)


def write_page(defects: Sequence[Defect], outcomes: Mapping[str, Outcome], page: Path = PAGE) -> list[str]:
    """Write the table if every defect of it was seen as it is now; otherwise the names of those that were not."""
    missing = [
        defect.name
        for defect in defects
        if defect.name not in outcomes
        or outcomes[defect.name].fingerprint != fingerprint(defect)
        or bool(outcomes[defect.name].noticed_by) == bool(defect.unseen_because)
    ]
    if not missing:
        text = replaced(page.read_text(encoding="utf-8"), "defects", render(defects, outcomes), by=MADE_BY)
        page.write_text(text, encoding="utf-8")
    return missing


def without_a_defect(copy: Path, selections: Sequence[Selection]) -> dict[Selection, str]:
    """Why each of the selections cannot be used, empty if it passes: one run for each version, so that bookies start once."""
    troubles: dict[Selection, str] = {}
    for version in dict.fromkeys(selection.version for selection in selections):
        together = list(dict.fromkeys(each for each in selections if each.version == version))
        reports = run(copy, together)
        for selection in together:
            own = [report for report in reports if report.phase == "collection" or selection.chooses(report.test)]
            troubles[selection] = _trouble_in(own)
    return troubles


def _trouble_in(reports: Sequence[Report]) -> str:
    for report in reports:
        if report.outcome != "passed":
            return f"without a defect {report.test} {report.outcome} in its {report.phase}: {report.reason[:600]}"
    return "" if any(report.phase == "call" for report in reports) else "without a defect no test was run"


def examine(copy: Path, defect: Defect) -> Verdict:
    """What became of one defect."""
    with planted(copy, defect):
        verdict = judge(run(copy, [defect.tests]), defect.because)
    if verdict.noticed_by and defect.unseen_because:
        return Verdict(verdict.noticed_by, "the table says that nobody can notice it")
    return verdict


def main(wanted: Sequence[str], defects: Sequence[Defect] = DEFECTS, kept: Path = KEPT) -> int:
    """Examine the defects with one of ``wanted`` in their names, or all; 1 if any was not as the table says."""
    chosen = [each for each in defects if not wanted or any(word in each.name for word in wanted)]
    outcomes, failures = load(kept), 0
    with copied_tree() as copy:
        troubles = without_a_defect(copy, [defect.tests for defect in chosen])
        for defect in chosen:
            began = time.monotonic()
            trouble = troubles[defect.tests]
            verdict = Verdict((), trouble) if trouble else examine(copy, defect)
            seconds = time.monotonic() - began
            told = ", ".join(map(short, verdict.noticed_by))
            if not told:
                told = "NO PROOF" if verdict.trouble else "not noticed" if defect.unseen_because else "SURVIVED"
            is_as_it_should = not verdict.trouble and bool(verdict.noticed_by) != bool(defect.unseen_because)
            failures += not is_as_it_should
            outcomes.pop(defect.name, None)
            if is_as_it_should:
                outcomes[defect.name] = Outcome(fingerprint(defect), verdict.noticed_by, round(seconds, 1))
            save(kept, outcomes)
            why = " ".join((verdict.trouble or verdict.reason).split())[:300]
            sys.stdout.write(f"{seconds:5.0f} s  {defect.name}: {told}" + (f" ({why})\n" if why else "\n"))
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen)} defects, {failures} not as the table says\n")
    missing = write_page(defects, outcomes)
    if missing:
        sys.stdout.write(
            f"docs/reference/interop.md was left as it is: {len(missing)} defects have not been seen as they are now\n"
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
