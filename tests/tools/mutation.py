"""Mutation testing of the shells, the wire's connections and the transports, a part at a time.

A part is some modules and the tests that are about them. The configuration in ``pyproject.toml`` is that of ``make mutation``;
mutmut has room for one, so this program puts the parts in its place. Every run begins with an empty copy (``mutants/``), and
writes what survived to ``build/mutation/PART.txt``.

Run as ``make mutation-shells`` (all parts, hours) or ``make mutation-shells PART=recovery``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "build" / "mutation"


@dataclass(frozen=True)
class Part:
    """Modules, as patterns of paths, and the tests that are to notice."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


_TESTS: Final = "tests/bkclient"

PARTS: Final = {
    "recovery": Part(
        ("bkclient/recovery.py",),
        (
            f"{_TESTS}/test_recovery.py",
            f"{_TESTS}/test_recovery_outcomes.py",
            f"{_TESTS}/test_recovery_retry.py",
            f"{_TESTS}/test_handlers_that_raise.py",
            f"{_TESTS}/observability/test_client_stats.py",
            f"{_TESTS}/observability/test_log.py",
        ),
    ),
    "ledgers": Part(
        tuple(f"bkclient/{name}.py" for name in ("background", "core", "create", "defects", "open", "updates")),
        (
            f"{_TESTS}/test_background.py",
            f"{_TESTS}/test_client.py",
            f"{_TESTS}/test_client_tasks.py",
            f"{_TESTS}/test_create.py",
            f"{_TESTS}/test_handlers_that_raise.py",
            f"{_TESTS}/test_open.py",
            f"{_TESTS}/test_recovery.py",
            f"{_TESTS}/test_updates.py",
        ),
    ),
    "reading": Part(
        ("bkclient/reading/*.py",),
        (f"{_TESTS}/reading", f"{_TESTS}/test_handlers_that_raise.py", f"{_TESTS}/test_measured.py"),
    ),
    "writing": Part(
        ("bkclient/writing/*.py",),
        (
            f"{_TESTS}/writing",
            f"{_TESTS}/test_handlers_that_raise.py",
            f"{_TESTS}/observability/test_client_stats.py",
            f"{_TESTS}/observability/test_tracing.py",
        ),
    ),
    "wire": Part(
        tuple(f"bkclient/wire/{name}.py" for name in ("connection", "framing", "outstanding", "server_connection")),
        (f"{_TESTS}/wire",),
    ),
    "transport": Part(("bkclient/transport/*.py",), (f"{_TESTS}/transport",)),
}


_HANGS_AFTER_S: Final = 15
#: Tests over all codes repeat themselves for these, which no code of ours treats in a way of its own.
_ALIKE: Final = (
    *(
        "QUORUM",
        "NO_BOOKIE_AVAILABLE",
        "DIGEST_NOT_INITIALIZED",
        "LEDGER_RECOVERY",
        "INCORRECT_PARAMETER",
        "INTERRUPTED",
    ),
    *(
        "PROTOCOL_VERSION",
        "METADATA_DRIVER",
        "LEDGER_EXISTS",
        "DUPLICATE_ENTRY_ID",
        "UNCLOSED_FRAGMENT",
        "LEDGER_CLOSED",
    ),
    *(
        "LEDGER_ID_OVERFLOW",
        "METADATA_SERIALIZATION",
        "REPLICATION",
        "WRITE_ON_READ_ONLY",
        "TOO_MANY",
        "METADATA_STORE",
    ),
    *("NO_SUCH_LEDGER_ON", "DATA_UNKNOWN", "refused-SECURITY", "refused-BOOKIE", "UNEXPECTED_CONDITION", "NOT_ENOUGH"),
)
_ENOUGH: Final = f"not ({' or '.join(_ALIKE)})"


def try_mutants(part: Part, names: Sequence[str], children: int) -> dict[str, str]:
    """Make and try the mutants of a part, or those of ``names`` only; what became of each."""
    # mutmut is an extra of its own, and looks at the directory it is imported in.
    mutmut: Any = import_module("mutmut.__main__")
    configuration: Any = import_module("mutmut.configuration")
    data: Any = import_module("mutmut.mutation.data")
    stats: Any = import_module("mutmut.stats")

    usual = configuration.config()
    configuration._config = replace(
        usual,
        only_mutate=list(part.modules),
        # A mutant that waits for ever uses no CPU time, by which mutmut would notice it.
        pytest_add_cli_args=[*usual.pytest_add_cli_args, "-k", _ENOUGH, "--timeout", str(_HANGS_AFTER_S)],
        pytest_add_cli_args_test_selection=list(part.tests),
        also_copy=[*usual.also_copy, Path("docs")],  # some tests hold pages to the code
    )
    mutate_handlers()
    mutmut._run(list(names), children)
    outcomes: dict[str, str] = {}
    for path in mutmut.walk_mutatable_files():
        found = data.SourceFileMutationData(path=path)
        found.load()
        outcomes |= {name: stats.status_by_exit_code[code] for name, code in found.exit_code_by_key.items()}
    return outcomes


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


def report(name: str, outcomes: dict[str, str]) -> str:
    """A line of figures, and what survived."""
    counts = Counter(outcomes.values())
    tried = sum(count for outcome, count in counts.items() if outcome != "not checked")
    killed = counts["killed"] + counts["timeout"]
    lines = [f"{name}: {tried} mutants, {killed} killed ({100 * killed / max(1, tried):.1f} %): {dict(counts)}"]
    lines += [f"{outcome}: {mutant}" for mutant, outcome in outcomes.items() if outcome not in _NOTICED]
    return "\n".join(lines)


_NOTICED: Final = ("killed", "timeout", "not checked")


def main(arguments: Sequence[str]) -> int:
    """Try one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("names", nargs="*", help="mutants to try; all by default")
    parser.add_argument("--children", type=int, default=2, help="processes that try mutants")
    parser.add_argument("--tests", nargs="+", help="tests to notice, instead of those of the part")
    parser.add_argument("--keep", action="store_true", help="go on with the copy of the last run")
    chosen = parser.parse_args(arguments)
    if not chosen.keep:
        shutil.rmtree(ROOT / "mutants", ignore_errors=True)
    part = PARTS[chosen.part]
    if chosen.tests:
        part = replace(part, tests=tuple(chosen.tests))
    text = report(chosen.part, try_mutants(part, chosen.names, chosen.children))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{chosen.part}.txt").write_text(f"{text}\n")
    print(text)  # noqa: T201 - that is what it is for
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
