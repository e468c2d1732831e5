"""Running ``bk`` inside the process of the tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from typer.testing import CliRunner

from bkclient.cli.app import app
from tests.bkclient.cli.cluster import ThreadedCluster

__all__ = ["Invoke", "Outcome", "invoke", "invoke_at"]


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode()

    @property
    def json(self) -> Any:
        """The one object on standard output; nothing else may be there."""
        return json.loads(self.stdout)

    @property
    def objects(self) -> list[Any]:
        """The objects on standard output, one a line."""
        return [json.loads(line) for line in self.stdout.splitlines()]


class Invoke(Protocol):
    def __call__(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Outcome: ...


def invoke(*arguments: str, stdin: bytes = b"", **environment: str) -> Outcome:
    """Run ``bk`` with nothing in its environment but ``environment``; raises what it should have turned into an exit code."""
    cleared: dict[str, str | None] = {"BK_METADATA_URI": None, "BK_LEDGER_PASSWORD": None}
    result = CliRunner().invoke(app, arguments, input=stdin, env=cleared | environment, prog_name="bk")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout_bytes, result.stderr)


def invoke_at(cluster: ThreadedCluster) -> Invoke:
    """:func:`invoke` with ``cluster`` in the environment."""

    def run(*arguments: str, stdin: bytes = b"", **environment: str) -> Outcome:
        return invoke(*arguments, stdin=stdin, **({"BK_METADATA_URI": cluster.uri} | environment))

    return run
