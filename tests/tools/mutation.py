"""Mutation testing: changes the code in every small way that mutmut knows, and tells which changes no test notices.

It goes by parts: some modules, and the tests that are about them. A run begins with an empty copy (``mutants/``), makes the
mutants there, tries them in one pytest session (:mod:`tests.tools.mutation_session`), and writes what survived, as differences,
to ``build/mutation/PART.txt``, and which test killed each of the others to ``build/mutation/PART-killed.txt``.

Run as ``make mutation`` (all parts) or ``make mutation PART="wire transport"``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from tests.tools.mutation_session import PROFILE, MutantSession, Outcome

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "build" / "mutation"


@dataclass(frozen=True)
class Part:
    """Modules, as patterns of paths, and the tests that are to notice."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


_TESTS: Final = "tests/bkclient"

#: Beside the client and the tests: fixtures are simbookie's, worlds of machines are of the scenarios, and some tests hold pages
#: to the code.
ALSO_COPIED: Final = ("simbookie", "scenarios", "docs")

PARTS: Final = {
    "protocol": Part(
        ("bkclient/protocol/*.py",),
        (
            f"{_TESTS}/protocol",
            # searches are for what no single test says, and take hours here
            f"--ignore={_TESTS}/protocol/stateful",
            f"--ignore={_TESTS}/protocol/test_interleavings.py",
            f"--ignore={_TESTS}/protocol/test_interleavings_modes.py",
            f"--ignore={_TESTS}/protocol/test_recovery_repeats.py",
        ),
    ),
    "recovery": Part(
        ("bkclient/_client/recover.py",),
        (
            f"{_TESTS}/_client/test_recover.py",
            f"{_TESTS}/_client/test_recover_outcomes.py",
            f"{_TESTS}/_client/test_recover_retry.py",
            f"{_TESTS}/_client/test_handlers_that_raise.py",
            f"{_TESTS}/observability/test_client_stats.py",
            f"{_TESTS}/observability/test_log.py",
        ),
    ),
    "ledgers": Part(
        (
            *(f"bkclient/_client/{name}.py" for name in ("background", "core", "create", "defects", "open", "updates")),
            "bkclient/_fresh.py",
        ),
        (
            f"{_TESTS}/_client/test_background.py",
            f"{_TESTS}/_client/test_bad_arguments.py",
            f"{_TESTS}/_client/test_client.py",
            f"{_TESTS}/_client/test_client_tasks.py",
            f"{_TESTS}/_client/test_core.py",
            f"{_TESTS}/_client/test_create.py",
            f"{_TESTS}/_client/test_handlers_that_raise.py",
            f"{_TESTS}/_client/test_open.py",
            f"{_TESTS}/_client/test_recover.py",
            f"{_TESTS}/_client/test_updates.py",
        ),
    ),
    "reading": Part(
        ("bkclient/_client/exchange.py", "bkclient/_client/reading/*.py"),
        (
            f"{_TESTS}/_client/reading",
            f"{_TESTS}/_client/test_bad_arguments.py",
            f"{_TESTS}/_client/test_exchange.py",
            f"{_TESTS}/_client/test_handlers_that_raise.py",
            f"{_TESTS}/_client/test_handles.py",
            f"{_TESTS}/_client/test_measured.py",
        ),
    ),
    "writing": Part(
        ("bkclient/_client/writing/*.py",),
        (
            f"{_TESTS}/_client/writing",
            f"{_TESTS}/_client/test_bad_arguments.py",
            f"{_TESTS}/_client/test_client_window.py",
            f"{_TESTS}/_client/test_gaps_in_windows.py",
            f"{_TESTS}/_client/test_handlers_that_raise.py",
            f"{_TESTS}/_client/test_handles.py",
            f"{_TESTS}/_client/test_measured.py",
            f"{_TESTS}/observability/test_client_stats.py",
            f"{_TESTS}/observability/test_tracing.py",
            f"{_TESTS}/placement/test_client_placement.py",
        ),
    ),
    "wire": Part(
        tuple(
            f"bkclient/wire/{name}.py"
            for name in ("chunks", "connection", "framing", "outstanding", "server_connection")
        ),
        tuple(
            f"{_TESTS}/wire/test_{name}.py"
            for name in ("answers_and_requests", "connection", "framing", "server_connection")
        ),
    ),
    "transport": Part(("bkclient/transport/*.py",), (f"{_TESTS}/transport",)),
}


_FEW_CHILDREN: Final = 4
_KILLED_MIN_PERCENT: Final = 90
#: Tests over all codes repeat themselves for these, which no code of ours treats in a way of its own.
_ALIKE: Final = frozenset(
    {
        "DATA_UNKNOWN",
        "DIGEST_NOT_INITIALIZED",
        "DUPLICATE_ENTRY_ID",
        "INCORRECT_PARAMETER",
        "INTERRUPTED",
        "LEDGER_CLOSED",
        "LEDGER_EXISTS",
        "LEDGER_ID_OVERFLOW",
        "LEDGER_RECOVERY",
        "METADATA_DRIVER",
        "METADATA_SERIALIZATION",
        "METADATA_STORE",
        "NOT_ENOUGH_BOOKIES",
        "NO_BOOKIE_AVAILABLE",
        "NO_SUCH_LEDGER_ON_BOOKIE",
        "PROTOCOL_VERSION",
        "QUORUM",
        "REPLICATION",
        "TOO_MANY_REQUESTS",
        "UNCLOSED_FRAGMENT",
        "UNEXPECTED_CONDITION",
        "WRITE_ON_READ_ONLY_BOOKIE",
        "refused-BOOKIE_NOT_AVAILABLE",
        "refused-SECURITY",
    }
)


