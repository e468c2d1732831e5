"""The Java client as a contender: Apache BookKeeper's own, in one warm process for a whole run, driven by ``java/Bench.java``.

Its jars are those that ``make interop`` fetches with Maven. The program is compiled by the Java that runs it, as it starts.
The JVM has its default collector and compilers and a heap of 1 GiB; BookKeeper's client has its defaults but for the rate
limit of requests, which is off.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.measuring import Values
from simbookie.java import JavaNotFoundError, find_java
from tests.interop.builds import Build, builds

__all__ = ["VERSION", "FastBuild", "JavaClient", "build_to_run", "values_of"]

#: Of BookKeeper.
VERSION: Final = "4.18.0"
_LOG_LINES_SHOWN: Final = 12
_PROGRAM: Final = Path(__file__).parent / "java" / "Bench.java"


class FastBuild(Build):
    """The jars of one version, run with the JVM's own defaults."""

    def command(self, main_class: str, *arguments: str, heap_mb: int = 256, log_level: str = "WARN") -> list[str]:
        """The command line that runs ``main_class``; ``heap_mb`` is for tests, which are many on a small machine."""
        del heap_mb
        return [
            str(find_java().executable),
            "-Xmx1g",
            "-XX:MaxDirectMemorySize=1g",
            "-Dlog4j.configurationFile=log4j2-interop.xml",
            f"-Dinterop.log.level={log_level}",
            "-cp",
            self.class_path,
            main_class,
            *arguments,
        ]


def build_to_run() -> tuple[FastBuild | None, str]:
    """The jars, or None and why there are none."""
    try:
        find_java()
        found = next(build for build in builds() if build.version == VERSION)
    except (JavaNotFoundError, RuntimeError, StopIteration) as error:
        reason = str(error) or f"no build of {VERSION}"
        return None, f"without Apache BookKeeper's client and bookies: {reason}"
    return FastBuild(found.version, found.directory), ""


class JavaClient:
    """The process, which runs ``program``. A call returns when its work is done."""

    def __init__(self, build: FastBuild, log_path: Path, program: Path = _PROGRAM) -> None:
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                build.command(str(program)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self._log_path = log_path

    def begin(self, do: str, **request: Any) -> None:
        """Have an operation begun; :meth:`finish` waits for its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
        self._process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        """What came of it; ``RuntimeError`` if it failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"error": "it has ended"}')
        if "error" in answer:
            lines = self._log_path.read_text(errors="replace").splitlines()
            # Of what it says of each entry in flight, nothing is the cause.
            said = [line for line in lines if "PendingAddOp" not in line][-_LOG_LINES_SHOWN:]
            raise RuntimeError("\n    ".join([f"the Java client: {answer['error']}. It logged last:", *said]))
        return answer

    def __call__(self, do: str, **request: Any) -> dict[str, Any]:
        """Have an operation performed."""
        self.begin(do, **request)
        return self.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def values_of(answer: dict[str, Any], entries: int = 0) -> Values:
    """Its answer in metrics; with ``entries``, what each took."""
    values: Values = {}
    if "wall_s" in answer:
        wall_s, cpu_s = answer["wall_s"], answer["cpu_s"]
        if entries:
            values |= {"throughput": entries / wall_s, "cpu": cpu_s / entries * 1e6}
        else:
            values |= {"time": wall_s * 1e3, "cpu-time": cpu_s * 1e3}
    if "p50_us" in answer:
        values |= {"p50": answer["p50_us"], "p99": answer["p99_us"], "p99.9": answer["p999_us"]}
    return values
