"""What a process of a run takes of its director, in whatever pieces it comes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgpack

from scenarios.history import Kind

#: After which it is stuck, on the busiest machine.
_SILENCE_S = 60
TASK = ["task", {"director": os.getpid(), "watched": {Kind.CLIENT_START: True}}]


class Listening:
    """The process, and what it tells."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self._unpacker = msgpack.Unpacker()

    def send(self, *messages: list[Any]) -> None:
        """Send messages that arrive in one piece."""
        self._in.write(b"".join(map(msgpack.packb, messages)))
        self._in.flush()

    def told(self) -> list[Any]:
        """The next message that it tells."""
        while True:
            for message in self._unpacker:
                found: list[Any] = message
                return found
            assert select.select([self._out], [], [], _SILENCE_S)[0], "it tells nothing more"
            data = os.read(self._out.fileno(), 65_536)
            assert data, "it has ended"
            self._unpacker.feed(data)


@contextmanager
def listening() -> Iterator[Listening]:
    command = [sys.executable, "-m", "tests.scenarios.processes.listening_child"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Listening(process)
        finally:
            process.kill()


def test_what_comes_with_the_task_is_taken_when_it_listens() -> None:
    with listening() as child:
        child.send(TASK, ["start"], ["more", 1])
        assert [child.told(), child.told()] == [["took", "start"], ["took", "more", 1]]


def test_what_comes_with_the_word_to_go_on_is_taken() -> None:
    with listening() as child:
        child.send(TASK, ["do", 1])
        assert child.told() == ["took", "do", 1]
        assert child.told()[:2] == ["event", 0]
        child.send(["before", 1], ["go-on"], ["after", 2])
        assert [child.told(), child.told()] == [["took", "before", 1], ["took", "after", 2]]


def test_words_to_go_on_that_come_together_end_as_many_waits() -> None:
    """A writer sends an entry to two bookies in one turn, each at an event that holds it up; the director is faster than it."""
    with listening() as child:
        child.send(TASK, ["do", 2])
        assert child.told() == ["took", "do", 2]
        assert [child.told()[:2], child.told()[:2]] == [["event", 0], ["event", 0]]
        child.send(["go-on"], ["between", 1], ["go-on"], ["after", 2])
        assert [child.told(), child.told()] == [["took", "between", 1], ["took", "after", 2]]
