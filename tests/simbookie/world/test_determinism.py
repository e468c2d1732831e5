from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from anyio._backends import _asyncio as backend

from simbookie.world import determinism
from simbookie.world.determinism import OrderedMembers, deterministic_anyio
from simbookie.world.errors import WorldError
from simbookie.world.loop import VirtualTimeLoop
from tests.simbookie.world.program import digest, run

ROOT = Path(__file__).parents[3]


def test_the_same_seed_gives_the_same_run_in_the_same_process() -> None:
    first = run(11)
    garbage = [object() for _ in range(1000)]
    assert run(11) == first
    assert len(first) > 150
    del garbage


@pytest.mark.parametrize(("hash_seed", "ballast"), [("1", "0"), ("4711", "3000")])
def test_the_same_seed_gives_the_same_run_in_any_process(hash_seed: str, ballast: str) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.simbookie.world.program", "11", ballast]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == digest(11)


def test_different_seeds_give_different_runs() -> None:
    assert len({digest(seed) for seed in range(8)}) == 8


def test_without_the_patch_cancellation_follows_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves that the program above can tell: one that never met an unordered set would prove nothing."""
    monkeypatch.setattr(determinism, "_ordered_init", determinism._original_init)
    runs = [run(11)]
    for count in range(20):
        garbage = [object() for _ in range(count * 7)]
        runs.append(run(11))
        if runs[-1] != runs[0]:
            return
        del garbage
    pytest.fail("the order of ordinary sets never mattered")


def test_scopes_are_cancelled_in_the_order_in_which_they_were_entered() -> None:
    log: list[int] = []

    async def child(number: int) -> None:
        with anyio.CancelScope():
            try:
                await anyio.sleep_forever()
            finally:
                log.append(number)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(child, number)
            await anyio.sleep(1)
            group.cancel_scope.cancel()

    loop = VirtualTimeLoop()
    loop.run_until_complete(main())
    loop.close()
    assert log == list(range(100))


def test_the_patch_lasts_exactly_as_long_as_somebody_needs_it() -> None:
    original = backend.CancelScope.__init__
    original_to_thread = backend.AsyncIOBackend.__dict__["run_sync_in_worker_thread"]
    with deterministic_anyio():
        with deterministic_anyio():
            assert backend.CancelScope.__init__ is not original
        assert backend.CancelScope.__init__ is not original
    assert backend.CancelScope.__init__ is original
    assert backend.AsyncIOBackend.__dict__["run_sync_in_worker_thread"] is original_to_thread


async def test_real_loops_work_on_under_the_patch() -> None:
    with deterministic_anyio():
        assert await anyio.to_thread.run_sync(lambda: 7) == 7
        with anyio.move_on_after(0.001):
            await asyncio.sleep(1)


def test_an_anyio_that_is_made_differently_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(scope: object, **_: object) -> None:
        scope._child_scopes = []  # type: ignore[attr-defined]

    monkeypatch.setattr(determinism, "_original_init", init)
    with pytest.raises(WorldError, match="this version of anyio keeps no set of child scopes"), deterministic_anyio():
        pytest.fail("not patched")


def test_ordered_members_are_a_set_in_order() -> None:
    members: OrderedMembers[str] = OrderedMembers()
    for name in ("c", "a", "b", "a"):
        members.add(name)
    members.discard("missing")
    members.remove("a")
    assert list(members) == ["c", "b"]
    assert "c" in members
    assert "a" not in members
    with pytest.raises(KeyError):
        members.remove("a")
