"""Runs BookKeeper's own tests against our bookies: ``make interop-java-tests``.

Each class runs in a Java process of its own, one at a time, with our class in the place of theirs that starts a bookie
(``src/main/java``). What fails is tried once more, as their own build does. Ends with 1 if a test that applies failed twice, if
one that is listed as failing passed, or if a class of their jar has no row in the table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from simbookie.java import find_java
from tests.interop.java_tests.defects import DEFECTS, VARIABLE
from tests.interop.java_tests.table import TABLE, JavaTests, Verb, classes_in, read_table

ROOT: Final = Path(__file__).resolve().parents[3]
BUILDS: Final = ROOT / "build" / "interop-java-tests"
_CLASS_TIMEOUT_S: Final = 1_800
_FAILED_IN_SETUP: Final = "(class)"


@dataclass(frozen=True, slots=True)
class JavaRun:
    """How tests are run: against which version, what Java logs, on which bookies."""

    version: str
    log_level: str = "WARN"
    #: On BookKeeper's own bookies, to compare.
    theirs: bool = False
    #: A defect of ours to plant.
    defect: str | None = None

    def folder(self, tests: JavaTests, *, again: bool = False) -> Path:
        """Where a run of a class leaves everything."""
        kind = "theirs" if self.theirs else "runs" if self.defect is None else "defects"
        return BUILDS / self.version / kind / (tests.name + ("-again" if again else ""))

    def class_path(self) -> str:
        """What comes first is used."""
        build = BUILDS / self.version
        ours, tests = build / "classes", build / "lib" / f"bookkeeper-server-{self.version}-tests.jar"
        logging = ROOT / "tests" / "interop" / "peer" / "resources"
        return os.pathsep.join(
            map(str, (logging, *((tests, ours) if self.theirs else (ours, tests)), build / "lib" / "*"))
        )


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a method; a method with parameters has several."""

    method: str
    name: str
    passed: bool
    skipped: bool
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A run, and whether it is as the table wants it."""

    ran: Ran
    is_right: bool
    verdict: str
    #: Kind of the reason for which the method does not apply.
    kind: str | None = None


def run_class(run: JavaRun, tests: JavaTests, only: Sequence[str] = (), *, again: bool = False) -> list[Ran]:
    """Run the methods of a class but those that the table skips, or ``only`` these."""
    folder = run.folder(tests, again=again)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    command = [
        str(find_java().executable),
        *("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"),
        *("-Dlog4j.configurationFile=log4j2-interop.xml", f"-Dinterop.log.level={run.log_level}"),
        *(
            f"-Djava.io.tmpdir={folder / 'tmp'}",
            f"-Dserved.python={sys.executable}",
            f"-Dserved.root={ROOT}",
            f"-Dserved.logs={folder / 'bookies'}",
        ),
        *("-cp", run.class_path(), "served.RunTests"),
        *(str(folder / "results.jsonl"), tests.class_name, "only" if only else "without"),
        *(only or tests.skipped()),
    ]
    environment = os.environ | ({VARIABLE: run.defect} if run.defect is not None else {})
    ending = ""
    with (folder / "output.log").open("wb") as output:
        try:
            status = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_CLASS_TIMEOUT_S,
                check=False,
            ).returncode
            ending = f"the process ended with {status}" if status else ""
        except subprocess.TimeoutExpired:
            ending = f"the class took more than {_CLASS_TIMEOUT_S} s"
    found = _read(folder)
    if ending or not found:
        found.append(Ran(_FAILED_IN_SETUP, "", False, False, 0.0, ending or "no test was found"))
    if all(each.passed for each in found):
        shutil.rmtree(folder / "tmp", ignore_errors=True)
    return found


def _read(folder: Path) -> list[Ran]:
    results = folder / "results.jsonl"
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return [_ran(json.loads(line)) for line in lines]


def _ran(line: dict[str, object]) -> Ran:
    outcome, seconds = line["outcome"], line["seconds"]
    assert isinstance(seconds, float)
    method = str(line["method"]) or _FAILED_IN_SETUP
    return Ran(method, str(line["name"]), outcome == "passed", outcome == "skipped", seconds, str(line["why"]))


def judge(tests: JavaTests, ran: Ran) -> Judged:
    """Whether a run is as the table wants it."""
    verb, reason = tests.exceptions.get(ran.method, (None, ""))
    kind = reason.partition(": ")[0] or None
    if ran.skipped:
        return Judged(ran, True, "skipped by theirs", kind)
    if verb is None:
        return Judged(ran, ran.passed, "passed" if ran.passed else "FAILED")
    if verb is Verb.FAILS and ran.passed:
        return Judged(ran, False, "PASSED, though listed as failing", kind)
    return Judged(ran, True, f"{'passed' if ran.passed else 'failed'}, as listed", kind)


def judged_class(run: JavaRun, tests: JavaTests) -> tuple[list[Judged], int]:
    """All runs of a class, and how many of them came right at the second attempt only."""
    shutil.rmtree(run.folder(tests, again=True), ignore_errors=True)
    first = [judge(tests, ran) for ran in run_class(run, tests)]
    again = sorted({each.ran.method for each in first if not each.is_right and each.ran.method != _FAILED_IN_SETUP})
    return _merged(tests, first, run_class(run, tests, again, again=True) if again else [])


def kept_class(run: JavaRun, tests: JavaTests) -> tuple[list[Judged], int]:
    """What came of the last run of a class, judged by the table of today."""
    first = [judge(tests, ran) for ran in _read(run.folder(tests))]
    return _merged(tests, first, _read(run.folder(tests, again=True)))


def _merged(tests: JavaTests, first: list[Judged], again: list[Ran]) -> tuple[list[Judged], int]:
    second = {(ran.method, ran.name): judge(tests, ran) for ran in again}
    final = [each if each.is_right else second.get((each.ran.method, each.ran.name), each) for each in first]
    return final, sum(not old.is_right and new.is_right for old, new in zip(first, final, strict=True))


def _tell(tests: JavaTests, judged: Sequence[Judged], again: int) -> None:
    counts = Counter(each.verdict for each in judged)
    seconds = sum(each.ran.seconds for each in judged)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    sys.stdout.write(
        f"{tests.name:50} {seconds:6.0f} s  {told}{f' ({again} at the second attempt)' if again else ''}\n"
    )
    for each in judged:
        if not each.is_right:
            why = each.ran.why.strip().replace("\n", "\n        ")[:1500]
            sys.stdout.write(f"    {each.ran.method} {each.ran.name}: {each.verdict}\n        {why}\n")
    sys.stdout.flush()


def hunt_defects(run: JavaRun, table: dict[str, JavaTests]) -> int:
    """Plant one defect after the other; how many of them no test noticed."""
    missed = 0
    for name, defect in DEFECTS.items():
        ran = run_class(replace(run, defect=name), table[defect.tests], defect.methods)
        failed = [each.method for each in ran if not each.passed and each.method != _FAILED_IN_SETUP]
        missed += not failed
        sys.stdout.write(f"{name:55} {f'{defect.tests}: {failed[0]}' if failed else 'NOT NOTICED'}\n")
        sys.stdout.flush()
    return missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the table, or part of it."""
    parser = argparse.ArgumentParser(prog="java_tests", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="*", help="parts of the names of the classes to run")
    parser.add_argument("--version", default="4.18.0", help="of BookKeeper; it must have been built")
    parser.add_argument("--log-level", default="WARN", help="of what Java logs")
    parser.add_argument("--kept", action="store_true", help="run nothing, and tell of the last run of each class")
    parser.add_argument("--theirs", action="store_true", help="on BookKeeper's own bookies, to compare")
    parser.add_argument("--defects", action="store_true", help="plant defects instead, and see that tests fail")
    options = parser.parse_args(arguments)
    run = JavaRun(options.version, options.log_level, options.theirs)
    table = read_table(TABLE.read_text(encoding="utf-8"))
    jar = BUILDS / options.version / "lib" / f"bookkeeper-server-{options.version}-tests.jar"
    if missing := sorted(set(classes_in(jar)) - set(table)):
        sys.stdout.write(f"these classes of {jar.name} have no row in {TABLE.name}: {', '.join(missing)}\n")
        return 1
    if options.defects:
        return min(1, hunt_defects(run, table))
    there = set(classes_in(jar, everywhere=True))
    chosen = [tests for tests in table.values() if not options.only or any(part in tests.name for part in options.only)]
    results: dict[str, list[Judged]] = {}
    wrong = attempts = 0
    for tests in chosen:
        if tests.reason is not None or tests.name not in there:
            continue
        if not options.kept:
            results[tests.name], again = judged_class(run, tests)
        elif run.folder(tests).exists():
            results[tests.name], again = kept_class(run, tests)
        else:
            continue
        attempts += again
        wrong += sum(not each.is_right for each in results[tests.name])
        _tell(tests, results[tests.name], again)
    sys.stdout.write(summary(chosen, results, attempts))
    return 1 if wrong else 0


def summary(chosen: Sequence[JavaTests], results: dict[str, list[Judged]], attempts: int) -> str:
    """The counts, as Markdown."""
    applying = [each for judged in results.values() for each in judged if each.kind is None and not each.ran.skipped]
    passed = sum(each.is_right for each in applying)
    told = f"{len(results)} classes ran. Of {len(applying)} tests that apply {passed} passed, {attempts} at the second attempt."
    lines = [
        "",
        told,
        "",
        "| why not | whole classes | methods |",
        "|---|---|---|",
    ]
    classes = Counter(tests.reason.partition(": ")[0] for tests in chosen if tests.reason is not None)
    methods = Counter(reason.partition(": ")[0] for tests in chosen for _, reason in tests.exceptions.values())
    lines += [f"| {kind} | {classes[kind]} | {methods[kind]} |" for kind in classes | methods]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
