"""What the benchmarks share: contenders in turn, what each sample cost, and results.

A *contender* is a program that does the same work as others: our client on uvloop or asyncio, or with its compiled core, the
Java client, or a *ceiling*, a bare program that sends frames encoded beforehand and counts the answers. Contenders take turns,
round by round, because machines drift, and each round begins with the next of them; the first round is not counted. What is
told is the median of a contender's samples and the median of the rounds' ratios, above 1 meaning that ours is better. CPU time
is that of the contender's process alone, without the bookies.

Other programs slow all of them down, and not equally. So each sample notes the *foreign load*: which part of all processors
went to processes that do not belong to the benchmark.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final, Self, TypeVar

from rich.console import Console
from rich.table import Table

from benchmarks.processes import ForeignLoad
from bkclient._core import is_built, using_core

__all__ = [
    "LOOPS",
    "OURS",
    "Contender",
    "Meter",
    "Result",
    "Sample",
    "Values",
    "compared",
    "in_turn",
    "percentiles",
    "report",
    "run_on",
    "run_on_loop",
]

T = TypeVar("T")
Result = dict[str, Any]
Values = dict[str, float]
"""What a contender's work took, by metric."""
Contender = Callable[[], Values]

#: Unit of each metric. More is better of what is per second, less of everything else.
UNITS: Final = {
    "throughput": "entries/s",
    "cpu": "us/entry",
    "bookies-cpu": "us/entry",
    "messages": "messages/s",
    "message-cpu": "us/message",
    "bookie-cpu": "us/message",
    "broker-cpu": "us/message",
    "all-cpu": "us/message",
    "p50": "us",
    "p99": "us",
    "p99.9": "us",
    "longest": "ms",
    "time": "ms",
    "cpu-time": "ms",
    "memory": "B",
    "peak": "MiB",
    "growth": "MiB",
}


def uvloop_version() -> str | None:
    """None if it is not installed."""
    try:
        return metadata.version("uvloop")
    except metadata.PackageNotFoundError:
        return None


#: The event loops there are.
LOOPS: Final = ("uvloop", "asyncio") if uvloop_version() else ("asyncio",)


#: Our contenders: the core in Python on each of the loops, and the compiled core, where it was built, on the first of them.
OURS: Final = (*LOOPS, "compiled") if is_built() else LOOPS


