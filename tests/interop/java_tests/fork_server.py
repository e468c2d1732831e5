"""Starts processes of ``bk-sim bookie`` for a Java process that runs tests, by forking one that has imported everything.

A test of BookKeeper's starts some six bookies one after the other, and most of what a start costs is imports. Commands come as
lines of JSON on standard input, answers go as such to standard output:

| command | answers |
|---|---|
| ``{"start": [arguments], "told": path, "log": path}`` | ``{"started": pid}``; in the end ``{"ended": pid, "status": status}`` |
| ``{"signal": number, "pid": pid}`` | ``{"signalled": pid}``, when it has the signal or was gone before |

What a bookie tells goes to the file ``told``, and what it logs to ``log``. When standard input ends, this process kills its
bookies and ends; they end as well when it is killed, because it holds their standard input.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

from simbookie.admin import server as _admin_server  # noqa: F401  a bookie imports it when it starts
from simbookie.cli import app as cli
from simbookie.storage.db.rocks import require_rocksdb
from tests.interop.java_tests.defects import DEFECTS, VARIABLE


class ForkServer:
    """The processes that were started, and the ends of their standard inputs."""

    def __init__(self) -> None:
        self._inputs: dict[int, int] = {}
        self._line = b""

    def serve(self) -> None:
        """Carry out commands until there are no more."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    data = os.read(key.fd, 65_536)
                    if key.fd == woken:
                        self._bury()
                    elif not data:
                        self._kill()
                        return
                    else:
                        self._take(data)

    def _kill(self) -> None:
        """What a test left suspended cannot end by itself."""
        for pid in self._inputs:
            os.kill(pid, signal.SIGKILL)

    def _take(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if "start" in command:
                _answer(started=self._start(command))
            else:
                if command["pid"] in self._inputs:
                    os.kill(command["pid"], command["signal"])
                _answer(signalled=command["pid"])

    def _start(self, command: dict[str, Any]) -> int:
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(read_end, 0)
            os.dup2(os.open(command["told"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
            os.dup2(os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
            os.closerange(3, 1_024)
            _be_a_bookie(command["start"])
        os.close(read_end)
        self._inputs[pid] = write_end
        return pid

    def _bury(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                os.close(self._inputs.pop(ended[0]))
                _answer(ended=ended[0], status=os.waitstatus_to_exitcode(ended[1]))


def _answer(**fields: int) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


def _be_a_bookie(arguments: list[str]) -> NoReturn:
    """Never go back to what the parent was doing."""
    status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        random.seed()
        sys.argv = ["bk-sim", *arguments]
        cli.run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  there is nobody above to tell
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    require_rocksdb()
    if VARIABLE in os.environ:
        DEFECTS[os.environ[VARIABLE]].plant()
    ForkServer().serve()
