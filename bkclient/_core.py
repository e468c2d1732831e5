"""Which core is in use: the one in Python, or the compiled one, which does the same in less time.

The functions that every entry passes through have twins in :mod:`bkclient._cython`, if that was built. A module that has such
functions names them by :func:`has_twins` when it is imported, and they are replaced where they are: so the functions in Python
are the definition, everything calls them by their names, and a test that replaces one replaces the twin as well. Twins keep no
state of their own, and leave to the definitions whatever is not ordinary.

The environment variable ``BKCLIENT_CORE`` chooses: ``python``, or ``cython``, which has to be there then. Without it the compiled
core is used where it was built.

A core that was built from older sources than those that are here is not used, because its twins may not do what the definitions
do. In a checkout the sources are compared; anywhere else it shows when a twin cannot be bound.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple

from bkclient._cython import sources_digest

__all__ = ["CORES", "VARIABLE", "core_in_use", "has_twins", "is_built", "using_core", "ways_of"]

VARIABLE: Final = "BKCLIENT_CORE"
CORES: Final = ("python", "cython")


class _Replaceable(NamedTuple):
    """A function that has a twin, by the class or module that holds it."""

    owner: Any
    name: str
    definition: Any
    twin: Any


_replaceable: list[_Replaceable] = []


def is_built() -> bool:
    """Whether the compiled core is there, and fits."""
    return _is_built


def core_in_use() -> str:
    """The name of the core in use: ``python`` or ``cython``."""
    return _core


core_in_use.__module__ = "bkclient"


def has_twins(module: str, owner: Any, *names: str, bind: str = "bind", knows: tuple[Any, ...] = ()) -> None:
    """The functions ``names`` of ``owner``, a class or a module, have twins in this module of the compiled core.

    ``bind`` is what hands them out; it is told ``owner`` and what it ``knows`` besides. If it cannot, the whole core is given up:
    see :func:`_give_up`.
    """
    if not _is_built:
        return
    try:
        twins: dict[str, Any] = getattr(import_module(f"bkclient._cython.{module}"), bind)(owner, *knows)
    except Exception as error:  # noqa: BLE001 - however an older one fails, it does not fit
        _give_up(f"{module}: {error}")
        return
    if tuple(twins) != names:
        _give_up(f"{module} has twins of {', '.join(twins)}, and not of {', '.join(names)}")
        return
    for name, twin in twins.items():
        found = _Replaceable(owner, name, getattr(owner, name), twin)
        _replaceable.append(found)
        if _core == "cython":
            setattr(owner, name, twin)


def ways_of(owner: Any, name: str) -> tuple[Any, ...]:
    """The functions that ``owner`` may have under ``name`` unless somebody put another one there: its own, and its twin."""
    for found in _replaceable:
        if found.owner is owner and found.name == name:
            return found.definition, found.twin
    return (getattr(owner, name),)


@contextmanager
def using_core(name: str) -> Iterator[None]:
    """Use a core for as long as the block lasts; for tests and measurements. Objects may live on from one to the other."""
    before = core_in_use()
    _use(name)
    try:
        yield
    finally:
        _use(before)


def _use(name: str) -> None:
    global _core  # noqa: PLW0603 - there is one in a process
    if name not in CORES or (name == "cython" and not _is_built):
        raise ImportError(f"the core {name} is not there; see docs/using/compiled-core.md")
    if name != _core:
        for found in _replaceable:
            setattr(found.owner, found.name, found.definition if name == "python" else found.twin)
        _core = name


def _found() -> bool:
    try:
        entries = import_module("bkclient._cython.entries")
    except ImportError:
        return False
    here = sources_digest()
    if here and here != getattr(entries, "BUILT_FROM", ""):
        _refuse("its sources have changed since it was built")
        return False
    return True


def _give_up(reason: str) -> None:
    """Part of the compiled core does not fit: use none of it from now on."""
    global _is_built  # noqa: PLW0603 - there is one in a process
    if _core == "cython":
        _use("python")
    _is_built = False
    _replaceable.clear()
    _refuse(reason)


def _refuse(reason: str) -> None:
    """Say that the compiled core is not used; raises ImportError if it has to be."""
    what = (
        f"the compiled core does not fit this bkclient ({reason}), so it is not used; build it again with 'make core' in a "
        f"checkout, or install bkclient again; see docs/using/compiled-core.md"
    )
    if os.environ.get(VARIABLE) == "cython":
        raise ImportError(f"{VARIABLE} is cython, but {what}")
    if os.environ.get(VARIABLE) != "python":
        warnings.warn(what, RuntimeWarning, stacklevel=3)


def _chosen(wanted: str | None) -> str:
    if wanted is None or not wanted:
        return "cython" if _is_built else "python"
    if wanted not in CORES:
        raise ImportError(f"{VARIABLE} must be one of {', '.join(CORES)}, got {wanted!r}")
    if wanted == "cython" and not _is_built:
        raise ImportError(f"{VARIABLE} is cython, but the compiled core was not built; see docs/using/compiled-core.md")
    return wanted


_is_built = _found()
_core: str = _chosen(os.environ.get(VARIABLE))