def run_on(way: str, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end on a fresh event loop, as one of our contenders."""
    with using_core("cython" if way == "compiled" else "python"):
        return run_on_loop(LOOPS[0] if way == "compiled" else way, work)


def run_on_loop(loop: str, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end on a fresh event loop of this kind, with whichever core is in use."""
    if loop == "uvloop":
        import uvloop  # noqa: PLC0415 - an optional accelerator

        result: T = uvloop.run(work)
        return result
    return asyncio.run(work)


# Costs ---------------------------------------------------------------------------------------------------------------


class Meter:
    """Measures a block: wall-clock time, and the CPU time of this process."""

    def __enter__(self) -> Self:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s, self.cpu_s = time.perf_counter() - self._wall, time.process_time() - self._cpu

    def per_entry(self, entries: int) -> Values:
        """Throughput, and CPU time of an entry."""
        return {"throughput": entries / self.wall_s, "cpu": self.cpu_s / entries * 1e6}

    def whole(self) -> Values:
        """How long it took, and its CPU time."""
        return {"time": self.wall_s * 1e3, "cpu-time": self.cpu_s * 1e3}


def percentiles(seconds: Sequence[float]) -> Values:
    """Of what was taken one by one."""
    ordered = sorted(seconds)
    return {
        name: ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1e6
        for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    }


@dataclass(frozen=True, slots=True)
class Sample:
    """What one contender took in one round. ``foreign`` is a part of all processors, None where the system does not tell."""

    values: Values
    foreign: float | None


def in_turn(contenders: Mapping[str, Contender], rounds: int, uncounted: int = 1) -> dict[str, list[Sample]]:
    """Each of ``contenders`` once in each round, after rounds that are not counted.

    One that fails is told of on standard error and has another attempt; a second failure ends the run.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds + uncounted):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            load = ForeignLoad()
            with load:
                values = _attempted(name, contenders[name])
            if number >= uncounted:
                samples[name].append(Sample(values, load.part))
    return samples


def _attempted(name: str, contender: Contender) -> Values:
    try:
        return contender()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        print(f"{name} failed, and is tried once more: {type(error).__name__}: {error}", file=sys.stderr)
        return contender()


# Results -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Spread:
    values: list[float] = field(default_factory=list)

    def shown(self) -> list[float]:
        return [round(min(self.values), 3), round(max(self.values), 3)]


def compared(name: str, params: Mapping[str, Any], samples: dict[str, list[Sample]]) -> list[Result]:
    """Every metric of ours, beside that of each other contender.

    Names of our contenders begin with ``ours``; ceilings are compared with ours on the same loop. ``contender`` among the
    parameters says which of ours it is.
    """
    results = []
    for ours in (each for each in samples if each.startswith("ours")):
        ceiling = _ceiling_of(ours, samples)
        references = [each for each in samples if not each.startswith("ours") and _fits(each, ceiling)]
        for metric in samples[ours][0].values:
            shared = [each for each in references if metric in samples[each][0].values]
            results += [
                _result(name, metric, {**params, "contender": ours}, samples[ours], samples.get(reference), reference)
                for reference in shared or [""]
            ]
    return results


def _ceiling_of(contender: str, samples: Mapping[str, list[Sample]]) -> str:
    """With the compiled core on the same loop, if it has no ceiling of its own."""
    own = f"{contender.removeprefix('ours-')}-ceiling"
    return own if own in samples or contender != "ours-compiled" else f"{LOOPS[0]}-ceiling"


def _fits(reference: str, ceiling: str) -> bool:
    return not reference.endswith("-ceiling") or reference == ceiling


def _result(
    name: str,
    metric: str,
    params: dict[str, Any],
    ours: list[Sample],
    others: list[Sample] | None,
    reference: str,
) -> Result:
    values = [sample.values[metric] for sample in ours]
    result = {
        "name": name if metric == "throughput" else f"{name}-{metric}",
        "params": params,
        "value": _short(statistics.median(values)),
        "unit": UNITS[metric],
        "reference": reference or None,
        "reference_value": None,
        "ratio": None,
        "spread": [_short(min(values)), _short(max(values))],
        "foreign": _median_foreign(ours),
    }
    if others is not None:
        theirs = [sample.values[metric] for sample in others]
        more_is_better = UNITS[metric].endswith("/s")
        ratios = [a / b if more_is_better else b / a for a, b in zip(values, theirs, strict=True) if a and b]
        result |= {
            "reference_value": _short(statistics.median(theirs)),
            "ratio": round(statistics.median(ratios), 3) if ratios else None,
            "reference_spread": [_short(min(theirs)), _short(max(theirs))],
            "ratio_spread": _Spread(ratios).shown() if ratios else None,
            "reference_foreign": _median_foreign(others),
        }
    return result


def _median_foreign(samples: list[Sample]) -> float | None:
    known = [sample.foreign for sample in samples if sample.foreign is not None]
    return round(statistics.median(known), 3) if known else None


def _short(value: float) -> float:
    """Four figures are more than a benchmark knows."""
    if not value or not math.isfinite(value):
        return value
    return round(value, max(0, 3 - math.floor(math.log10(abs(value)))))


def machine(**more: str | None) -> dict[str, Any]:
    """Where a run was made; ``more`` is what else has a version."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "python": platform.python_version(),
        "uvloop": uvloop_version(),
        "cpus": os.cpu_count(),
        "system": platform.platform(terse=True),
        "commit": commit.stdout.strip() or None,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **more,
    }


def described(params: Mapping[str, Any]) -> str:
    """What a result was measured with, in short."""
    words = {
        "bookies": "{} bookies",
        "protocol": "v{}",
        "payload_bytes": "{} B",
        "tail": "{:,} entries",
        "contender": "{}",
    }
    words |= {"ledgers": "{:,} ledgers", "writers": "{:,} writers"}
    return ", ".join(words[key].format(value) for key, value in params.items() if key in words)


def report(results: list[Result], where: dict[str, Any], *, as_json: bool) -> None:
    """Print everything, as a table or as one JSON object."""
    if as_json:
        json.dump({"results": results, "machine": where}, sys.stdout)
        print()
        return
    table = Table("what", "with", "ours", "reference", "ratio (above 1 is better)", "foreign load")
    for each in results:
        reference = "" if each["reference"] is None else f"{each['reference']} {each['reference_value']:,}"
        spread = " ({} to {})".format(*each["ratio_spread"]) if each.get("ratio_spread") else ""
        foreign = [each["foreign"], each.get("reference_foreign")]
        table.add_row(
            each["name"],
            described(each["params"]),
            f"{each['value']:,} {each['unit']}",
            reference,
            "" if each["ratio"] is None else f"{each['ratio']:.2f}{spread}",
            ", ".join(f"{part:.0%}" for part in foreign if part is not None),
        )
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    print("; ".join(f"{key} {value}" for key, value in where.items() if value is not None))