def make_mutants(part: Part) -> dict[str, str]:
    """Make a copy of this repository with the mutants of a part in ``mutants/``; by name, the function that each changes."""
    # mutmut is an extra of its own, and looks at the directory it is imported in.
    mutmut: Any = import_module("mutmut.__main__")
    configuration: Any = import_module("mutmut.configuration")
    data: Any = import_module("mutmut.mutation.data")

    usual = configuration.config()
    configuration._config = replace(
        usual,
        only_mutate=list(part.modules),
        track_dependencies=False,
        also_copy=[*usual.also_copy, *map(Path, ALSO_COPIED)],
    )
    mutate_handlers()
    mutmut.copy_src_dir()
    with redirect_stdout(None):
        mutmut.copy_also_copy_files()
    mutmut.setup_source_paths()
    mutmut.create_mutants(1)
    unused = [pattern for pattern in part.modules if not list(Path().glob(pattern))]
    if unused:
        raise SystemExit(f"no module is called {', '.join(unused)}")
    mutants: dict[str, str] = {}
    for path in mutmut.walk_mutatable_files():
        found = data.SourceFileMutationData(path=path)
        found.load()
        mutants |= {name: mutmut.mangled_name_from_mutant_name(name) for name in found.exit_code_by_key}
    return mutants


def mutate_handlers() -> None:
    """Have mutmut, which leaves decorated functions alone, change the handlers of the shells as well."""
    visitor: Any = import_module("mutmut.mutation.file_mutation").MutationVisitor
    skips = visitor._skip_node_and_children

    def skip(self: object, node: Any) -> bool:
        decorators: Sequence[Any] = getattr(node, "decorators", ())
        if len(decorators) == 1 and getattr(decorators[0].decorator, "value", "") == "ends_operation":
            return False
        return bool(skips(self, node))

    visitor._skip_node_and_children = skip


def try_mutants(part: Part, mutants: dict[str, str], children: int, tests_max: int | None) -> dict[str, Outcome]:
    """What becomes of ``mutants``, which :func:`make_mutants` has made."""
    session = MutantSession(mutants, children, skip=_ALIKE, tests_max=tests_max, progress=_say)
    arguments = [
        *("--rootdir=.", "--tb=no", "-q", "--capture=no", "-p", "no:cacheprovider", "-o", "timeout=0"),
        *(f"--hypothesis-profile={PROFILE}", *part.tests),
    ]
    with chdir(ROOT / "mutants"):
        pytest.main(arguments, plugins=[session])
    if len(session.outcomes) < len(mutants):
        raise SystemExit("the mutants were not tried; what pytest says above tells why")
    return session.outcomes


def killed_percent(outcomes: dict[str, Outcome]) -> float:
    """Of 100 mutants, how many were noticed."""
    return 100 * sum(outcome.what in _NOTICED for outcome in outcomes.values()) / max(1, len(outcomes))


def report(name: str, outcomes: dict[str, Outcome]) -> str:
    """A line of figures, then what survived."""
    counts = Counter(outcome.what for outcome in outcomes.values())
    killed, score = counts["killed"] + counts["timeout"], killed_percent(outcomes)
    lines = [f"{name}: {len(outcomes)} mutants, {killed} killed ({score:.1f} %): {dict(counts)}"]
    difference: Any = import_module("mutmut.mutation.diff_apply").get_diff_for_mutant
    for mutant, outcome in outcomes.items():
        if outcome.what not in _NOTICED:
            lines += [f"{outcome.what}: {mutant}", *difference(mutant).split("\n")[2:]]
    return "\n".join(lines)


_NOTICED: Final = ("killed", "timeout")


def main(arguments: Sequence[str]) -> int:
    """Try one part; 1 if less than nine in ten of its mutants were killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("names", nargs="*", help="patterns of mutants to try; all by default")
    parser.add_argument("--children", type=int, default=_FEW_CHILDREN, help="processes that try mutants")
    parser.add_argument("--survivors", action="store_true", help="try those again that the last run did not kill")
    parser.add_argument("--every", type=int, default=1, help="try one mutant of so many, for an estimate")
    parser.add_argument("--most", type=int, help="of the tests that reach a mutant, how many to try; for a first look")
    parser.add_argument("--tests", nargs="+", help="tests to notice, instead of those of the part")
    chosen = parser.parse_args(arguments)
    os.environ["BKCLIENT_CORE"] = "python"  # it is the definitions that are changed
    shutil.rmtree(ROOT / "mutants", ignore_errors=True)
    part = PARTS[chosen.part]
    if chosen.tests:
        part = replace(part, tests=tuple(chosen.tests))
    written = RESULTS / f"{chosen.part}.txt"
    mutants = make_mutants(part)
    if chosen.survivors:
        last = set(re.findall(r"^(?:survived|no tests): (\S+)$", written.read_text(), re.MULTILINE))
        mutants = {name: function for name, function in mutants.items() if name in last}
    if chosen.names:
        patterns: list[str] = chosen.names
        mutants = {
            name: function for name, function in mutants.items() if any(fnmatch(name, each) for each in patterns)
        }
    mutants = dict(islice(mutants.items(), 0, None, chosen.every))
    outcomes = try_mutants(part, mutants, chosen.children, chosen.most)
    text = report(chosen.part, outcomes)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{chosen.part}-killed.txt").write_text(
        "".join(f"{mutant} {outcome.by}\n" for mutant, outcome in outcomes.items() if outcome.by)
    )
    written.write_text(f"{text}\n")
    _say(text)
    return int(killed_percent(outcomes) < _KILLED_MIN_PERCENT)


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - that is what it is for


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
