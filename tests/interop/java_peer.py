"""The Java client as a partner in tests: our small program around Apache BookKeeper's own client.

One JVM serves many requests, side by side if a test wishes; see ``peer/src/main/java/peer``. A call returns the answer's
fields or raises :class:`JavaError` with BookKeeper's own code.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import json
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from tests.interop.builds import Build

__all__ = ["JavaError", "JavaPeer", "pattern", "sha256_of"]

_START_TIMEOUT_S: Final = 90
_CALL_TIMEOUT_S: Final = 90


class JavaError(Exception):
    """The Java client failed; ``code`` is BookKeeper's number, None for errors that are none of BookKeeper's."""

    def __init__(self, name: str, code: int | None, message: str) -> None:
        super().__init__(f"{name} ({code}): {message}")
        self.name = name
        self.code = code


def pattern(entry_id: int, size: int = -1) -> bytes:
    """The payload that both languages give an entry: of every size from nothing up."""
    length = entry_id % 7 * 13 if size < 0 else size
    return bytes((entry_id * 31 + k * 7) % 256 for k in range(length))


def sha256_of(payloads: list[bytes]) -> str:
    """The digest of many payloads, as the peer computes it."""
    return hashlib.sha256(b"".join(payloads)).hexdigest()


class JavaPeer:
    """A Java client with ``properties`` (client configuration keys of BookKeeper) in a process of its own."""

    def __init__(self, build: Build, log_path: Path, properties: dict[str, Any]) -> None:
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {0: Future()}
        self._lock = threading.Lock()
        self.log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                build.command("peer.Peer", json.dumps(properties)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._thread = threading.Thread(target=self._listen, name=f"answers of {log_path.stem}", daemon=True)
        self._thread.start()
        self._outcome(self._waiting[0].result(_START_TIMEOUT_S))

    async def __call__(self, do: str, ledger: int | None = None, **arguments: Any) -> dict[str, Any]:
        """Perform one operation; bytes among ``arguments`` travel as they are."""
        number = next(self._ids)
        request = {"id": number, "do": do, **({} if ledger is None else {"ledger": ledger}), **arguments}
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            self._waiting[number] = future
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request, default=_encoded).encode() + b"\n")
        self._process.stdin.flush()
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            return self._outcome(await asyncio.wrap_future(future))

    async def payloads(self, ledger: int, **arguments: Any) -> list[bytes]:
        """The payloads of a ledger that is open at the peer."""
        answer = await self("read", ledger, **arguments)
        return [base64.b64decode(payload) for payload in answer["payloads"]]

    def kill(self) -> None:
        """SIGKILL: nothing it holds is closed."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Let it close its client and end; kill it if it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
        self._thread.join()
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                future = self._waiting.pop(answer["id"])
            if not future.cancelled():
                future.set_result(answer)
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(JavaError("Gone", None, f"the process has ended; see {self.log_path.name}"))

    @staticmethod
    def _outcome(answer: dict[str, Any]) -> dict[str, Any]:
        if "error" in answer:
            raise JavaError(answer["error"], answer.get("code"), answer["message"])
        outcome: dict[str, Any] = answer["ok"]
        return outcome


def _encoded(value: object) -> object:
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()
