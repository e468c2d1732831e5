"""Runs of pytest with the plugin, in tests of it."""

from __future__ import annotations

import sys
import warnings
from typing import Final

import pytest

import scenarios.testing.entropy
import scenarios.testing.world

__all__ = ["ANYIO", "ASYNCIO", "run_pytest"]

# An inner run forgets what it imported, and would import all of this again.
_KEPT: Final = (scenarios.testing.entropy, scenarios.testing.world)

ANYIO: Final = "anyio.pytest_plugin"
ASYNCIO: Final = "pytest_asyncio.plugin"


def run_pytest(
    pytester: pytest.Pytester, source: str | None, *args: str, others: tuple[str, ...] = (ASYNCIO,)
) -> pytest.RunResult:
    """Run pytest in this process with the plugin and ``others``, and no further ones; over ``source`` if there is one."""
    if source is not None:
        pytester.makepyfile(test_app=source)
    plugins = [option for name in ("scenarios.testing.plugin", *others) for option in ("-p", name)]
    loop_scope = ("-o", "asyncio_default_fixture_loop_scope=function") if ASYNCIO in others else ()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        # A file that is as long as the one before it, and was written in the same second, would be taken for it.
        patch.setattr(sys, "dont_write_bytecode", True)
        warnings.simplefilter("default")  # those of the inner run are its own
        return pytester.runpytest_inprocess(*plugins, *loop_scope, *args)
