"""Sources as syntax trees."""

from __future__ import annotations

import ast
import gc

__all__ = ["parsed"]


def parsed(source: str) -> ast.Module:
    """The tree of a module. The garbage collector waits meanwhile: it would look at all nodes again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if was_enabled:
            gc.enable()
