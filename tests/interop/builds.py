"""Where Maven put Apache BookKeeper's jars and our compiled peer, one folder per version."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from simbookie.java import find_java

__all__ = ["Build", "builds"]

_ROOT = Path(__file__).resolve().parents[2] / "build" / "interop"
_VERSIONS_VARIABLE = "BOOKKEEPER_VERSIONS"


@dataclass(frozen=True, slots=True)
class Build:
    """One version of Apache BookKeeper with everything it needs."""

    version: str
    directory: Path
    #: Whether the log is shut down side by side with the bookie, as Log4j does by default.
    log_ends_first: bool = False
    #: Where each process writes of every exception that is thrown in it, and by which method; ``%p`` stands for its number.
    exceptions_file: str | None = None

    @property
    def class_path(self) -> str:
        """Our configuration of the log, the peer, and every jar."""
        logging = Path(__file__).resolve().parent / "peer" / "resources"
        return os.pathsep.join((str(logging), str(self.directory / "classes"), str(self.directory / "lib" / "*")))

    @property
    def has_load_tool(self) -> bool:
        """Whether this version's load tool was published."""
        return any((self.directory / "lib").glob("bookkeeper-benchmark-*.jar"))

    @property
    def lists_large_ids(self) -> bool:
        """Whether its client lists ids above 2^31 beside smaller ones; that of 4.17 stops after the smaller ones."""
        return not self.version.startswith("4.17.")

    def command(self, main_class: str, *arguments: str, heap_mb: int = 256, log_level: str = "WARN") -> list[str]:
        """The command line that runs ``main_class``: small, quick to start, and easy on two cores."""
        return [
            str(find_java().executable),
            f"-Xmx{heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:MaxDirectMemorySize=192m",
            "-Dio.netty.eventLoopThreads=2",
            "-Dlog4j.configurationFile=log4j2-interop.xml",
            f"-Dlog4j.shutdownHookEnabled={str(self.log_ends_first).lower()}",
            f"-Dinterop.log.level={log_level}",
            *([f"-Xlog:exceptions=info:file={self.exceptions_file}::filecount=0"] if self.exceptions_file else []),
            "-cp",
            self.class_path,
            main_class,
            *arguments,
        ]


def builds() -> list[Build]:
    """The versions that were built, the oldest first, or those that the environment asks for.

    Raises :class:`RuntimeError` if there is none: a suite that finds no peer has proved nothing.
    """
    wanted = os.environ.get(_VERSIONS_VARIABLE, "").split()
    found = [Build(path.name, path) for path in sorted(_ROOT.glob("*")) if (path / "classes" / "peer").is_dir()]
    chosen = [build for build in found if not wanted or build.version in wanted]
    missing = sorted(set(wanted) - {build.version for build in chosen})
    if missing or not chosen:
        raise RuntimeError(
            f"no build of Apache BookKeeper {' '.join(missing)}under build/interop: 'make interop' fetches it with Maven from "
            f"Maven Central and runs these tests"
        )
    return chosen
