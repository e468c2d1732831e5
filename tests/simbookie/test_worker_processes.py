"""Work in several processes: results, errors, and where an interrupt ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from simbookie.worker_processes import default_processes, in_order, worker_processes
from tests.test_readme import ENVIRONMENT


def square(number: int) -> int:
    return number * number


def divide(number: int) -> float:
    return 1 / number


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def tell_and_nap(seconds: float) -> None:
    sys.stdout.write("at work\n")
    sys.stdout.flush()
    time.sleep(seconds)


KILLED = """
from simbookie.worker_processes import worker_processes
from tests.simbookie.test_worker_processes import tell_and_nap
with worker_processes(2, tell_and_nap) as hand_out:
    list(hand_out([300.0] * 2))
"""


@pytest.fixture(autouse=True)
def handler_is_left_as_it_was() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("count", [1, 2])
def test_every_unit_comes_back_with_its_index(count: int) -> None:
    with worker_processes(count, square) as hand_out:
        assert sorted(hand_out(range(3, 20))) == [(index, (index + 3) ** 2) for index in range(17)]
        assert list(hand_out([])) == []


def test_there_is_a_processor_to_work_with() -> None:
    assert default_processes() >= 1


def test_results_are_put_in_order_as_soon_as_they_can_be() -> None:
    taken = []

    def done() -> Iterator[tuple[int, str]]:
        for index in (2, 0, 1, 3):
            taken.append(index)
            yield index, f"unit {index}"

    ordered = in_order(done())
    assert next(ordered) == "unit 0"
    assert taken == [2, 0]
    assert list(ordered) == ["unit 1", "unit 2", "unit 3"]


def test_units_are_taken_as_workers_need_them() -> None:
    taken = []

    def units() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    with worker_processes(2, square) as hand_out:
        done = hand_out(units())
        next(done)
        assert len(taken) <= 6


@pytest.mark.parametrize("count", [1, 2])
def test_what_the_work_raises_is_passed_on(count: int) -> None:
    with pytest.raises(ZeroDivisionError), worker_processes(count, divide) as hand_out:
        list(hand_out([1, 2, 0]))


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("count", [1, 2])
def test_an_interrupt_is_raised_between_two_results_and_not_where_it_came(count: int) -> None:
    seen = []

    def work() -> None:
        with worker_processes(count, square) as hand_out:
            for index, _ in hand_out(range(10**6)):
                if index == 0:
                    interrupt()
                    seen.append("still here")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["still here"]


def test_an_interrupt_is_looked_for_while_the_workers_take_their_time() -> None:
    with worker_processes(2, nap) as hand_out:
        list(hand_out([0.0, 0.0]))  # so that they stand
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            list(hand_out([2.0] * 4))


def test_an_interrupt_after_the_last_result_is_not_lost() -> None:
    def work() -> None:
        with worker_processes(2, square) as hand_out:
            list(hand_out([1]))
            interrupt()

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_second_interrupt_is_raised_at_once() -> None:
    seen = []

    def work() -> None:
        with worker_processes(2, square):
            interrupt()
            seen.append("first")
            interrupt()
            seen.append("second")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["first"]


def test_a_handler_of_the_programs_own_stays_in_charge() -> None:
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("theirs"))
    try:
        with worker_processes(2, square) as hand_out:
            list(hand_out([1]))
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["theirs"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            assert [parent.stdout.readline() for _ in range(2)] == ["at work\n"] * 2
        finally:
            parent.kill()
        parent.communicate(timeout=60)  # to the end of what all of them may write
