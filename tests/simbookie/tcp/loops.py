"""Tests on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

__all__ = ["both_loops", "run_on"]

both_loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def run_on(loop: str, story: Coroutine[Any, Any, None]) -> None:
    """Run ``story`` on the event loop of this name; skips the test if it is not installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if loop == "uvloop":
        try:
            import uvloop  # noqa: PLC0415  optional
        except ImportError:
            story.close()
            pytest.skip("uvloop is not installed")
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(story)
